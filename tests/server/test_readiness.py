"""Whether a server takes requests: ``/ready``, and ``/health`` beside it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from mcplumb import HttpOptions, Server, connect
from mcplumb.server import readiness
from tests.kit.loop import PATIENCE
from tests.kit.servers import serving

ADDRESS = "http://127.0.0.1:0/mcp"


@pytest.fixture(autouse=True)
def patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine must not fail a check; one test shows what does."""
    if request.function is not test_a_check_that_hangs_fails:
        monkeypatch.setattr(readiness, "_CHECK_WITHIN", PATIENCE)


async def get(url: str, path: str) -> tuple[int, object]:
    async with aiohttp.ClientSession() as session, session.get(url.replace("/mcp", path)) as response:
        return response.status, await response.json()


@pytest.mark.req("SCL-5")
async def test_a_server_that_runs_is_ready() -> None:
    async with serving(Server("s"), ADDRESS) as (url,):
        assert await get(url, "/ready") == (200, {"status": "ready"})
        assert await get(url, "/health") == (200, {"status": "ok"})


@pytest.mark.req("SCL-5")
async def test_probes_may_ask_for_the_head_alone() -> None:
    """As many load balancers and monitors do."""
    server, is_broken = Server("s"), [False]

    @server.ready_check
    async def database() -> None:
        if is_broken[0]:
            raise ConnectionError

    async with serving(server, ADDRESS) as (url,), aiohttp.ClientSession() as session:
        for path, status in (("/health", 200), ("/ready", 200), ("/ready", 503)):
            is_broken[0] = status == 503
            async with session.head(url.replace("/mcp", path)) as response:
                assert (response.status, response.content_type) == (status, "application/json")


@pytest.mark.req("SCL-5")
async def test_a_server_is_not_ready_while_a_check_fails(caplog: pytest.LogCaptureFixture) -> None:
    server, is_broken = Server("s"), [True]

    @server.ready_check
    async def database() -> None:
        if is_broken[0]:
            raise ConnectionError("The database does not answer.")

    @server.ready_check
    def disk() -> None:
        """A plain function runs in a thread."""
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()

    caplog.set_level(logging.INFO, "mcplumb.server")
    async with serving(server, ADDRESS) as (url,):
        for _ in range(2):
            failing = {"status": "not ready", "checks": {"database": "The database does not answer."}}
            assert await get(url, "/ready") == (503, failing)
        assert await get(url, "/health") == (200, {"status": "ok"})  # a restart would not help
        async with connect(url) as client:  # what needs no database goes on
            assert await client.list_tools() == []
        is_broken[0] = False
        assert await get(url, "/ready") == (200, {"status": "ready"})
    assert [record.levelname for record in caplog.records if "'database'" in record.message] == ["WARNING", "INFO"]


async def test_a_check_that_hangs_fails() -> None:
    server = Server("s")

    @server.ready_check
    async def store() -> None:
        await asyncio.sleep(60)

    async with serving(server, ADDRESS) as (url,):
        status, body = await get(url, "/ready")
    assert (status, body) == (503, {"status": "not ready", "checks": {"store": "It took longer than 0.8 s."}})


async def test_a_check_without_words_gives_the_name_of_its_error() -> None:
    server = Server("s")
    server.ready_check(lambda: ["a"].remove("b"))

    @server.ready_check
    async def silent() -> None:
        raise KeyError

    async with serving(server, ADDRESS) as (url,):
        _, body = await get(url, "/ready")
    assert isinstance(body, dict)
    assert body["checks"] == {"<lambda>": "list.remove(x): x not in list", "silent": "KeyError"}


async def test_a_function_may_return_what_is_to_be_awaited() -> None:
    server = Server("s")

    async def later() -> None:
        raise ConnectionError("Later.")

    server.ready_check(lambda: later())  # noqa: PLW0108 - no coroutine function
    async with serving(server, ADDRESS) as (url,):
        assert (await get(url, "/ready"))[0] == 503


@pytest.mark.req("SCL-5")
async def test_strangers_do_not_learn_why() -> None:
    server = Server("s")

    @server.ready_check
    async def database() -> None:
        raise ConnectionError("db.internal does not answer.")

    async with serving(server, ADDRESS, http=HttpOptions(tokens=("t",))) as (url,):
        assert await get(url, "/ready") == (503, {"status": "not ready"})


@pytest.mark.req("SCL-5")
async def test_a_server_that_stops_lives_and_is_not_ready() -> None:
    server, is_called, go_on = Server("s", stop_within=30), asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        is_called.set()
        await go_on.wait()
        return "done"

    app = server.asgi()

    async def ask(path: str) -> tuple[int, bytes]:
        sent: list[dict[str, object]] = []

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(event: dict[str, object]) -> None:
            sent.append(event)

        scope = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", b"127.0.0.1")]}
        await app({**scope, "query_string": b"", "server": ("127.0.0.1", 80), "client": None}, receive, send)  # type: ignore[arg-type]
        status, body = sent[0]["status"], sent[1]["body"]
        assert isinstance(status, int)
        assert isinstance(body, bytes)
        return status, body

    assert await ask("/health") == (200, b'{"status":"ok"}')  # before anything is open
    assert await ask("/ready") == (200, b'{"status":"ready"}')
    closing = asyncio.ensure_future(app.close())
    await asyncio.sleep(0)
    assert (await ask("/ready"))[0] == 503
    assert (await ask("/health"))[0] == 200
    await closing


async def test_a_server_whose_lifespan_fails_is_not_ready() -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        raise ConnectionError("No database.")
        yield

    app = Server("s", lifespan=lifespan).asgi()
    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(event: dict[str, object]) -> None:
        sent.append(event)

    scope = {"type": "http", "method": "GET", "path": "/ready", "headers": [(b"host", b"127.0.0.1")]}
    await app({**scope, "query_string": b"", "server": ("127.0.0.1", 80), "client": None}, receive, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 503
    assert b"No database." in sent[1]["body"]  # type: ignore[operator]


async def test_checks_run_at_the_same_time() -> None:
    server, all_run = Server("s"), asyncio.Barrier(4)
    for number in range(4):

        async def check() -> None:
            await all_run.wait()

        check.__name__ = f"check{number}"
        server.ready_check(check)
    assert await server._readiness_checks.failures() == {}


async def test_probes_may_use_the_address_instead_of_the_name() -> None:
    options = HttpOptions(hosts=("weather.example",), metrics=True)
    async with serving(Server("s"), ADDRESS, http=options) as (url,), aiohttp.ClientSession() as session:
        found = {}
        for path in ("/health", "/ready", "/metrics", "/mcp"):
            for host in ("10.0.0.7:8000", "[fd00::7]", "weather.example", "evil.example", "10.0.0.7.evil.example"):
                async with session.get(url.replace("/mcp", path), headers={"host": host}) as response:
                    found[path, host] = response.status == 403
    refused = {key for key, is_refused in found.items() if is_refused}
    assert {host for path, host in refused if path != "/mcp"} == {"evil.example", "10.0.0.7.evil.example"}
    assert {host for path, host in refused if path == "/mcp"} == {host for _, host in found} - {"weather.example"}
