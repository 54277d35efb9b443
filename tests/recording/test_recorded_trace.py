"""``record=`` of clients, servers and bridges."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from mcplumb import Bridge, RequestLost, Server, UsageError, connect
from mcplumb.recording.recordings_folder import is_live
from mcplumb.tap.read_session import SessionReader
from tests.kit.loop import blocking_until, until
from tests.kit.servers import serving

CODE = """
import os
from mcplumb import Server
server = Server("echo", record=os.environ.get("RECORD"))
@server.tool()
def echo(text: str) -> str:
    return text
@server.tool()
def crash() -> str:
    os._exit(9)
if __name__ == "__main__":
    server.run()
"""


def made(record: Path | None = None) -> Server:
    server = Server("echo", record=record)

    @server.tool()
    def echo(text: str) -> str:
        return text

    return server


def methods(path: Path) -> list[tuple[str, str]]:
    session = SessionReader(path).read_all()
    assert session.findings.found == []
    return [(call.method, call.state) for call in session.transcript.calls()]


@pytest.mark.parametrize("kind", ["stdio", "memory", "http", "unix"])
async def test_a_client_records_its_session(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "a.mcp.jsonl"
    (tmp_path / "echo.py").write_text(CODE)
    if kind in ("stdio", "memory"):
        target = [sys.executable, str(tmp_path / "echo.py")] if kind == "stdio" else made()
        async with connect(target, record=place) as client:
            await client.call_tool("echo", {"text": "hi"})
    else:
        address = "http://127.0.0.1:0/mcp" if kind == "http" else f"unix:{tmp_path}/s"
        async with serving(made(), address) as (at,), connect(at, record=place) as client:
            await client.call_tool("echo", {"text": "hi"})
    assert ("tools/call", "answered") in methods(place)
    header = SessionReader(place).read_all().header
    assert (header.by, header.transport) == ("client", kind)


async def test_a_client_that_reconnects_goes_on_in_its_recording(tmp_path: Path) -> None:
    place = tmp_path / "a"
    (tmp_path / "echo.py").write_text(CODE)
    async with connect([sys.executable, str(tmp_path / "echo.py")], record=place, stderr="discard") as client:
        with pytest.raises(Exception, match=r"crash|exit|lost"):
            await client.call_tool("crash", {})
        assert (await client.call_tool("echo", {"text": "again"})).text == "again"
    session = SessionReader(place).read_all()
    states = [(call.name, call.state) for call in session.transcript.calls() if call.method == "tools/call"]
    assert states == [("crash", "lost"), ("echo", "answered")]
    assert session.findings.found == []


async def test_what_a_crashed_server_wrote_is_masked_in_the_recording(tmp_path: Path) -> None:
    place = tmp_path / "a"
    crash = "import sys; print('PASSWORD=hunter2', file=sys.stderr, flush=True); os._exit(9)"
    (tmp_path / "echo.py").write_text(CODE.replace("os._exit(9)", crash))
    command = [
        sys.executable,
        str(tmp_path / "echo.py"),
        "--token",
        "hunter2",
        "--header",
        "Authorization: Bearer hunter2",
    ]
    async with connect(command, record=place, stderr="capture") as client:
        with pytest.raises(RequestLost, match="PASSWORD=hunter2"):
            await client.call_tool("crash")
        await client.ping()
    text = place.read_text()
    assert "PASSWORD=***" in text
    assert "hunter2" not in text


async def test_a_client_that_is_not_waited_for_completes_its_recording(tmp_path: Path) -> None:
    place = tmp_path / "a"
    client = await connect(made(), record=place)
    await client.call_tool("echo", {"text": "hi"})
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await until(lambda: place.exists() and not is_live(place))
    await client.close()  # for the task that went on
    assert ("tools/call", "answered") in methods(place)


@pytest.mark.parametrize("address", ["http://127.0.0.1:0/mcp", "unix"])
async def test_a_server_records_all_its_clients(tmp_path: Path, address: str) -> None:
    place = tmp_path / "a"
    where = address if address != "unix" else f"unix:{tmp_path}/s"
    async with serving(made(place), where) as (at,), connect(at) as one, connect(at) as two:
        await one.call_tool("echo", {"text": "1"})
        await two.call_tool("echo", {"text": "2"})
    assert methods(place).count(("tools/call", "answered")) == 2
    assert SessionReader(place).read_all().header.by == "server"


def test_a_server_on_stdio_and_the_commands_record(tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text(CODE)
    one, two, three = tmp_path / "one", tmp_path / "two", tmp_path / "three"
    base = [sys.executable, "-m", "mcplumb"]
    serve = [*base, "serve", "--record", str(one), str(tmp_path / "echo.py")]
    command = [*base, "call", "echo", "text=hi", "--record", str(two), "--", *serve]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "hi\n"
    bridge = [*base, "bridge", "--record", str(three), "--", sys.executable, str(tmp_path / "echo.py")]
    subprocess.run([*base, "call", "echo", "text=hi", "--", *bridge], capture_output=True, check=True, timeout=120)
    for path, by in ((one, "server"), (two, "client"), (three, "bridge")):
        blocking_until(path.exists, "the recording")
        assert ("tools/call", "answered") in methods(path)
        assert SessionReader(path).read_all().header.by == by


async def test_a_bridge_records_its_clients(tmp_path: Path) -> None:
    bridge = Bridge(made(), record=tmp_path / "a")
    async with serving(bridge, "http://127.0.0.1:0/mcp") as (at,), connect(at) as client:
        await client.call_tool("echo", {"text": "x"})
    assert ("tools/call", "answered") in methods(tmp_path / "a")


async def test_wrong_values_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="record is a int"):
        connect(made(), record=5)  # type: ignore[arg-type]

    async def opened() -> None:
        raise NotImplementedError

    with pytest.raises(UsageError, match="trace and record"):
        connect(opened, record=tmp_path / "a")  # type: ignore[arg-type]
