from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from mcplumb.bridge.bridge import Bridge
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from mcplumb.types.meta import PROGRESS_TOKEN, PROTOCOL_VERSION
from mcplumb.wire.messages import INTERNAL_ERROR, ErrorDetail
from tests.bridge.ends import Back, Backs, Front, Refused, echo, text
from tests.client.peers import skip
from tests.kit.loop import turns
from tests.kit.results import text_of

both_eras = pytest.mark.parametrize("revision", [LATEST, LATEST_LEGACY], ids=str)


async def begun(front: Front, revision: Revision) -> None:
    """Make the first request, which starts the server; those that follow pass as they are."""
    if not revision.is_modern:
        await front.initialize()
    await front.call()


@pytest.mark.req("BRG-4")
@both_eras
async def test_params_and_results_keep_their_bytes(revision: Revision) -> None:
    params = b'{ "name":"echo", "n" : 1E2,"arguments":{"text":"\\u0041"} }'
    result = b'{ "content":[],"resultType":"complete", "n":1E2 }'
    sent: list[bytes] = []

    async def odd(back: Back, request: dict[str, Any]) -> Any:
        return msgspec.Raw(result)

    backs = Backs(revision, odd)
    bridge = Bridge(backs, trace=lambda direction, line: sent.append(bytes(line)) if direction == "out" else None)
    async with Front(bridge) as front:
        await begun(front, revision)
        meta = b', "_meta":' + msgspec.json.encode(front.params({})["_meta"]) if revision.is_modern else b""
        whole = params[:-1] + meta + b"}"
        await front.answer_to(front.post("tools/call", msgspec.Raw(whole)))
        assert whole in sent[-1]
        assert front.results[-1] == result


@pytest.mark.req("BRG-6")
async def test_a_server_that_comes_back_in_another_revision_gets_translated_requests() -> None:
    backs = Backs(LATEST, echo)
    async with Front(Bridge(backs.connect)) as front:
        for _ in range(3):
            await front.call(text="x")
        backs.revision = LATEST_LEGACY
        await backs.all[0].crash()

        def is_back() -> bool:
            skip(1)
            return len(backs.all) == 2

        await backs.until(is_back)
        await turns(200)
        for text_sent in ("first", "second"):
            result = await front.call(text=text_sent)
            assert text_of(result) == text_sent
            assert result["resultType"] == "complete"
            assert PROTOCOL_VERSION not in backs.all[1].notes("tools/call")[-1].get("_meta", {})


@pytest.mark.req("BRG-4", "META-7")
async def test_only_metadata_that_is_the_last_member_is_known_without_reading_it() -> None:
    async with Front(Bridge(Backs(LATEST, echo))) as front:
        await begun(front, LATEST)
        for _ in range(2):
            assert text_of(await front.call(text="x")) == "x"
        meta = msgspec.json.encode(front.params({})["_meta"])
        ending = b',"_meta":%b}' % meta
        # In a string, and in another member: neither is the metadata of the request.
        in_string = msgspec.json.encode({"name": "echo", "arguments": {"text": ending.decode()}})
        nested = b'{"name":"echo","arguments":{"text":"x"%b}' % ending
        for params in (in_string, nested):
            with pytest.raises(Refused, match="came before any protocol version was agreed"):
                await front.answer_to(front.post("tools/call", msgspec.Raw(params)))
        # The last member of that name counts, also for the server.
        twice = b'{"_meta":{"io.modelcontextprotocol/protocolVersion":"1999-01-01"},"name":"echo","arguments":{}%b'
        await front.answer_to(front.post("tools/call", msgspec.Raw(twice % ending)))
        # Large params, and another revision in the same place.
        large = "x" * 100_000
        assert text_of(await front.call(text=large)) == large
        unknown = ending.replace(str(LATEST).encode(), b"2999-01-01")
        with pytest.raises(Refused, match="Unsupported protocol version"):
            await front.answer_to(front.post("tools/call", msgspec.Raw(b'{"name":"echo","arguments":{}' + unknown)))
        assert text_of(await front.call(text="x")) == "x"


@pytest.mark.req("BRG-1")
@both_eras
async def test_errors_pass(revision: Revision) -> None:
    async def fail(back: Back, request: dict[str, Any]) -> Any:
        return ErrorDetail(-31999, "No.", {"why": [1]}) if request["params"]["name"] == "fail" else text("x")

    async with Front(Bridge(Backs(revision, fail))) as front:
        await begun(front, revision)
        with pytest.raises(Refused) as refused:
            await front.call("fail")
        assert (refused.value.code, refused.value.message, refused.value.data) == (-31999, "No.", {"why": [1]})


@pytest.mark.req("BRG-1", "BRG-3")
@both_eras
async def test_a_cancelled_request_is_cancelled_at_the_server(revision: Revision) -> None:
    async def hang(back: Back, request: dict[str, Any]) -> Any:
        if request["params"]["name"] == "hang":
            await asyncio.Event().wait()
        return await echo(back, request)

    backs = Backs(revision, hang)
    bridge = Bridge(backs)
    async with Front(bridge) as front:
        await begun(front, revision)
        (back,) = backs.all
        call = front.begin("hang")
        await back.until(lambda: len(back.notes("tools/call")) == 2)
        front.tell("notifications/cancelled", requestId=call)
        await back.until(lambda: back.cancelled)
        assert text_of(await front.call(text="x")) == "x"
        assert not [message for message in front.seen if message.get("id") == call]


