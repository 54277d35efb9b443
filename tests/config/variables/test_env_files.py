"""Files with variables."""

from __future__ import annotations

import pytest

from mcplumb.config.files import ConfigError
from mcplumb.config.variables import parse_env_file


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("", {}),
        ("A=1\nB = two words \n", {"A": "1", "B": "two words"}),
        ("# no\n\n  export A=1\n", {"A": "1"}),
        ("A=1 # no\nB=a#b\nC=# no\nD=", {"A": "1", "B": "a#b", "C": "", "D": ""}),
        ('A=\'a # b\\n\' # no\nB="a # \\"b\\"\\n\\x"', {"A": "a # b\\n", "B": 'a # "b"\n\\x'}),
        ("A=x=y", {"A": "x=y"}),
        ("A=${B}", {"A": "${B}"}),
        ("A=1\r\nA=2\r\n", {"A": "2"}),
        ("\ufeffA=1", {"A": "1"}),
    ],
)
def test_what_is_in_a_file(text: str, variables: dict[str, str]) -> None:
    assert parse_env_file(text.encode(), "f") == variables


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"A=1\nsecret", "In f: line 2 is not NAME=value."),
        (b"=secret", "In f: line 1 is not NAME=value."),
        (b"A B=secret", "In f: line 1 is not NAME=value."),
        (b'A="secret', "In f: line 1 has a quote that is not closed."),
        (b'A="secret\\', "In f: line 1 has a quote that is not closed."),
        (b"A=\xff", "In f: it is not UTF-8 text (byte 2)."),
    ],
)
def test_a_line_that_is_wrong_is_named_and_not_shown(data: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_env_file(data, "f")
    assert str(caught.value) == said
