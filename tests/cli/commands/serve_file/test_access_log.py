"""``mcplumb serve --http -v``: what the log says of each request, and what it keeps to itself."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcplumb import ConnectError, RemoteError, connect
from tests.cli.kit import PYTHON
from tests.kit.loop import PATIENCE

FILE = """
from mcplumb import Server

server = Server("weather")

@server.tool
async def forecast(city: str) -> str:
    return f"sun in {city}"
"""
KNOWN = "a-secret-a-secret-a-secret"


class Serving:
    """A server in a process, its address, and its log."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self._process = process
        self.url = url

    def end(self) -> list[str]:
        """Stop it, and return the lines of its log."""
        self._process.send_signal(signal.SIGTERM)
        _, log = self._process.communicate(timeout=PATIENCE)
        return log.splitlines()


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[Serving]:
    (folder / "weather.py").write_text(FILE)
    command = [PYTHON, "-m", "mcplumb", "serve", "weather.py", "--http", "127.0.0.1:0", *words]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        url = ""
        while not url:
            line = process.stderr.readline()
            assert line, "it did not start"
            url = line.partition("Serving at ")[2].strip()
        yield Serving(process, url)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_each_request_is_a_line(revision: str, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(KNOWN)
    with serving(tmp_path, "-v", "--token-file", "tokens") as server:
        async with connect(server.url, token=KNOWN, revisions=[revision]) as client:
            await client.call_tool("forecast", {"city": "Oslo"})
            with pytest.raises(RemoteError):
                await client.call_tool("two\nlines")
        with pytest.raises(ConnectError):
            async with connect(server.url, token=KNOWN[:-1]):
                pass
        log = server.end()
    text = "\n".join(log)
    assert KNOWN not in text
    (line,) = [line for line in log if "tools/call forecast" in line]
    assert re.search(r"127\.0\.0\.1:\d+ 'token [0-9a-f]{16}' POST tools/call forecast 200 \d+\.\d ms$", line), line
    assert [line for line in log if r"tools/call 'two\nlines'" in line]
    assert [line for line in log if re.search(r"127\.0\.0\.1:\d+ - POST /mcp 401 \d+\.\d ms$", line)], text
    assert " began: " not in text


async def test_twice_verbose_says_more_and_once_silent_nothing(tmp_path: Path) -> None:
    for words, count in (([], 0), (["-v"], 1), (["-vv"], 2)):
        with serving(tmp_path, *words) as server:
            async with connect(server.url, revisions=["2026-07-28"]) as client:
                await client.ping()
            lines = [line for line in server.end() if " POST " in line]
        # There is at least one request besides: the handshake's.
        assert (len(lines) >= 2 * count) if count else not lines
        assert bool([line for line in lines if " began: host 127.0.0.1" in line]) == (count == 2)


@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_a_trace_names_the_client(revision: str, tmp_path: Path) -> None:
    with serving(tmp_path, "--trace") as server:
        async with connect(server.url, revisions=[revision]) as client:
            await client.call_tool("forecast", {"city": "Oslo", "password": "hidden"}, timeout=PATIENCE)
        log = server.end()
    messages = [line for line in log if '"forecast"' in line or "sun in" in line or '"jsonrpc"' in line]
    assert len(messages) >= 2
    for line in messages:
        assert re.search(r"(<--|-->) 127\.0\.0\.1:\d+ \{", line), line
    assert "hidden" not in "\n".join(log)
