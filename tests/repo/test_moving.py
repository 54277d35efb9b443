"""The ways around that the page about moving from FastMCP shows do what they say, over HTTP."""

from __future__ import annotations

import asyncio
import importlib
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mcplumb import ConnectError, connect
from tests.repo.source import ROOT
from tools.doc_examples import example


async def test_the_ways_around_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "moved.py").write_text(example(ROOT / "docs" / "howto" / "move-from-fastmcp.md"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    page: Any = importlib.import_module("moved")
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        page.server.serve("http://127.0.0.1:0/mcp", http=page.options, on_ready=ready.set_result)
    )
    caplog.set_level(logging.INFO)
    async with connect(await ready, token="a-token") as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert tools["radar"].description == "The rain of the next hour."
        assert tools["radar"].input_schema["required"] == ["city"]
        assert (await client.call_tool("radar", {"city": "Oslo"})).text == "no rain in Oslo"
        assert any("radar took" in record.getMessage() for record in caplog.records)
        assert (await client.call_tool("sea_tides", {"harbour": "Bergen"})).text == "low tide in Bergen"
        result = await client.call_tool("report", {"city": "Oslo", "weather": "sun"})
        assert result.raise_for_error().text == "alice of the team coast says: sun in Oslo"
    with pytest.raises(ConnectError, match="The bearer token is invalid"):
        await connect(ready.result(), token="another")
    async with connect(page.server) as client:  # no HTTP, so no token
        result = await client.call_tool("report", {"city": "Oslo", "weather": "sun"})
        assert result.text == "the owner says: sun in Oslo"
    serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving
