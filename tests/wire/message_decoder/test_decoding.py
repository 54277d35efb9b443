"""Decoding: what each line is, what is refused and why, and the answers that bad lines deserve."""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw, UnsetType

from fuzz.oracle import agrees, judge
from mcplumb.limits import MAX_DEPTH, MAX_FOREIGN
from mcplumb.wire.lines import LineTooLong
from mcplumb.wire.message_decoder import BadMessage, Batch, Expected, decode_line, too_long
from mcplumb.wire.messages import (
    Error,
    ErrorDetail,
    Message,
    Notification,
    Request,
    RequestId,
    Result,
    encode_batch,
    encode_line,
)
from mcplumb.wire.server_sent_events import EventTooLong
from tests.wire.strategies import messages, objects, requests, results

EXPECTED: tuple[Expected, ...] = (Request, Result)


def decode(line: bytes | str) -> Message | BadMessage:
    """What a line is, which may not depend on what was expected, and which the oracle has to confirm."""
    data = line.encode() if isinstance(line, str) else line
    message = decode_line(data)
    assert decode_line(data, expect=Result) == message
    assert decode_line(data, batches=True) == message
    assert agrees(message, judge(data)), (message, judge(data))
    return message


def bad(line: bytes | str) -> BadMessage:
    message = decode(line)
    assert isinstance(message, BadMessage)
    assert message.reason.endswith(".")
    return message


RAW = Raw(b'{"a":1}')


@pytest.mark.req("FRM-8")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}', Request(1, "m", RAW)),
        ('{"jsonrpc":"2.0","id":"1","method":"m","params":{"a":1}}', Request("1", "m", RAW)),
        ('{"jsonrpc":"2.0","id":1,"method":"m"}', Request(1, "m")),
        ('{"jsonrpc":"2.0","id":1,"method":""}', Request(1, "")),
        ('{"jsonrpc":"2.0","id":"","method":""}', Request("", "")),
        ('{"jsonrpc":"2.0","id":0,"method":"m"}', Request(0, "m")),
        ('{"jsonrpc":"2.0","id":-0,"method":"m"}', Request(0, "m")),
        ('{"jsonrpc":"2.0","id":9223372036854775807,"method":"m","params":{"a":1}}', Request(2**63 - 1, "m", RAW)),
        ('{"jsonrpc":"2.0","id":-9223372036854775808,"method":"m"}', Request(-(2**63), "m")),
        ('{"jsonrpc":"2.0","method":"m","params":{"a":1}}', Notification("m", RAW)),
        ('{"jsonrpc":"2.0","method":"m"}', Notification("m")),
        ('{"jsonrpc":"2.0","method":""}', Notification("")),
        ('{"jsonrpc":"2.0","id":1,"result":{"a":1}}', Result(1, RAW)),
        ('{"jsonrpc":"2.0","id":"a-long-id","result":{"a":1}}', Result("a-long-id", RAW)),
        ('{"jsonrpc":"2.0","id":123456789012,"result":{"a":1}}', Result(123456789012, RAW)),
        ('{"jsonrpc":"2.0","id":1,"result":null}', Result(1, Raw(b"null"))),
        ('{"jsonrpc":"2.0","id":1,"result":[1]}', Result(1, Raw(b"[1]"))),
        ('{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}', Error(1, ErrorDetail(-1, "no"))),
        (
            '{"jsonrpc":"2.0","id":"x","error":{"code":5,"message":"","data":{"a":1},"more":0}}',
            Error("x", ErrorDetail(5, "", RAW)),
        ),
        ('{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}', Error(UNSET, ErrorDetail(-1, "no"))),
        ('{"jsonrpc":"2.0","error":{"code":-1,"message":"no"}}', Error(UNSET, ErrorDetail(-1, "no"))),
        # Members in any order, with white space, escapes and unknown keys.
        ('{"method":"m","params":{"a":1},"jsonrpc":"2.0","id":7}', Request(7, "m", RAW)),
        ('{"result":{"a":1},"jsonrpc":"2.0","id":7}', Result(7, RAW)),
        ('{"jsonrpc": "2.0", "id": 7, "method": "m", "params": {"a":1}}', Request(7, "m", RAW)),
        ('{"jsonrpc": "2.0", "id": 7, "method": "m", "params": {"id":1}}', Request(7, "m", Raw(b'{"id":1}'))),
        (' {"jsonrpc" : "2.0" , "id" : 7 , "method" : "m" , "params" : {"a":1} } \t', Request(7, "m", RAW)),
        ('\n{\n"jsonrpc":\r"2.0",\n"id":7,\n"result": {"a":1}\n}\n', Result(7, RAW)),
        (r'{"jsonrpc":"2.0","\u0069d":7,"method":"\u006d","params":{"a":1}}', Request(7, "m", RAW)),
        (r'{"\u006asonrpc":"2\u002e0","method":"m"}', Notification("m")),
        ('{"jsonrpc":"2.0","id":7,"method":"m","extra":{"id":1,"method":2},"":0}', Request(7, "m")),
        (r'{"jsonrpc":"2.0","id":7,"method":"m","\"\\":"\"","x\\":1}', Request(7, "m")),
        ('{"jsonrpc":"2.0","id":7,"method":"m","":{}}', Request(7, "m")),
        ('{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":1},"":{}}', Request(7, "m", RAW)),
        ('{"jsonrpc":"2.0","id":7,"result":{"a":1},"params":[]}', Result(7, RAW)),
        ('{"jsonrpc":"2.0","id":"é","method":"ø","params":{"a":1}}', Request("é", "ø", RAW)),
        ('{"jsonrpc":"2.0","id":1,"result":"日本"}', Result(1, Raw('"日本"'.encode()))),
        # Whatever is twice inside a payload is the payload's own affair.
        (
            '{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1,"a":1}}',
            Request(1, "m", Raw(b'{"a":1,"a":1}')),
        ),
    ],
)
def test_messages_are_told_apart_by_their_keys(line: str, message: Message) -> None:
    assert decode(line) == message


