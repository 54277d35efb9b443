"""Clients of servers at sockets: connections that are lost, and found again."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcplumb import Client, Server, connect
from mcplumb.client.link import SocketLink
from mcplumb.errors import Closed, ConnectError, RequestLost, ServerDown
from mcplumb.limits import DEFAULT_LIMITS
from mcplumb.protocol.restart import RestartPolicy
from mcplumb.protocol.subscription_state import Change, Missed
from mcplumb.transports.address import TcpAddress, UnixAddress
from mcplumb.transports.socket_listener import Listener
from mcplumb.types import CallToolResult, TextContent
from tests.kit.loop import run, turns
from tests.kit.servers import serving
from tests.transports.ends import Recorder
from tests.transports.socket_ends import CERTIFICATES, LOCAL, WAYS, echo, short_folder, tls_of_client, tls_of_server

#: Tries again soon, and for as long as it takes a process to start on a slow machine.
PATIENT = RestartPolicy(first_wait=0.05, max_wait=0.2, jitter=0, breaker_after=1000)

# A server that notes each call in a file, and does not come back from the first one of "stuck" and "once".
SERVER = """
import asyncio, sys
from mcplumb import Server
from mcplumb.types import ToolAnnotations
from mcplumb.transports.tls import server_tls

address, notes, *certificate = sys.argv[1:]
server = Server("remote")

async def hang_at_first(name):
    with open(notes, "a+") as file:
        file.seek(0)
        is_first = name not in file.read()
        print(name, file=file, flush=True)
    if is_first:
        await asyncio.Event().wait()
    return "done"

@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def stuck() -> str:
    return await hang_at_first("stuck")

@server.tool
async def once() -> str:
    return await hang_at_first("once")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

@server.tool
async def change() -> str:
    server.resource_changed("note:///x")
    return "changed"

@server.resource("note:///x")
def note() -> str:
    return "x"

