from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from mcplumb.bridge.bridge import Bridge
from mcplumb.bridge.bridge_session import _OWN_METHODS
from mcplumb.bridge.forwarded_methods import OWN_METHODS
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from mcplumb.types.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROGRESS_TOKEN, PROTOCOL_VERSION
from mcplumb.wire.messages import INTERNAL_ERROR, ErrorDetail
from tests.bridge.ends import FORM, Back, Backs, Front, Refused, echo, text
from tests.client.peers import skip
from tests.kit.loop import turns
from tests.kit.results import text_of

both_eras = pytest.mark.parametrize("revision", [LATEST, LATEST_LEGACY], ids=str)
#: The revision of the client, and that of the server.
all_ways = pytest.mark.parametrize(
    ("spoken", "revision"), [(LATEST, LATEST), (LATEST_LEGACY, LATEST_LEGACY), (LATEST_LEGACY, LATEST)], ids=str
)


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
@all_ways
async def test_errors_pass(spoken: Revision, revision: Revision) -> None:
    async def fail(back: Back, request: dict[str, Any]) -> Any:
        return ErrorDetail(-31999, "No.", {"why": [1]}) if request["params"].get("name") == "fail" else text("x")

    async with Front(Bridge(Backs(revision, fail))) as front:
        await begun(front, spoken)
        with pytest.raises(Refused) as refused:
            await front.call("fail")
        assert (refused.value.code, refused.value.message, refused.value.data) == (-31999, "No.", {"why": [1]})


@pytest.mark.req("BRG-1", "BRG-3")
@all_ways
async def test_a_cancelled_request_is_cancelled_at_the_server(spoken: Revision, revision: Revision) -> None:
    async def hang(back: Back, request: dict[str, Any]) -> Any:
        if request["params"].get("name") == "hang":
            await asyncio.Event().wait()
        return await echo(back, request)

    backs = Backs(revision, hang)
    bridge = Bridge(backs)
    async with Front(bridge) as front:
        await begun(front, spoken)
        (back,) = backs.all
        call = front.begin("hang")
        await back.until(lambda: len(back.notes("tools/call")) == 2)
        front.tell("notifications/cancelled", requestId=call)
        await back.until(lambda: back.cancelled)
        assert text_of(await front.call(text="x")) == "x"
        assert not [message for message in front.seen if message.get("id") == call]