@pytest.mark.req("FRM-4")
@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" ",
        b"hello",
        b"{",
        b'{"jsonrpc":"2.0","id":1,"method":"m"',
        b'{"jsonrpc":"2.0","id":1,"method":"m"}x',
        b'{"jsonrpc":"2.0","id":1,"method":"m"}{"jsonrpc":"2.0","id":2,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m",}',
        b"{'jsonrpc':'2.0','id':1,'method':'m'}",
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\xff"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\xed\xa0\x80"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\xc3"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","x\xff":1}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":-Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":01}}',
        b'{"jsonrpc":"2.0","id":01,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\x01"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"a\nb"}',
        rb'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\ud800"}}',
        rb'{"jsonrpc":"2.0","id":1,"method":"m","params":{"\udc00 and more text":1}}',
        rb'{"jsonrpc":"2.0","id":1,"method":"\ud800\ud800 and more text"}',
        rb'{"jsonrpc":"2.0","id":"\ud800","method":"m"}',
        b"[1",
    ],
)
def test_what_is_not_json_is_bad_without_an_id(line: bytes) -> None:
    message = bad(line)
    assert (message.code, message.id, message.is_response) == (-32700, UNSET, False)
    assert message.reply(idless_errors=False) is None
    assert message.reply(idless_errors=True) == Error(UNSET, ErrorDetail(-32700, message.reason))


@pytest.mark.req("FRM-4", "FRM-7")
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xed\xa0\x80"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xc3"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}',
        rb'{"jsonrpc":"2.0","id":1,"result":"\ud800"}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"',
    ],
)
def test_a_response_that_is_not_json_is_not_answered_and_its_call_can_be_failed(line: bytes) -> None:
    message = bad(line)
    assert (message.code, message.id, message.is_response) == (-32700, 1, True)
    assert message.reply(idless_errors=True) is None


def test_a_lone_surrogate_is_named() -> None:
    assert "surrogate" in bad(rb'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\ud800"}}').reason


@pytest.mark.req("FRM-4")
def test_bad_utf8_is_found_wherever_it_is_in_a_long_line() -> None:
    for at in (0, 65530, 65535, 65536, 100_000):
        good = b'{"jsonrpc":"2.0","id":1,"result":"' + b"x" * at + "😀".encode() * 20_000 + b'"}'
        assert isinstance(decode_line(good), Result)
        message = decode_line(good.replace(b"\x80", b"x", 1))
        assert isinstance(message, BadMessage)
        assert message.code == -32700


