from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from mcplumb.wire.message_decoder import BadMessage, as_torn, decode_line, end_of_string, identify
from mcplumb.wire.messages import Error, Request, RequestId, Result, encode_line
from tests.wire.strategies import messages


@pytest.mark.req("FRM-7", "FRM-8")
@pytest.mark.parametrize(
    ("head", "id_", "kind"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a', 1, "request"),
        (b'{"jsonrpc":"2.0","id":"1","method":"m"}', "1", "request"),
        (b' {\t"id" : 0 , "method" : "m"', 0, "request"),
        (b'{"id":"","method":', "", "request"),
        (b'{"x":true,"y":-1.5e+3,"z":"a\\"b","id":2,"method":"m",', 2, "request"),
        (b'{"method":"m","params":{"id":1},"id":2', UNSET, "request"),
        (b'{"id":1,"result":5', 1, "response"),
        (b'{"id":null,"error":{', UNSET, "response"),
        (b'{"id":1,"method":"m","error":{', UNSET, "response"),
        (b'{"id":1,"id":2,"result":{', UNSET, "response"),
        (b'{"id":1,"params":{},"result":{', 1, None),
        (b'{"id":18446744073709551616,"method":"m"', UNSET, "request"),
        (b'{"method":"m","id":1', UNSET, "request"),
        (b'{"id":1 2,"method":"m"', 1, None),
        (b'{"id" 1,"method":"m"', UNSET, None),
        (b'{id:1,"method":"m"', UNSET, None),
        (b'{"\xff":1,"method":"m"', UNSET, None),
        (b'{"id":1,"method', 1, None),
        (b'[{"method":"m"', UNSET, None),
        (b"", UNSET, None),
    ],
)
def test_what_a_head_tells(head: bytes, id_: RequestId | UnsetType, kind: str | None) -> None:
    found, told = identify(head)
    assert (found, told) == (id_, kind)
    assert type(found) is type(id_)


@pytest.mark.parametrize(
    ("data", "end"), [(b'""', 2), (b'"a"b', 3), (rb'"a\"b"', 6), (rb'"a\\"b"', 5), (rb'"\\\""', 6)]
)
def test_where_a_text_ends(data: bytes, end: int) -> None:
    assert end_of_string(data, 0) == end


@pytest.mark.req("FRM-7")
@given(messages, st.integers(0, 200))
def test_no_head_of_a_message_tells_anything_wrong(message: Request | Result | Error, cut: int) -> None:
    id_, kind = identify(encode_line(message)[:cut])
    if kind is not None:
        assert kind == ("response" if isinstance(message, Result | Error) else "request")
    if id_ is not UNSET:
        assert id_ == message.id


@given(st.binary(max_size=60), st.sampled_from([b"", b"{", b'{"id":1,', b'{"method":"m",']))
def test_any_bytes_will_do(data: bytes, start: bytes) -> None:
    identify(start + data)
    assert isinstance(decode_line(b"x" + start + data), BadMessage)


def test_only_what_is_not_json_can_be_a_torn_end() -> None:
    part = decode_line(b'{"jsonrpc":"2.0","id":1,"res')
    whole = decode_line(b'{"jsonrpc":"2.0","id":[]}')
    assert isinstance(part, BadMessage)
    assert isinstance(whole, BadMessage)
    assert as_torn(part).is_torn
    assert as_torn(whole) is whole
