"""One HTTP request, through what ASGI gives."""

from __future__ import annotations

import asyncio

import pytest

from mcplumb.transports.http_server.asgi_request import ClientDisconnected, Refusal
from mcplumb.wire.messages import ErrorDetail
from tests.client.peers import LOOPS
from tests.kit.loop import run
from tests.transports.http_server.asgi import Asgi, part, turn


async def test_headers_are_found_by_any_spelling_of_their_name() -> None:
    request = Asgi(headers=[(b"host", b" a:1\t"), (b"x-a", b"1"), (b"x-a", b"2"), (b"x-b", b"\xe4")]).request
    assert request.header("Host") == "a:1"
    assert request.header("HOST") == "a:1"
    # Nobody is to see one of them here, and another one there.
    assert request.header("X-A") == "1, 2"
    assert request.header("x-b") == "ä"
    assert request.header("x-c") is None
    assert request.header("x-€") is None


@pytest.mark.parametrize(
    ("path", "root_path", "within"),
    [
        ("/mcp", "", "/mcp"),
        ("/a/mcp", "/a", "/mcp"),
        ("/a", "/a", ""),
        ("/mcp", "/a", "/mcp"),
        ("/ab/mcp", "/a", "/ab/mcp"),
    ],
)
async def test_the_path_is_the_one_within_the_application(path: str, root_path: str, within: str) -> None:
    request = Asgi(path=path, root_path=root_path).request
    assert request.path == within
    assert request.root_path == root_path


async def test_the_query_is_as_it_was_sent() -> None:
    assert Asgi(query_string=b"a=%20").request.query == "a=%20"
    assert Asgi().request.query == ""


@pytest.mark.parametrize(
    ("accept", "is_accepted"),
    [
        (None, True),
        ("", True),
        ("application/json, text/event-stream", True),
        ("APPLICATION/JSON;q=0.9", True),
        ("text/html, */*;q=0.1", True),
        ("application/*", True),
        ("text/*", False),
        ("text/html", False),
    ],
)
async def test_a_client_says_what_it_can_read(accept: str | None, is_accepted: bool) -> None:
    headers = [] if accept is None else [(b"accept", accept.encode())]
    assert Asgi(headers=headers).request.accepts("application/json") is is_accepted


# The body


def _sized(length: str) -> list[tuple[bytes, bytes]]:
    return [(b"content-length", length.encode())]


async def test_a_body_may_come_in_parts() -> None:
    for parts in ([b"abc"], [b"a", b"bc"], [b"", b"ab", b"", b"c"], [b"abc", b""]):
        events = [part(data, more=True) for data in parts]
        events[-1]["more_body"] = False
        assert await Asgi(*events).request.body(max_bytes=3, within=60) == b"abc"


async def test_a_body_may_take_its_time() -> None:
    for first in ([], [part(b"a", more=True)]):
        asgi = Asgi(*first)
        reading = asyncio.create_task(asgi.request.body(max_bytes=3, within=60))
        await turn()
        assert not reading.done()
        asgi.come(part(b"b"))
        assert (await reading).endswith(b"b")


@pytest.mark.req("HTP-4")
async def test_a_body_that_is_too_large_is_not_read() -> None:
    for asgi in (
        Asgi(headers=_sized("4")),
        Asgi(headers=_sized("9" * 100)),
        Asgi(part(b"abcd")),
        Asgi(part(b"ab", more=True), part(b"cd")),
    ):
        with pytest.raises(Refusal, match="larger than the cap of 3 bytes") as refused:
            await asgi.request.body(max_bytes=3, within=60)
        assert refused.value.status == 413


@pytest.mark.req("HTP-4")
async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    for events in ([], [part(b"a", more=True)]):
        with pytest.raises(Refusal, match="did not arrive") as refused:
            await Asgi(*events).request.body(max_bytes=3, within=0.01)
        assert refused.value.status == 408


async def test_a_client_may_leave_before_the_end_of_its_body() -> None:
    for events in ([], [part(b"a", more=True)]):
        asgi = Asgi(*events)
        asgi.left.set()
        with pytest.raises(ClientDisconnected):
            await asgi.request.body(max_bytes=3, within=60)


async def test_reading_can_be_cancelled() -> None:
    reading = asyncio.create_task(Asgi().request.body(max_bytes=3, within=60))
    await turn()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


