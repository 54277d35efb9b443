"""Modern clients over HTTP: each POST stands alone, and most pass without a task."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcplumb import Bridge, Context, Server, connect
from mcplumb.protocol.subscription_state import Change
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from mcplumb.transports.address import HttpAddress
from mcplumb.transports.http_server.uvicorn_server import HttpListener
from tests.bridge import told_server
from tests.bridge.ends import Backs
from tests.kit.loop import PATIENCE, turns, until
from tests.transports.http_server.callers import Caller
from tests.transports.http_server.visits import Site

OWN = "notifications/example.com/own"


@asynccontextmanager
async def bridged(target: Any, **options: Any) -> AsyncIterator[tuple[Bridge, Site]]:
    bridge = Bridge(target, **options)
    app = bridge.asgi()
    listener = await HttpListener.open(app, HttpAddress("http", "127.0.0.1", 0, "/mcp"))
    site = Site(listener.address, app)
    try:
        yield bridge, site
    finally:
        await listener.close()
        site.leave()


def address_of(site: Site) -> str:
    return f"http://127.0.0.1:{site.address.port}/mcp"


@pytest.mark.req("BRG-3")
async def test_clients_at_once_get_their_own_answers() -> None:
    server = Server("s")
    gate = asyncio.Event()

    @server.tool
    async def echo(text: str) -> str:
        if text.endswith("0"):
            await gate.wait()
        return text

    async with bridged(server) as (_, site):

        async def call_often(name: str) -> None:
            async with connect(address_of(site)) as client:
                for number in range(1, 30):
                    text = f"{name} {number}"
                    assert (await client.call_tool("echo", {"text": text})).text == text

        async with asyncio.timeout(PATIENCE):
            calls = [asyncio.ensure_future(call_often(f"client {each}")) for each in range(8)]
            await asyncio.sleep(0.05)
            gate.set()
            await asyncio.gather(*calls)


@pytest.mark.req("BRG-6")
async def test_a_server_that_is_stopped_at_once_answers_what_it_works_on() -> None:
    server = Server("s")
    begun = asyncio.Queue[str]()
    gates = {"first": asyncio.Event(), "second": asyncio.Event()}

    @server.tool
    async def wait(word: str) -> str:
        begun.put_nowait(word)
        await gates[word].wait()
        return word

    async with bridged(server, idle=0) as (bridge, site):
        async with connect(address_of(site)) as client, asyncio.timeout(PATIENCE):
            calls = []
            for word in gates:
                calls.append(asyncio.ensure_future(client.call_tool("wait", {"word": word})))
                assert await begun.get() == word
            for word, call in zip(gates, calls, strict=True):
                gates[word].set()
                assert (await call).text == word
        await until(lambda: bridge.health == {"s": "idle"}, "the server to stop")


@pytest.mark.req("BRG-3")
async def test_a_client_that_leaves_cancels_its_call_at_the_server() -> None:
    server = Server("s")
    begun, cancelled = asyncio.Queue[str](), asyncio.Queue[str]()

    @server.tool
    async def wait(word: str) -> str:
        begun.put_nowait(word)
        try:
            await asyncio.sleep(0 if word == "first" else PATIENCE)
        except asyncio.CancelledError:
            cancelled.put_nowait(word)
            raise
        return word

    async with bridged(server) as (_, site), connect(address_of(site)) as client:
        await client.call_tool("wait", {"word": "first"})
        await begun.get()
        call = asyncio.ensure_future(client.call_tool("wait", {"word": "second"}))
        assert await begun.get() == "second"
        call.cancel()
        async with asyncio.timeout(PATIENCE):
            assert await cancelled.get() == "second"
        assert (await client.call_tool("wait", {"word": "first"})).text == "first"


@pytest.mark.req("BRG-1")
async def test_what_belongs_to_a_call_reaches_it() -> None:
    server = Server("s")

    @server.tool
    async def say(ctx: Context, word: str) -> str:
        await ctx.info(word)
        await ctx.progress(1, 2, word)
        return word

    async with bridged(server) as (_, site):
        log: list[Any] = []
        progress: list[str | None] = []

        def note(_: float, __: float | None, message: str | None) -> None:
            progress.append(message)

        async with connect(address_of(site), on_log=lambda message: log.append(message.data)) as client:
            await client.set_log_level("info")
            for word in ("a", "b"):
                called = client.call_tool("say", {"word": word}, on_progress=note)
                assert (await called).text == word
        assert log == progress == ["a", "b"]


@pytest.mark.req("BRG-1", "BRG-3")
@pytest.mark.parametrize("revision", [LATEST, LATEST_LEGACY], ids=str)
async def test_a_subscription_through_two_bridges_watches_the_server_of_the_client(revision: Revision) -> None:
    command = [sys.executable, told_server.__file__]
    async with bridged(command, revisions=[str(LATEST_LEGACY)], stderr="discard") as (inner, site):

        def is_settled() -> bool:
            (pool,) = inner._pools.values()
            guests = sum(instance.guests for instance in pool._instances)
            return not pool._starts and guests == (0 if revision.is_modern else 1)  # which watches the lists

        outer = Bridge(address_of(site))
        async with connect(outer, revisions=[str(revision)], on_elicit=lambda _: {"word": "x"}) as client:
            await client.list_tools()
            await until(is_settled, "the first subscription")
            async with client.listen(resources=["own:x"]) as changes:
                await client.call_tool("change", {"words": "x"})
                async with asyncio.timeout(PATIENCE):
                    assert await anext(changes) == Change("updates", "own:x")


@pytest.mark.req("BRG-4")
async def test_a_notification_that_comes_alone_reaches_a_modern_server() -> None:
    backs = Backs(LATEST)
    async with bridged(backs) as (_, site):
        caller = Caller(site)
        assert (await caller.notify(OWN, {"a": 1})).status == 202
        await until(lambda: bool(backs.all) and backs.all[0].notes(OWN) == [{"a": 1}], "the notification")
        assert (await caller.notify("notifications/roots/list_changed")).status == 202
        assert (await caller.notify(OWN, {"a": 2})).status == 202
        await until(lambda: len(backs.all[0].notes(OWN)) == 2, "the other notification")
        assert not backs.all[0].notes("notifications/roots/list_changed")
        assert len(backs.all) == 1


@pytest.mark.req("BRG-4")
async def test_a_notification_that_comes_alone_reaches_no_legacy_server() -> None:
    backs = Backs(LATEST_LEGACY)
    async with bridged(backs) as (_, site):
        caller = Caller(site)
        assert (await caller.notify(OWN, {"a": 1})).status == 202
        await until(lambda: bool(backs.all), "the server to start")
        await turns(20)
        assert (await caller.call("echo")).status == 200
        assert not backs.all[0].notes(OWN)


@pytest.mark.req("BRG-4", "GRP-1")
async def test_of_several_servers_those_that_run_get_a_notification_that_comes_alone() -> None:
    first, second = Backs(LATEST), Backs(LATEST)
    async with bridged({"first": first, "second": second}) as (bridge, site):
        caller = Caller(site)
        assert (await caller.notify(OWN, {"a": 1})).status == 202
        await turns(20)
        assert not first.all
        await (await caller.request("tools/list")).json()
        await until(lambda: set(bridge.health.values()) == {"running"}, "the servers to start")
        assert (await caller.notify(OWN, {"a": 2})).status == 202
        await until(lambda: first.all[0].notes(OWN) == second.all[0].notes(OWN) == [{"a": 2}], "the notification")


@pytest.mark.req("BRG-4")
async def test_a_notification_for_a_server_that_does_not_start_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "mcplumb.bridge")
    async with bridged(["/does/not/exist"]) as (_, site):
        assert (await Caller(site).notify(OWN)).status == 202
        await until(lambda: "did not reach the server" in caplog.text, "the log")
