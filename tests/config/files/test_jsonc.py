"""JSON with comments and trailing commas."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.config.files import ConfigError, decode_json, decode_strict_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('\ufeff{"a": 1}', {"a": 1}),
        ('{"a": 1,}', {"a": 1}),
        ('{"a": [1, 2, ], }', {"a": [1, 2]}),
        ('// one\n{"a": 1} // two', {"a": 1}),
        ('{"a": /* one\ntwo */ 1}', {"a": 1}),
        ('{"a": [1, // one\n /* two */ ]}', {"a": [1]}),
        ('{"a": "http://x, ]", "b": "/* no */",}', {"a": "http://x, ]", "b": "/* no */"}),
        ('{"a": "say \\"// no\\"",}', {"a": 'say "// no"'}),
        ('{"a": "\\\\",} // "', {"a": "\\"}),
    ],
)
def test_what_editors_allow_is_read(text: str, value: object) -> None:
    assert decode_json(text.encode(), "f") == value


@given(JSON)
def test_comments_and_commas_change_nothing(value: object) -> None:
    plain = msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
    commented = plain.replace("\n", ' // "x ,]\n /* , }" */ ')
    assert decode_json(plain.encode(), "f") == value
    assert decode_json(f"/**/[{commented}, /* ] */ ] //".encode(), "f") == [value]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "In f: the file is empty: write at least {}."),
        (b" \n", "In f: the file is empty: write at least {}."),
        (b"\xff", "In f: it is not UTF-8 text (byte 0)."),
        (b'{"a": ', "In f: it is not valid JSON: expecting value in line 1, column 7."),
        (b'{"a": "', "In f: it is not valid JSON: unterminated string in line 1, column 7."),
        ('{\n  "ä": nil\n}'.encode(), "In f: it is not valid JSON: expecting value in line 2, column 8."),
        (b'{"a": 1} x', "In f: it is not valid JSON: extra data in line 1, column 10."),
        (b'{"a": NaN}', "In f: it is not valid JSON: invalid character (byte 6)."),
        (b"[" * 100_000, "In f: its values are nested too deeply."),
        (b"[" * 100_000 + b"//", "In f: its values are nested too deeply."),
        (b"[" + b"1" * 5000 + b"]", "In f: it is not valid JSON: integer value out of range - at `$[0]`."),
        (b"[" + b"1" * 5000 + b", ?]", "In f: it is not valid JSON: integer value out of range - at `$[0]`."),
        # To look for the end of each string that begins in here would take days.
        (b"[x" + b'\\"' * 500_000, "In f: it is not valid JSON: expecting value in line 1, column 2."),
        (b"[x" + b'"\\' * 500_000, "In f: it is not valid JSON: expecting value in line 1, column 2."),
        (b"[x" + b"/*" * 500_000, "In f: it is not valid JSON: expecting value in line 1, column 2."),
        (b"[x" + b", " * 500_000, "In f: it is not valid JSON: expecting value in line 1, column 2."),
    ],
)
def test_mistakes_are_told_with_their_place(data: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        decode_json(data, "f")
    assert str(caught.value) == said
    with pytest.raises(ConfigError) as caught:
        decode_strict_json(data, "f")
    assert str(caught.value) == said


def test_a_comment_without_an_end_takes_all() -> None:
    with pytest.raises(ConfigError, match="expecting value in line 1, column 11"):
        decode_json(b"/* endless", "f")


def test_depth_behind_a_comment_is_told() -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        decode_json(b"//\n" + b"[" * 100_000, "f")


@pytest.mark.parametrize("text", ['{"a": 1} //', '{"a": 1,}'])
def test_what_would_be_lost_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="it has comments or trailing commas, which would be lost"):
        decode_strict_json(text.encode(), "f")
    assert decode_strict_json(b'{"a": 1}', "f") == {"a": 1}
