"""Several replicas of a server, as processes, behind a proxy that sends every request to another one.

``python -m tests.kit.replicas -- COMMAND`` runs three of them until SIGTERM, and prints the URL. In the command, PORT
and SHARED stand for the port of each and the address of the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.kit.ports import held_port
from tests.kit.redis_server import RedisServer, needed

ROOT = Path(__file__).parents[2]
#: Seconds for a replica to start or to stop.
WITHIN = 60.0
#: Headers that belong to one connection.
_OWN_HEADERS = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length"))


class ReplicaProcess:
    """One replica: a process, and the port that it serves."""

    def __init__(self, command: Sequence[str], log: Path, env: dict[str, str]) -> None:
        self._held = held_port()
        self.port: int = self._held.getsockname()[1]
        self._command = [word.replace("PORT", str(self.port)) for word in command]
        self._log = log
        self._env = env
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env={**os.environ, **self._env},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    async def ready(self) -> None:
        """Wait until it has joined the other replicas: before, it refuses what needs the store."""
        async with asyncio.timeout(WITHIN), aiohttp.ClientSession() as http:
            while not await self._is_ready(http):
                assert self.process is not None
                if self.process.poll() is not None:
                    raise RuntimeError(f"A replica did not start: {self._log.read_text()[-3000:]}")
                await asyncio.sleep(0.02)

    async def accepts(self) -> bool:
        """Whether it accepts connections."""
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def _is_ready(self, http: aiohttp.ClientSession) -> bool:
        try:
            async with http.get(f"http://127.0.0.1:{self.port}/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self) -> None:
        """End it for good."""
        self.kill()
        self._held.close()

    def stop(self) -> int:
        """Let it end in an orderly way, and return its exit code."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(WITHIN)
        finally:
            self.kill()


class Proxy:
    """Sends each request to the next replica in turn; one that does not accept it is skipped."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = list(ports)
        self._turns = itertools.count()
        self.port = 0
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, force_close=False)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
        )
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=2000)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        await self._session.close()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OWN_HEADERS}
        for _ in range(len(self._ports)):
            port = self._ports[next(self._turns) % len(self._ports)]
            url = f"http://127.0.0.1:{port}{request.raw_path}"
            try:
                answer = await self._session.request(
                    request.method, url, data=body or None, headers=headers, allow_redirects=False
                )
            except aiohttp.ClientConnectorError:
                continue
            except aiohttp.ClientError:
                return web.Response(status=502, text="The replica ended before it answered.")
            return await self._answer(request, answer)
        return web.Response(status=502, text="No replica is there.")

    async def _answer(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        async with answer:
            response = web.StreamResponse(status=answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in _OWN_HEADERS:
                    response.headers.add(name, value)
            if "Content-Length" in answer.headers:
                response.content_length = int(answer.headers["Content-Length"])
            try:
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            except aiohttp.ClientError:
                # As a proxy does whose server or client is gone: the response breaks off.
                if request.transport is not None:
                    request.transport.abort()
                return response
            with contextlib.suppress(aiohttp.ClientError):  # the client is gone
                await response.write_eof()
        return response


class Replicas:
    """Redis, some replicas and the proxy before them."""

    def __init__(self, redis: RedisServer, replicas: Sequence[ReplicaProcess], proxy: Proxy) -> None:
        self.redis = redis
        self.replicas = replicas
        self.proxy = proxy

    @property
    def url(self) -> str:
        return f"{self.proxy.url}/mcp"

    def url_of(self, number: int) -> str:
        """The address of one replica itself."""
        return f"http://127.0.0.1:{self.replicas[number].port}/mcp"


@contextlib.asynccontextmanager
async def running_replicas(
    count: int = 3, *, command: Sequence[str] | None = None, extra: Sequence[str] = (), **env: str
) -> AsyncIterator[Replicas]:
    """Replicas within a block, or a skipped test if there is no Redis. PORT and SHARED in the command are replaced."""
    program = needed()
    with tempfile.TemporaryDirectory(prefix="mcplumb-replicas-") as name:
        folder = Path(name)
        redis = RedisServer(folder, program=program)
        redis.start()
        words = command or [sys.executable, "-m", "tests.replicas.server", "PORT", "SHARED", *extra]
        words = [word.replace("SHARED", redis.url) for word in words]
        replicas = [ReplicaProcess(words, folder / f"replica-{number}.log", env) for number in range(count)]
        proxy = Proxy([replica.port for replica in replicas])
        try:
            for replica in replicas:
                replica.start()
            await proxy.start()
            for replica in replicas:
                await replica.ready()
            yield Replicas(redis, replicas, proxy)
            logs = "".join((folder / f"replica-{number}.log").read_text() for number in range(count))
            if "Traceback" in logs:
                raise AssertionError(f"A replica failed: {logs[-5000:]}")
        finally:
            await proxy.close()
            for replica in replicas:
                replica.close()
            redis.close()


async def serve(command: Sequence[str]) -> None:
    """Run replicas until SIGTERM."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with running_replicas(command=command) as replicas:
        print(replicas.url, flush=True)
        await stopped.wait()
        await asyncio.gather(*(asyncio.to_thread(replica.stop) for replica in replicas.replicas))


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[sys.argv.index("--") + 1 :]))
