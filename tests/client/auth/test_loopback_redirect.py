from __future__ import annotations

import asyncio
import socket

import pytest

from mcplumb.client.auth.loopback_redirect import LoopbackRedirect, is_own_port
from mcplumb.errors import AuthorizationError
from tests.client.peers import skip
from tests.kit.loop import PATIENCE, until


async def ask(port: int, request: str, host: str = "127.0.0.1") -> str:
    """Send a raw request, and return the whole response."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(request.encode())
        async with asyncio.timeout(PATIENCE):
            return (await reader.read()).decode()
    finally:
        writer.close()
        await writer.wait_closed()


def get(port: int, target: str, host: str | None = None) -> str:
    return f"GET {target} HTTP/1.1\r\nHost: {host or f'127.0.0.1:{port}'}\r\n\r\n"


async def test_the_redirect_arrives_once() -> None:
    async with LoopbackRedirect() as redirect:
        redirect.expect("s")
        first = asyncio.ensure_future(ask(redirect.port, get(redirect.port, "/callback?code=c&state=s")))
        assert (await redirect.wait(PATIENCE)).url == f"{redirect.address}?code=c&state=s"
        second = asyncio.ensure_future(ask(redirect.port, get(redirect.port, "/callback?code=second&state=s")))
        await until(lambda: len(redirect._holding) == 2)
        assert (await redirect.wait(PATIENCE)).url == f"{redirect.address}?code=c&state=s"
        assert [first.done(), second.done()] == [False, False], "The code has not been exchanged yet."
    for page in await asyncio.gather(first, second):
        assert page.startswith("HTTP/1.1 200 OK")
        assert "<h1>Signed in</h1>" in page
        assert "You can close this page" in page


async def failed(target: str, error: BaseException) -> str:
    """Return the page for a redirect after which the sign-in fails."""
    asking: list[asyncio.Task[str]] = []

    async def sign_in() -> None:
        async with LoopbackRedirect() as redirect:
            redirect.expect("s")
            asking.append(asyncio.create_task(ask(redirect.port, get(redirect.port, target))))
            await redirect.wait(PATIENCE)
            raise error

    with pytest.raises(type(error)):
        await sign_in()
    return await asking[0]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (AuthorizationError("refused", "The server <b>refused</b>."), "The server &lt;b&gt;refused&lt;/b&gt;."),
        (RuntimeError("A secret."), "The program that opened this page says why."),
        (asyncio.CancelledError(), "has given up the sign-in"),
    ],
)
async def test_the_page_says_how_the_sign_in_failed(error: BaseException, sentence: str) -> None:
    page = await failed("/callback?code=c&state=s", error)
    assert ("<h1>Not signed in</h1>" in page, sentence in page, "secret" in page) == (True, True, False)


async def test_the_page_of_a_sign_in_that_takes_long() -> None:
    async with LoopbackRedirect() as redirect:
        redirect.expect("s")
        asking = asyncio.ensure_future(ask(redirect.port, get(redirect.port, "/callback?code=c&state=s")))
        await until(lambda: redirect._holding)
        skip(6)
        page = await asking
        assert page.startswith("HTTP/1.1 200 OK")
        assert "finishes the sign-in, and says how it ends" in page
        await redirect.wait(PATIENCE)


async def test_a_browser_that_does_not_wait_for_its_page() -> None:
    async with LoopbackRedirect() as redirect:
        redirect.expect("s")
        _, writer = await asyncio.open_connection("127.0.0.1", redirect.port)
        writer.write(get(redirect.port, "/callback?code=c&state=s").encode())
        await redirect.wait(PATIENCE)
        writer.transport.abort()


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET /callback?state=s HTTP/1.1\r\nHost: evil.example:{port}\r\n\r\n", 421),
        ("GET /callback?state=s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 421),
        ("GET /callback?state=s HTTP/1.1\r\n\r\n", 421),
        ("GET /callback?state=s HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n\r\n", 421),
        ("GET /other?state=s HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n", 404),
        ("GET //[ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n", 404),
        ("POST /callback?state=s HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n", 405),
        ("GET /callback?code=c&state=other HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n", 400),
        ("GET /callback?code=c HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n", 400),
    ],
)
async def test_what_is_not_the_redirect_does_not_end_the_wait(request_text: str, status: int) -> None:
    async with LoopbackRedirect() as redirect:
        redirect.expect("s")
        page = await ask(redirect.port, request_text.replace("{port}", str(redirect.port)))
        assert page.startswith(f"HTTP/1.1 {status} ")
        with pytest.raises(AuthorizationError) as caught:
            await redirect.wait(0.01)
        assert caught.value.reason == "timeout"


async def test_a_page_runs_nothing_and_is_not_kept() -> None:
    text = "<script>alert(1)</script>"
    page = await failed(f"/callback?state=s&error={text}", AuthorizationError("refused", f"It refused: {text}."))
    assert "Not signed in" in page
    assert "<script" not in page
    for header in (
        "Cache-Control: no-store",
        "Content-Security-Policy: default-src 'none'",
        "Referrer-Policy: no-referrer",
    ):
        assert header in page


async def test_requests_that_never_end_do_not_matter() -> None:
    async with LoopbackRedirect() as redirect:
        redirect.expect("s")
        idle = [await asyncio.open_connection("127.0.0.1", redirect.port) for _ in range(10)]
        assert await ask(redirect.port, "x" * 100_000 + "\r\n\r\n") == ""
        asking = asyncio.ensure_future(ask(redirect.port, get(redirect.port, "/callback?code=c&state=s")))
        await redirect.wait(PATIENCE)
        for _, writer in idle:
            writer.close()
    assert "Signed in" in await asking


async def test_both_loopback_addresses_listen() -> None:
    async with LoopbackRedirect() as redirect:
        redirect.expect("s")
        try:
            page = await ask(
                redirect.port, get(redirect.port, "/callback?state=other", f"localhost:{redirect.port}"), "::1"
            )
        except OSError:
            pytest.skip("This machine has no IPv6.")
        assert page.startswith("HTTP/1.1 400 ")


def test_another_program_cannot_take_the_port_nor_be_mistaken_for_it() -> None:
    redirect = LoopbackRedirect()
    try:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", redirect.port))
        with pytest.raises(AuthorizationError, match=f"The port {redirect.port} "):
            LoopbackRedirect(redirect.port)
    finally:
        redirect.close()


def test_a_port_that_is_half_taken_is_not_used() -> None:
    try:
        taken = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("This machine has no IPv6.")
    with taken, pytest.raises(AuthorizationError) as caught:
        LoopbackRedirect(taken.getsockname()[1])
    assert caught.value.reason == "port"


async def test_a_sign_in_that_is_given_up_early_frees_its_port() -> None:
    redirect = LoopbackRedirect()
    assert is_own_port(redirect.port)
    entering = asyncio.ensure_future(redirect.__aenter__())
    await asyncio.sleep(0)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert not is_own_port(redirect.port)
    LoopbackRedirect(redirect.port).close()
    assert not is_own_port(redirect.port)
