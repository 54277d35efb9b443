from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.errors import DecodeError, EncodeError
from mcplumb.protocol.http_headers import decode_field, encode_field, is_token


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("us-west1", "us-west1"),
        ("", ""),
        ("a  b", "a  b"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("a\tb", "=?base64?YQli?="),
        ("\x7f", "=?base64?fw==?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
        ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ("=?BASE64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?="),
    ],
)
def test_a_text_as_a_value(text: str, value: str) -> None:
    assert encode_field(text) == value
    assert decode_field(value) == text


@pytest.mark.req("HTP-2")
@given(st.text())
def test_every_text_survives(text: str) -> None:
    value = encode_field(text)
    assert value.isascii()
    assert value.isprintable()
    assert value == value.strip()
    assert decode_field(f" \t{value}\t ") == text


@pytest.mark.req("HTP-2")
def test_a_lone_surrogate_cannot_be_sent() -> None:
    with pytest.raises(EncodeError, match="lone surrogate"):
        encode_field("\ud800")


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize(
    "value",
    [
        "=?base64?SGVsbG8?=",
        "=?base64?SGVs!!!bG8=?=",
        "=?base64?SGVs bG8=?=",
        "=?base64?=?=",
        "=?base64?SGVsbG8=SGVs?=",
        "=?base64?é?=",
        "=?base64?/w==?=",
        "=?base64?=",
        "é",
        "a\nb",
        "a\x00b",
        "\x7f",
    ],
)
def test_values_that_say_nothing(value: str) -> None:
    with pytest.raises(DecodeError, match=r"^The value .*\.$"):
        decode_field(value)


@pytest.mark.parametrize(("value", "text"), [("a\tb", "a\tb"), ("\t a \t", "a"), ("=?base64??=", ""), (" ", "")])
def test_values_that_we_would_not_send(value: str, text: str) -> None:
    assert decode_field(value) == text


@given(st.text(alphabet=st.characters(max_codepoint=255)))
def test_a_value_is_a_text_or_refused(value: str) -> None:
    try:
        text = decode_field(value)
    except DecodeError:
        return
    assert decode_field(encode_field(text)) == text


@pytest.mark.parametrize("name", ["Region", "a", "X-1", "!#$%&'*+-.^_`|~09azAZ"])
def test_tokens(name: str) -> None:
    assert is_token(name)


@pytest.mark.parametrize("name", ["", " ", "a b", " a", "a:", "é", "a\r\n", "a(b)", 'a"', "\t", "a\x00", "²"])
def test_no_tokens(name: str) -> None:
    assert not is_token(name)
