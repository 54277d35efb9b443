"""What a server serves at ``/metrics``, and a bridge of the servers behind it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mcplumb import Context, HttpOptions, Server, connect
from mcplumb.bridge.bridge import Bridge
from mcplumb.errors import McplumbError, RemoteError
from mcplumb.revisions import LATEST, LATEST_LEGACY
from mcplumb.version import __version__
from tests.kit.loop import PATIENCE
from tests.kit.servers import serving

ADDRESS = "http://127.0.0.1:0/mcp"
METRICS = HttpOptions(metrics=True)
ERAS = pytest.mark.parametrize("revision", [LATEST.name, LATEST_LEGACY.name])


class Scrape(dict[str, dict[tuple[str, ...], float]]):
    """The samples by name, and by their labels in alphabetical order of the names."""

    def number(self, name: str, *labels: str) -> float:
        return self.get(name, {}).get(labels, 0)


async def get(url: str, path: str, **headers: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(url.replace("/mcp", path), headers=headers) as response:
        return response.status, response.headers.get("content-type", ""), await response.text()


async def scrape(url: str) -> Scrape:
    status, kind, text = await get(url, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = Scrape()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(value for name, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


async def until(condition: Callable[[Scrape], bool], url: str) -> Scrape:
    async with asyncio.timeout(PATIENCE):
        while not condition(found := await scrape(url)):  # noqa: ASYNC110 - others change it
            await asyncio.sleep(0.01)
    return found


def example() -> tuple[Server, asyncio.Event]:
    server, go_on = Server("example"), asyncio.Event()

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def fail() -> str:
        raise ValueError

    @server.tool
    async def wait() -> str:
        await go_on.wait()
        return "done"

    @server.on_request("example/custom")
    async def custom(params: dict[str, Any]) -> dict[str, Any]:
        return {"custom": True}

    return server, go_on


@pytest.mark.req("SCL-5")
@ERAS
async def test_calls_are_counted_by_method_tool_and_outcome(revision: str) -> None:
    server, _ = example()
    async with serving(server, ADDRESS, http=METRICS) as (url,), connect(url, revisions=[revision]) as client:
        for _ in range(3):
            await client.call_tool("add", {"a": 1, "b": 2})
        await client.call_tool("fail")
        await client.request("example/custom", {})
        for unknown in ("nothing", "nobody"):
            with pytest.raises(RemoteError):
                await client.call_tool(unknown)
        for method in ("unknown/method", "another/one"):
            with pytest.raises(RemoteError):
                await client.request(method, {})
        found = await scrape(url)
    total, count = "mcplumb_requests_total", "mcplumb_request_duration_seconds_count"
    assert found.number(total, "tools/call", "ok", "add") == found.number(count, "tools/call", "add") == 3
    assert found.number(total, "tools/call", "tool_error", "fail") == 1
    assert found.number(total, "tools/call", "-32602", "other") == 2
    assert found.number(total, "other", "-32601", "") == 2
    assert found.number(total, "example/custom", "ok", "") == 1
    opening = "server/discover" if revision == LATEST.name else "initialize"
    assert found.number(total, opening, "ok", "") == 1
    assert found.number("mcplumb_info", __version__) == 1
    assert found.number("mcplumb_bad_messages_total") == 0


@pytest.mark.req("SCL-5")
async def test_what_is_open_is_shown() -> None:
    server, go_on = example()
    async with serving(server, ADDRESS, http=METRICS) as (url,), connect(url) as client:
        async with connect(url, revisions=[LATEST_LEGACY.name]) as legacy, client.listen(tools=True):
            waiting = [asyncio.ensure_future(each.call_tool("wait")) for each in (client, client, legacy)]
            found = await until(lambda found: found.number("mcplumb_requests_in_flight") == 3, url)
            assert found.number("mcplumb_subscriptions") == 1
            assert found.number("mcplumb_sessions", "streamable_http") == 1
            assert found.number("mcplumb_sessions", "http_sse") == 0
            await until(lambda found: found.number("mcplumb_streams") >= 2, url)  # the subscription, and the legacy GET
            go_on.set()
            await asyncio.gather(*waiting)
        found = await until(lambda found: found.number("mcplumb_streams") == 0, url)
        assert found.number("mcplumb_requests_in_flight") == found.number("mcplumb_subscriptions") == 0


async def test_an_address_that_is_not_served_any_more_is_not_asked() -> None:
    server, _ = example()
    async with serving(server, ADDRESS, http=METRICS) as (url,):
        assert "mcplumb_sessions" in await scrape(url)
    families = {family.name for family in server.metrics.registry.snapshot()}
    assert "mcplumb_requests_in_flight" in families
    assert "mcplumb_sessions" not in families


@pytest.mark.req("SCL-5")
async def test_what_is_refused_is_counted() -> None:
    server, _ = example()
    headers = {"content-type": "application/json", "accept": "application/json", "mcp-protocol-version": LATEST.name}
    async with serving(server, ADDRESS, "tcp://127.0.0.1:0", http=METRICS) as (url, tcp):
        async with aiohttp.ClientSession() as session:
            for body in (b"{", b"[]"):
                async with session.post(url, data=body, headers=headers) as response:
                    assert response.status == 400
        assert (await get(url, "/nothing"))[0] == 404
        reader, writer = await asyncio.open_connection(*tcp.removeprefix("tcp://").split(":"))
        request = b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}\n'
        writer.write(b"nonsense\n" + request % 1)
        await reader.readline()
        await reader.readline()
        writer.close()
        found = await scrape(url)
    assert found.number("mcplumb_http_refused_total", "400") == 2
    assert found.number("mcplumb_http_refused_total", "404") == 1
    assert found.number("mcplumb_bad_messages_total") == 1
    assert sum(found["mcplumb_requests_refused_total"].values()) == 1


async def test_a_cancelled_call_is_counted() -> None:
    server, _ = example()
    async with serving(server, ADDRESS, http=METRICS) as (url,), connect(url) as client:
        waiting = asyncio.ensure_future(client.call_tool("wait"))
        await until(lambda found: found.number("mcplumb_requests_in_flight") == 1, url)
        waiting.cancel()
        await until(lambda found: found.number("mcplumb_requests_total", "tools/call", "cancelled", "wait") == 1, url)


@pytest.mark.req("SCL-5")
async def test_metrics_are_there_where_they_are_asked_for() -> None:
    server, _ = example()
    async with serving(server, ADDRESS) as (url,), connect(url) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        assert (await get(url, "/metrics"))[0] == 404


@pytest.mark.req("SCL-5")
async def test_metrics_need_a_token_if_the_endpoint_does() -> None:
    server, _ = example()
    async with serving(server, ADDRESS, http=HttpOptions(tokens=("secret",), metrics=True)) as (url,):
        assert (await get(url, "/metrics"))[0] == 401
        assert (await get(url, "/metrics", authorization="Bearer secret"))[0] == 200
        assert (await get(url, "/metrics", host="evil.example"))[0] == 403
    async with serving(server, ADDRESS, http=HttpOptions(tokens=("secret",), metrics="open")) as (url,):
        assert (await get(url, "/metrics"))[0] == 200
        assert (await get(url, "/metrics", host="evil.example"))[0] == 403


SERVER = """
import os
from mcplumb import Server
server = Server("behind")
@server.tool
async def add(a: int, b: int) -> int:
    return a + b