server.run(address, tls=server_tls(*certificate) if certificate else None, on_ready=lambda at: print(at, flush=True))
"""


class Remote:
    """A server in a process of its own, that can be killed and started again at the same address."""

    def __init__(self, folder: Path, way: str) -> None:
        self.notes = folder / "notes"
        self.notes.touch()
        self.address = f"unix:{folder}/s" if way == "unix" else "tcp://127.0.0.1:0"
        self.tls = tls_of_client() if way == "tls" else None
        self._files = [str(CERTIFICATES / "server.pem"), str(CERTIFICATES / "server.key")] if way == "tls" else []
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, self.address, str(self.notes), *self._files],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        assert self.address

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.communicate(timeout=60)
            self._process = None

    async def noted(self, name: str) -> None:
        """Wait until a call has begun."""
        while name not in self.notes.read_text():  # noqa: ASYNC110 - what is waited for is another process
            await asyncio.sleep(0.01)


@contextmanager
def remote(way: str) -> Iterator[Remote]:
    with short_folder() as folder:
        server = Remote(folder, way)
        try:
            yield server
        finally:
            server.stop()


def talk(way: str, body: Callable[[Client, Remote], Awaitable[None]], **options: Any) -> None:
    with remote(way) as server:

        async def main() -> None:
            async with connect(server.address, tls=server.tls, restart=PATIENT, **options) as client:
                await body(client, server)

        run(main())


def text(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


# --- Lost and found again ---


@pytest.mark.req("STR-3")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_that_was_started_again_is_found_again(way: str, how: signal.Signals) -> None:
    async def body(client: Client, server: Remote) -> None:
        assert text(await client.call_tool("add", {"a": 1, "b": 2})) == "3"
        await asyncio.to_thread(server.stop, how)
        calling = asyncio.ensure_future(client.call_tool("add", {"a": 3, "b": 4}))
        await turns()
        await asyncio.to_thread(server.start)
        assert text(await calling) == "7"
        assert client.process is None

    talk(way, body, retry="always")


@pytest.mark.req("STR-3")
@pytest.mark.parametrize("way", WAYS)
def test_a_safe_call_is_sent_again_and_no_other(way: str) -> None:
    async def body(client: Client, server: Remote) -> None:
        await client.list_tools()  # which says what is safe
        safe = asyncio.ensure_future(client.call_tool("stuck"))
        unsafe = asyncio.ensure_future(client.call_tool("once"))
        await server.noted("stuck")
        await server.noted("once")
        await asyncio.to_thread(server.stop)
        with pytest.raises(RequestLost, match=f"The server is at {server.address}"):
            await unsafe
        await asyncio.to_thread(server.start)
        assert text(await safe) == "done"
        assert server.notes.read_text().split() == ["stuck", "once", "stuck"]

    talk(way, body)


@pytest.mark.req("STR-3")
@pytest.mark.parametrize("revisions", [None, ["2025-11-25"]])
@pytest.mark.parametrize("way", WAYS)
def test_subscriptions_are_opened_again_and_say_so(way: str, revisions: list[str] | None) -> None:
    async def body(client: Client, server: Remote) -> None:
        async with client.listen(resources=["note:///x"]) as changes:
            await client.call_tool("change")
            assert await anext(changes) == Change("updates", "note:///x")
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            assert await anext(changes) == Missed()
            await client.call_tool("change")
            assert await anext(changes) == Change("updates", "note:///x")

    talk(way, body, revisions=revisions, retry="always")


@pytest.mark.req("STR-3")
def test_a_server_that_stays_away_fails_its_calls() -> None:
    with remote("unix") as server:

        async def main() -> None:
            policy = RestartPolicy(first_wait=0.01, max_wait=0.01, jitter=0, breaker_after=3)
            async with connect(server.address, restart=policy, retry="always") as client:
                await asyncio.to_thread(server.stop)
                with pytest.raises(ServerDown, match=r"has failed \d+ times in a row.*nothing listens there"):
                    await client.call_tool("add", {"a": 1, "b": 2})

        run(main())


def test_without_a_policy_it_is_not_looked_for() -> None:
    with remote("unix") as server:

        async def main() -> None:
            async with connect(server.address, restart=False) as client:
                await asyncio.to_thread(server.stop)
                with pytest.raises((Closed, RequestLost), match="The server is at unix:"):
                    await client.call_tool("add", {"a": 1, "b": 2})

        run(main())


# --- With a server of this process ---


@pytest.mark.req("STR-2")
@pytest.mark.parametrize("way", WAYS)
async def test_many_clients_of_both_eras_at_once(way: str) -> None:
    server = Server("many")

    @server.tool
    async def twice(n: int) -> int:
        return 2 * n

    with short_folder() as folder:
        address = f"unix:{folder}/s" if way == "unix" else "tcp://:0"
        ours, theirs = (tls_of_server(), tls_of_client()) if way == "tls" else (None, None)
        async with serving(server, address, tls=ours) as (at,):
            modern = [await connect(at, tls=theirs) for _ in range(5)]
            legacy = [await connect(at, tls=theirs, revisions=["2025-11-25"]) for _ in range(5)]
            for number, client in enumerate(modern + legacy):
                if number % 2:
                    await client.close()
            for number, client in enumerate(modern + legacy):
                if not number % 2:
                    assert text(await client.call_tool("twice", {"n": number})) == str(2 * number)
                    await client.close()


@pytest.mark.req("STR-2")
@pytest.mark.parametrize("way", WAYS)
async def test_a_clean_stop_answers_what_was_accepted(way: str) -> None:
    server = Server("slow")
    begun, release = asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow() -> str:
        begun.set()
        await release.wait()
        return "x" * 1_000_000

    with short_folder() as folder:
        address = f"unix:{folder}/s" if way == "unix" else "tcp://:0"
        ours, theirs = (tls_of_server(), tls_of_client()) if way == "tls" else (None, None)
        async with serving(server, address, tls=ours) as (at,), connect(at, tls=theirs, restart=False) as client:
            calling = asyncio.ensure_future(client.call_tool("slow"))
            await begun.wait()
            server.stop()
            await turns()
            release.set()
            assert len(text(await calling)) == 1_000_000


def test_a_server_that_refuses_the_clients_certificate_says_so() -> None:
    async def main() -> None:
        async with serving(Server("strict"), "tcp://:0", tls=tls_of_server(checks_clients=True)) as (at,):
            async with connect(at, tls=tls_of_client("client")) as client:
                await client.ping()
            for identity in (None, "stranger"):
                with pytest.raises(ConnectError, match=r"Reading failed: .*(CERTIFICATE_REQUIRED|UNKNOWN_CA|reset)"):
                    await connect(at, tls=tls_of_client(identity))

    logging.getLogger("mcplumb.server").setLevel(logging.CRITICAL)
    try:
        run(main())
    finally:
        logging.getLogger("mcplumb.server").setLevel(logging.NOTSET)


async def test_a_port_with_tls_that_is_used_without() -> None:
    async with serving(Server("secure"), "tcp://:0", tls=tls_of_server()) as (at,):
        with pytest.raises(ConnectError, match=rf"Perhaps it requires TLS, or is not an MCP server\. .* {at}\."):
            await connect(at)


async def test_nothing_is_there() -> None:
    with pytest.raises(ConnectError, match="cannot be reached: there is no such file"):
        await connect("unix:/there/is/nothing")


# --- The link by itself ---


def link_to(address: UnixAddress | TcpAddress) -> SocketLink:
    return SocketLink(address, limits=DEFAULT_LIMITS)


async def test_a_link() -> None:
    listener = await Listener.open(LOCAL, echo)
    link = link_to(listener.address)
    assert link.key == str(listener.address)
    assert link.describe() == f"The server is at {listener.address}."
    assert str(await link.explain("call", "It ended.")) == f"It ended. {link.describe()}"
    await link.close()
    first, second = await link.open(), await link.open()
    side = Recorder()
    second.start(side)
    first.start(Recorder())  # it was dropped, and is not read
    await link.close()
    link.kill()
    await listener.close()
    await turns()


def test_a_file_is_known_again_by_its_whole_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert link_to(UnixAddress("x/s")).key == link_to(UnixAddress("/x/s")).key == "unix:/x/s"


async def test_a_link_says_why_reading_failed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = link_to(TcpAddress("127.0.0.1", server.getsockname()[1]))
        connection, side = await link.open(), Recorder()
        connection.start(side)
        far, _ = server.accept()
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        far.close()
        await side.until_end()
        cause = await link.explain("call", "It ended.")
        assert isinstance(cause, Closed)
        assert str(cause) == f"It ended. Reading failed: Connection reset by peer. {link.describe()}"
        await link.close()


def test_a_link_can_be_killed_after_the_event_loop() -> None:
    async def main() -> SocketLink:
        link = link_to(TcpAddress("127.0.0.1", server.getsockname()[1]))
        (await link.open()).start(Recorder())
        return link

    with socket.create_server(("127.0.0.1", 0)) as server:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        asyncio.run(main()).kill()
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
