from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from mcplumb.bridge.bridge import Bridge
from mcplumb.revisions import LATEST, LATEST_LEGACY, LEGACY, REVISIONS, Revision, get_revision
from mcplumb.transports.connection import Peer
from mcplumb.types.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROGRESS_TOKEN, PROTOCOL_VERSION
from mcplumb.wire.messages import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, ErrorDetail, Request
from tests.bridge.ends import (
    ASKABLE,
    FORM,
    Back,
    Backs,
    Front,
    Refused,
    ask_and_echo,
    call_once,
    echo,
    instance_of,
    text,
)
from tests.client.peers import LOOPS
from tests.kit.loop import run, turns, until
from tests.kit.results import text_of

both_eras = pytest.mark.parametrize("revision", [LATEST, LATEST_LEGACY], ids=str)
NAME = {"action": "accept", "content": {"name": "Ada"}}


async def hang(back: Back, request: dict[str, Any]) -> Any:
    await asyncio.Event().wait()


# --- Eras ---


@pytest.mark.req("BRG-1")
@pytest.mark.parametrize("back", REVISIONS, ids=str)
@pytest.mark.parametrize("front", REVISIONS, ids=str)
async def test_any_client_calls_any_server(front: Revision, back: Revision) -> None:
    backs = Backs(back)
    async with Front(Bridge(backs, revisions=[str(back)])) as client:
        if front.is_modern:
            found = await client.ask("server/discover")
            assert found["supportedVersions"] == [str(LATEST)]
        else:
            found = await client.initialize(front)
            assert (found["protocolVersion"], found["serverInfo"]["name"]) == (str(front), "peer")
        assert found["capabilities"]["tools"] == {"listChanged": True}
        result = await client.call(text="hello")
        assert text_of(result) == "hello"
        assert ("resultType" in result) is front.is_modern
        if not front.is_modern:
            assert await client.ask("ping") == {}


@pytest.mark.req("BRG-1")
async def test_both_eras_may_use_one_connection() -> None:
    backs = Backs()
    async with Front(Bridge(backs)) as front:
        assert text_of(await front.call(text="modern")) == "modern"
        await front.initialize()
        assert text_of(await front.call(text="legacy")) == "legacy"
        front.is_modern = True
        assert (await front.call(text="modern"))["resultType"] == "complete"


@pytest.mark.req("BRG-3")
@pytest.mark.parametrize("eager", LOOPS)
@both_eras
def test_clients_come_to_a_server_that_runs_already(revision: Revision, eager: bool) -> None:
    async def main() -> None:
        backs = Backs(revision)
        bridge = Bridge(backs)
        async with Front(bridge) as first, Front(bridge) as second:
            for front in (first, second):
                await front.initialize()
                assert text_of(await front.call(text="hello")) == "hello"
        assert len(backs.all) == 1

    run(main(), eager=eager)


@pytest.mark.req("BRG-3")
async def test_another_session_on_the_connection_gets_another_server() -> None:
    backs = Backs()
    async with Front(Bridge(backs), ASKABLE) as front:
        await front.initialize()
        await front.call()
        await front.initialize(get_revision("2025-06-18"))
        await front.call()
        assert len(backs.all) == 2
        await until(lambda: len(backs.open) == 1, "the first to stop")


async def test_a_session_cannot_start_over_while_it_is_busy() -> None:
    async with Front(Bridge(Backs(handler=hang))) as front:
        await front.initialize()
        first = front.begin()
        with pytest.raises(Refused, match="initialize cannot start it over"):
            await front.initialize()
        params = {
            "protocolVersion": str(LATEST_LEGACY),
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        }
        front.connection.send(Request(first, "initialize", params))
        await front.until(lambda: any("error" in message and message["id"] == first for message in front.seen))
        front.tell("notifications/cancelled", requestId=first)


@pytest.mark.req("BRG-1")
async def test_a_batch_is_answered_with_a_batch() -> None:
    async with Front(Bridge(Backs())) as front:
        await front.initialize(get_revision("2025-03-26"))
        calls = [Request(each, "tools/call", {"name": "echo", "arguments": {"text": each}}) for each in ("a", "b")]
        before = front.connection.stats.messages_in
        front.connection.send_batch(calls)
        await front.until(lambda: {"a", "b"} <= {message.get("id") for message in front.seen})
        assert front.connection.stats.messages_in == before + 1


