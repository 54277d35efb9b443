"""The trace: every message in one line, its secrets masked."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from mcplumb.cli.log_output import Tracer, masked
from mcplumb.recording.mask_secrets import MASK
from tests.cli.kit import LEGACY, here


def shown(value: Any) -> Any:
    return json.loads(masked(json.dumps(value).encode()))


@pytest.mark.parametrize(
    "name",
    [
        "password", "passwd", "dbPassword", "client_secret", "apiKey", "api_key", "API-KEY", "x-api-key", "token",
        "access_token", "accessToken", "refreshToken", "authToken", "id_token", "Authorization", "Cookie",
        "credentials", "private_key", "aws_access_key_id", "sessionToken",
    ],
)  # fmt: skip
def test_values_of_secret_names_are_masked(name: str) -> None:
    message = {"params": {"arguments": [{name: "hunter2"}], name: 5, "city": "Oslo"}}
    assert shown(message) == {"params": {"arguments": [{name: MASK}], name: MASK, "city": "Oslo"}}


@pytest.mark.parametrize(
    "name", ["progressToken", "progress_token", "nextToken", "tokens", "tokenizer", "monkey", "key"]
)
def test_other_values_are_not(name: str) -> None:
    assert shown({name: "fine"}) == {name: "fine"}


def test_what_has_a_secret_name_and_is_no_secret_is_looked_into() -> None:
    schema = {"properties": {"password": {"type": "string", "token": "x"}}}
    assert shown(schema) == {"properties": {"password": {"type": "string", "token": MASK}}}
    assert shown({"secret": None, "credentials": ["a", "b"]}) == {"secret": None, "credentials": [MASK]}


def test_secrets_are_masked_by_their_place_and_their_shape_as_in_recordings() -> None:
    text = json.dumps({"password": "hunter2"})
    key = "ghp_abcdefghijklmnopqrstuvwxyz0123"
    message = {"content": [{"text": text}, {"text": f"use {key}"}], "dsn": "postgres://me:hunter2@host/x"}
    assert shown(message) == {
        "content": [{"text": json.dumps({"password": MASK})}, {"text": f"use {MASK}"}],
        "dsn": f"postgres://{MASK}@host/x",
    }


def test_a_bearer_token_is_masked_wherever_it_stands() -> None:
    assert masked(b'["Bearer abc.def-123", "basic dXNlcjpwYXNz"]') == f'["Bearer {MASK}", "basic {MASK}"]'
    assert masked(b"Authorization: Bearer abcdefgh") == f"Authorization: Bearer {MASK}"
    assert masked(b'"a bearer of news"') == '"a bearer of news"'


def test_it_is_one_harmless_line() -> None:
    assert masked(b"no\x1b[2J message\n\t\xff") == "no\\x1b[2J message\\n\\t\\xff"
    long = masked(b'"' + b"x" * 9998 + b'"')
    assert long.endswith("x … (10000 bytes)")
    assert len(long) < 4100


def test_what_is_nested_too_deeply_to_be_read_is_shown() -> None:
    assert masked(b"[" * 100_000).startswith("[[[[")


def test_a_tracer_says_when_and_in_which_direction() -> None:
    lines: list[str] = []
    trace = Tracer(lines.append)
    trace("out", b'{"a":1}')
    trace("in", b'{"b":2}')
    assert re.fullmatch(r" +\d+\.\d{3} --> \{\"a\":1\}", lines[0])
    assert re.fullmatch(r" +\d+\.\d{3} <-- \{\"b\":2\}", lines[1])


@pytest.mark.parametrize("words", [["--trace", "ping"], ["ping", "--trace"]])
def test_a_command_is_traced_from_both_places(words: list[str]) -> None:
    done = here(*words, *LEGACY)
    assert done.code == 0
    arrows = [line.split()[1] for line in done.err.splitlines()]
    assert arrows == ["-->", "<--", "-->", "<--", "-->", "-->", "<--"]
    assert "server/discover" in done.err
    assert "notifications/initialized" in done.err
