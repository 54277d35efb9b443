from __future__ import annotations

import pytest
from aiohttp import RequestInfo
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from mcplumb.transports.http_client.masking import masked, masked_message
from mcplumb.wire.message_decoder import BadMessage, Batch, decode_line
from mcplumb.wire.messages import Notification

ADDRESS = URL("http://x/mcp?key=my-key-7")
HEADERS = CIMultiDict({"Authorization": "Bearer s3cret+of/mine", "Accept": "application/json", "X-Key": "abc"})
REQUEST = RequestInfo(ADDRESS, "POST", CIMultiDictProxy(HEADERS), ADDRESS)


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It is s3cret+of/mine.", "It is ***."),
        ("Authorization: Bearer s3cret+of/mine", "Authorization: ***"),
        ("my-key-7, key=my-key-7", "***, ***"),
        ("dpop of.somebody.else", "dpop ***"),
        ("Accept: application/json, abc", "Accept: application/json, abc"),
    ],
)
def test_what_the_request_had_to_keep_secret_is_masked(text: str, shown: str) -> None:
    assert masked(REQUEST, text) == shown


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize(
    "line",
    [
        b'{"said": "s3cret+of/mine"}',
        b'{"said": "s3cret+of/mine\xff"}',
        b'{"said": "%bs3cret+of/mine"}' % (b" " * 180),  # it is quoted up to the middle of the secret
    ],
)
def test_a_malformed_message_is_quoted_without_it(line: bytes) -> None:
    bad = decode_line(line)
    assert isinstance(bad, BadMessage)
    assert "s3cr" in bad.quoted
    shown = masked_message(REQUEST, bad)
    assert isinstance(shown, BadMessage)
    assert "***" in shown.quoted
    assert "s3cr" not in shown.quoted
    assert (shown.reason, shown.code) == (bad.reason, bad.code)


@pytest.mark.req("AUT-8")
def test_so_is_one_in_a_batch() -> None:
    batch = decode_line(b'[{"said": "s3cret+of/mine"}, {"jsonrpc": "2.0", "method": "x"}]', True)
    assert isinstance(batch, Batch)
    shown = masked_message(REQUEST, batch)
    assert isinstance(shown, Batch)
    bad, other = shown.items
    assert isinstance(bad, BadMessage)
    assert bad.quoted == """'{"said": "***"}'"""
    assert other == Notification("x")