@pytest.mark.req("BRG-4")
@both_eras
async def test_methods_of_extensions_pass(revision: Revision) -> None:
    async def extension(back: Back, request: dict[str, Any]) -> Any:
        return {"got": request["method"], "params": request["params"]}

    async with Front(Bridge(Backs(revision, extension))) as front:
        result = await front.ask("example.com/do", deep={"b": [1.5, None], "a": 1})
        assert result["got"] == "example.com/do"
        assert result["params"]["deep"] == {"b": [1.5, None], "a": 1}


async def test_methods_of_other_revisions_do_not_pass() -> None:
    backs = Backs(LATEST)
    async with Front(Bridge(backs)) as front:
        for method in ("ping", "logging/setLevel", "resources/subscribe", "sampling/createMessage"):
            with pytest.raises(Refused) as refused:
                await front.ask(method)
            assert refused.value.code == METHOD_NOT_FOUND
        with pytest.raises(Refused) as refused:
            await front.answer_to(front.post("tools/call", {}))
        assert refused.value.code == INVALID_PARAMS
    assert not backs.all


@pytest.mark.req("BRG-4")
async def test_a_request_of_the_same_revision_reaches_the_server_as_it_is() -> None:
    backs = Backs(LATEST)
    async with Front(Bridge(backs), ASKABLE, name="it") as front:
        await front.answer_to(front.post("tools/call", front.params({"name": "echo", "x-own": [1]}, own="kept")))
        (params,) = backs.all[0].notes("tools/call")
        assert params == {
            "name": "echo",
            "x-own": [1],
            "_meta": {
                PROTOCOL_VERSION: str(LATEST),
                CLIENT_CAPABILITIES: ASKABLE,
                CLIENT_INFO: {"name": "it", "version": "1"},
                "own": "kept",
            },
        }


@pytest.mark.req("BRG-3")
async def test_each_request_has_the_name_of_its_own_client() -> None:
    backs = Backs(LATEST)
    bridge = Bridge(backs)
    async with Front(bridge, name="first") as first, Front(bridge, name="second") as second, Front(bridge) as third:
        for front in (first, second, third):
            await front.call()
        first.name = "renamed"
        await first.call()
        names = [params["_meta"].get(CLIENT_INFO, {}).get("name") for params in backs.all[0].notes("tools/call")]
        assert names[:2] == ["first", "second"]
        assert names[2] not in ("first", "second")
        assert names[3] == "renamed"
        # The server of the others was told nothing of the first one either.
        assert len(backs.all) == 1


# --- Errors ---


@pytest.mark.req("BRG-1")
@both_eras
async def test_an_error_of_the_server_is_the_client_s(revision: Revision) -> None:
    async def fail(back: Back, request: dict[str, Any]) -> Any:
        return ErrorDetail(-31999, "No.", {"why": [1]})

    async with Front(Bridge(Backs(revision, fail))) as front:
        with pytest.raises(Refused) as refused:
            await front.call()
        assert (refused.value.code, refused.value.message, refused.value.data) == (-31999, "No.", {"why": [1]})


@pytest.mark.req("BRG-5")
async def test_a_crash_is_an_error_that_names_the_server_and_harms_no_other_client() -> None:
    async def work(back: Back, request: dict[str, Any]) -> Any:
        if request["params"]["name"] == "crash":
            await back.crash()
            return None
        return await echo(back, request)

    backs = Backs(handler=work)
    bridge = Bridge(backs, name="the clerk")
    async with Front(bridge, ASKABLE) as front, Front(bridge, ASKABLE) as other:
        await other.call()
        with pytest.raises(Refused, match="The server 'the clerk' gave no result") as refused:
            await front.call("crash")
        assert refused.value.code == INTERNAL_ERROR
        assert text_of(await other.call(text="x")) == "x"
        assert text_of(await front.call(text="y")) == "y"
        assert len(backs.all) == 3


@pytest.mark.req("BRG-5")
async def test_a_server_that_does_not_start_is_named() -> None:
    backs = Backs()
    backs.failures = 1
    async with Front(Bridge(backs, name="the clerk")) as front:
        with pytest.raises(Refused, match=r"'the clerk' gave no result.*does not start") as refused:
            await front.call()
        assert refused.value.code == INTERNAL_ERROR
        with pytest.raises(Refused, match="'the clerk' could not be started"):
            await front.initialize()


