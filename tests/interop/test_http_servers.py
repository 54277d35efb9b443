"""Our client with servers of others over HTTP, when something happens to them: many clients, lost streams, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from mcplumb import Client, RequestLost
from mcplumb.protocol.restart import RestartPolicy
from mcplumb.protocol.subscription_state import Change, Missed
from tests.interop.environments import TYPESCRIPT_V1
from tests.interop.sdk_servers import FAST_3, FAST_4, NOTES, TS_1, TS_2, V1, V2, Callbacks, SdkServer
from tests.interop.serving import HttpServer, calling, serving
from tests.interop.visiting import LEGACY, complain_not, read, said

#: One for each way to keep a session, or none.
SERVERS = [
    V1._replace(way="http"),
    V1._replace(way="sse"),
    V2._replace(way="http"),
    FAST_3._replace(way="http"),
    FAST_4._replace(way="http"),
    TS_1._replace(way="http"),
    TS_1._replace(way="sse"),
    TS_2._replace(way="http-sessions"),
]

#: Asks for the server again as often as it takes, and soon: some are slow to start.
STUBBORN = RestartPolicy(max_wait=0.2, breaker_after=1000)

#: These keep what they have sent, for a client that was cut off.
RESUMABLE = [TS_1._replace(way="http")]

EVERYTHING = "mcp-server-everything"


@pytest.fixture(scope="module", params=SERVERS, ids=str)
def sdk_server(request: pytest.FixtureRequest) -> SdkServer:
    each: SdkServer = request.param
    return each


@pytest.fixture(scope="module")
def server(sdk_server: SdkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    scratch = tmp_path_factory.mktemp(str(sdk_server))
    with serving(sdk_server.command(scratch), scratch / "log") as server:
        yield server


@pytest.mark.req("LEG-1", "HTP-6", "HTP-7")
def test_older_revisions(sdk_server: SdkServer, server: HttpServer) -> None:
    async def go() -> None:
        for revision in ("2024-11-05", "2025-03-26", "2025-06-18"):
            async with calling(server.url(sdk_server.path), revisions=[revision]) as client:
                assert str(client.revision) == revision
                assert len(await client.list_tools()) == 9
                assert said(await client.call_tool("greet", {"name": "Åse"})) == "Hello, Åse!"
                complain_not(client)

    asyncio.run(go())


@pytest.mark.req("HTP-1", "HTP-6", "SSE-2")
def test_several_clients_at_once(sdk_server: SdkServer, server: HttpServer) -> None:
    """Each gets its own answers and questions, also if some of them are of the other era."""

    async def stay(name: str, client: Client, callbacks: Callbacks) -> None:
        greetings = [client.call_tool("greet", {"name": f"{name} {number}"}) for number in range(10)]
        booking = client.call_tool("book", {"room": name})
        booked, *greeted = await asyncio.gather(booking, *greetings)
        assert said(booked) == f"{name}: 2 nights, breakfast {sdk_server.true}"
        assert callbacks.asked == [f"How long do you stay in {name}?"]
        assert [said(each) for each in greeted] == [f"Hello, {name} {number}!" for number in range(10)]
        complain_not(client)

    async def go() -> None:
        async with AsyncExitStack() as stack:
            stays = []
            for number in range(6):
                callbacks = Callbacks()
                revisions = [LEGACY] if number % 2 else None
                visit = calling(server.url(sdk_server.path), revisions=revisions, on_elicit=callbacks.answer)
                client = await stack.enter_async_context(visit)
                assert str(client.revision) == (LEGACY if number % 2 else sdk_server.revision)
                stays.append(stay(f"room {number}", client, callbacks))
            await asyncio.gather(*stays)

    asyncio.run(go())


class Wire:
    """A way to a server that breaks off when it is told to."""

    def __init__(self, far: int) -> None:
        #: The ports of its ends: where it is connected to, and where it leads.
        self.near = 0
        self.far = far
        self._writers: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """End all connections that there are. New ones can be made."""
        for writer in self._writers:
            writer.transport.abort()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.far)
        self._writers |= {writer, back}
        try:
            await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))
        finally:
            self._writers -= {writer, back}

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # The wire was cut.
        finally:
            writer.close()


@asynccontextmanager
async def wired(server: HttpServer) -> AsyncIterator[Wire]:
    wire = Wire(server.port)
    async with await asyncio.start_server(wire.carry, "127.0.0.1", 0) as listener:
        wire.near = listener.sockets[0].getsockname()[1]
        try:
            yield wire
        finally:
            wire.cut()


@pytest.mark.req("HTP-6", "LIF-6")
def test_a_connection_that_breaks_off(sdk_server: SdkServer, server: HttpServer) -> None:
    """If the server keeps its events, nothing is lost. Else nobody knows what became of that call, and others go on."""

    async def go() -> None:
        callbacks = Callbacks()
        async with wired(server) as wire, calling(f"http://127.0.0.1:{wire.near}{sdk_server.path}") as client:
            climb = asyncio.create_task(client.call_tool("climb", {"steps": 3}, on_progress=callbacks.on_progress))
            await callbacks.last_step.wait()
            wire.cut()
            if sdk_server in RESUMABLE:
                assert said(await client.call_tool("release")) == "released"
                assert said(await climb) == "climbed 3 steps"
            else:
                with pytest.raises(RequestLost):
                    await climb
                assert said(await client.call_tool("greet", {"name": "again"})) == "Hello, again!"
            assert callbacks.steps == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
            complain_not(client)

    asyncio.run(go())


@pytest.mark.req("LIF-6", "SUB-4", "SUB-6", "STR-3", "HTP-6")
def test_a_server_that_is_killed_and_started_again(sdk_server: SdkServer, server: HttpServer) -> None:
    """Calls that are safe do not notice; what became of another one is not known, and it is not made again."""

    async def go() -> None:
        callbacks = Callbacks()
        is_back = asyncio.Event()

        async def read_on(client: Client) -> None:
            after = 0
            while after < 3:
                after += is_back.is_set()
                assert await read(client, "interop://cities/Oslo") == "Oslo is a city."

        async with AsyncExitStack() as stack:
            visit = calling(server.url(sdk_server.path), restart=STUBBORN, cache=False)
            client = await stack.enter_async_context(visit)
            listening = client.listen(resources=[NOTES]) if sdk_server.subscribes else None
            changes = None if listening is None else await stack.enter_async_context(listening)
            reading = [asyncio.create_task(read_on(client)) for _ in range(4)]
            climb = asyncio.create_task(client.call_tool("climb", {"steps": 3}, on_progress=callbacks.on_progress))
            await callbacks.last_step.wait()
            server.kill()
            await asyncio.to_thread(server.start)
            is_back.set()
            await asyncio.gather(*reading)
            with pytest.raises(RequestLost):
                await climb
            assert len(callbacks.steps) == 3
            if changes is not None:
                assert await anext(changes) == Missed()
                await client.call_tool("rewrite", {"text": "Bring boots."})
                assert await anext(changes) == Change("updates", NOTES)
            assert said(await client.call_tool("greet", {"name": "again"})) == "Hello, again!"
            complain_not(client)

    asyncio.run(go())


@pytest.mark.req("STR-3", "HTP-6")
def test_a_server_that_does_not_say_that_it_has_lost_the_session(tmp_path: Path) -> None:
    """Everything, started again, answers with 400 to a session that it does not know, and not with 404."""

    async def go(server: HttpServer) -> None:
        async with calling(server.url("/mcp"), restart=STUBBORN) as client:
            tools = await client.list_tools()
            server.kill()
            await asyncio.to_thread(server.start)
            assert await client.list_tools() == tools
            assert said(await client.call_tool("echo", {"message": "again"})) == "Echo: again"

    command = ["env", "PORT={port}", TYPESCRIPT_V1.executable(EVERYTHING), "streamableHttp"]
    with serving(command, tmp_path / "log") as server:
        asyncio.run(go(server))