@server.tool
async def crash() -> str:
    os._exit(3)
server.run()
"""


@pytest.mark.req("SCL-5")
@ERAS
async def test_a_bridge_counts_the_servers_behind_it(tmp_path: Any, revision: str) -> None:
    (tmp_path / "behind.py").write_text(SERVER)
    command = [sys.executable, str(tmp_path / "behind.py")]
    bridge = Bridge({"one": command, "two": command})
    async with serving(bridge, ADDRESS, http=METRICS) as (url,), connect(url, revisions=[revision]) as client:
        for _ in range(2):
            assert (await client.call_tool("one_add", {"a": 1, "b": 2})).text == "3"
        with pytest.raises(McplumbError):
            await client.call_tool("one_crash")
        assert (await client.call_tool("one_add", {"a": 1, "b": 2})).text == "3"
        found = await scrape(url)
    assert found.number("mcplumb_backend_requests_total", "ok", "one") >= 3
    assert found.number("mcplumb_backend_requests_total", "RequestLost", "one") == 1
    assert found.number("mcplumb_backend_restarts_total", "one") == 1
    assert found.number("mcplumb_backend_restarts_total", "two") == 0
    assert found.number("mcplumb_backend_requests_in_flight", "one") == 0
    assert found.number("mcplumb_requests_total", "tools/call", "ok", "one_add") == 3


async def test_a_bridge_to_one_server_does_not_show_its_command_line(tmp_path: Any) -> None:
    (tmp_path / "behind.py").write_text(SERVER)
    bridge = Bridge([sys.executable, str(tmp_path / "behind.py"), "--token=hidden"])
    async with serving(bridge, ADDRESS, http=METRICS) as (url,), connect(url) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
        _, _, text = await get(url, "/metrics")
    assert 'server="server"' in text
    assert "hidden" not in text


async def test_a_function_that_asks_its_client_is_counted_once(tmp_path: Any) -> None:
    server = Server("asks")

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", {"type": "object", "properties": {}})).action

    options: dict[str, Any] = {"revisions": [LATEST_LEGACY.name], "on_elicit": lambda _: {}}
    async with serving(server, ADDRESS, http=METRICS) as (url,), connect(url, **options) as client:
        assert (await client.call_tool("ask")).text == "accept"
        found = await scrape(url)
    assert found.number("mcplumb_requests_total", "tools/call", "ok", "ask") == 1
    assert not any("elicitation/create" in labels for labels in found["mcplumb_requests_total"])
