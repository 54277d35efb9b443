"""The three things that are fuzzed, each with its seeds and the checks that must hold for any bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import UNSET

from fuzz.mutation import chunks
from fuzz.oracle import agrees, begins_like_a_response, judge
from fuzz.references import Events, Lines, plain_events, plain_lines
from mcplumb.errors import DecodeError
from mcplumb.types.payload_decoder import read
from mcplumb.wire.lines import HEAD_BYTES, End, LineSplitter, LineTooLong
from mcplumb.wire.message_decoder import BadMessage, Batch, decode_line, too_long
from mcplumb.wire.messages import PARSE_ERROR, Error, Message, Request, Result, encode_line
from mcplumb.wire.server_sent_events import Event, EventDecoder, EventTooLong, encode_event

__all__ = ["TARGETS", "Decode", "EventReader", "Splitter", "Target", "events", "lines", "messages"]

BOM = b"\xef\xbb\xbf"


class Target(NamedTuple):
    """``check`` says what came of an input, in a few words, and raises for what must not happen."""

    name: str
    seeds: Sequence[bytes]
    tokens: Sequence[bytes]
    check: Callable[[bytes, Random], str]
    #: Members of which whole objects are made.
    members: Sequence[bytes] = ()
    #: What a valid object has for its members, for each kind: the choices for its first, its second, and so on.
    shapes: Sequence[Sequence[Sequence[bytes]]] = ()


class Splitter(Protocol):
    """What the target ``lines`` needs of a splitter."""

    def feed(self, chunk: bytes) -> list[bytes | LineTooLong]: ...
    def end(self) -> End: ...


class EventReader(Protocol):
    """What the target ``events`` needs of a decoder."""

    @property
    def last_event_id(self) -> str: ...
    @property
    def retry(self) -> int | None: ...
    def feed(self, chunk: bytes) -> list[Event | EventTooLong]: ...
    def end(self) -> bool: ...


#: What the target ``messages`` needs of a decoder: the signature of `decode_line`.
Decode: TypeAlias = Callable[..., Any]


def lines(splitter: Callable[[int], Splitter] = LineSplitter) -> Target:
    """Any chunking gives the lines that the reference gives; none is blank, has a newline, or is over the cap."""

    def split(parts: Sequence[bytes], max_line: int) -> Lines:
        machine = splitter(max_line)
        found = [line for part in parts for line in machine.feed(part)]
        return Lines(found, machine.end())

    def check(data: bytes, rng: Random) -> str:
        max_line = rng.choice((1, 3, 8, 40, 1000, 2000))
        found, end = whole = split([data], max_line)
        assert whole == split(chunks(data, rng), max_line), "the chunking shows"
        for line in found:
            if isinstance(line, bytes):
                assert line.strip(), "a blank line"
                assert len(line) <= max_line, "a line over the cap"
                assert b"\n" not in line, "a newline inside a line"
            else:
                assert len(line.head) <= min(max_line, HEAD_BYTES), "a head over the cap"
        assert len(end.rest) <= max_line, "a rest over the cap"
        expected = plain_lines(data, max_line)
        assert whole == expected, f"the splitter gives {whole}, the reference {expected}"
        kinds = "+".join(sorted({type(line).__name__ for line in found})) or "nothing"
        return f"{kinds}, {'clean' if end.clean else 'torn'}"

    seeds = [b'{"jsonrpc":"2.0","id":1}\n', b"a\r\nb\r\n", BOM + b"x\n", b"\n\n \t\n", b"x" * 60 + b"\ny\n", b"torn"]
    tokens = [b"\n", b"\r\n", b"\r", BOM, BOM[:2], b" ", b"\x0b", b"x" * 9, b"\0"]
    return Target("lines", seeds, tokens, check)


def events(decoder: Callable[[int], EventReader] = EventDecoder) -> Target:
    """Any chunking gives the events that the reference gives; what was decoded and is written again is read again."""

    def read(parts: Sequence[bytes], max_event: int) -> Events:
        machine = decoder(max_event)
        found = [event for part in parts for event in machine.feed(part)]
        return Events(found, machine.last_event_id, machine.retry, machine.end())

    def check(data: bytes, rng: Random) -> str:
        max_event = rng.choice((1, 8, 30, 2000, 5000))
        whole = read([data], max_event)
        assert whole == read(chunks(data, rng), max_event), "the chunking shows"
        for event in whole.events:
            if isinstance(event, Event):
                assert len(event.data) <= max_event, "an event over the cap"
                again = encode_event(event.data, event=event.event, event_id=event.id, retry=event.retry)
                assert read([again], len(again))[0] == [event], "written and read again, it differs"
            else:
                assert len(event.head) <= min(max_event, HEAD_BYTES), "a head over the cap"
        expected = plain_events(data, max_event)
        assert whole == expected, f"the decoder gives {whole}, the reference {expected}"
        kinds = "+".join(sorted({type(event).__name__ for event in whole.events})) or "nothing"
        return f"{kinds}, {'clean' if whole.clean else 'torn'}"

    seeds = [
        b"data: a\n\n",
        b"event: message\nid: 5\nretry: 100\ndata: {}\n\n",
        b"data: a\r\ndata: b\r\n\r\n",
        b"data\rdata\r\r",
        BOM + b": hello\n\ndata: x\n\n",
        b"id\ndata: " + b"x" * 40 + b"\nid: 7\n\ndata: y\n\n",
    ]
    tokens = [
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b":",
        b" ",
        b"data:",
        b"data: ",
        b"id:",
        b"event:",
        b"retry:",
        b"9",
        BOM,
        b"\0",
    ]
    return Target("events", seeds, tokens, check)


def messages(decode: Decode = decode_line, skip: Callable[[LineTooLong], BadMessage] = too_long) -> Target:
    """The decoder says what the oracle says, and no answer to a bad line calls for another answer.

    What ``skip`` makes of the head of a line fits to what the whole line is.
    """

    def check_one(message: Message | BadMessage) -> str:
        if isinstance(message, BadMessage):
            assert message.reason.endswith("."), "a reason that is no sentence"
            assert len(message.reason) < 300, "a reason that is too long"
            for idless_errors in (False, True):
                reply = message.reply(idless_errors=idless_errors)
                if reply is not None:
                    assert not message.is_response, "an answer to a response"
                    assert isinstance(decode(encode_line(reply)), Error), "an answer that is no error"
            reason = "not JSON" if message.code == PARSE_ERROR else message.reason.rstrip(".")
            return f"bad: {reason}"
        again = decode(encode_line(message))
        assert type(again) is type(message), "written and read again, its type differs"
        assert encode_line(again) == encode_line(message), "written and read again, it differs"
        payload = message.error.data if isinstance(message, Error) else getattr(message, "params", UNSET)
        payload = message.result if isinstance(message, Result) else payload
        try:
            read(msgspec.Raw if payload is UNSET else object, payload)
        except DecodeError:
            return f"{type(message).__name__.lower()} with numbers out of range"
        return type(message).__name__.lower()

    def check_head(head: bytes, whole: Message | BadMessage) -> None:
        skipped = skip(LineTooLong(10, head))
        check_one(skipped)
        if isinstance(whole, Request) and skipped.id is not UNSET:
            assert encode_line(Request(skipped.id, "m")) == encode_line(Request(whole.id, "m")), "the id of no request"
            assert not skipped.is_response, "a request, skipped as a response"
        is_response = isinstance(whole, Result | Error) or (isinstance(whole, BadMessage) and whole.is_response)
        # A line with a method as well, and first, is no answer of anybody: to answer it starts no storm.
        if is_response and (isinstance(whole, Result | Error) or begins_like_a_response(head)):
            assert skipped.reply(idless_errors=False) is None, f"an answer with an id to a response: {skipped}"
            if skipped.reply(idless_errors=True) is not None:
                assert not begins_like_a_response(head), f"an answer to what shows to be a response: {skipped}"

    def check(data: bytes, rng: Random) -> str:
        outcome = decode(data)
        assert not isinstance(outcome, Batch), "a batch where there are none"
        assert decode(data, expect=Result) == outcome == decode(data, expect=Request), "it depends on what is expected"
        said = check_one(outcome)
        if not (isinstance(outcome, BadMessage) and outcome.reason.startswith(_ABOUT_RESOURCES)):
            assert agrees(outcome, judge(data)), f"the decoder says {outcome}, the oracle {judge(data)}"
        check_head(data[:HEAD_BYTES], outcome)
        if not isinstance(outcome, BadMessage):
            check_head(data[: rng.randint(0, min(len(data), HEAD_BYTES))], outcome)
        batch = decode(b"[" + data + b"]" if rng.random() < 0.5 else data, batches=True, max_batch=3)
        if isinstance(batch, Batch):
            assert 0 < len(batch.items) <= 3, "a batch over its limit"
            for item in batch.items:
                check_one(item)
        else:
            check_one(batch)
        return said

    return Target("messages", _MESSAGES, _JSON_TOKENS, check, _MEMBERS, _SHAPES)


#: What the oracle knows nothing about.
_ABOUT_RESOURCES = ("The line is nested ", "The envelope has more than")

_MESSAGES = [
    b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"x","arguments":{"id":5}}}',
    b'{"method":"tools/list","params":{"cursor":"a"},"jsonrpc":"2.0","id":3}',
    b'{"jsonrpc": "2.0", "id": "abc", "method": "m", "params": {"a": [1, 2.5e3, null, true]}}',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}',
    b'{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"hi"}]}}',
    b'{"result":{},"jsonrpc":"2.0","id":8}',
    b'{"jsonrpc":"2.0","id":9,"error":{"code":-32601,"message":"No.","data":{"a":1}}}',
    b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"What?"}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}',
    b'{"jsonrpc":"2.0","id":"\xc3\xa9","method":"\\u00e9","params":{"\xf0\x9f\x98\x80":"\\ud83d\\ude00"}}',
    b'{"jsonrpc":"2.0","id":9223372036854775807,"method":"m","x":{},"":1}',
    b'\n{\n  "jsonrpc": "2.0",\n  "id": 1,\n  "method": "m",\n  "params": {}\n}\n',
    b"[]",
    b'{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"}',
]
_MEMBERS = [
    *(b'"jsonrpc":"2.0"',) * 12,
    *(b'"jsonrpc":"1.0"', b'"jsonrpc":2', b'"json\\u0072pc":"2.0"'),
    *(b'"id":1', b'"id":2', b'"id":123456789', b'"id":"a"', b'"id":"a longer id"', b'"id":""') * 2,
    *(b'"id":null', b'"id":1.5', b'"id":[]', b'"id":true', b'"id":9223372036854775808', b'"\\u0069d":3', b'"id" : 4'),
    *(b'"method":"m"', b'"method":"tools/call"', b'"method":""', b'"method":"\\"id\\""') * 2,
    *(b'"method":1', b'"method":null', b'"m\\u0065thod":"x"', '"method":"é"'.encode()),
    *(b'"params":{}', b'"params":{"id":1,"method":"x"}', b'"params":{"a":[1,{"b":"}}"}]}') * 2,
    *(b'"params":[]', b'"params":[{}]', b'"params":null', b'"params":"{}"', '"params":{"é":"日本"}'.encode()),
    *(
        b'"result":{}',
        b'"result":1',
        b'"result":{"id":1}',
        b'"result":null',
        b'"result":"\xff"',
        b'"result":{"a":1e999}',
    ),
    *(b'"error":{"code":1,"message":"x"}', b'"error":{"code":1.5,"message":"x"}', b'"error":{}', b'"error":null'),
    *(b'"":1', b'"":{}', b'"x":{"id":1}', b'"\\"":"\\\\"', b'"x":"\\ud800"', b'"\xc3\xa9":0', b'" id":1'),
]
_VERSION = (b'"jsonrpc":"2.0"',)
_IDS = (b'"id":1', b'"id":2', b'"id":-30', b'"id":"a"', b'"id":""', b'"id":"\\u00e9"')
_METHODS = (b'"method":"m"', b'"method":""', b'"method":"tools/call"', '"method":"é"'.encode())
_PARAMS = (b'"params":{}', b'"params":{"id":1}', b'"params":{"a":[{"result":1}]}')
_RESULTS = (b'"result":{}', b'"result":1', b'"result":{"id":1,"method":"m"}')
_ERRORS = (b'"error":{"code":1,"message":""}', b'"error":{"code":-1,"message":"x","data":{"id":1}}')
_SHAPES = (
    (_VERSION, _IDS, _METHODS, _PARAMS),
    (_VERSION, _IDS, _METHODS),
    (_VERSION, _METHODS, _PARAMS),
    (_VERSION, _IDS, _RESULTS),
    (_VERSION, _IDS, _ERRORS),
)
_JSON_TOKENS = [
    *(b'"jsonrpc":"2.0",', b'"id":1,', b'"id":2', b'"id":null,', b'"method":"m",', b'"params":{},', b'"result":1,'),
    *(
        b'"error":{"code":1,"message":""},',
        b',"":{}',
        b',"x":[]',
        b'"\\u0069d":1,',
        b'"id"',
        b"id",
        b'"',
        b"\\",
        b'\\"',
    ),
    *(b"{", b"}", b"[", b"]", b",", b":", b"{}", b"}}", b"null", b"true", b"NaN", b"-Infinity", b"-0", b"1e5", b"1.0"),
    *(b"9223372036854775808", b"-9223372036854775809", b"1" * 40, b"1e999", b" ", b"\n", b"\t", b"\r", b"\0", b"\x0b"),
    *(b"\\ud800", b"\\udc00", b"\\ud83d\\ude00", b"\\u0000", b"\xff", b"\xc3", b"\xed\xa0\x80", BOM, b"\xc3\xa9"),
]

TARGETS: tuple[Callable[[], Target], ...] = (lines, messages, events)
