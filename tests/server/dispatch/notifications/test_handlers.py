"""Notification handlers are called in the order of arrival, and no faster than they can work."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.kit.loop import turns
from tests.server.harness import make_server, raw_client


async def test_a_handler_is_called_before_a_later_request_is_answered() -> None:
    server = make_server()
    heard: list[int] = []

    @server.on_notification("example.com/note")
    async def hear(params: dict[str, Any]) -> None:
        heard.append(params["n"])

    @server.tool
    async def notes() -> list[int]:
        return heard

    async with raw_client(server) as peer:
        for number in range(5):
            peer.notify("example.com/note", {"n": number})
        assert json.loads(await peer.text("notes")) == list(range(5))


async def test_handlers_that_do_not_keep_up_are_not_flooded() -> None:
    server = make_server()
    heard: list[int] = []
    go = asyncio.Event()

    @server.on_notification("example.com/note")
    async def hear(params: dict[str, Any]) -> None:
        heard.append(params["n"])
        await go.wait()

    async with raw_client(server) as peer:
        for number in range(5000):
            peer.notify("example.com/note", {"n": number})
        await turns(200)
        assert 0 < len(heard) < 500
        go.set()
        await peer.settled()
        assert heard == list(range(5000))