@pytest.mark.req("BRG-1")
@pytest.mark.parametrize("front", [LATEST, LATEST_LEGACY], ids=str)
@both_eras
async def test_a_missing_resource_has_the_client_s_code(front: Revision, revision: Revision) -> None:
    async def missing(back: Back, request: dict[str, Any]) -> Any:
        return ErrorDetail(revision.resource_not_found, "There is no such resource.", {"uri": "x:y"})

    async with Front(Bridge(Backs(revision, missing)), ASKABLE) as client:
        if not front.is_modern:
            await client.initialize(front)
        with pytest.raises(Refused) as refused:
            await client.ask("resources/read", uri="x:y")
        assert refused.value.code == front.resource_not_found


@pytest.mark.req("BRG-6")
async def test_params_that_cannot_be_passed_on_keep_no_server() -> None:
    backs = Backs()
    bridge = Bridge(backs, max_servers=1)
    async with Front(bridge):
        for _ in range(3):
            async with Front(bridge, ASKABLE, peer=Peer("modern")) as front:
                with pytest.raises(Refused) as refused:
                    await front.answer_to(front.post("tools/call", front.params({"name": 7})))
                assert refused.value.code == INVALID_PARAMS
        assert text_of(await call_once(bridge, ASKABLE, text="x")) == "x"
        assert len(backs.all) == 1


@pytest.mark.req("BRG-2")
async def test_pages_to_visit_become_questions() -> None:
    visited = False

    async def protected(back: Back, request: dict[str, Any]) -> Any:
        nonlocal visited
        if visited:
            return text("in")
        visited = True
        page = {"mode": "url", "message": "Sign in.", "url": "https://a.example/", "elicitationId": "7"}
        return ErrorDetail(-32042, "Sign in first.", {"elicitations": [page]})

    async with Front(Bridge(Backs(handler=protected)), {"elicitation": {"url": {}}}) as front:
        asked = await front.call("read")
        assert asked["resultType"] == "input_required"
        assert asked["inputRequests"]["url-1"]["params"]["url"] == "https://a.example/"
        assert "elicitationId" not in asked["inputRequests"]["url-1"]["params"]
        assert text_of(await front.call("read", more={"inputResponses": {"url-1": {"action": "accept"}}})) == "in"
        visited = False
        front.capabilities = {"elicitation": {"form": {}}}
        with pytest.raises(Refused) as refused:
            await front.call("read")
        assert refused.value.code == -32042


# --- Progress and cancellation ---


@pytest.mark.req("BRG-1", "BRG-3")
@both_eras
async def test_progress_has_the_client_s_own_token(revision: Revision) -> None:
    async def report(back: Back, request: dict[str, Any]) -> Any:
        token = request["params"]["_meta"][PROGRESS_TOKEN]
        back.tell("notifications/progress", progressToken=token, progress=1, total=2, message="half")
        return await echo(back, request)

    bridge = Bridge(Backs(revision, report))
    async with Front(bridge) as one, Front(bridge) as other:
        calls = [
            (front, front.post("tools/call", front.params({"name": "echo"}, **{PROGRESS_TOKEN: token})))
            for front, token in ((one, "same"), (other, "same"), (one, 7))
        ]
        for front, call in calls:
            await front.answer_to(call)
        assert sorted(str(each["progressToken"]) for each in one.notes("notifications/progress")) == ["7", "same"]
        assert other.notes("notifications/progress") == [
            {"progressToken": "same", "progress": 1, "total": 2, "message": "half"}
        ]


@pytest.mark.req("BRG-1")
@both_eras
@pytest.mark.parametrize("front", [LATEST, LATEST_LEGACY], ids=str)
async def test_a_cancelled_call_is_cancelled_at_the_server(front: Revision, revision: Revision) -> None:
    backs = Backs(revision, hang)
    async with Front(Bridge(backs)) as client:
        if not front.is_modern:
            await client.initialize()
        call = client.begin()
        await backs.until(lambda: backs.all)
        (back,) = backs.all
        await back.until(lambda: back.notes("tools/call"))
        client.tell("notifications/cancelled", requestId=call, reason="Enough.")
        await back.until(lambda: back.cancelled)
        (request,) = [each for each in back.seen if each.get("method") == "tools/call"]
        assert back.cancelled == [request["id"]]
        assert not [message for message in client.seen if message.get("id") == call]