@pytest.mark.req("FRM-7", "FRM-8")
@pytest.mark.parametrize(
    ("line", "id_", "word"),
    [
        ('{"id":5,"method":"m"}', 5, "jsonrpc"),
        ('{"jsonrpc":"1.0","id":5,"method":"m"}', 5, "jsonrpc"),
        ('{"jsonrpc":2.0,"id":5,"method":"m"}', 5, "jsonrpc"),
        ('{"jsonrpc":null,"id":"5","method":"m"}', "5", "jsonrpc"),
        ('{"jsonrpc":"2.0","id":5}', 5, "exactly one"),
        ('{"jsonrpc":"2.0","id":5,"method":1}', 5, "method"),
        ('{"jsonrpc":"2.0","id":5,"method":null,"params":{}}', 5, "method"),
        ('{"jsonrpc":"2.0","id":5,"method":"m","params":[1]}', 5, "params"),
        ('{"jsonrpc":"2.0","id":5,"method":"m","params":[{}]}', 5, "params"),
        ('{"jsonrpc":"2.0","id":5,"method":"m","params":null}', 5, "params"),
        ('{"jsonrpc":"2.0","id":5,"method":"m","params":"{}"}', 5, "params"),
        ('{"jsonrpc":"2.0","id":5,"method":"m","params":[],"":{}}', 5, "params"),
        ('{"params":[],"jsonrpc":"2.0","id":5,"method":"m"}', 5, "params"),
        ('{"jsonrpc":"2.0","method":"m","params":[1]}', UNSET, "params"),
        ('{"jsonrpc":"2.0","id":null,"method":"m"}', UNSET, "null"),
        ('{"jsonrpc":"2.0","id":1.0,"method":"m"}', UNSET, "id"),
        ('{"jsonrpc":"2.0","id":1e2,"method":"m"}', UNSET, "id"),
        ('{"jsonrpc":"2.0","id":true,"method":"m"}', UNSET, "id"),
        ('{"jsonrpc":"2.0","id":[1],"method":"m"}', UNSET, "id"),
        ('{"jsonrpc":"2.0","id":{},"method":"m"}', UNSET, "id"),
        ('{"jsonrpc":"2.0","id":9223372036854775808,"method":"m"}', UNSET, "id"),
        ('{"jsonrpc":"2.0","id":-9223372036854775809,"method":"m"}', UNSET, "id"),
        ('{"jsonrpc":"2.0","id":' + "9" * 5000 + ',"method":"m"}', UNSET, "id"),
        ("1", UNSET, "object"),
        ('"text"', UNSET, "object"),
        ("null", UNSET, "object"),
        ("{}", UNSET, "jsonrpc"),
        ("[]", UNSET, "batches"),
        ('[{"jsonrpc":"2.0","id":5,"method":"m"}]', UNSET, "batches"),
    ],
)
def test_json_of_the_wrong_shape_is_answered_with_the_id_it_has(
    line: str, id_: RequestId | UnsetType, word: str
) -> None:
    message = decode_line(line.encode())
    assert isinstance(message, BadMessage)
    if not line.startswith("["):
        assert bad(line) == message
    assert word in message.reason
    assert (message.code, message.is_response) == (-32600, False)
    assert message.id == id_
    assert type(message.id) is type(id_)
    answer = Error(id_, ErrorDetail(-32600, message.reason))
    assert message.reply(idless_errors=True) == answer
    assert message.reply(idless_errors=False) == (None if id_ is UNSET else answer)


