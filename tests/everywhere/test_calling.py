"""Calls of tools, whichever way they go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcplumb import Client
from mcplumb.errors import RemoteError, RequestTimeout
from mcplumb.types import ImageContent, TextContent
from tests.everywhere.ways import everywhere, meet
from tests.everywhere.words import structured, text

pytestmark = everywhere

LARGE = 5_000_000
#: One less than a client posts at the same time.
WAITING = 99


def test_a_call(way: str) -> None:
    async def body(client: Client) -> None:
        assert text(await client.call_tool("add", {"a": 1, "b": 2})) == "3"
        assert text(await client.call_tool("multiply", {"a": 6, "b": 7})) == "42"
        assert text(await client.call_tool("echo", {"text": "é\n\u2028\U0001f40d"})) == "é\n\u2028\U0001f40d"

    meet(way, body)


def test_structured_content(way: str) -> None:
    async def body(client: Client) -> None:
        result = await client.call_tool("report", {"city": "Oslo"})
        assert structured(result) == {"city": "Oslo", "celsius": 21.5}
        assert (result.structured_content is not None) == client.revision.has_structured_content

    meet(way, body)


def test_content_of_several_kinds(way: str) -> None:
    async def body(client: Client) -> None:
        result = await client.call_tool("paint")
        assert result.content == [TextContent("A dot:"), ImageContent("iVBORw==", "image/png")]

    meet(way, body)


def test_what_fails(way: str) -> None:
    async def body(client: Client) -> None:
        dry = await client.call_tool("fail", {"how": "tool"})
        assert (dry.is_error, text(dry)) == (True, "The well is dry.")
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("fail", {"how": "request"})
        error = caught.value
        assert (error.code, error.message, error.data) == (-32050, "Not today.", {"when": "tomorrow"})
        broken = await client.call_tool("fail", {"how": "otherwise"})
        assert broken.is_error
        assert "secret" not in text(broken)

    meet(way, body)


def test_what_cannot_be_called(way: str) -> None:
    async def body(client: Client) -> None:
        for arguments in ({"a": "one", "b": 2}, {"a": 1}, {"a": 1, "b": 2, "c": 3}):
            result = await client.call_tool("add", arguments)
            assert result.is_error, arguments
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("no such tool")
        assert caught.value.code == -32602
        assert text(await client.call_tool("add", {"a": 1, "b": 2})) == "3"

    meet(way, body)


def test_large_messages_both_ways(way: str) -> None:
    async def body(client: Client) -> None:
        large = "0123456789" * (LARGE // 10)
        assert text(await client.call_tool("echo", {"text": large})) == large
        results = await asyncio.gather(*(client.call_tool("echo", {"text": f"{n}" * 1_000_000}) for n in range(8)))
        assert [text(result) for result in results] == [f"{n}" * 1_000_000 for n in range(8)]

    meet(way, body)


def test_many_calls_at_once(way: str) -> None:
    async def body(client: Client) -> None:
        calls = (client.call_tool("add", {"a": n, "b": n}) for n in range(300))
        assert [text(result) for result in await asyncio.gather(*calls)] == [str(2 * n) for n in range(300)]
        threaded = (client.call_tool("multiply", {"a": n, "b": 2}) for n in range(100))
        assert [text(result) for result in await asyncio.gather(*threaded)] == [str(2 * n) for n in range(100)]

    meet(way, body)


def test_calls_that_wait_hold_up_nobody(way: str) -> None:
    async def body(client: Client) -> None:
        waiting = [asyncio.create_task(client.call_tool("seen", {"event": f"heard {n}"})) for n in range(WAITING)]
        assert text(await client.call_tool("add", {"a": 1, "b": 2})) == "3"
        for n in reversed(range(WAITING)):
            await client.notify("notifications/example", {"word": str(n)})
        assert [text(result) for result in await asyncio.gather(*waiting)] == ["1"] * WAITING

    meet(way, body)


@pytest.mark.parametrize("tool", ["hang", "spin"])
def test_a_call_that_is_cancelled_stops_on_the_server(way: str, tool: str) -> None:
    async def body(client: Client) -> None:
        call = asyncio.create_task(client.call_tool(tool))
        await client.call_tool("seen", {"event": f"{tool} began"})
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await client.call_tool("seen", {"event": f"{tool} was cancelled"})
        assert text(await client.call_tool("add", {"a": 1, "b": 2})) == "3"

    meet(way, body)


def test_one_of_many_calls_is_cancelled(way: str) -> None:
    async def body(client: Client) -> None:
        names = [f"hang {n}" for n in range(5)]
        calls = [asyncio.create_task(client.call_tool("hang", {"name": name})) for name in names]
        for name in names:
            await client.call_tool("seen", {"event": f"{name} began"})
        for call, name in zip(calls, names, strict=True):
            assert not call.done()
            call.cancel()
            await client.call_tool("seen", {"event": f"{name} was cancelled"})

    meet(way, body)


def test_a_call_that_takes_too_long_stops_on_the_server(way: str) -> None:
    async def body(client: Client) -> None:
        with pytest.raises(RequestTimeout):
            await client.call_tool("hang", timeout=0.2)
        await client.call_tool("seen", {"event": "hang began"})
        await client.call_tool("seen", {"event": "hang was cancelled"})

    meet(way, body)


@pytest.mark.parametrize("tool", ["count", "count_in_a_thread"])
def test_progress_and_logs(way: str, tool: str) -> None:
    seen: list[Any] = []
    logs: list[Any] = []

    async def body(client: Client) -> None:
        await client.set_log_level("info")
        result = await client.call_tool(tool, {"n": 3}, on_progress=lambda *news: seen.append(news))
        assert text(result) == "counted"
        told = client.revision.has_progress_message
        assert seen == [(step, 3, f"step {step}" if told else None) for step in (1, 2, 3)]
        assert logs == [{"step": step} for step in (1, 2, 3)]
        await client.set_log_level("error")
        await client.call_tool(tool, {"n": 1})
        assert len(logs) == 3

    meet(way, body, on_log=lambda log: logs.append(log.data))


def test_progress_of_calls_at_once_is_not_mixed_up(way: str) -> None:
    async def body(client: Client) -> None:
        news: list[list[float]] = [[] for _ in range(20)]

        async def call(n: int) -> None:
            await client.call_tool("count", {"n": n}, on_progress=lambda progress, *_: news[n].append(progress))

        await asyncio.gather(*map(call, range(20)))
        assert news == [list(range(1, n + 1)) for n in range(20)]

    meet(way, body)
