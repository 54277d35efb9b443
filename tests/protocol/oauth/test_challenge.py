from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.protocol.oauth.challenge import Challenge, bearer_challenge, format_challenge, parse_challenges

CASES = [
    ("", []),
    (" , ,", []),
    ("Bearer", [Challenge("bearer")]),
    ('Bearer realm="x"', [Challenge("bearer", {"realm": "x"})]),
    ("Bearer realm=x", [Challenge("bearer", {"realm": "x"})]),
    ('Bearer a="1",b = "2" , C=3', [Challenge("bearer", {"a": "1", "b": "2", "c": "3"})]),
    (r'Bearer a="say \"hi\" \\ there, ok"', [Challenge("bearer", {"a": 'say "hi" \\ there, ok'})]),
    ("Basic, Bearer a=b", [Challenge("basic"), Challenge("bearer", {"a": "b"})]),
    ("Negotiate abc==, Bearer a=b", [Challenge("negotiate"), Challenge("bearer", {"a": "b"})]),
    ("Basic realm=x, DPoP algs=ES256", [Challenge("basic", {"realm": "x"}), Challenge("dpop", {"algs": "ES256"})]),
    ("Bearer a=1, a=2", [Challenge("bearer", {"a": "1"})]),
    ("Bearer a=1 b=2", [Challenge("bearer", {"a": "1", "b": "2"})]),
    ('Bearer a="1"; b="2"', [Challenge("bearer", {"a": "1", "b": "2"})]),
    ('Basic a="1" Bearer b="2"', [Challenge("basic", {"a": "1"}), Challenge("bearer", {"b": "2"})]),
    (
        "Bearer a=https://x.example/y?z=1, b=files:read",
        [
            Challenge("bearer", {"a": "https://x.example/y?z=1", "b": "files:read"}),
        ],
    ),
    ('Bearer a="open', [Challenge("bearer")]),
    ("@", []),
    ("Bearer@", []),
]


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize(("header", "expected"), CASES)
def test_a_header_is_read(header: str, expected: list[Challenge]) -> None:
    assert parse_challenges(header) == expected


def test_the_number_of_challenges_is_bounded() -> None:
    assert len(parse_challenges(", ".join(["Bearer"] * 1000))) == 16


def test_the_first_challenge_for_a_token_counts() -> None:
    header = (
        'Basic realm="x", Bearer scope="a b a", resource_metadata="https://x/y", error="invalid_token", Bearer scope=c'
    )
    challenge = bearer_challenge(header)
    assert challenge is not None
    assert challenge.scopes == ("a", "b")
    assert challenge.resource_metadata == "https://x/y"
    assert challenge.error == "invalid_token"


@pytest.mark.req("AUT-1", "AUT-9")
@pytest.mark.parametrize(
    ("header", "error"),
    [
        ('Bearer realm="x", Bearer resource_metadata="https://x/y", error="invalid_token"', "invalid_token"),
        (
            'Bearer error="invalid_token", DPoP error="use_dpop_nonce", resource_metadata="https://x/y"',
            "use_dpop_nonce",
        ),
        (
            'DPoP algs="ES256", Basic error=no, Bearer error="invalid_token", resource_metadata="https://x/y"',
            "invalid_token",
        ),
    ],
)
def test_several_challenges_for_a_token_are_read_as_one(header: str, error: str) -> None:
    challenge = bearer_challenge(header)
    assert challenge is not None
    assert (challenge.error, challenge.resource_metadata) == (error, "https://x/y")


@pytest.mark.parametrize("header", [None, "", "Basic realm=x"])
def test_no_challenge_for_a_token(header: str | None) -> None:
    assert bearer_challenge(header) is None


@pytest.mark.req("AUT-6")
def test_what_cannot_be_a_scope_is_none() -> None:
    # Bytes of a header that are no UTF-8 arrive as lone surrogates.
    assert Challenge("bearer", {"scope": "read \udcff \x07 ä write read"}).scopes == ("read", "write")


def test_a_challenge_without_parameters() -> None:
    challenge = Challenge("bearer")
    assert (challenge.scopes, challenge.resource_metadata, challenge.error) == ((), None, None)
    assert format_challenge("Bearer", {}) == "Bearer"


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,10}", fullmatch=True), st.text(st.characters(codec="latin-1"))))
def test_what_is_written_is_read_again(parameters: dict[str, str]) -> None:
    text = format_challenge("Bearer", parameters)
    assert text.isprintable()
    expected = {name: "".join(c if c.isprintable() else " " for c in value) for name, value in parameters.items()}
    assert parse_challenges(text) == [Challenge("bearer", expected)]


@given(st.text())
def test_any_header_can_be_read_and_any_value_written(text: str) -> None:
    parse_challenges(text)
    format_challenge("Bearer", {"x": text}).encode("latin-1")
