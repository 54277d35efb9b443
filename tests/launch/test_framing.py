"""What is on the pipes: only messages to the server, and whatever it writes is borne."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcplumb import McplumbError, ProtocolError, RemoteError, RequestTimeout, connect
from mcplumb.limits import Limits
from tests.kit.loop import run
from tests.kit.products import revision_names, spread
from tests.launch.harness import ERAS, HASTY_STOP, HASTY_WAITS, MODERN, Stage, say

META = "io.modelcontextprotocol/"

#: Lines that are no messages, each of which is passed over.
NOISE = {
    "text": "Server started on port 8000.\n",
    "bad UTF-8": '{"jsonrpc": "2.0", "method": "\xff\xfe"}\n',
    "half a message": '{"jsonrpc": "2.0", "id": 1, "resu\n',
    "a number": "17\n",
    "null": "null\n",
    "an object": "{}\n",
    "another version": '{"jsonrpc": "1.0", "method": "notifications/x"}\n',
    "a deep one": "[" * 5000 + "]" * 5000 + "\n",
    "zero bytes": "\x00\x00\x00\n",
    "a logged line": "\x1b[32mINFO\x1b[0m ready\n",
    "an empty batch": "[]\n",
}


async def talk(command: list[str], **options: Any) -> tuple[list[str], int]:
    """Ten calls at once; their answers, and the number of bad lines."""
    async with connect(command, waits=HASTY_WAITS, **options) as client:
        answers = await asyncio.gather(*(say(client, "echo", text=f"täxt {number}") for number in range(10)))
        return answers, client.stats.bad_lines


EXPECTED = [f"täxt {number}" for number in range(10)]


@pytest.mark.req("FRM-4")
@pytest.mark.parametrize("revision", ERAS)
@pytest.mark.parametrize("kind", spread(NOISE, 4))
def test_bad_lines_are_counted_and_passed_over(stage: Stage, kind: str, revision: str) -> None:
    answers, bad = run(talk(stage.command("garbling", revisions=[revision], before=NOISE[kind])))
    assert answers == EXPECTED
    assert bad >= 10


@pytest.mark.req("FRM-9")
@pytest.mark.parametrize(
    "options",
    [
        {"ending": "\r\n"},
        {"first": "\xef\xbb\xbf"},
        {"before": "\n\r\n  \n\t\n"},
        {"first": "\xef\xbb\xbf", "before": "\r\n", "ending": "\r\n", "pieces": 7},
        {"pieces": 1},
    ],
)
@pytest.mark.parametrize("revision", ERAS)
def test_line_ends_blank_lines_and_a_mark_are_tolerated(stage: Stage, options: dict[str, Any], revision: str) -> None:
    assert run(talk(stage.command("garbling", revisions=[revision], **options))) == (EXPECTED, 0)


@pytest.mark.req("FRM-5")
def test_a_line_that_is_too_long_is_skipped(stage: Stage) -> None:
    command = stage.command("flooding", what="line", bytes=20 << 20)
    answers, bad = run(talk(command, limits=Limits(max_line=1 << 20)))
    assert (answers, bad) == (EXPECTED, 1)


@pytest.mark.req("FRM-5")
@pytest.mark.parametrize("revision", ERAS)
async def test_an_answer_that_is_too_long_names_the_cap(stage: Stage, revision: str) -> None:
    async with connect(stage.command("good", revisions=[revision]), limits=Limits(max_line=10_000)) as client:
        with pytest.raises(ProtocolError, match=r"10,?000"):
            await client.call_tool("echo", {"text": "x" * 20_000}, timeout=30)
        assert await say(client, "echo", text="short") == "short"


@pytest.mark.req("FRM-3", "FRM-8")
@pytest.mark.parametrize("revision", revision_names())
def test_only_messages_reach_the_server(stage: Stage, revision: str) -> None:
    texts = ["", "a\nb\r\n\tc", "\x00\x1b", "é\u2028\u2029\U0001f600", "\\n\"'", "\ufeff", "x" * 300_000]

    async def main() -> None:
        async with connect(stage.command("good", revisions=[revision]), waits=HASTY_WAITS) as client:
            assert [await say(client, "echo", text=text) for text in texts] == texts
            await client.list_tools()
            await client.list_resources()
            await client.list_resource_templates()
            await client.list_prompts()
            await client.read_resource("test://ü\n")
            await client.get_prompt("plan", {"a": "b\nc"})
            await client.complete("plan", "a", "b")
            await client.ping()
            await client.set_log_level("debug")
            await client.request("tools/list", {"x": {"y": [None, 1.5, True]}})
            await client.notify("notifications/own", {"é": "\n"})
            for bad in (float("nan"), float("inf"), "\ud800", object()):
                with pytest.raises((McplumbError, TypeError, ValueError)):
                    await client.call_tool("echo", {"text": bad})
            with pytest.raises(RemoteError):
                await client.call_tool("no such tool")
            async with client.listen(tools=True, resources=["test://one"]):
                pass
            call = asyncio.create_task(client.call_tool("hold"))
            await stage.log.wait_for_calls("hold")
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    run(main())
    messages = stage.log.messages()  # each of them is read strictly
    ids = [message["id"] for message in messages if "id" in message]
    assert len(ids) == len(set(ids))
    assert "torn" not in stage.log.events()
    assert "end of input" in stage.log.events()


@pytest.mark.req("META-1")
def test_each_modern_request_carries_its_metadata(stage: Stage) -> None:
    async def main() -> None:
        async with connect(stage.command("good"), roots=["/srv"]) as client:
            await client.list_tools()
            await client.call_tool("echo", {"text": "x"}, meta={"traceparent": "00-1-2-01"})
            await client.read_resource("test://one", on_progress=print)
            async with client.listen(tools=True):
                pass
            await client.ping()
        async with connect(stage.command("good"), client_info=None) as client:
            await client.list_tools()

    run(main())
    first, second = stage.log.pids
    for pid in (first, second):
        requests = [message for message in stage.log.messages(pid) if "id" in message]
        assert requests
        for request in requests:
            meta = request["params"]["_meta"]
            assert meta[META + "protocolVersion"] == MODERN
            assert ("roots" in meta[META + "clientCapabilities"]) == (pid == first)
            assert (META + "clientInfo" in meta) == (pid == first)
    assert stage.log.calls("echo")[0]["params"]["_meta"]["traceparent"] == "00-1-2-01"


# Answers that no client can expect

GOOD_ENOUGH = [
    "twice",
    "with unknown ids first",
    "with an error without an id first",
    "without a result type",
    "with progress for nobody",
    "with a cancellation",
]
BAD = [
    "a list",
    "a string",
    "null",
    "no content",
    "content of another type",
    "an unknown result type",
    "a result type that is a number",
    "input that nobody named",
    "with result and error",
    "with a broken error",
]


@pytest.mark.req("FRM-8", "CAN-4", "DIR-4")
@pytest.mark.parametrize("how", GOOD_ENOUGH)
async def test_odd_answers_that_can_be_understood(stage: Stage, how: str) -> None:
    async with connect(stage.command("odd")) as client:
        for _ in range(2):
            assert await say(client, "odd", how=how) == "done"
        assert await say(client, "echo", text="well") == "well"
        stats = client.stats
        if how == "twice":
            assert stats.late_answers == 2
        if how == "with unknown ids first":
            assert stats.unknown_answers + stats.bad_lines >= 10


@pytest.mark.req("FRM-4", "DIR-4")
@pytest.mark.parametrize("how", spread(BAD, 4))
async def test_odd_answers_that_cannot_be_understood_harm_only_their_calls(stage: Stage, how: str) -> None:
    async with connect(stage.command("odd")) as client:
        other = asyncio.create_task(client.call_tool("hold"))
        with pytest.raises(ProtocolError):
            await client.call_tool("odd", {"how": how})
        assert await say(client, "echo", text="well") == "well"
        assert not other.done()
        other.cancel()


async def test_an_error_arrives_whole(stage: Stage) -> None:
    async with connect(stage.command("odd")) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("odd", {"how": "with an error"})
        assert (caught.value.code, caught.value.message, caught.value.data) == (-32050, "No.", {"why": 1})


@pytest.mark.req("CAN-4", "CAN-1")
async def test_a_late_answer_is_counted_and_harms_nobody(stage: Stage) -> None:
    async with connect(stage.command("odd")) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("odd", {"how": "late"}, timeout=0.2)
        await stage.log.wait_for_event("late")
        assert await say(client, "echo", text="well") == "well"
        assert client.stats.late_answers == 1


@pytest.mark.req("DIR-1", "DIR-3")
def test_requests_of_a_modern_server_are_not_answered(stage: Stage) -> None:
    async def main() -> None:
        async with connect(stage.command("asking", rogue=True), roots=["/srv"], stop=HASTY_STOP) as client:
            for _ in range(5):
                assert await say(client, "echo", text="well") == "well"
            assert client.stats.violations >= 10

    run(main())
    assert "answer" not in stage.log.methods()
