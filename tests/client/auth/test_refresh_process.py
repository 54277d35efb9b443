from __future__ import annotations

import asyncio
import base64
import contextlib
import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from mcplumb import AuthorizationError, connect
from mcplumb.client.auth import refresh_process
from mcplumb.client.auth.authorizer import Authorizer
from tests.client.auth.refresh_race import run
from tests.client.auth.site import site
from tests.kit.loop import PATIENCE


@pytest.mark.req("AUT-7")
@pytest.mark.parametrize(("rounds", "crowd"), [(2, 6), pytest.param(200, 50, marks=pytest.mark.thorough)])
def test_however_many_are_killed_no_session_is_lost(rounds: int, crowd: int) -> None:
    figures = run(rounds, crowd, seed=1)
    assert figures.refreshes <= rounds
    assert (figures.failed, figures.lost) == (0, 0), figures


@pytest.mark.req("AUT-7")
@pytest.mark.parametrize("content", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho usage: ...\n", "", None])
async def test_a_program_whose_interpreter_cannot_load_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    """It is embedded in another program, or has put the package on its path by itself."""
    interpreter = tmp_path / "interpreter"
    if content is not None:
        interpreter.write_text(content)
        interpreter.chmod(0o700)
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth()):
            pass
        before = place.entry().grant.refresh_token
        place.age(3600)
        monkeypatch.setattr(sys, "executable", str(interpreter))
        async with connect(place.url, auth=place.oauth()) as client:
            await client.call_tool("whoami")
        assert (place.visits, place.auth.refreshes) == (1, 1)
        assert place.entry().grant.refresh_token not in (None, before)


@pytest.mark.req("AUT-7")
@pytest.mark.parametrize("flush", [True, False])
async def test_an_interpreter_that_prints_what_nobody_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: bool
) -> None:
    """What it prints when it starts or ends is not taken for an outcome, nor for a process that did not start."""
    (tmp_path / "sitecustomize.py").write_text(f"print('Welcome!', flush={flush})\n")
    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth()):
            pass
        place.age(3600)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        async with connect(place.url, auth=place.oauth()) as client:
            await client.call_tool("whoami")
        assert (place.visits, place.auth.refreshes, len(place.auth.ended)) == (1, 1, 0)


async def test_an_answer_that_never_ends() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        program = (
            "from mcplumb.client.auth import refresh_process as r\n"
            "from mcplumb.protocol.oauth.steps import Fetch\n"
            "r._TIMEOUT = 0.3\n"
            f"r._fetch(Fetch('POST', 'http://127.0.0.1:{port}/token', 'a token request'), None)\n"
        )
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stderr=asyncio.subprocess.PIPE)
        async with asyncio.timeout(PATIENCE):
            _, faults = await process.communicate()
    assert b"no whole answer within 0.3 s" in faults


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("https://auth.example/token", "auth.example", 443),
        ("https://[2001:db8::abcd]/token", "2001:db8::abcd", 443),
        ("https://[2001:db8::1]/token", "2001:db8::1", 443),
        ("http://[::1]/token", "::1", 80),
        ("http://[::1]:8080/token", "::1", 8080),
    ],
)
def test_where_the_process_connects_to(url: str, host: str, port: int) -> None:
    connection = refresh_process._connection(urlsplit(url), None)
    assert (connection.host, connection.port) == (host, port)


async def test_a_proxy_that_asks_for_a_password() -> None:
    heads = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        fetch = f"Fetch('POST', 'https://auth.example/token', 'a token request'), 'http://me:a%20b@127.0.0.1:{port}'"
        program = (
            "from mcplumb.client.auth import refresh_process as r\nfrom mcplumb.protocol.oauth.steps import Fetch\n"
            f"r._fetch({fetch})\n"
        )
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stderr=asyncio.subprocess.PIPE)
        async with asyncio.timeout(PATIENCE):
            await process.communicate()
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:a b').decode()}\r\n" in heads[0]


async def test_a_proxy_that_speaks_tls(tmp_path: Path) -> None:
    """The standard library cannot use one, so the refresh is not left to the process."""
    first_bytes = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first_bytes.append(await reader.read(1))
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    async with site(tmp_path) as place, server:
        async with connect(place.url, auth=place.oauth()):
            pass
        place.age(3600)
        address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(AuthorizationError) as caught:
            await Authorizer(place.oauth(), place.url, proxy=address).headers("POST", place.url)
        assert caught.value.reason == "unreachable"
    assert set(first_bytes) == {b"\x16"}, "The first byte of a TLS handshake."


async def test_a_program_ends_while_a_refresh_is_under_way(tmp_path: Path) -> None:
    has_begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        has_begun.set()
        await may_go_on.wait()

    async with site(tmp_path) as place:
        async with connect(place.url, auth=place.oauth()):
            pass
        place.age(3600)
        before = place.entry().grant
        place.auth.before_refresh = hold
        program = (
            "import asyncio\nfrom mcplumb import OAuth, connect\nfrom mcplumb.stores import FileTokens\n"
            "async def main():\n"
            f"    async with connect({place.url!r}, auth=OAuth(store=FileTokens({str(place.store.folder)!r}))):\n"
            "        pass\n"
            "asyncio.run(main())\n"
        )
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stderr=asyncio.subprocess.PIPE)
        await has_begun.wait()
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            await process.communicate()  # although the authorization server has not answered
        may_go_on.set()
        [name] = place.store.names()
        async with asyncio.timeout(PATIENCE), place.store.locked(name):
            assert place.entry().grant.refresh_token != before.refresh_token, "It is saved all the same."
