"""Runs nginx with the configuration of docs/howto/run-behind-nginx.md: ``python tools/check_nginx.py [NGINX]``.

Needs nginx and openssl. Two processes of a server stand behind it, and our client talks to them through it. Then two
processes of a protected server do, and our client signs in.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp

from mcplumb import OAuth, connect
from mcplumb.client import Change
from mcplumb.stores import FileTokens
from mcplumb.types import TextContent

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "howto" / "run-behind-nginx.md"
PATIENCE = 30.0
#: Longer than nginx would wait for more, if it held back what it has.
HELD = 3.0

SERVER = """
import asyncio, os, sys

from mcplumb import Context, HttpOptions, Server

server = Server("weather")

@server.tool
async def slow(ctx: Context) -> str:
    await ctx.progress(1, 2, "half")
    await asyncio.sleep(3)
    return "done"

@server.tool
async def size(text: str) -> int:
    return len(text)

@server.tool
async def change() -> None:
    server.resource_changed("weather://now")

@server.tool
async def process() -> int:
    return os.getpid()

@server.resource("weather://now")
async def now() -> str:
    return "sun"

server.run(f"http://127.0.0.1:{sys.argv[1]}/mcp", http=HttpOptions(hosts=("weather.example",)))
"""

PROTECTED = """
import sys

from mcplumb import Context, HttpOptions, JwtVerifier, Server

server = Server("weather")

@server.tool
async def who(ctx: Context) -> str:
    return ctx.principal.subject

port, issuer, resource = sys.argv[1:]
http = HttpOptions(hosts=("weather.example",), resource=resource, auth=JwtVerifier(issuer=issuer, audience=resource))
server.run(f"http://127.0.0.1:{port}/mcp", http=http)
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


@contextmanager
def running(*command: str | Path) -> Iterator[None]:
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def configuration(folder: Path, port: int, behind: tuple[int, int]) -> str:
    """The page's, at ports and with a certificate that this machine has."""
    (block,) = re.findall(r"^```nginx\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    changed = {
        "listen 443": f"listen 127.0.0.1:{port}",
        "/etc/ssl/": f"{folder}/",
        "127.0.0.1:8001": f"127.0.0.1:{behind[0]}",
        "127.0.0.1:8002": f"127.0.0.1:{behind[1]}",
    }
    for old, new in changed.items():
        assert old in block, f"The page does not have {old!r} any more."
        block = block.replace(old, new)
    places = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in ("proxy", "fastcgi", "uwsgi", "scgi"))
    return (
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr warn; events {{}}\n"
        f"http {{ access_log off; client_body_temp_path {folder}/body;\n{places}{block}}}\n"
    )


