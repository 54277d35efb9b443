"""Listening for HTTP, and the end of it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import subprocess
import sys

import pytest

from mcplumb import HttpOptions, Server
from mcplumb.errors import ConnectError, UsageError
from mcplumb.transports.address import HttpAddress
from mcplumb.transports.http_server.asgi_app import HttpApp
from mcplumb.transports.http_server.uvicorn_server import HttpListener
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import PATIENCE
from tests.kit.results import text_of
from tests.transports.http_server.callers import Caller, written_call
from tests.transports.http_server.visits import Answer, Site
from tests.transports.http_server.workshop import Workshop
from tests.transports.socket_ends import tls_of_client, tls_of_server, turn_until

pytestmark = leaves_nothing


HERE = HttpAddress("http", "127.0.0.1", 0, "/mcp")


def app_of(listener: HttpListener) -> HttpApp:
    """The application that it serves."""
    assert isinstance(listener._app, HttpApp)
    return listener._app


async def _tasks() -> int:
    """Those that are left, besides the caller's, once all that can happen has."""
    for _ in range(10):
        await asyncio.sleep(0)
    return len(asyncio.all_tasks()) - 1


async def test_the_system_chooses_a_port() -> None:
    listener = await HttpListener.open(Workshop().server.asgi(), HERE)
    assert listener.address.port > 0
    assert str(listener.address).startswith("http://127.0.0.1:")
    site = Site(listener.address, app_of(listener))
    assert (await Caller(site).call("double", n=1)).status == 200
    await listener.close()
    await listener.close()
    site.leave()
    assert await _tasks() == 0
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", listener.address.port)


async def test_a_port_that_is_in_use_is_said_to_be() -> None:
    app = Workshop().server.asgi()
    listener = await HttpListener.open(app, HERE)
    other = Workshop().server.asgi()
    with pytest.raises(ConnectError, match="in use"):
        await HttpListener.open(other, listener.address)
    await listener.close()
    assert await _tasks() == 0


async def test_nothing_is_left_of_a_listener_that_could_not_begin() -> None:
    with pytest.raises(UsageError, match="tls was made for a client"):
        await HttpListener.open(Workshop().server.asgi(), HERE, tls=tls_of_client())
    assert await _tasks() == 0


async def test_whatever_the_host_stands_for_is_listened_at() -> None:
    listener = await HttpListener.open(Workshop().server.asgi(), HttpAddress("http", "localhost", 0, "/mcp"))
    for info in await asyncio.get_running_loop().getaddrinfo("localhost", None, type=socket.SOCK_STREAM):
        try:
            reader, writer = await asyncio.open_connection(str(info[4][0]), listener.address.port)
        except OSError:
            assert info[0] == socket.AF_INET6  # which this machine may not have
            continue
        writer.write(written_call("double", n=1))
        assert (await Answer(reader, writer).head()).status == 200
        writer.close()
    await listener.close()