# Leaving


async def test_whoever_watches_is_told_when_the_client_leaves() -> None:
    told: list[str] = []
    asgi = Asgi(part(b"ignored"))
    asgi.request.watch(lambda: told.append("first"))
    asgi.request.watch(lambda: told.append("second"))
    await turn()
    assert told == []
    asgi.left.set()
    await turn()
    assert told == ["second"]
    asgi.request.unwatch()


@pytest.mark.parametrize("eager", LOOPS)
def test_whoever_watches_a_client_that_has_left_is_told_later(eager: bool) -> None:
    """Not within `watch`, whose caller is only being made."""

    async def main() -> None:
        told: list[str] = []
        asgi = Asgi()
        asgi.left.set()
        asgi.request.watch(lambda: told.append("told"))
        assert told == []
        await turn()
        assert told == ["told"]

    run(main(), eager=eager)


async def test_who_does_not_watch_any_more_is_not_told() -> None:
    told: list[str] = []
    asgi = Asgi()
    asgi.request.unwatch()
    asgi.request.watch(lambda: told.append("told"))
    await turn()
    asgi.left.set()
    asgi.request.unwatch()
    await turn()
    assert told == []


# The answer


async def test_an_answer_has_its_length_and_what_all_answers_have() -> None:
    asgi = Asgi()
    asgi.request.common_headers = ((b"x-all", b"1"),)
    assert not asgi.request.has_responded
    await asgi.request.respond(200, b"abc", content_type=b"text/plain", headers=[(b"x-a", b"b")])
    assert asgi.request.has_responded
    start, body = asgi.sent
    assert start["status"] == 200
    assert dict(start["headers"]) == {
        b"content-length": b"3",
        b"content-type": b"text/plain",
        b"x-a": b"b",
        b"x-all": b"1",
    }
    assert body == {"type": "http.response.body", "body": b"abc", "more_body": False}

    asgi = Asgi()
    await asgi.request.respond(204)
    assert asgi.sent[0]["headers"] == []


async def test_a_refusal_is_a_text_or_json_rpc() -> None:
    asgi = Asgi()
    await asgi.request.refuse(Refusal(404, "Nothing here.", headers=[(b"x-a", b"b")]))
    assert asgi.sent[0]["status"] == 404
    assert dict(asgi.sent[0]["headers"])[b"content-type"].startswith(b"text/plain")
    assert dict(asgi.sent[0]["headers"])[b"x-a"] == b"b"
    assert asgi.body == b"Nothing here.\n"

    asgi = Asgi()
    await asgi.request.refuse(Refusal(400, ErrorDetail(-32600, "No.")))
    assert dict(asgi.sent[0]["headers"])[b"content-type"] == b"application/json"
    assert asgi.body == b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"No."}}'

    asgi = Asgi()
    await asgi.request.refuse(Refusal(400, ErrorDetail(-32600, "No."), request_id=7))
    assert b'"id":7' in asgi.body


def test_a_refusal_says_why() -> None:
    assert str(Refusal(400, "Because.")) == "Because."
    assert str(Refusal(400, ErrorDetail(-32600, "Because."))) == "Because."


async def test_whoever_waits_for_a_body_can_be_cut_off() -> None:
    asgi = Asgi(part(b"{", more=True))
    asgi.request.cut()
    body = asyncio.create_task(asgi.request.body(max_bytes=10, within=600))
    await turn()
    asgi.request.cut()
    asgi.request.cut()
    with pytest.raises(Refusal) as refused:
        await body
    assert refused.value.status == 503
    asgi.request.cut()


async def test_a_response_that_was_given_up_is_ended() -> None:
    asgi = Asgi()
    await asgi.request.finish()
    assert asgi.sent == []
    await asgi.request.begin(200, [])
    await asgi.request.write(b"a", more=True)
    await asgi.request.finish()
    await asgi.request.finish()
    assert [event.get("more_body") for event in asgi.sent] == [None, True, False]


async def test_a_client_that_takes_no_end_gets_none() -> None:
    for is_stuck in (True, False):
        asgi = Asgi()
        await asgi.request.begin(200, [])
        if is_stuck:
            asgi.gate.clear()
        else:
            asgi.error = OSError("gone")
        await asgi.request.finish()
        assert len(asgi.sent) == 1