@pytest.mark.req("BRG-5", "BRG-6")
@both_eras
@pytest.mark.parametrize("is_safe", [True, False])
async def test_a_request_that_is_lost_is_sent_again_if_that_is_safe(revision: Revision, is_safe: bool) -> None:
    async def crash_once(back: Back, request: dict[str, Any]) -> Any:
        if request["method"] == "tools/list":
            tool = {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": is_safe}}
            return {"tools": [tool], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if request["params"]["name"] == "read" and len(backs.all) == 1:
            await back.crash()
            return None
        return await echo(back, request)

    backs = Backs(revision, crash_once)
    async with Front(Bridge(backs.connect, name="the clerk", revisions=[str(revision)])) as front:
        await begun(front, revision)
        call = front.begin("read", text="found")
        await backs.all[0].until(lambda: backs.all[0].has_ended)
        await backs.until(lambda: _second(backs))
        if is_safe:
            assert text_of(await front.answer_to(call)) == "found"
        else:
            with pytest.raises(Refused, match="'the clerk' gave no result") as refused:
                await front.answer_to(call)
            assert refused.value.code == INTERNAL_ERROR


def _second(backs: Backs) -> bool:
    skip(1)  # the pause before the restart passes at once
    return len(backs.all) == 2


@pytest.mark.req("BRG-5")
async def test_a_lost_request_may_be_cancelled() -> None:
    async def crash(back: Back, request: dict[str, Any]) -> Any:
        if request["method"] == "resources/read":
            await back.crash()
            return None
        return await echo(back, request)

    backs = Backs(LATEST, crash)
    async with Front(Bridge(backs.connect, revisions=[str(LATEST)])) as front:
        await begun(front, LATEST)
        call = front.post("resources/read", front.params({"uri": "x:y"}))
        await backs.all[0].until(lambda: backs.all[0].has_ended)
        front.tell("notifications/cancelled", requestId=call)
        await backs.until(lambda: _second(backs))
        assert text_of(await front.call(text="x")) == "x"
        assert not [message for message in front.seen if message.get("id") == call]


@pytest.mark.req("BRG-5")
@both_eras
async def test_a_client_that_does_not_read_gets_its_results_later(revision: Revision) -> None:
    async with Front(Bridge(Backs(revision))) as front:
        await begun(front, revision)
        front.connection.pause()
        words = "x" * 60_000
        calls = [front.begin(text=words) for _ in range(40)]
        await turns(200)
        front.connection.resume()
        for call in calls:
            assert text_of(await front.answer_to(call)) == words


@pytest.mark.req("BRG-5")
@both_eras
async def test_a_server_that_does_not_read_gets_requests_later(revision: Revision) -> None:
    backs = Backs(revision)
    async with Front(Bridge(backs)) as front:
        await begun(front, revision)
        backs.all[0].connection.pause()
        words = "x" * 60_000
        calls = [front.begin(text=words) for _ in range(40)]
        await turns(200)
        backs.all[0].connection.resume()
        for call in calls:
            assert text_of(await front.answer_to(call)) == words


async def test_what_needs_more_takes_the_usual_way(caplog: pytest.LogCaptureFixture) -> None:
    async def report(back: Back, request: dict[str, Any]) -> Any:
        token = request["params"]["_meta"].get(PROGRESS_TOKEN)
        if token is not None:
            back.tell("notifications/progress", progressToken=token, progress=1)
        return await echo(back, request)

    async with Front(Bridge(Backs(LATEST, report), name="the clerk"), name="Ada") as front:
        await begun(front, LATEST)
        await front.answer_to(front.post("tools/call", front.params({"name": "echo"}, **{PROGRESS_TOKEN: "own"})))
        assert [each["progressToken"] for each in front.notes("notifications/progress")] == ["own"]
        caplog.set_level(logging.DEBUG, "mcplumb.bridge")
        await front.call()
        assert "Ada (2026-07-28) sends tools/call to the clerk." in caplog.text


@pytest.mark.req("BRG-6")
async def test_a_bridge_that_stops_lets_requests_finish() -> None:
    go_on = asyncio.Event()

    async def wait(back: Back, request: dict[str, Any]) -> Any:
        if request["params"]["name"] == "wait":
            await go_on.wait()
        return await echo(back, request)

    backs = Backs(LATEST, wait)
    bridge = Bridge(backs)
    async with Front(bridge) as front:
        await begun(front, LATEST)
        call = front.begin("wait", text="finished")
        await backs.all[0].until(lambda: len(backs.all[0].notes("tools/call")) == 2)
        bridge.stop()
        await turns()
        go_on.set()
        assert text_of(await front.answer_to(call)) == "finished"