@pytest.mark.req("BRG-6")
async def test_a_call_may_be_cancelled_while_its_server_starts() -> None:
    backs = Backs()
    backs.starts = asyncio.Event()
    async with Front(Bridge(backs)) as front:
        first, second = front.begin(text="first"), front.begin(text="second")
        await backs.until(lambda: backs.all)
        front.tell("notifications/cancelled", requestId=first)
        backs.starts.set()
        assert text_of(await front.answer_to(second)) == "second"
        assert len(backs.all) == 1
        assert len(backs.all[0].notes("tools/call")) == 1


@pytest.mark.req("BRG-6")
async def test_a_client_that_leaves_while_its_server_starts_leaves_nothing() -> None:
    backs = Backs()
    backs.starts = asyncio.Event()
    bridge = Bridge(backs)
    async with Front(bridge):
        async with Front(bridge, ASKABLE) as front:
            call = front.begin()
            await backs.until(lambda: backs.all)
            front.tell("notifications/cancelled", requestId=call)
        await until(lambda: not backs.open, "the server to stop")


@pytest.mark.req("BRG-6")
async def test_a_session_that_starts_over_while_its_server_starts_leaves_nothing() -> None:
    backs = Backs()
    bridge = Bridge(backs)
    async with Front(bridge, ASKABLE) as front:
        await front.initialize()
        instance = instance_of(bridge)
        await backs.all[0].crash()
        await until(lambda: instance.is_over, "the end of the server")
        backs.starts = asyncio.Event()
        call = front.begin()
        await backs.until(lambda: len(backs.all) == 2)
        front.tell("notifications/cancelled", requestId=call)
        again = asyncio.create_task(front.initialize())
        await backs.until(lambda: len(backs.all) == 3)
        backs.starts.set()
        assert (await again)["protocolVersion"] == str(LATEST_LEGACY)
        await until(lambda: len(backs.open) == 1, "all but one to stop", lambda: backs.open)


# --- Questions of modern servers ---


async def ask_modern(back: Back, request: dict[str, Any]) -> Any:
    answers = request["params"].get("inputResponses")
    if answers is None:
        questions = {"name": {"method": "elicitation/create", "params": FORM}, "where": {"method": "roots/list"}}
        return {"resultType": "input_required", "inputRequests": questions, "requestState": "kept"}
    assert request["params"]["requestState"] == "kept"
    words = f"{answers['name']['content']['name']} {answers['where']['roots']}"
    return text(words) | {"resultType": "complete"}


@pytest.mark.req("BRG-2")
@pytest.mark.parametrize("revision", [each for each in LEGACY if each.has_elicitation], ids=str)
async def test_a_modern_server_s_questions_are_requests_to_a_legacy_client(revision: Revision) -> None:
    async def answer(question: dict[str, Any]) -> Any:
        return NAME if question["method"] == "elicitation/create" else {"roots": []}

    async with Front(Bridge(Backs(LATEST, ask_modern)), ASKABLE) as front:
        front.on_question = answer
        await front.initialize(revision)
        assert text_of(await front.call("greet")) == "Ada []"
        assert [each["method"] for each in front.questions()] == ["elicitation/create", "roots/list"]


@pytest.mark.req("BRG-2")
@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {}}])
async def test_a_client_is_asked_only_for_what_it_declared(capabilities: dict[str, Any]) -> None:
    async with Front(Bridge(Backs(LATEST, ask_modern)), capabilities) as front:
        await front.initialize()
        with pytest.raises(Refused, match="which the client did not declare"):
            await front.call("greet")
        assert not front.questions()


@pytest.mark.req("BRG-2")
async def test_a_server_cannot_have_any_request_sent() -> None:
    async def sly(back: Back, request: dict[str, Any]) -> Any:
        questions = {"q": {"method": "tools/call", "params": {"name": "rm"}}}
        return {"resultType": "input_required", "inputRequests": questions}

    async with Front(Bridge(Backs(LATEST, sly)), ASKABLE) as front:
        await front.initialize()
        with pytest.raises(Refused, match="'tools/call', which the client did not declare"):
            await front.call("greet")