@pytest.mark.req("FRM-7")
@pytest.mark.parametrize(
    ("line", "id_"),
    [
        ('{"id":5,"result":{}}', 5),
        ('{"jsonrpc":"2.0","result":{}}', UNSET),
        ('{"jsonrpc":"2.0","id":null,"result":{}}', UNSET),
        ('{"jsonrpc":"2.0","id":1.5,"result":{}}', UNSET),
        ('{"jsonrpc":"2.0","id":5,"method":"m","result":{}}', 5),
        ('{"jsonrpc":"2.0","id":5,"method":"m","error":1}', 5),
        ('{"jsonrpc":"2.0","id":5,"result":{},"error":{"code":1,"message":""}}', 5),
        ('{"jsonrpc":"2.0","id":5,"error":null}', 5),
        ('{"jsonrpc":"2.0","id":5,"error":"no"}', 5),
        ('{"jsonrpc":"2.0","id":5,"error":{}}', 5),
        ('{"jsonrpc":"2.0","id":5,"error":{"code":1}}', 5),
        ('{"jsonrpc":"2.0","id":5,"error":{"code":1.5,"message":""}}', 5),
        ('{"jsonrpc":"2.0","id":5,"error":{"code":"1","message":""}}', 5),
        ('{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":null}}', 5),
        ('{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":1,"message":"x"}}', 5),
        ('{"jsonrpc":"2.0","error":{"code":1,"message":null}}', UNSET),
    ],
)
def test_what_looks_like_a_response_is_never_answered_but_names_its_call(line: str, id_: RequestId | UnsetType) -> None:
    message = bad(line)
    assert (message.code, message.id, message.is_response) == (-32600, id_, True)
    assert message.reply(idless_errors=True) is None
    assert message.reply(idless_errors=False) is None


MEMBERS = {
    "jsonrpc": ['"jsonrpc":"2.0"', '"jsonrpc":"1.0"', r'"json\u0072pc":"2.0"'],
    "id": ['"id":1', '"id":12', '"id":""', '"id":null', r'"\u0069d":1', '"id" : 1'],
    "method": ['"method":"m"', '"method":""', '"method":"\\"id\\""'],
    "params": ['"params":{}', '"params":[]', '"params":{"id":1}'],
    "result": ['"result":1', '"result":{"id":2}'],
    "error": ['"error":{"code":1,"message":"x"}', '"error":1'],
    "other": ['"":1', '"":{}', '"x":[{"id":1}]', '" id":"id"'],
}


@pytest.mark.req("FRM-4")
@pytest.mark.parametrize("key", ["jsonrpc", "id", "method", "params", "other"])
@pytest.mark.parametrize("order", ["same", "first", "last"])
def test_a_key_twice_in_the_envelope_is_refused(key: str, order: str) -> None:
    line = ['"jsonrpc":"2.0"', '"id":1', '"method":"m"', '"params":{}', '"":1']
    for first in MEMBERS[key]:
        for second in MEMBERS[key][:2]:
            if key == "other" and first[:3] != second[:3]:
                continue
            rest = [member for member in line if member != MEMBERS[key][0]]
            members = {
                "same": [first, second, *rest],
                "first": [first, *rest, second],
                "last": [*rest, first, second],
            }[order]
            message = bad("{" + ",".join(members) + "}")
            assert message.code == -32600
            if judge(("{" + ",".join(members) + "}").encode()).repeats:
                assert "twice" in message.reason


@pytest.mark.req("FRM-7")
def test_the_id_is_still_readable_when_another_key_is_there_twice() -> None:
    assert bad('{"jsonrpc":"2.0","id":5,"method":"a","method":"b"}').id == 5
    assert bad('{"jsonrpc":"2.0","id":5,"method":"a","params":{"id":6},"method":"b"}').id == 5
    assert bad('{"jsonrpc":"2.0","id":5,"id":6,"method":"a"}').id is UNSET
    assert bad('{"jsonrpc":"2.0","id":5,"id":5,"result":1}').is_response


@pytest.mark.req("FRM-4", "FRM-8")
@settings(max_examples=500)
@given(
    members=st.lists(st.sampled_from([text for texts in MEMBERS.values() for text in texts]), max_size=7),
    space=st.sampled_from(["", " ", "\n  "]),
)
def test_any_mix_of_members_is_judged_as_the_oracle_does(members: list[str], space: str) -> None:
    decode("{" + space + ("," + space).join(members) + space + "}")


@pytest.mark.req("FRM-4", "FRM-8")
@settings(max_examples=500)
@given(
    base=st.permutations(['"jsonrpc":"2.0"', '"id":7', '"method":"m"', '"params":{}']),
    more=st.lists(st.sampled_from([text for texts in MEMBERS.values() for text in texts]), max_size=2),
)
def test_a_message_with_something_more_is_judged_as_the_oracle_does(base: list[str], more: list[str]) -> None:
    decode("{" + ",".join([*base, *more]) + "}")
    decode("{" + ",".join([*more, *base[:3]]) + "}")


