"""Calls to real servers: given up, timed out, extended, and with questions in between, in both eras."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mcplumb import ProtocolError, RemoteError, RequestCancelled, RequestTimeout, connect
from mcplumb.client import Elicitation
from tests.client.peers import skip
from tests.kit.loop import PATIENCE, run, until
from tests.kit.products import revision_names
from tests.kit.results import text_of
from tests.launch.harness import ERAS, HASTY_WAITS, LEGACY, MODERN, Message, Stage, say

CANCELLED = "notifications/cancelled"
BOTH = pytest.mark.parametrize("revision", ERAS)


def connection(stage: Stage, program: str, revision: str, options: Message | None = None, **more: Any) -> Any:
    return connect(stage.command(program, revisions=[revision], **(options or {})), waits=HASTY_WAITS, **more)


# Giving up


@BOTH
@pytest.mark.req("CAN-1")
async def test_a_cancelled_caller_is_told_to_the_server(stage: Stage, revision: str) -> None:
    async with connection(stage, "good", revision) as client:
        calls = [asyncio.create_task(client.call_tool("hold")) for _ in range(3)]
        held = await stage.log.wait_for_calls("hold", 3)
        calls[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await calls[1]
        (told,) = await stage.log.wait_for(CANCELLED)
        assert told["params"]["requestId"] == held[1]["id"]
        assert "id" not in told
        assert not calls[0].done()
        assert not calls[2].done()
        assert await say(client, "echo", text="on") == "on"
        for call in calls:
            call.cancel()


@BOTH
@pytest.mark.req("CAN-1", "CAN-5")
async def test_a_timeout_is_told_to_the_server(stage: Stage, revision: str) -> None:
    async with connection(stage, "good", revision, timeout=0.2) as client:
        with pytest.raises(RequestTimeout, match=r"hold.*0\.2 s"):
            await client.call_tool("hold")
        with pytest.raises(TimeoutError):
            await client.call_tool("hold", timeout=0.1)
        told = await stage.log.wait_for(CANCELLED, 2)
        assert [note["params"]["requestId"] for note in told] == [call["id"] for call in stage.log.calls("hold")]
        assert text_of(await client.call_tool("echo", {"text": "on"}, timeout=PATIENCE)) == "on"


@BOTH
@pytest.mark.req("CAN-5")
def test_progress_extends_a_timeout_up_to_the_hard_maximum(stage: Stage, revision: str) -> None:
    seen: list[float] = []

    async def main() -> None:
        async with connection(stage, "good", revision) as client:
            more = {"on_progress": lambda value, total, message: seen.append(value)}
            call = asyncio.create_task(client.call_tool("drip", timeout=100, max_timeout=150, **more))
            for _ in range(3):
                count = len(seen)
                await until(lambda: len(seen) > count)  # noqa: B023 - awaited at once
                assert not call.done()
                skip(60)
            with pytest.raises(RequestTimeout, match="max_timeout"):
                await call
            await stage.log.wait_for(CANCELLED)
            assert await say(client, "echo", text="on") == "on"

    run(main())
    assert seen == sorted(seen)


@BOTH
@pytest.mark.req("CAN-5", "LIF-10")
async def test_a_timeout_covers_the_writing(stage: Stage, revision: str) -> None:
    after = 1 if revision == MODERN else 2

    async with connection(stage, "hanging", revision, {"deaf_after": after}, revisions=[revision]) as client:
        await stage.log.wait_for_event("deaf")
        large = {"text": "x" * (4 << 20)}
        calls = [asyncio.create_task(client.call_tool("echo", large, timeout=0.3)) for _ in range(4)]
        for call in calls:
            with pytest.raises(RequestTimeout):
                await call


@BOTH
@pytest.mark.req("LIF-11")
def test_closing_ends_what_is_open(stage: Stage, revision: str) -> None:
    async def main() -> None:
        client = await connection(stage, "good", revision)
        calls = [asyncio.create_task(client.call_tool("hold")) for _ in range(5)]
        await stage.log.wait_for_calls("hold", 5)
        await client.close()
        for call in calls:
            with pytest.raises(RequestCancelled):
                await call

    run(main())
    assert len(stage.log.find(CANCELLED)) == 5


@BOTH
def test_progress_and_logs_reach_their_functions(stage: Stage, revision: str) -> None:
    progress: list[tuple[Any, ...]] = []
    logs: list[Any] = []

    async def main() -> None:
        async with connection(stage, "good", revision, on_log=lambda message: logs.append(message.data)) as client:
            result = await client.call_tool("count", {"to": 3}, on_progress=lambda *news: progress.append(news))
            assert result.content
            await until(lambda: len(logs) == 3, "the logs")

    run(main())
    assert progress[-1][:2] == (3, 3)
    assert logs == [1, 2, 3]


@BOTH
async def test_functions_that_fail_harm_nothing(stage: Stage, revision: str) -> None:
    def fail(*_: object) -> None:
        raise KeyError

    async with connection(stage, "good", revision, on_log=fail) as client:
        assert (await client.call_tool("count", {"to": 3}, on_progress=fail)).content
        assert await say(client, "echo", text="on") == "on"


@pytest.mark.req("LEG-4")
@pytest.mark.parametrize("revision", revision_names(LEGACY))
def test_ping_and_log_levels_of_legacy_servers(stage: Stage, revision: str) -> None:
    async def main() -> None:
        async with connection(stage, "asking", revision) as client:
            await client.ping()
            await client.set_log_level("warning")
            # And the other way round.
            answer = json.loads(await say(client, "ask", method="ping"))
            assert answer["result"] == {}

    run(main())
    assert stage.log.find("logging/setLevel")[0]["params"]["level"] == "warning"
    assert len(stage.log.find("ping")) == 1


# Lists


@BOTH
async def test_a_list_without_an_end_is_noticed(stage: Stage, revision: str) -> None:
    async with connection(stage, "asking", revision, {"pages": "again"}) as client:
        with pytest.raises(ProtocolError, match="no end"):
            await client.list_tools()
        assert (await client.tools_page()).next_cursor == "again"
        assert await say(client, "echo", text="on") == "on"


async def test_a_list_that_always_goes_on_is_noticed(stage: Stage) -> None:
    async with connection(stage, "asking", MODERN, {"pages": "on"}) as client:
        with pytest.raises(ProtocolError, match="no end"):
            await client.list_tools()


# Questions

FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 10}


def handlers(asked: list[Any]) -> dict[str, Any]:
    async def on_elicit(question: Elicitation) -> dict[str, Any]:
        asked.append(question.message)
        return {"name": "Ann"}

    def on_sample(params: Any) -> str:
        asked.append(params.max_tokens)
        return "Hello"

    return {"on_elicit": on_elicit, "on_sample": on_sample, "roots": ["/some/folder"]}


def brought(answer: str, revision: str) -> list[Message]:
    """What the server got from the client, in either era."""
    found = json.loads(answer)
    return list(found.values()) if revision == MODERN else [found["result"]]


@pytest.mark.req("MRT-4", "MRT-5", "LEG-4")
@pytest.mark.parametrize("revision", [MODERN, *LEGACY])
def test_the_same_handlers_answer_in_all_revisions(stage: Stage, revision: str) -> None:
    asked: list[Any] = []

    async def main() -> None:
        async with connection(stage, "asking", revision, **handlers(asked)) as client:
            for roots in brought(await say(client, "ask", method="roots/list"), revision):
                assert roots["roots"][0]["uri"] == "file:///some/folder"
            for sample in brought(await say(client, "ask", method="sampling/createMessage", params=SAMPLE), revision):
                assert sample["content"]["text"] == "Hello"
            if revision >= "2025-06-18":
                for form in brought(await say(client, "ask", method="elicitation/create", params=FORM), revision):
                    assert form == {"action": "accept", "content": {"name": "Ann"}}

    run(main())
    assert 10 in asked


@pytest.mark.req("MRT-4")
@pytest.mark.parametrize("rounds", [1, 5])
def test_rounds_have_new_ids_and_bring_the_state_back(stage: Stage, rounds: int) -> None:
    asked: list[Any] = []

    async def main() -> None:
        async with connection(stage, "asking", MODERN, **handlers(asked)) as client:
            # The server takes its own state apart, and fails if it is not what it was.
            answer = await say(client, "ask", method="elicitation/create", params=FORM, rounds=rounds)
            assert set(json.loads(answer)) == {"first", "second"}

    run(main())
    calls = stage.log.calls("ask")
    assert len(calls) == len({call["id"] for call in calls}) == rounds + 1
    assert len(asked) == 2 * rounds
    assert "requestState" not in calls[0]["params"]
    assert "inputResponses" not in calls[0]["params"]


@pytest.mark.req("MRT-4")
def test_a_server_that_asks_for_ever_is_given_up(stage: Stage) -> None:
    async def main() -> None:
        async with connection(stage, "asking", MODERN, **handlers([])) as client:
            with pytest.raises(ProtocolError, match="asked for input"):
                await say(client, "ask", method="elicitation/create", params=FORM, rounds=10**9)
            assert await say(client, "echo", text="on") == "on"

    run(main())
    assert len(stage.log.calls("ask")) < 100


@BOTH
@pytest.mark.req("MRT-4", "MRT-5")
async def test_a_question_for_which_there_is_no_handler(stage: Stage, revision: str) -> None:
    async with connection(stage, "asking", revision) as client:
        if revision == MODERN:
            with pytest.raises(ProtocolError, match="elicitation/create"):
                await say(client, "ask", method="elicitation/create", params=FORM)
        else:
            answer = json.loads(await say(client, "ask", method="elicitation/create", params=FORM))
            assert answer["error"]["code"] == -32601
        assert await say(client, "echo", text="on") == "on"


@BOTH
@pytest.mark.req("MRT-5")
async def test_a_handler_that_fails_harms_only_its_call(stage: Stage, revision: str) -> None:
    def fail(_: Elicitation) -> None:
        raise KeyError("broken handler")

    async with connection(stage, "asking", revision, on_elicit=fail) as client:
        other = asyncio.create_task(client.call_tool("hold"))
        if revision == MODERN:
            with pytest.raises(KeyError, match="broken handler"):
                await say(client, "ask", method="elicitation/create", params=FORM)
        else:
            answer = json.loads(await say(client, "ask", method="elicitation/create", params=FORM))
            assert answer["error"]["code"] == -32603
        assert await say(client, "echo", text="on") == "on"
        assert not other.done()
        other.cancel()


@pytest.mark.req("LEG-4")
async def test_a_method_that_the_client_does_not_have(stage: Stage) -> None:
    async with connection(stage, "asking", LEGACY[-1]) as client:
        answer = json.loads(await say(client, "ask", method="no/such/method"))
        assert answer["error"]["code"] == -32601
        with pytest.raises(RemoteError):
            await client.request("no/such/method")
