"""A server at its addresses."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from mcplumb import Context, HttpOptions, Server, connect
from mcplumb.errors import ConnectError, RemoteError, RequestLost, UsageError
from mcplumb.server.address_host import AddressHost
from tests.kit.loop import PATIENCE, run, turns
from tests.kit.servers import serving
from tests.server.harness import standard_streams

HTTP = "http://127.0.0.1:0/mcp"
TCP = "tcp://127.0.0.1:0"


@pytest.fixture
def unix() -> Iterator[str]:
    with TemporaryDirectory() as folder:  # a path of its own, because that of pytest may be too long for a socket
        yield f"unix:{Path(folder) / 's'}"


def make_server(**options: Any) -> Server:
    server = Server("hosted", **options)

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


async def echo(address: str, text: str = "hello", **options: Any) -> str:
    async with connect(address, **options) as client:
        (content,) = (await client.call_tool("echo", {"text": text})).content
        return str(content.text)  # type: ignore[union-attr]


def visit(server: Server, addresses: list[str], body: Callable[[list[str]], Awaitable[object]], **options: Any) -> None:
    """Serve at the addresses while the body, which is told them, runs; then stop the server."""

    async def main() -> None:
        async with serving(server, *addresses, **options) as ready:
            await body(ready)
        assert len(asyncio.all_tasks()) == 1

    run(main())


@pytest.mark.req("STR-1", "STR-2")
def test_all_addresses_are_served_at_once(unix: str) -> None:
    async def body(addresses: list[str]) -> None:
        assert [address.partition(":")[0] for address in addresses] == ["unix", "tcp", "http"]
        assert all(":0" not in address for address in addresses)
        texts = [f"{number}" for number in range(6)]
        assert await asyncio.gather(*(echo(addresses[at % 3], text) for at, text in enumerate(texts))) == texts

    visit(make_server(), [unix, TCP, HTTP], body)


def test_the_address_says_where_the_endpoint_is() -> None:
    async def body(addresses: list[str]) -> None:
        (address,) = addresses
        assert address.endswith("/deep/inside")
        assert await echo(address) == "hello"

    visit(make_server(), ["http://127.0.0.1:0/deep/inside"], body)


def test_without_a_path_the_options_say_it() -> None:
    async def body(addresses: list[str]) -> None:
        (address,) = addresses
        assert address.endswith("/there")
        assert await echo(address) == "hello"

    visit(make_server(), ["http://127.0.0.1:0"], body, http=HttpOptions(path="/there"))


@pytest.mark.parametrize("address", [TCP, HTTP])
def test_what_was_accepted_is_finished_after_a_stop(address: str) -> None:
    server = make_server(stop_within=PATIENCE)
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow() -> str:
        has_begun.set()
        await may_end.wait()
        return "done"

    async def body(addresses: list[str]) -> None:
        async with connect(addresses[0], restart=False) as client:
            may_end.set()
            await client.call_tool("slow")  # over HTTP, the next request repeats the head of this one
            may_end.clear()
            has_begun.clear()
            call = asyncio.ensure_future(client.call_tool("slow"))
            await has_begun.wait()
            server.stop()
            await turns(100)
            may_end.set()
            assert (await call).content[0].text == "done"  # type: ignore[union-attr]
        with pytest.raises(ConnectError):
            await echo(addresses[0])

    visit(server, [address], body)


@pytest.mark.parametrize("address", [TCP, HTTP])
def test_what_does_not_finish_is_refused(address: str) -> None:
    server = make_server(stop_within=0.1)
    has_begun = asyncio.Event()

    @server.tool
    async def endless() -> None:
        has_begun.set()
        await asyncio.Event().wait()

    async def body(addresses: list[str]) -> None:
        async with connect(addresses[0], restart=False) as client:
            call = asyncio.ensure_future(client.call_tool("endless"))
            await has_begun.wait()
            server.stop()
            with pytest.raises(RemoteError, match="stopping"):
                await call

    visit(server, [address], body)


def test_it_can_be_stopped_from_another_thread_and_before_it_runs() -> None:
    server = make_server()

    async def body(_: list[str]) -> None:
        thread = threading.Thread(target=server.stop)
        thread.start()
        thread.join()

    visit(server, [TCP], body)
    host = AddressHost(server, [TCP])
    host.stop()
    run(host.run())
    assert not server.stop()


def test_a_cancelled_one_lets_everything_go(unix: str) -> None:
    server = make_server()

    async def main() -> None:
        ready = asyncio.Event()
        serving = asyncio.create_task(server.serve(unix, HTTP, on_ready=lambda _: ready.set()))
        await ready.wait()
        async with connect(unix, restart=False) as client:
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            assert client is not None
        assert len(asyncio.all_tasks()) == 1

    run(main())

    assert not Path(unix.removeprefix("unix:")).exists()


def test_one_address_that_cannot_be_served_ends_the_others(unix: str) -> None:
    server = make_server()
    taken = make_server()

    async def body(addresses: list[str]) -> None:
        with pytest.raises(ConnectError):
            await server.serve(TCP, HTTP, addresses[0])
        assert not server.stop()

    visit(taken, [unix], body)


def test_the_lifespan_lasts_from_the_first_address_to_the_last_connection() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        events.append("opened")
        yield "value"
        events.append("closed")

    server = make_server(lifespan=lifespan)

    @server.tool
    async def look(ctx: Context) -> str:
        return f"{ctx.lifespan} {events}"

    async def body(addresses: list[str]) -> None:
        assert events == ["opened"]
        for address in addresses * 2:
            async with connect(address) as client:
                assert (await client.call_tool("look")).content[0].text == "value ['opened']"  # type: ignore[union-attr]

    visit(server, [TCP, HTTP], body)
    assert events == ["opened", "closed"]


def test_a_lifespan_that_fails_is_told_and_nothing_is_served() -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    with pytest.raises(OSError, match="no database"):
        run(make_server(lifespan=lifespan).serve(TCP))


async def test_stdio_beside_an_address_ends_with_its_input() -> None:
    server = make_server()

    ready: asyncio.Queue[str] = asyncio.Queue()
    with standard_streams() as streams:
        serving = asyncio.create_task(server.serve("stdio", TCP, on_ready=ready.put_nowait))
        assert await echo(await ready.get()) == "hello"
        streams.end()
        await serving


def test_addresses_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcplumb.server")

    async def body(addresses: list[str]) -> None:
        assert f"Serving at {addresses[0]}" in caplog.messages

    visit(make_server(), [TCP], body)


@pytest.mark.parametrize(
    ("addresses", "options", "what"),
    [
        (["unix:/x"], {"tls": ssl.create_default_context()}, "tls is for tcp"),
        (["stdio"], {"tls": ssl.create_default_context()}, "tls is for tcp"),
        ([TCP], {"http": HttpOptions()}, "http is for http"),
        (["https://127.0.0.1:0/mcp"], {}, "https:// needs tls"),
        ([HTTP], {"tls": ssl.create_default_context()}, "https:// needs tls"),
        (["ftp://x"], {}, "ftp"),
        ([TCP, "python x.py"], {}, "cannot run on 'python x.py'"),
    ],
)
def test_what_does_not_fit_is_refused(addresses: list[str], options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        asyncio.run(make_server().serve(*addresses, **options))
    with pytest.raises(UsageError, match=what):
        make_server().run(*addresses, **options)


@pytest.mark.parametrize("address", [TCP, HTTP])
@pytest.mark.parametrize("times", [1, 2])
def test_a_cancelled_one_does_not_wait_for_what_runs(
    address: str, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(stop_within=10 * PATIENCE)
    has_begun = asyncio.Event()

    @server.tool
    async def endless() -> None:
        has_begun.set()
        await asyncio.Event().wait()

    async def main() -> None:
        ready: asyncio.Queue[str] = asyncio.Queue()
        serving = asyncio.create_task(server.serve(address, on_ready=ready.put_nowait))
        async with connect(await ready.get(), restart=False) as client:
            call = asyncio.ensure_future(client.call_tool("endless"))
            await has_begun.wait()
            for _ in range(times):
                serving.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await serving
            with pytest.raises((RequestLost, RemoteError)):
                await call
        assert len(asyncio.all_tasks()) == 1

    run(main())
    assert "Traceback" not in caplog.text
