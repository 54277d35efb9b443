"""Writing messages: one line each, whatever the payload, and a sentence for what JSON cannot carry."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from msgspec import UNSET, Raw

from mcplumb.errors import EncodeError
from mcplumb.wire.messages import (
    Error,
    ErrorDetail,
    Message,
    Notification,
    Request,
    Result,
    encode_batch,
    encode_line,
)
from tests.wire.strategies import messages


@pytest.mark.req("FRM-1")
@pytest.mark.parametrize(
    ("message", "line"),
    [
        (Request(1, "ping"), b'{"jsonrpc":"2.0","id":1,"method":"ping"}'),
        (Request("1", "ping", {}), b'{"jsonrpc":"2.0","id":"1","method":"ping","params":{}}'),
        (Notification("hi", {"a": [1]}), b'{"jsonrpc":"2.0","method":"hi","params":{"a":[1]}}'),
        (Result(-5, {"b": None}), b'{"jsonrpc":"2.0","id":-5,"result":{"b":null}}'),
        (
            Error(1, ErrorDetail(-32603, "No.", {"why": "é"})),
            '{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"No.","data":{"why":"é"}}}'.encode(),
        ),
        (
            Error(UNSET, ErrorDetail(-32700, "What?")),
            b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"What?"}}',
        ),
    ],
)
def test_each_kind_is_one_compact_line(message: Message, line: bytes) -> None:
    assert encode_line(message) == line
    assert encode_batch([message]) == b"[" + line + b"]"


@pytest.mark.req("FRM-8")
def test_an_id_keeps_its_json_type() -> None:
    assert b'"id":1,' in encode_line(Result(1, {}))
    assert b'"id":"1",' in encode_line(Result("1", {}))


@pytest.mark.req("FRM-1", "FRM-9")
@pytest.mark.parametrize("space", [b"\n", b"\r\n", b"\r", b"\n\n  "])
def test_no_newline_is_inside_a_line_even_if_a_raw_payload_has_some(space: bytes) -> None:
    pretty = Raw(b"{" + space + b'"a":' + space + b'"\\n"' + space + b"}" + space)
    for line in (encode_line(Request(1, "m", pretty)), encode_batch([Result(1, pretty), Result(2, pretty)])):
        assert b"\n" not in line
        assert b"\r" not in line
    assert json.loads(encode_line(Request(1, "m", pretty)))["params"] == {"a": "\n"}


def test_line_breaks_in_texts_are_escaped() -> None:
    line = encode_line(Notification("m", {"text": "a\nb\r\nc"}))
    assert line == b'{"jsonrpc":"2.0","method":"m","params":{"text":"a\\nb\\r\\nc"}}'


def test_a_batch_has_its_messages_in_order() -> None:
    line = encode_batch([Result(1, {}), Notification("n"), Result("2", {})])
    assert [item.get("id") for item in json.loads(line)] == [1, None, "2"]


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(EncodeError, match="empty batch"):
        encode_batch([])


def test_numbers_that_json_does_not_have_are_written_as_null() -> None:
    line = encode_line(Notification("m", {"a": [float("nan"), float("inf"), float("-inf")]}))
    assert json.loads(line)["params"] == {"a": [None, None, None]}


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"a": "\ud800"}, "lone surrogate"),
        ({"\ud800": 1}, "lone surrogate"),
        ({"a": object()}, "type object is unsupported"),
        ({(1, 2): 3}, "Only dicts with str-like"),
        (endless(), "nested too deeply, or contains itself"),
        ({"a": 10**5000}, "Exceeds the limit"),
    ],
)
def test_what_json_cannot_carry_is_refused_with_a_sentence(payload: object, why: str) -> None:
    cases: list[tuple[Message, str]] = [
        (Request(1, "m", payload), "The request 'm' cannot"),
        (Notification("m", payload), "The notification 'm' cannot"),
        (Result("a", payload), "The result for the request 'a' cannot"),
        (Error(1, ErrorDetail(-1, "no", payload)), "The error -1 cannot"),
    ]
    for message, start in cases:
        for encode in (encode_line, lambda message: encode_batch([Result(1, {}), message])):
            with pytest.raises(EncodeError, match=why) as caught:
                encode(message)
            assert str(caught.value).startswith(start)
            assert str(caught.value).endswith(".")


@pytest.mark.req("FRM-1")
@settings(max_examples=200)
@given(message=messages)
def test_any_message_is_one_line_of_json(message: Message) -> None:
    line = encode_line(message)
    assert b"\n" not in line
    assert json.loads(line) == json.loads(msgspec.json.encode(message))
    assert json.loads(line)["jsonrpc"] == "2.0"


def test_a_message_that_memory_has_no_room_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(_: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr("mcplumb.wire.messages._encode", no_room)
    with pytest.raises(
        EncodeError, match="The result for the request 1 cannot be written as JSON: there is not enough"
    ):
        encode_line(Result(1, {}))
