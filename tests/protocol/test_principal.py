from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.errors import UsageError
from mcplumb.protocol.principal import Principal, identity_of, is_scope, scope_set

NAMES = st.none() | st.text(max_size=8)
SUBJECTS = st.text(min_size=1, max_size=8)


@pytest.mark.req("AUT-14")
@given(one=st.tuples(NAMES, SUBJECTS), other=st.tuples(NAMES, SUBJECTS))
def test_two_principals_have_one_identity_only_if_issuer_and_subject_are_the_same(one: Any, other: Any) -> None:
    identities = [Principal(subject, issuer=issuer).identity for issuer, subject in (one, other)]
    assert (identities[0] == identities[1]) == (one == other)


@pytest.mark.req("AUT-14")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", 'b","c'), ('a","b', "c")),
        ((None, "a"), ("null", "a")),
        (("", "ab"), ("a", "b")),
        (("a ", "b"), ("a", " b")),
    ],
)
def test_no_spelling_makes_two_principals_one(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert Principal(one[1], issuer=one[0]).identity != Principal(other[1], issuer=other[0]).identity


def test_what_a_token_says_besides_makes_no_other_principal() -> None:
    one = Principal("ann", scopes=frozenset(["a"]), claims={"x": []}, expires_at=1.0, issuer="https://a", client_id="c")
    other = Principal("ann", issuer="https://a")
    assert one.identity == other.identity == identity_of(one)
    assert hash(one) == hash(other)
    assert one != other
    assert identity_of(None) is None


def test_scopes_become_a_set() -> None:
    given: Any = ["a", "b", "a"]
    assert Principal("ann", scopes=given).scopes == {"a", "b"}


def test_claims_are_not_shown() -> None:
    shown = repr(Principal("ann", claims={"email": "ann@private.example"}, scopes=frozenset("ba")))
    assert shown == "Principal('ann', scopes=['a', 'b'], issuer=None)"


def test_somebody_must_be_named() -> None:
    with pytest.raises(UsageError, match="needs a subject"):
        Principal("")


@pytest.mark.parametrize("scope", ["a b", "", 'a"', "a\\", "ä", "a\n", 1, None])
def test_a_scope_is_a_word(scope: Any) -> None:
    assert not is_scope(scope)
    with pytest.raises(UsageError, match="A thing has the scope"):
        scope_set([scope], "A thing")


def test_a_text_is_not_a_list_of_scopes() -> None:
    with pytest.raises(UsageError, match="list of scopes"):
        scope_set("abc", "A thing")
    assert scope_set(["notes:write", "https://x/y.read"], "A thing") == {"notes:write", "https://x/y.read"}