async def test_a_server_that_asks_without_end_is_given_up() -> None:
    async def nosy(back: Back, request: dict[str, Any]) -> Any:
        return {"resultType": "input_required", "inputRequests": {"q": {"method": "roots/list"}}}

    async def roots(question: dict[str, Any]) -> Any:
        return {"roots": []}

    async def vague(back: Back, request: dict[str, Any]) -> Any:
        return {"resultType": "input_required"}

    async with Front(Bridge(Backs(LATEST, nosy)), ASKABLE) as front:
        front.on_question = roots
        await front.initialize()
        with pytest.raises(Refused, match="asked for input 32 times"):
            await front.call("greet")
    async with Front(Bridge(Backs(LATEST, vague)), ASKABLE) as front:
        await front.initialize()
        with pytest.raises(Refused, match="did not say which"):
            await front.call("greet")


@pytest.mark.req("BRG-5")
@pytest.mark.parametrize(("front_revision", "back"), [(LATEST, LATEST_LEGACY), (LATEST_LEGACY, LATEST)], ids=str)
async def test_a_result_that_cannot_be_read_is_an_error_of_the_server(front_revision: Revision, back: Revision) -> None:
    results: dict[str, Any] = {"odd": [1], "vague": {"resultType": "input_required", "inputRequests": 7}}

    async def odd(back: Back, request: dict[str, Any]) -> Any:
        return results[request["params"]["name"]] if request["method"] == "tools/call" else await echo(back, request)

    async with Front(Bridge(Backs(back, odd), name="the odd one")) as front:
        if not front_revision.is_modern:
            await front.initialize(front_revision)
        # The first call and later ones pass in different ways.
        for tool in ("odd", "odd", *(["vague", "vague"] if back.is_modern else [])):
            with pytest.raises(Refused, match="The server 'the odd one' gave no result") as refused:
                await front.call(tool)
            assert refused.value.code == INTERNAL_ERROR


@pytest.mark.req("BRG-2")
async def test_a_client_that_refuses_a_question_refuses_the_call() -> None:
    async def refuse(question: dict[str, Any]) -> Any:
        return ErrorDetail(-1, "The user has left.")

    async with Front(Bridge(Backs(LATEST, ask_modern)), ASKABLE) as front:
        front.on_question = refuse
        await front.initialize()
        with pytest.raises(Refused, match="The user has left"):
            await front.call("greet")


# --- Questions of legacy servers to legacy clients ---


@pytest.mark.req("BRG-1", "BRG-3")
async def test_a_legacy_server_asks_its_own_legacy_client() -> None:
    async def answer(question: dict[str, Any]) -> Any:
        return NAME

    async def refuse(question: dict[str, Any]) -> Any:
        return ErrorDetail(-1, "Not me.")

    backs = Backs(handler=ask_and_echo)
    bridge = Bridge(backs)
    async with Front(bridge, ASKABLE) as front, Front(bridge, ASKABLE) as other:
        front.on_question, other.on_question = answer, refuse
        await front.initialize()
        await other.initialize()
        assert text_of(await front.call("greet")) == "Ada"
        assert not other.questions()
        assert len(backs.open) == 2


async def test_a_question_before_the_session_is_open_is_refused() -> None:
    seen: list[str] = []

    async def eager(back: Back, request: dict[str, Any]) -> Any:
        with pytest.raises(Refused) as refused:
            await back.ask("roots/list")
        seen.append(refused.value.message)
        return text("done")

    bridge = Bridge(Backs(handler=eager), share="always")
    async with Front(bridge, ASKABLE) as front:
        await front.initialize()
        assert text_of(await front.call("greet")) == "done"
    assert "clients share this server" in seen[0]


# --- Notifications of the client ---


@pytest.mark.req("BRG-1", "BRG-3")
async def test_notifications_reach_the_client_s_own_server_only() -> None:
    backs = Backs()
    bridge = Bridge(backs)
    async with Front(bridge, ASKABLE) as front, Front(bridge) as other:
        await front.initialize()
        await other.initialize()
        own, shared = backs.all
        for client in (front, other):
            client.tell("notifications/roots/list_changed")
            client.tell("notifications/example.com/own", a=1)
            await client.call()
        assert own.notes("notifications/example.com/own") == [{"a": 1}]
        assert own.notes("notifications/roots/list_changed") == [{}]
        assert not shared.notes("notifications/example.com/own")
        assert not shared.notes("notifications/roots/list_changed")


