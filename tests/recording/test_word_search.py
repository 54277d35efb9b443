from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.recording.word_search import search_for

#: With rare characters, also twice and at both ends; without any; special in patterns; and one within another.
WORDS = ["token", "sk-", "-pass", "key_", "kk", "@", "secret", "ASIA", "a.k+", "x[", "k", "ret"]


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_found_wherever_it_is(word: str) -> None:
    has_any = search_for([word])
    for text in (word, f"ab{word}", f"{word}ab", f"ab{word}cd", f"{word[:-1]}{word}", f"{word[0]}{word}{word[-1]}"):
        assert has_any(text)
    assert not has_any("")
    assert not has_any(word[:-1])
    assert not has_any(word[1:])


@given(
    words=st.lists(st.sampled_from(WORDS) | st.text("ak-_.", min_size=1, max_size=4), max_size=6),
    text=st.lists(st.sampled_from([*WORDS, "tok", "en", "s", "k-", "pass"]) | st.text("ak-_.", max_size=3)).map(
        "".join
    ),
)
def test_it_finds_what_searches_for_each_word_find(words: list[str], text: str) -> None:
    assert search_for(words)(text) == any(word in text for word in words)