@pytest.mark.req("BRG-5", "BRG-6")
@all_ways
@pytest.mark.parametrize("is_safe", [True, False])
async def test_a_request_that_is_lost_is_sent_again_if_that_is_safe(
    spoken: Revision, revision: Revision, is_safe: bool
) -> None:
    async def crash_once(back: Back, request: dict[str, Any]) -> Any:
        if request["method"] == "tools/list":
            tool = {"name": "read", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": is_safe}}
            return {"tools": [tool], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        if request["params"].get("name") == "read" and len(backs.all) == 1:
            await back.crash()
            return None
        return await echo(back, request)

    backs = Backs(revision, crash_once)
    async with Front(Bridge(backs.connect, name="the clerk", revisions=list({str(spoken), str(revision)}))) as front:
        await begun(front, spoken)
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
@all_ways
async def test_a_client_that_does_not_read_gets_its_results_later(spoken: Revision, revision: Revision) -> None:
    async with Front(Bridge(Backs(revision))) as front:
        await begun(front, spoken)
        front.connection.pause()
        words = "x" * 60_000
        calls = [front.begin(text=words) for _ in range(40)]
        await turns(200)
        front.connection.resume()
        for call in calls:
            assert text_of(await front.answer_to(call)) == words


@pytest.mark.req("BRG-5")
@all_ways
async def test_a_server_that_does_not_read_gets_requests_later(spoken: Revision, revision: Revision) -> None:
    backs = Backs(revision)
    async with Front(Bridge(backs)) as front:
        await begun(front, spoken)
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
        if request["params"].get("name") == "wait":
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


# From a legacy client to a modern server


async def translated(front: Front) -> None:
    """Open a session, of which all further requests need no task."""
    await begun(front, LATEST_LEGACY)
    assert text_of(await front.call(text="warm")) == "warm"


@pytest.mark.req("BRG-1", "BRG-4", "META-7")
@pytest.mark.parametrize(
    "params",
    [
        b'{ "name":"echo", "n" : 1E2,"arguments":{"text":"\\u0041\\"_meta\\""} }',
        b'{"name":"echo"\n}',
        b'{"arguments":{"_meta":{"x":1}},"name":"echo"}',
    ],
)
async def test_params_keep_their_bytes_and_get_metadata(params: bytes) -> None:
    sent: list[bytes] = []
    backs = Backs(LATEST, echo)
    bridge = Bridge(backs, trace=lambda direction, line: sent.append(bytes(line)) if direction == "out" else None)
    async with Front(bridge, {"sampling": {}}, name="Ada") as front:
        await translated(front)
        await front.answer_to(front.post("tools/call", msgspec.Raw(params)))
        line = [line for line in sent if params[:-1].rstrip() in line][-1]
        (back,) = backs.all
        before, after = (message["params"]["_meta"] for message in back.seen[-2:])
        assert before == after
        assert after[PROTOCOL_VERSION] == str(LATEST)
        assert after[CLIENT_INFO] == {"name": "Ada", "version": "1"}
        assert after[CLIENT_CAPABILITIES] == {"sampling": {}}
        assert after[LOG_LEVEL] == "info"
        assert b'"_meta":' in line


@pytest.mark.req("BRG-1", "BRG-4")
async def test_an_empty_object_gets_metadata_as_well() -> None:
    backs = Backs(LATEST, echo)
    async with Front(Bridge(backs)) as front:
        await translated(front)
        for params in (b"{}", b"{ }"):
            assert await front.answer_to(front.post("prompts/list", msgspec.Raw(params))) == {}
            assert set(backs.all[0].seen[-1]["params"]) == {"_meta"}


@pytest.mark.req("BRG-1", "BRG-4")
async def test_results_lose_what_the_client_s_revision_lacks_and_nothing_else() -> None:
    async def odd(back: Back, request: dict[str, Any]) -> Any:
        if request["params"].get("name", "echo") == "echo":
            return await echo(back, request)
        meta = b'"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"b","version":"1"}%b}'
        return msgspec.Raw(
            b'{"content":[{"type":"text","text":"\\u0041", "n" : 1E2}],"structuredContent":[1],"new":1E2,'
            b'"resultType":"complete","ttlMs":1,"cacheScope":"public",'
            + meta % request["params"]["more"].encode()
            + b"}"
        )

    async with Front(Bridge(Backs(LATEST, odd))) as front:
        await translated(front)
        kept = (
            b'{"content":[{"type":"text","text":"\\u0041", "n" : 1E2}],"structuredContent":{"result":[1]},"new":1E2%b}'
        )
        for more, left in (("", b""), (',"mine":1', b',"_meta":{"mine":1}')):
            await front.call("odd", more={"more": more})
            assert front.results[-1] == kept % left


@pytest.mark.req("BRG-1")
async def test_metadata_of_the_client_s_own_goes_on() -> None:
    async def report(back: Back, request: dict[str, Any]) -> Any:
        token = request["params"]["_meta"].get(PROGRESS_TOKEN)
        if token is not None:
            back.tell("notifications/progress", progressToken=token, progress=1)
        return await echo(back, request)

    backs = Backs(LATEST, report)
    async with Front(Bridge(backs)) as front:
        await translated(front)
        for meta in ({PROGRESS_TOKEN: "own", "mine": 1}, {}):
            params = {"name": "echo", "arguments": {}, "_meta": meta}
            await front.answer_to(front.post("tools/call", params))
            assert backs.all[0].seen[-1]["params"]["_meta"].get("mine") == meta.get("mine")
        assert [each["progressToken"] for each in front.notes("notifications/progress")] == ["own"]
        # One that is null is replaced, also if its name is written in another way.
        for name in (b"_meta", b"\\u005fmeta"):
            await front.answer_to(front.post("tools/call", msgspec.Raw(b'{"%b":null,"name":"echo"}' % name)))
            assert backs.all[0].seen[-1]["params"]["_meta"][PROTOCOL_VERSION] == str(LATEST)
        assert b"null" not in front.results[-1]


@pytest.mark.req("BRG-1", "BRG-2")
async def test_a_server_may_ask_before_it_answers() -> None:
    async def asks_twice(back: Back, request: dict[str, Any]) -> Any:
        params = request["params"]
        if params.get("name", "echo") == "echo":
            return await echo(back, request)
        asked = int(params.get("requestState", "0"))
        if asked == 2:
            return {**text(params["inputResponses"]["who"]["content"]["name"]), "resultType": "complete"}
        question = {"method": "elicitation/create", "params": FORM}
        return {"resultType": "input_required", "inputRequests": {"who": question}, "requestState": str(asked + 1)}

    async def answer(question: dict[str, Any]) -> Any:
        return {"action": "accept", "content": {"name": f"Ada {len(front.questions())}"}}

    async with Front(Bridge(Backs(LATEST, asks_twice)), {"elicitation": {}}) as front:
        front.on_question = answer
        await translated(front)
        for total in ("Ada 2", "Ada 4"):
            assert text_of(await front.call("ask")) == total
        assert text_of(await front.call(text="x")) == "x"


@pytest.mark.req("BRG-1")
async def test_a_client_that_cannot_be_asked_gets_an_error() -> None:
    async def asks(back: Back, request: dict[str, Any]) -> Any:
        if request["params"].get("name", "echo") == "echo":
            return await echo(back, request)
        question = {"method": "elicitation/create", "params": FORM}
        return {"resultType": "input_required", "inputRequests": {"who": question}, "requestState": "1"}

    async with Front(Bridge(Backs(LATEST, asks), name="the clerk")) as front:
        await translated(front)
        with pytest.raises(Refused, match="which the client did not declare"):
            await front.call("ask")


@pytest.mark.req("BRG-5")
async def test_a_call_that_waits_for_its_client_may_be_cancelled() -> None:
    async def asks(back: Back, request: dict[str, Any]) -> Any:
        if request["params"].get("name", "echo") == "echo":
            return await echo(back, request)
        question = {"method": "elicitation/create", "params": FORM}
        return {"resultType": "input_required", "inputRequests": {"who": question}, "requestState": "1"}

    async with Front(Bridge(Backs(LATEST, asks)), {"elicitation": {}}) as front:
        await translated(front)
        call = front.begin("ask")
        await front.until(front.questions)
        front.tell("notifications/cancelled", requestId=call)
        await front.until(lambda: front.notes("notifications/cancelled"))
        assert text_of(await front.call(text="x")) == "x"
        assert not [message for message in front.seen if message.get("id") == call]


@pytest.mark.req("BRG-1")
async def test_a_new_log_level_counts_from_the_next_request_on() -> None:
    backs = Backs(LATEST, echo, logging={})
    async with Front(Bridge(backs)) as front:
        await translated(front)
        for level in ("error", "debug"):
            await front.ask("logging/setLevel", level=level)
            for _ in range(2):
                await front.call()
                assert backs.all[0].seen[-1]["params"]["_meta"][LOG_LEVEL] == level


@pytest.mark.req("BRG-1")
async def test_a_session_that_starts_over_is_another_client_s() -> None:
    backs = Backs(LATEST, echo)
    async with Front(Bridge(backs), name="Ada") as front:
        await translated(front)
        front.name, front.capabilities = "Bob", {"roots": {}}
        await front.initialize()
        for _ in range(3):
            await front.call()
            meta = [call for back in backs.all for call in back.notes("tools/call")][-1]["_meta"]
            assert (meta[CLIENT_INFO]["name"], meta[CLIENT_CAPABILITIES]) == ("Bob", {"roots": {}})


@pytest.mark.req("BRG-1")
async def test_a_missing_resource_has_the_client_s_code() -> None:
    async def missing(back: Back, request: dict[str, Any]) -> Any:
        if request["method"] != "resources/read":
            return await echo(back, request)
        return ErrorDetail(-32602, "There is none.", {"uri": "x:y"})

    async with Front(Bridge(Backs(LATEST, missing))) as front:
        await translated(front)
        with pytest.raises(Refused, match="There is none") as refused:
            await front.ask("resources/read", uri="x:y")
        assert refused.value.code == -32002


async def test_a_result_that_is_no_object_is_an_error() -> None:
    async def odd(back: Back, request: dict[str, Any]) -> Any:
        return await echo(back, request) if request["params"].get("name", "echo") == "echo" else [1]

    async with Front(Bridge(Backs(LATEST, odd))) as front:
        await translated(front)
        with pytest.raises(Refused):
            await front.call("odd")
        assert text_of(await front.call(text="x")) == "x"


@pytest.mark.req("BRG-6")
async def test_a_server_that_comes_back_as_a_legacy_one_gets_no_metadata() -> None:
    backs = Backs(LATEST, echo)
    async with Front(Bridge(backs.connect)) as front:
        await translated(front)
        backs.revision = LATEST_LEGACY
        await backs.all[0].crash()
        await backs.until(lambda: _second(backs))
        await turns(200)
        for words in ("first", "second", "third"):
            assert text_of(await front.call(text=words)) == words
            assert "_meta" not in backs.all[1].seen[-1]["params"]


def test_the_bridge_has_a_function_for_each_of_its_own_methods() -> None:
    assert set(_OWN_METHODS) == OWN_METHODS