@pytest.mark.req("FRM-5")
def test_an_envelope_full_of_foreign_bytes_is_refused() -> None:
    room = MAX_FOREIGN - len(',"x":""')
    line = '{"jsonrpc":"2.0","id":1,"method":"m","x":"%s"}'
    assert decode(line % ("y" * room)) == Request(1, "m")
    message = decode_line((line % ("y" * (room + 1))).encode())
    assert isinstance(message, BadMessage)
    assert str(MAX_FOREIGN) in message.reason
    assert message.id == 1
    for unsure in ("\\n", '","y":{"id":2},"z":"'):
        other = decode_line((line % (unsure + "y" * room)).encode())
        assert isinstance(other, BadMessage)
        assert (other.reason, other.code, other.id) == (message.reason, -32600, UNSET)


@pytest.mark.req("FRM-4")
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_nesting_without_end_is_bad_and_no_crash(opening: bytes) -> None:
    deep = opening * 100_000
    for line in (
        deep,
        b'{"jsonrpc":"2.0","method":"m","params":' + deep,
        b'{"params":' + deep,
        deep + b"1" + b"]" * 100_000,
        b'{"jsonrpc":"2.0","extra":' + b"[" * 100_000 + b"]" * 100_000 + b',"id":1,"method":"m"}',
    ):
        for expect in EXPECTED:
            message = decode_line(line, batches=True, expect=expect)
            assert isinstance(message, BadMessage)
            assert (message.code, message.id) == (-32600, UNSET)
            assert message.reason == "The line is nested more than 500 deep."


@pytest.mark.req("FRM-4")
def test_the_depth_is_the_same_everywhere() -> None:
    def line(depth: int) -> bytes:
        return b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":%b}}' % (b"[" * depth + b"]" * depth)

    assert isinstance(decode_line(line(MAX_DEPTH - 2)), Request)
    too_deep = line(MAX_DEPTH - 1)
    assert bad(too_deep) == BadMessage("The line is nested more than 500 deep.", -32600, 1, head=too_deep[:200])


@pytest.mark.req("FRM-4")
def test_a_caller_whose_stack_is_nearly_full_gets_an_answer_too() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":' + b"[" * 100 + b"]" * 100 + b"}}"
    found = []

    def sink(depth: int) -> None:
        if depth:
            sink(depth - 1)
        else:
            found.append(decode_line(line))

    for depth in range(0, sys.getrecursionlimit(), 10):
        try:
            sink(depth)
        except RecursionError:
            break
    assert len(found) > 10
    assert all(isinstance(message, Request | BadMessage) for message in found)


@pytest.mark.req("FRM-4", "FRM-7")
def test_a_request_that_is_too_deep_is_answered_with_its_id() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    message = bad(f'{{"jsonrpc":"2.0","id":"a","method":"m","params":{{"x":{deep}}}}}')
    assert (message.code, message.id, message.is_response) == (-32600, "a", False)
    message = bad(f'{{"jsonrpc":"2.0","id":7,"error":{{"code":1,"message":"","data":{deep}}}}}')
    assert (message.code, message.id, message.is_response) == (-32600, 7, True)


@pytest.mark.req("FRM-4", "FRM-7")
@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"Hello, I am starting!", "'Hello, I am starting!'"),
        ("Grüße an alle".encode(), "'Grüße an alle'"),
        (b'"7"', "'\"7\"'"),
        (b"[]", "'[]'"),
        (b"[1]", "'[1]'"),
        (b'it\'s "so"', "'it\\'s \"so\"'"),
        (b"\x1b]0;gotcha\x07\x1b[2J\r\x00", r"'\x1b]0;gotcha\x07\x1b[2J\r\x00'"),
        ("\u202e\u009b".encode(), r"'\u202e\x9b'"),
        (b"\xff\xfe 7\x1b[2J", r"'\xff\xfe 7\x1b[2J'"),
        (b"x" * 300, "'" + "x" * 200 + "…'"),
        (b"x" + "ü".encode() * 300, "'x" + "ü" * 99 + "…'"),
        (b'{"params":' + b"[" * 1000, '\'{"params":' + "[" * 190 + "…'"),
    ],
)
def test_what_is_no_message_can_be_shown_and_is_not_sent_back(line: bytes, shown: str) -> None:
    message = decode_line(line)
    assert isinstance(message, BadMessage)
    assert message.head == line[:200]
    assert message.quoted == shown
    reply = message.reply(idless_errors=True)
    assert reply is None or message.head not in encode_line(reply)