@pytest.mark.req("BRG-4")
async def test_notifications_of_extensions_reach_a_modern_server() -> None:
    backs = Backs(LATEST)
    async with Front(Bridge(backs)) as front:
        await front.call()
        front.tell("notifications/example.com/own", a=1)
        front.tell("notifications/roots/list_changed")
        await front.call()
        assert backs.all[0].notes("notifications/example.com/own") == [{"a": 1}]
        assert not backs.all[0].notes("notifications/roots/list_changed")


@pytest.mark.req("BRG-5")
async def test_notifications_for_a_server_that_does_not_read_do_not_pile_up() -> None:
    backs = Backs()
    bridge = Bridge(backs)
    async with Front(bridge, ASKABLE) as front:
        await front.initialize()
        backs.all[0].connection.pause()
        count, sent = 0, "x" * 100_000
        while not front.connection.is_clogged and count < 2000:
            front.tell("notifications/example.com/own", text=sent)
            count += 1
            await turns(3)
        assert front.connection.is_clogged
        backs.all[0].connection.resume()
        await backs.all[0].until(lambda: len(backs.all[0].notes("notifications/example.com/own")) == count)


# --- Kinds of clients ---


@pytest.mark.req("BRG-3")
async def test_a_client_with_calls_in_flight_keeps_its_server() -> None:
    release = asyncio.Event()

    async def wait(back: Back, request: dict[str, Any]) -> Any:
        if request["params"]["name"] == "wait":
            await release.wait()
        return await echo(back, request)

    backs = Backs(handler=wait)
    async with Front(Bridge(backs)) as front:
        waiting = []
        for number in range(20):
            front.capabilities = ASKABLE | {"experimental": {f"kind-{number}": {}}}
            waiting.append(front.begin("wait", text=str(number)))
        await backs.until(lambda: len(backs.all) == 20)
        release.set()
        assert [text_of(await front.answer_to(each)) for each in waiting] == [str(number) for number in range(20)]
        for number in range(20, 40):
            front.capabilities = ASKABLE | {"experimental": {f"kind-{number}": {}}}
            assert text_of(await front.call(text=str(number))) == str(number)
        await until(lambda: len(backs.open) <= 21, "unused servers to stop", lambda: len(backs.open))


# --- Log levels ---


@pytest.mark.req("BRG-1")
async def test_the_level_of_a_legacy_client_is_that_of_a_modern_server_s_requests() -> None:
    backs = Backs(LATEST)
    async with Front(Bridge(backs)) as front:
        await front.initialize()
        assert await front.ask("logging/setLevel", level="error") == {}
        await front.call()
        assert backs.all[0].notes("tools/call")[0]["_meta"][LOG_LEVEL] == "error"


@pytest.mark.req("BRG-1")
async def test_the_level_of_a_modern_client_is_set_once_at_a_legacy_server() -> None:
    backs = Backs()
    async with Front(Bridge(backs), ASKABLE) as front:
        for level in ("warning", "warning", "debug", "error"):
            await front.answer_to(front.post("tools/call", front.params({"name": "echo"}, **{LOG_LEVEL: level})))
        assert [each["level"] for each in backs.all[0].notes("logging/setLevel")] == ["warning", "debug"]


async def test_the_level_of_a_legacy_client_is_that_of_its_own_legacy_server() -> None:
    backs = Backs()
    async with Front(Bridge(backs), ASKABLE) as front:
        await front.initialize()
        for level in ("debug", "error"):
            await front.ask("logging/setLevel", level=level)
        assert [each["level"] for each in backs.all[0].notes("logging/setLevel")] == ["debug", "error"]
        with pytest.raises(Refused) as refused:
            await front.ask("logging/setLevel", level="loud")
        assert refused.value.code == INVALID_PARAMS


@pytest.mark.req("BRG-4")
@both_eras
async def test_results_of_the_same_revision_keep_their_bytes(revision: Revision) -> None:
    line = b'{"content":[ {"type":"text", "text":"\\u0041"} ],"resultType":"complete", "n":1E2}'

    async def odd(back: Back, request: dict[str, Any]) -> Any:
        return msgspec.Raw(line)

    async with Front(Bridge(Backs(revision, odd))) as front:
        if not revision.is_modern:
            await front.initialize()
        await front.call()
        assert front.results[-1] == line