def certificate(folder: Path) -> None:
    names = ["-subj", "/CN=weather.example", "-addext", "subjectAltName=DNS:weather.example,IP:127.0.0.1"]
    files: list[str | Path] = ["-keyout", folder / "weather.example.key", "-out", folder / "weather.example.pem"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    subprocess.run([*make, *names, *files], check=True, capture_output=True)


async def use(port: int, tls: ssl.SSLContext, revision: str, path: str = "mcp", sse: bool | None = None) -> None:
    times: list[float] = []
    async with connect(
        f"https://127.0.0.1:{port}/{path}",
        tls=tls,
        revisions=[revision],
        http_sse=sse,
        timeout=PATIENCE,
    ) as client:
        assert str(client.revision) == revision
        await client.list_tools()
        await client.call_tool("slow", on_progress=lambda *_: times.append(time.monotonic()))
        assert times, "No progress arrived."
        assert time.monotonic() - times[0] > HELD / 2, "Progress was held back until the result."
        big = await client.call_tool("size", {"text": "x" * 5_000_000})
        assert big.content == [TextContent("5000000")], big
        processes = {str((await client.call_tool("process")).content) for _ in range(4)}
        assert len(processes) == (2 if client.revision.era == "modern" else 1), processes
        async with client.listen(resources=["weather://now"]) as changes:
            for _ in range(2):  # of a modern server, one of them is in the process that this listens to
                await client.call_tool("change")
            assert await asyncio.wait_for(anext(changes), PATIENCE) == Change("updates", "weather://now")
    print(f"  {revision} at /{path}: progress, 5 MB, processes, changes")


def asked(port: int, tls: ssl.SSLContext, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=PATIENCE)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    common = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connection.request("POST", "/mcp", body if "Content-Length" not in headers else None, {**common, **headers})
    response = connection.getresponse()
    return response.status, response.read().decode()


async def sign_in(nginx: str, folder: Path, tls: ssl.SSLContext) -> None:
    """Sign in at a protected server behind nginx, and send it a token that is as long as it takes."""
    sys.path.insert(0, str(ROOT))
    from tests.kit.token_issuer import TokenIssuer  # noqa: PLC0415 - only found from here on

    port, behind = free_port(), (free_port(), free_port())
    resource = f"https://127.0.0.1:{port}/mcp"
    (folder / "protected.py").write_text(PROTECTED, encoding="utf-8")
    # As the page advises for long tokens.
    block = configuration(folder, port, behind).replace(
        "server_name", "large_client_header_buffers 4 32k; server_name", 1
    )
    (folder / "protected.conf").write_text(block.replace(f"{folder}/pid", f"{folder}/pid2"), encoding="utf-8")

    async def visit(url: str) -> str:
        async with aiohttp.ClientSession() as browser, browser.get(url, allow_redirects=False) as answer:
            return answer.headers["Location"]

    with ExitStack() as stack:
        async with TokenIssuer().publishing() as issuer:
            issuer.audience = resource
            for each in behind:
                stack.enter_context(
                    running(sys.executable, folder / "protected.py", str(each), issuer.issuer, resource)
                )
                await asyncio.to_thread(wait_for, each)
            stack.enter_context(running(nginx, "-p", folder, "-c", folder / "protected.conf", "-e", "stderr"))
            await asyncio.to_thread(wait_for, port)
            auth = OAuth(store=FileTokens(folder / "tokens"), on_visit=visit)
            for revision in ("2026-07-28", "2025-11-25"):
                async with connect(resource, tls=tls, revisions=[revision], auth=auth, timeout=PATIENCE) as client:
                    assert (await client.call_tool("who")).text == "ann"
            token = issuer.token(padding="x" * 11_000)
            assert 15_000 < len(token) < 16 * 1024, len(token)
            async with connect(resource, tls=tls, token=token, timeout=PATIENCE) as client:
                assert (await client.call_tool("who")).text == "ann"
    print("  an authorization server: signed in, in both eras, and with a token of 15 KB")


def main() -> int:
    nginx = sys.argv[1] if len(sys.argv) > 1 else shutil.which("nginx")
    if nginx is None:
        sys.exit("There is no nginx in the PATH. Install it, or name it: python tools/check_nginx.py NGINX")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, port, behind = Path(name), free_port(), (free_port(), free_port())
        certificate(folder)
        (folder / "server.py").write_text(SERVER, encoding="utf-8")
        (folder / "nginx.conf").write_text(configuration(folder, port, behind), encoding="utf-8")
        servers = stack.enter_context(ExitStack())
        for each in behind:
            servers.enter_context(running(sys.executable, folder / "server.py", str(each)))
            wait_for(each)
        stack.enter_context(running(nginx, "-p", folder, "-c", folder / "nginx.conf", "-e", "stderr"))
        wait_for(port)
        print(subprocess.run([nginx, "-v"], check=True, capture_output=True, text=True).stderr.strip())
        tls = ssl.create_default_context(cafile=folder / "weather.example.pem")
        for revision in ("2026-07-28", "2025-11-25", "2025-03-26"):
            asyncio.run(use(port, tls, revision))
        asyncio.run(use(port, tls, "2024-11-05", "sse", sse=True))
        host = f"weather.example:{port}"
        own, _ = asked(port, tls, Host=host, Origin=f"https://{host}")
        other, _ = asked(port, tls, Host=host, Origin="https://elsewhere.example")
        wrong, said = asked(port, tls, Host="elsewhere.example")
        assert (other, wrong) == (403, 403), (other, wrong)
        assert own != 403, own
        assert "does not answer to the name" in said, said
        print("  Host and Origin: right ones are let in, wrong ones are refused")
        too_big, _ = asked(port, tls, **{"Content-Length": "70000000"})
        servers.close()
        no_server, _ = asked(port, tls)
        assert (too_big, no_server) == (413, 502), (too_big, no_server)
        print("  a body of 70 MB: 413; without a server: 502")
        asyncio.run(sign_in(nginx, folder, tls))
    return 0


if __name__ == "__main__":
    sys.exit(main())