def test_each_line_of_a_batch_is_shown_by_itself() -> None:
    batch = decode_line(b'[{"x":1}, 7]', batches=True)
    assert isinstance(batch, Batch)
    assert [item.quoted for item in batch.items if isinstance(item, BadMessage)] == ["'{\"x\":1}'", "'7'"]
    empty = decode_line(b"[ ]", batches=True)
    assert isinstance(empty, BadMessage)
    assert empty.quoted == "'[ ]'"
    many = decode_line(b"[1,2,3]", batches=True, max_batch=2)
    assert isinstance(many, BadMessage)
    assert many.quoted == "'[1,2,3]'"


@pytest.mark.req("FRM-5", "FRM-7")
@pytest.mark.parametrize(
    ("head", "id_", "is_response"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a', 1, False),
        (b'{"jsonrpc":"2.0","method":"m","id":"1","params":{"a', "1", False),
        (b' {"id" : -1 , "method":"a,b,c" , "jsonrpc":"2.0"', -1, False),
        (b'{"id":"\xc3\xa9","method":"m","params":{', "é", False),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a', 1, True),
        (b'{"jsonrpc":"2.0","id":1, "error" : {"a', 1, True),
        (b'{"result":{"a', UNSET, True),
        (b'{"method":"m","result":{"a', UNSET, True),
        (b'{"jsonrpc":"2.0","id":1,"method":"m', 1, False),
        (b'{"jsonrpc":"2.0","x":1,"id":1,"method":"m","params":{', 1, False),
        # It cannot be told what these are, and they might be responses.
        (b'{"jsonrpc":"2.0","id":1,"params":{"a":1,"method":"m","b":1', UNSET, True),
        (b'{"jsonrpc":"2.0","id":"' + b"x" * 1001, UNSET, True),
        (b"{", UNSET, True),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m","params":{', UNSET, False),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m","params":{', UNSET, False),
        (b'{"jsonrpc":"2.0","id":null,"method":"m","params":{', UNSET, False),
        (b'{"jsonrpc":"2.0","id":9223372036854775808,"method":"m","params":{', UNSET, False),
        (b'{"method":"' + b"," * 1000, UNSET, False),
        (b'{"method":"\xff","id":1,', 1, False),
        (b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"', UNSET, True),
        (b'{"jsonrpc":"2.0","id":1.5,"result":{"a', UNSET, True),
        (b'{"jsonrpc":"2.0","x":1,"id":1,"result":{', 1, True),
        (b'{"jsonrpc":"2.0","id":1,"id":1,"result":{', UNSET, True),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","result":{', UNSET, True),
        (b'[{"result":', UNSET, False),
        (b'x{"result":', UNSET, False),
        (b'[{"id":1,"method":"m","params":{', UNSET, False),
        (b'x{"id":1,"method":"m","params":{', UNSET, False),
        (b'"id":1,"method":"m","params":1', UNSET, False),
        (b"", UNSET, False),
    ],
)
def test_the_id_of_a_line_that_is_too_long_is_read_from_its_head(
    head: bytes, id_: RequestId | UnsetType, is_response: bool
) -> None:
    message = too_long(LineTooLong(5000, head))
    assert (message.code, message.id, message.is_response) == (-32600, id_, is_response)
    assert type(message.id) is type(id_)
    assert "5000" in message.reason
    event = too_long(EventTooLong(6000, head))
    assert (event.id, event.is_response) == (id_, is_response)
    assert "event" in event.reason
    assert "6000" in event.reason


@pytest.mark.req("FRM-10")
def test_a_batch_has_its_messages_good_and_bad() -> None:
    line = b' [{"jsonrpc":"2.0","id":1,"method":"m"}, {"id":2}, [], 5 ,{"jsonrpc":"2.0","method":"n"}] '
    batch = decode_line(line, batches=True)
    assert isinstance(batch, Batch)
    first, second, third, fourth, fifth = batch.items
    assert first == Request(1, "m")
    assert isinstance(second, BadMessage)
    assert second.id == 2
    assert isinstance(third, BadMessage)
    assert "inside a batch" in third.reason
    assert isinstance(fourth, BadMessage)
    assert fifth == Notification("n")


@pytest.mark.req("FRM-10")
def test_a_batch_that_is_empty_or_too_big_is_bad_as_a_whole() -> None:
    empty = decode_line(b"[]", batches=True)
    assert isinstance(empty, BadMessage)
    assert (empty.code, empty.id, empty.is_response) == (-32600, UNSET, False)
    assert "empty" in empty.reason
    line = encode_batch([Request(n, "m") for n in range(5)])
    assert isinstance(decode_line(line, batches=True, max_batch=5), Batch)
    big = decode_line(line, batches=True, max_batch=4)
    assert isinstance(big, BadMessage)
    assert "more than 4 messages" in big.reason
    assert isinstance(decode_line(line), BadMessage)
    assert isinstance(decode_line(b"[1,", batches=True), BadMessage)


@pytest.mark.req("FRM-10", "FRM-5")
def test_a_batch_of_a_million_is_refused_without_being_built() -> None:
    line = b"[" + b"0," * 1_000_000 + b"0]"
    decode_line(b"[0]", batches=True)
    tracemalloc.start()
    try:
        message = decode_line(line, batches=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(message, BadMessage)
    assert peak < 1_000_000


@pytest.mark.req("FRM-8")
@settings(max_examples=400)
@given(message=messages, data=st.data())
def test_decoding_is_the_inverse_of_encoding(message: Message, data: st.DataObject) -> None:
    line = encode_line(message)
    assert agrees(decode_line(line), judge(line))
    for expect in EXPECTED:
        back = decode_line(line, expect=expect)
        assert type(back) is type(message)
        assert not isinstance(back, BadMessage)
        assert encode_line(back) == line
    members = list(json.loads(line).items())
    shuffled = dict(data.draw(st.permutations(members)))
    for separators in ((",", ":"), (", ", ": "), (" ,\n", "\t:")):
        again = json.dumps(shuffled, separators=separators, ensure_ascii=data.draw(st.booleans()))
        back = decode_line(again.encode())
        assert not isinstance(back, BadMessage)
        assert json.loads(encode_line(back)) == json.loads(line)


@pytest.mark.req("FRM-10")
@settings(max_examples=50)
@given(items=st.lists(messages, min_size=1, max_size=5))
def test_a_batch_comes_back_as_it_was_sent(items: list[Message]) -> None:
    batch = decode_line(encode_batch(items), batches=True)
    assert isinstance(batch, Batch)
    back = [item for item in batch.items if not isinstance(item, BadMessage)]
    assert [encode_line(item) for item in back] == [encode_line(item) for item in items]


@given(request=requests, result=results, params=objects)
def test_payloads_stay_as_they_came(request: Request, result: Result, params: dict[str, Any]) -> None:
    back = decode_line(encode_line(Request(request.id, request.method, params)))
    assert isinstance(back, Request)
    assert isinstance(back.params, Raw)
    assert json.loads(bytes(back.params)) == params
    answer = decode_line(encode_line(result), expect=Result)
    assert isinstance(answer, Result)
    assert isinstance(answer.result, Raw)


@pytest.mark.req("FRM-4", "FRM-7")
@settings(max_examples=400)
@given(line=st.binary(max_size=60) | st.text(alphabet='{}[]",:\\ 019.eE-tfn jsonrpcid', max_size=60).map(str.encode))
def test_any_bytes_are_judged_and_no_answer_calls_for_another(line: bytes) -> None:
    for batches in (False, True):
        outcome = decode_line(line, batches=batches)
        for message in outcome.items if isinstance(outcome, Batch) else (outcome,):
            if isinstance(message, BadMessage):
                for idless_errors in (False, True):
                    reply = message.reply(idless_errors=idless_errors)
                    assert reply is None or isinstance(decode_line(encode_line(reply)), Error)
    assert agrees(decode_line(line), judge(line))
