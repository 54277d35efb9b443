"""Bodies that are JSON, and cost whoever reads them more than whoever wrote them."""

from __future__ import annotations

import json

import pytest

from tests.attacks.harness import Target, initialize, legacy_post, post
from tests.process.harness import MODERN, modern_call, modern_meta

PARSE_ERROR, INVALID_REQUEST = -32700, -32600
FIELDS = {"Mcp-Method": "tools/call", "Mcp-Name": "echo"}
META = json.dumps(modern_meta()).encode()


def call(arguments: bytes, request_id: bytes = b"1") -> bytes:
    """A call of ``echo`` with arguments and an id as they are."""
    return b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":{"name":"echo","arguments":%b,"_meta":%b}}' % (
        request_id,
        arguments,
        META,
    )


BOMBS = {
    "arrays": call(b"[" * 1_000_000 + b"]" * 1_000_000),
    "open arrays": b"[" * 5_000_000,
    "objects": call(b'{"a":' * 500_000 + b"1" + b"}" * 500_000),
    "open objects": b'{"a":' * 1_000_000,
    "nested text": call(b'{"text":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "digits": call(b'{"text":' + b"9" * 5_000_000 + b"}"),
    "digits as an id": call(b'{"text":"x"}', b"9" * 1_000_000),
    "fraction": call(b'{"text":0.' + b"9" * 5_000_000 + b"}"),
    "exponent": call(b'{"text":1e999999999}'),
    "exponent as an id": call(b'{"text":"x"}', b"1e999999999"),
    "small exponent": call(b'{"text":1e-999999999}'),
    "not a number": call(b'{"text":NaN}'),
    "infinity": call(b'{"text":Infinity}', b"-Infinity"),
    "lone surrogate": call(b'{"text":"\\ud800"}'),
    "not unicode": call(b'{"text":"\xff\xfe"}'),
    "overlong": call(b'{"text":"\xc0\xaf"}'),
    "other unicode": call(b'{"text":"x"}').decode().encode("utf-16"),
    "wide unicode": call(b'{"text":"x"}').decode().encode("utf-32"),
    "null byte": call(b'{"text":"x"}') + b"\0",
    "two values": call(b'{"text":"x"}') * 2,
    "two lines": call(b'{"text":"x"}') + b"\n" + call(b'{"text":"x"}'),
    "white space": b" " * 5_000_000,
    "many keys": call(b"{" + b",".join(b'"k%d":1' % number for number in range(300_000)) + b"}"),
    "one key": b'{"jsonrpc":"2.0","id":1,' + b'"x":1,' * 500_000 + b'"method":"tools/call"}',
    "escapes": b'{"jsonrpc":"2.0","id":1,"\\u006d\\u0065thod":"tools/call"' + b',"\\u0061":1' * 300_000 + b"}",
    "comment": b"/* hello */" + call(b'{"text":"x"}'),
    "text": b'"hello"',
    "null": b"null",
    "nothing": b"{}",
    "wrong types": b'{"jsonrpc":2.0,"id":[],"method":{},"params":0}',
    "null id": call(b'{"text":"x"}', b"null"),
    "object id": call(b'{"text":"x"}', b"{}"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_both_eras(target: Target, name: str) -> None:
    session = target.session()
    before = target.memory()
    for data in (post(BOMBS[name], FIELDS), legacy_post(BOMBS[name], session), legacy_post(BOMBS[name])):
        answer = target.ask(data)
        # Arguments that are JSON but not for this tool are the tool's own error, in a good answer.
        if answer.status == 200:
            message = answer.message
            assert "error" in message or message["result"]["isError"], answer
        else:
            assert answer.status == 400, answer
    assert target.memory() - before < 200_000_000


DOUBLES = {
    "method": b'"method":"tools/call","method":"tools/list"',
    "method, escaped": b'"method":"tools/call","\\u006dethod":"tools/list"',
    "jsonrpc": b'"method":"tools/call","jsonrpc":"2.0"',
    "id": b'"method":"tools/call","id":2',
    "params": b'"method":"tools/call","params":{}',
    "result": b'"method":"tools/call","result":{}',
}


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize("name", DOUBLES)
def test_a_key_that_comes_twice_is_refused(target: Target, name: str) -> None:
    """Of two readers, one may take the first and the other the last."""
    params = b'{"name":"echo","arguments":{"text":"x"},"_meta":%b}' % META
    body = b'{"jsonrpc":"2.0","id":1,%b,"params":%b}' % (DOUBLES[name], params)
    for method in ("tools/call", "tools/list"):
        answer = target.ask(post(body, {"Mcp-Method": method, "Mcp-Name": "echo"}))
        assert answer.status == 400, answer


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize(
    "params",
    [
        b'{"name":"echo","name":"wait","arguments":{"name":"doubled","text":"x"},"_meta":%b}',
        b'{"name":"wait","name":"echo","arguments":{"name":"doubled","text":"x"},"_meta":%b}',
        b'{"name":"echo","n\\u0061me":"wait","arguments":{"name":"doubled","text":"x"},"_meta":%b}',
    ],
)
def test_the_name_that_is_called_is_the_name_that_was_checked(target: Target, params: bytes) -> None:
    """Whichever of the two is taken: if headers were compared with one of them, that one is called."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % (params % META)
    answer = target.ask(post(body, {"Mcp-Method": "tools/call", "Mcp-Name": "echo"}))
    assert answer.status in {200, 400}
    assert target.events("doubled began") == 0


@pytest.mark.parametrize("size", [2, 1_000_000])
def test_a_modern_batch_is_refused(target: Target, size: int) -> None:
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    answer = target.ask(post(b"[" + b",".join([ping] * size) + b"]", FIELDS))
    assert answer.status == 400, answer


@pytest.mark.req("HTP-6")
def test_a_legacy_batch_has_a_bound() -> None:
    with Target() as target, target.wire() as wire:
        opened = wire.ask(legacy_post(initialize("2025-03-26")))
        session = opened.fields["mcp-session-id"]
        fields = {"MCP-Protocol-Version": "2025-03-26"}
        ping = b'{"jsonrpc":"2.0","id":%d,"method":"ping"}'
        few = b"[" + b",".join(ping % number for number in range(1, 10)) + b"]"
        answer = wire.ask(legacy_post(few, session, fields))
        assert answer.status == 200, answer
        before = target.memory()
        many = b"[" + b",".join(ping % number for number in range(1_000_000)) + b"]"
        answer = wire.ask(legacy_post(many, session, fields))
        assert answer.status == 400, answer
        empty = b"[" + b"{}," * 999_999 + b"{}]"
        assert wire.ask(legacy_post(empty, session, fields)).status == 400
        assert target.memory() - before < 300_000_000


def test_many_bombs_at_once_leave_nothing_behind(target: Target) -> None:
    bombs = [BOMBS[name] for name in ("arrays", "digits", "many keys")]
    for bomb in bombs:
        target.ask(post(bomb, FIELDS))
    before = target.memory()
    wires = [target.wire() for _ in range(12)]
    for number, wire in enumerate(wires):
        wire.send(post(bombs[number % 3], FIELDS))
    for wire in wires:
        assert wire.answer().status in {200, 400}
        wire.close()
    assert target.memory() - before < 200_000_000


def test_an_id_is_given_back_as_it_was(target: Target) -> None:
    for request_id in ("\u0000", "<script>", '"', "x" * 10_000, 0, -1, 2**53):
        message = {**modern_call(1, "echo", text="x"), "id": request_id}
        assert target.ask(post(message)).message["id"] == request_id


def test_the_version_in_the_body_is_one_text(target: Target) -> None:
    versions: list[object] = [None, 0, [], {}, [MODERN]]
    for version in versions:
        message = modern_call(1, "echo", text="x")
        message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = version
        assert target.ask(post(message)).status == 400
