"""Bodies that are too large, too slow, torn, or not what they say."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.attacks.harness import ANSWERABLE, Fields, Target, Wire, head, legacy_post, post
from tests.process.harness import modern_call, request

#: The cap of the server here, in bytes.
CAP = 100_000
CALL = modern_call(1, "echo", text="hello")
CHUNKED: Fields = {"Content-Length": None, "Transfer-Encoding": "chunked"}


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with Target(limits={"max_line": CAP}, http={"body_within": 1.0}) as target:
        yield target


def begun(fields: Fields) -> bytes:
    """The head of a good request, with these headers, and without its body."""
    return post(CALL, fields).partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


def refused_or_closed(wire: Wire) -> None:
    """The server gives up, with or without a word."""
    came = wire.rest()
    assert not came or int(came.split()[1]) in ANSWERABLE, came


@pytest.mark.req("HTP-4")
@pytest.mark.parametrize("size", [CAP + 1, 10**9, 2**63 - 1, 2**64, 10**30])
def test_a_body_that_says_it_is_too_large_is_not_read(target: Target, size: int) -> None:
    with target.wire() as wire:
        wire.send(begun({"Content-Length": str(size)}))
        answer = wire.answer()
        # Numbers that no computer counts to are no lengths at all.
        assert answer.status == 413 or (size >= 2**63 and answer.status == 400), answer
        # Whatever follows, nobody waits for it.
        while wire.offer(b"x" * 65536):
            pass
        assert b"200 OK" not in wire.rest()


@pytest.mark.req("HTP-4")
def test_a_body_that_turns_out_too_large_is_not_read_on(target: Target) -> None:
    with target.wire() as wire:
        wire.send(begun(CHUNKED))
        chunk = b"%x\r\n%b\r\n" % (CAP // 4, b"x" * (CAP // 4))
        for _ in range(5):
            wire.offer(chunk)
        assert wire.answer().status == 413
        while wire.offer(chunk):
            pass


@pytest.mark.req("HTP-4")
def test_the_largest_body_that_may_be_is_served(target: Target) -> None:
    empty = len(json.dumps(modern_call(1, "echo", text="")))
    text = "x" * (CAP - empty)
    assert target.call("echo", text=text) == text
    assert target.ask(post(modern_call(1, "echo", text=text + "x"))).status == 413


@pytest.mark.req("HTP-4")
@pytest.mark.parametrize("length", ["-1", "+5", "0x10", "1e3", "5.0", "five", "5 5", "5, 6", "\u00b2", "''"])
def test_lengths_that_are_none(target: Target, length: str) -> None:
    with target.wire() as wire:
        wire.send(begun({"Content-Length": length}) + b"x" * 20)
        refused_or_closed(wire)


@pytest.mark.req("HTP-4")
def test_a_body_that_does_not_come_is_not_waited_for(target: Target) -> None:
    body = json.dumps(CALL).encode()
    with ExitStack() as stack:
        wires = []
        for sent in (b"", body[:1], body[:-1]):
            framed = b"%x\r\n%b\r\n" % (len(sent), sent) if sent else b""
            for data in (begun({"Content-Length": str(len(body))}) + sent, begun(CHUNKED) + framed):
                wires.append(wire := stack.enter_context(target.wire()))
                wire.send(data)
        for wire in wires:
            refused_or_closed(wire)


@pytest.mark.req("HTP-4")
def test_a_body_that_comes_byte_by_byte_has_no_more_time(target: Target) -> None:
    body = json.dumps(modern_call(1, "echo", text="x" * 10_000)).encode()
    with target.wire() as wire:
        wire.send(begun({"Content-Length": str(len(body))}))
        wire.socket.settimeout(0.05)
        came = b""
        for byte in body:
            if not wire.offer(bytes([byte])):
                break
            try:
                came = wire.socket.recv(1000)
                break
            except TimeoutError:
                continue
        assert not came or int(came.split()[1]) in ANSWERABLE


@pytest.mark.parametrize("fields", [{}, CHUNKED], ids=["length", "chunks"])
def test_a_client_that_leaves_in_the_middle_of_its_body_has_called_nothing(target: Target, fields: Fields) -> None:
    body = json.dumps(modern_call(1, "wait", name="torn")).encode()
    start = post(modern_call(1, "wait", name="torn"), fields).removesuffix(body)
    for piece in (body[:-1], body[: len(body) // 2], b""):
        framed = b"%x\r\n%b\r\n" % (len(piece), piece) if fields and piece else piece
        with target.wire() as wire:
            wire.send(start + framed)
        with target.wire() as wire:
            wire.send(start + framed)
            wire.reset()
        with target.wire() as wire:
            wire.send(start + framed)
            wire.socket.shutdown(1)
            assert b"200 OK" not in wire.rest()
    target.serves()
    assert target.events("torn began") == 0


@pytest.mark.req("HTP-3")
@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_modern_client_that_leaves_has_cancelled_its_call_and_no_other(target: Target, way: str) -> None:
    left, kept = f"left by {way}", f"kept by {way}"
    with target.wire() as other:
        other.send(post(modern_call(1, "wait", name=kept)))
        wire = target.wire()
        wire.send(post(modern_call(1, "wait", name=left)))
        target.until(f"{left} began")
        target.until(f"{kept} began")
        getattr(wire, way)()
        target.until(f"{left} cancelled")
        target.call("release", name=kept)
        assert other.answer().status == 200
    assert target.events(f"{left} finished") == 0


@pytest.mark.req("HTP-6")
@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_legacy_client_that_leaves_has_not_cancelled_its_call(target: Target, way: str) -> None:
    session, name = target.session(), f"legacy {way}"
    wire = target.wire()
    wire.send(legacy_post(request(1, "tools/call", {"name": "wait", "arguments": {"name": name}}), session))
    target.until(f"{name} began")
    getattr(wire, way)()
    target.serves()
    target.call("release", name=name)
    target.until(f"{name} finished")
    assert target.events(f"{name} cancelled") == 0


def test_a_client_that_leaves_in_the_middle_of_a_large_answer(target: Target) -> None:
    for way in ("close", "reset"):
        wire = target.wire()
        wire.send(post(modern_call(1, "much", size=20_000_000)))
        assert wire.begun()[0] == 200
        wire.file.read(10)
        getattr(wire, way)()


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", "", None],
)
def test_what_a_web_form_can_send_is_refused(target: Target, content_type: str | None) -> None:
    """A page may send these anywhere without asking first."""
    answer = target.ask(post(CALL, {"Content-Type": content_type}))
    assert answer.status in {400, 415}, answer


def test_a_body_that_is_packed_is_not_unpacked(target: Target) -> None:
    """A bomb is a small body that becomes a large one."""
    bomb = gzip.compress(json.dumps(modern_call(1, "echo", text="x" * 10_000_000)).encode())
    assert len(bomb) < CAP
    fields = {"Mcp-Method": "tools/call", "Mcp-Name": "echo"}
    for encoding in ("gzip", "deflate", "br", "zstd", "gzip, gzip"):
        answer = target.ask(post(bomb, {**fields, "Content-Encoding": encoding}))
        assert answer.status in {400, 415}, answer
    good = json.dumps(CALL).encode()
    with target.wire() as wire:
        wire.send(post(gzip.compress(good), {**fields, "Transfer-Encoding": "gzip", "Content-Length": None}))
        refused_or_closed(wire)


def test_a_client_may_ask_before_it_sends_its_body(target: Target) -> None:
    body = json.dumps(CALL).encode()
    with target.wire() as wire:
        wire.send(begun({"Expect": "100-continue", "Content-Length": str(len(body))}))
        assert wire.begun()[0] == 100
        assert wire.ask(body).status == 200
    with target.wire() as wire:
        wire.send(begun({"Expect": "100-continue", "Content-Length": str(CAP + 1)}))
        assert wire.begun()[0] == 413


def test_no_body_at_all(target: Target) -> None:
    assert target.ask(post(b"", {"Mcp-Method": "tools/list"})).status == 400
    assert target.ask(head(fields={"Host": "127.0.0.1"})).status in ANSWERABLE