async def test_over_tls() -> None:
    listener = await HttpListener.open(
        Workshop().server.asgi(), HttpAddress("https", "127.0.0.1", 0, "/mcp"), tls=tls_of_server()
    )
    port = listener.address.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls_of_client(), server_hostname="localhost")
    writer.write(written_call("double", n=4))
    assert text_of(await (await Answer(reader, writer).head()).json()) == "8"
    # What is refused there is not waited for, either.
    writer.write(b"hello\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    writer.close()
    with pytest.raises((ssl.SSLError, OSError)):
        await asyncio.open_connection("127.0.0.1", port, ssl=ssl.create_default_context())
    await listener.close()
    assert await _tasks() == 0


@pytest.mark.req("HTP-4")
def test_to_listen_for_everybody_is_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def main(host: str, options: HttpOptions) -> None:
        listener = await HttpListener.open(Server("s").asgi(options), HttpAddress("http", host, 0, "/mcp"))
        await listener.close()

    everywhere = str(socket.INADDR_ANY)
    with caplog.at_level(logging.WARNING):
        asyncio.run(main("127.0.0.1", HttpOptions()))
        asyncio.run(main(everywhere, HttpOptions(tokens=("t",))))
        asyncio.run(main(everywhere, HttpOptions(auth=lambda _: None)))
        assert caplog.records == []
        asyncio.run(main(everywhere, HttpOptions()))
    assert "HttpOptions(tokens=" in caplog.text


async def test_what_was_accepted_is_finished_before_the_end() -> None:
    shop = Workshop()
    listener = await HttpListener.open(shop.server.asgi(), HERE)
    site = Site(listener.address, app_of(listener))
    idle, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
    writer.write(written_call("double", n=1))
    await (await Answer(idle, writer).head()).body()
    working = await Caller(site).begin_call("wait", gate="a")
    listening = await Caller(site).request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    await listening.message()
    await shop.at("a")
    closing = asyncio.create_task(listener.close())
    # Who waits for nothing is let go, and streams come to an end.
    assert await idle.read() == b""
    assert (await listening.message())["id"] == 1
    assert await listening.message() is None
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", listener.address.port)
    assert not closing.done()
    shop.gates["a"].set()
    answer = await working.head()
    assert answer.headers["connection"] == "close"
    assert text_of(await answer.json()) == "a is open"
    await closing
    writer.close()
    site.leave()
    assert await _tasks() == 0


async def test_who_has_not_sent_all_is_not_waited_for() -> None:
    listener = await HttpListener.open(Workshop().server.asgi(HttpOptions(body_within=10 * PATIENCE)), HERE)
    site = Site(listener.address, app_of(listener))
    stream = await site.ask("GET", "/sse", {"Accept": "text/event-stream"})
    endpoint = await stream.event()
    assert endpoint is not None
    headers = {"Content-Type": "application/json", "Content-Length": "100"}
    stalled = [
        await site.begin("POST", place, headers, body)
        for place in ("/mcp", endpoint.data.decode())
        for body in (b"", b"{")
    ]
    await turn_until(lambda: len(app_of(listener)._requests) == 5)
    async with asyncio.timeout(PATIENCE):
        await listener.close(within=10 * PATIENCE)
    for answer in stalled:
        assert (await answer.head()).status == 503
    site.leave()
    assert await _tasks() == 0


async def test_without_any_time_it_ends_at_once(caplog: pytest.LogCaptureFixture) -> None:
    shop = Workshop()
    listener = await HttpListener.open(shop.server.asgi(), HERE)
    await listener.close(within=0)
    assert caplog.records == []
    listener = await HttpListener.open(shop.server.asgi(), HERE)
    site = Site(listener.address, app_of(listener))
    await Caller(site).begin_call("wait", gate="a")
    await shop.at("a")
    await listener.close(within=0)
    assert shop.cancelled["a"].is_set()
    site.leave()
    assert await _tasks() == 0


async def test_the_last_bytes_are_read_before_the_end() -> None:
    shop = Workshop()
    listener = await HttpListener.open(shop.server.asgi(), HERE)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.address.port, limit=4096)
    writer.write(written_call("chat", word="x" * 20_000_000))
    answer = await Answer(reader, writer).head()
    closing = asyncio.create_task(listener.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    assert len(text_of(await answer.json())) > 20_000_000
    await closing
    writer.close()
    assert await _tasks() == 0


def test_what_takes_too_long_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        shop = Workshop()
        listener = await HttpListener.open(shop.server.asgi(), HERE)
        site = Site(listener.address, app_of(listener))
        await Caller(site).begin_call("wait", gate="a")
        await shop.at("a")
        await listener.close(within=0.05)
        assert shop.cancelled["a"].is_set()
        site.leave()
        assert await _tasks() == 0

    with caplog.at_level(logging.WARNING, logger="mcplumb.http"):
        asyncio.run(main())
    assert "cut off" in caplog.text


async def test_who_gives_up_to_close_it_cuts_off_the_rest() -> None:
    shop = Workshop()
    listener = await HttpListener.open(shop.server.asgi(), HERE)
    site = Site(listener.address, app_of(listener))
    await Caller(site).begin_call("wait", gate="a")
    await shop.at("a")
    closing = asyncio.create_task(listener.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    async with asyncio.timeout(PATIENCE):
        await shop.cancelled["a"].wait()
    await listener.close()
    site.leave()
    assert await _tasks() == 0


async def test_work_that_does_not_notice_is_cancelled() -> None:
    class Deaf:
        """Something that goes on whatever happens to its client."""

        has_begun = asyncio.Event()
        was_cancelled = False

        async def serve(self, connection: object, peer: object) -> None:
            self.has_begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.was_cancelled = True
                raise

    deaf = Deaf()
    listener = await HttpListener.open(Server("s").asgi(serve=deaf.serve), HERE)
    site = Site(listener.address, app_of(listener))
    await Caller(site).begin_call("x")
    await deaf.has_begun.wait()
    await listener.close(within=0.05)
    assert deaf.was_cancelled
    site.leave()
    assert await _tasks() == 0


async def test_uvicorn_keeps_its_hands_off_the_process() -> None:
    handlers = [logging.getLogger(name).handlers for name in ("uvicorn", "uvicorn.access", "uvicorn.error")]
    listener = await HttpListener.open(Server("s").asgi(), HERE)
    await listener.close()
    assert [logging.getLogger(name).handlers for name in ("uvicorn", "uvicorn.access", "uvicorn.error")] == handlers
    assert logging.getLogger("uvicorn.access").propagate


def test_without_uvicorn_one_is_told_what_to_install() -> None:
    program = """
import sys
sys.modules["uvicorn"] = None
from mcplumb import UsageError
try:
    import mcplumb.transports.http_server.uvicorn_server
except UsageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'mcplumb[http]'" in done.stdout


def test_the_application_itself_needs_no_uvicorn() -> None:
    program = """
import sys
sys.modules["uvicorn"] = sys.modules["httptools"] = None
from mcplumb import Server
Server("s").asgi()
print("made", "aiohttp" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True, env=dict(os.environ)
    )
    assert done.stdout.split() == ["made", "False"]
