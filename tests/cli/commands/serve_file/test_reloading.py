"""``mcplumb serve --reload``: a new program for new files, at the same addresses, whatever the old one is doing."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from mcplumb.cli.commands import serve_file as serve
from mcplumb.cli.commands.serve_file import ProcessImage, Reloader, ServeSettings, WatchedFiles, run_reloading
from mcplumb.cli.render.output import say
from mcplumb.errors import ConnectError, RequestLost
from mcplumb.server.server import Server
from mcplumb.sync import Client, connect
from tests.cli.kit import PYTHON
from tests.cli.reading import Watched
from tests.kit.loop import PATIENCE

FILE = """
import os
import time

import town
from mcplumb import Server

os.chdir("/")
os.environ["LEFT_BEHIND"] = "1" + os.environ.get("LEFT_BEHIND", "")
server = Server("weather", stop_within=0)

@server.tool
async def forecast() -> str:
    return f"sun in {town.NAME}, {os.environ['LEFT_BEHIND']}"

@server.tool
async def hang() -> str:
    print("hanging", flush=True)
    time.sleep(600)
    return "never"
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as name:  # that of pytest may be too long for a socket
        path = Path(name)
        (path / "weather.py").write_text(FILE, encoding="utf-8")
        write(path, "NAME = 'Oslo'")
        yield path


def write(folder: Path, text: str, name: str = "town.py") -> None:
    """As an editor does: the new file takes the place of the old one."""
    new = folder / f"{name}~"
    new.write_text(f"{text}\n", encoding="utf-8")
    new.replace(folder / name)


def serving(folder: Path, *options: str) -> Watched:
    return Watched([PYTHON, "-m", "mcplumb", "serve", "weather.py", "--reload", *options], cwd=folder)


def forecast(address: str) -> str:
    with connect(address) as client:
        return str(client.call_tool("forecast").content[0].text)  # type: ignore[union-attr]


def hang(client: Client) -> None:
    with pytest.raises(RequestLost):
        client.call_tool("hang")


def test_a_change_is_served_at_the_same_addresses_by_the_same_process(folder: Path) -> None:
    socket = f"unix:{folder / 'w.sock'}"
    with serving(folder, "--unix", str(folder / "w.sock"), "--http", ":0") as process:
        assert process.wait_for("Serving at ") == socket
        address = process.wait_for("Serving at ")
        assert forecast(address) == forecast(socket) == "sun in Oslo, 1"
        write(folder, "NAME = 'Rome'")
        process.wait_for(f"{os.path.realpath(folder / 'town.py')} has changed: the server starts again.")
        assert process.wait_for("Serving at ") == socket
        assert process.wait_for("Serving at ") == address
        # Nothing is left of the program before.
        assert forecast(address) == forecast(socket) == "sun in Rome, 1"
        process.terminate()
        assert process.wait(PATIENCE) == 0
    assert not (folder / "w.sock").exists()


def test_a_mistake_is_shown_and_waited_out(folder: Path) -> None:
    with serving(folder, "--tcp", ":0") as process:
        address = process.wait_for("Serving at ")
        write(folder, "NAME = = 1")
        process.wait_for("Error: weather.py cannot be imported. Line 1 of ")
        process.wait_for("Waiting for a change of its files; Ctrl-C ends it.")
        write(folder, "NAME = 'Rome'")
        assert process.wait_for("Serving at ") == address
        assert forecast(address) == "sun in Rome, 1"
        assert not [line for line in process.said if "Traceback" in line]


def test_ctrl_c_ends_it_also_while_it_waits(folder: Path) -> None:
    write(folder, "raise RuntimeError('not today')")
    with serving(folder, "--tcp", ":0") as process:
        process.wait_for("RuntimeError: not today")
        process.wait_for("Waiting for a change")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130


def test_a_handler_that_blocks_everything_can_be_repaired(folder: Path) -> None:
    with serving(folder, "--tcp", ":0") as process:
        address = process.wait_for("Serving at ")
        with connect(address, timeout=None) as client:
            hanging = threading.Thread(target=hang, args=[client])
            hanging.start()
            process.wait_for("hanging")
            write(folder, FILE.replace("time.sleep(600)", "pass"), "weather.py")
            process.wait_for("Something in the server does not stop, and is abandoned.")
            assert process.wait_for("Serving at ") == address
            assert forecast(address) == "sun in Oslo, 1"
            hanging.join(PATIENCE)


def test_a_lifespan_that_fails_is_waited_out(folder: Path) -> None:
    failing = (
        "from contextlib import asynccontextmanager\n@asynccontextmanager\nasync def life():\n    raise OSError(9)\n"
    )
    write(folder, f"{failing}    yield\n{FILE.replace('stop_within=0', 'lifespan=life')}", "weather.py")
    with serving(folder, "--tcp", ":0") as process:
        process.wait_for("Error: The server of weather.py does not run. Line 4: OSError: 9")
        write(folder, FILE, "weather.py")
        assert forecast(process.wait_for("Serving at ")) == "sun in Oslo, 1"


# --- In this process ---


@pytest.fixture
def own_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    modules = dict(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.clear()
    sys.modules.update(modules)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The programs that would have taken the place of this one."""
    found: list[list[str]] = []
    monkeypatch.setattr(ProcessImage, "start", lambda _, words: found.append(words))
    return found


@pytest.mark.usefixtures("own_modules")
def test_a_server_that_cannot_be_loaded_gets_another_chance(
    tmp_path: Path,
    started: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "alone.py"
    file.write_text("x = 1 / 0\n", encoding="utf-8")

    def say_and_repair(*words: Any, **how: Any) -> None:
        say(*words, **how)
        file.write_text("x = 10\n", encoding="utf-8")

    monkeypatch.setattr(serve, "say", say_and_repair)
    run_reloading(ServeSettings(target=str(file), addresses=["tcp://:0"]))
    assert started == [["serve", str(file), "--tcp", ":0", "--reload"]]
    assert "Line 1: ZeroDivisionError: division by zero\nWaiting" in capsys.readouterr().err


ALONE = "from mcplumb import Server\nserver = Server('alone', stop_within=0)\n"


def do_once_it_serves(monkeypatch: pytest.MonkeyPatch, do: Callable[[Server], object]) -> None:
    run = ServeSettings.run

    def run_and_do(serving: ServeSettings, server: Server, on_ready: Callable[[str], object]) -> None:
        def ready(address: str) -> None:
            on_ready(address)
            do(server)

        run(serving, server, ready)

    monkeypatch.setattr(ServeSettings, "run", run_and_do)


@pytest.mark.usefixtures("own_modules")
def test_a_server_that_is_stopped_does_not_start_again(
    tmp_path: Path, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "alone.py"
    file.write_text(ALONE, encoding="utf-8")
    do_once_it_serves(monkeypatch, Server.stop)
    run_reloading(ServeSettings(target=str(file), addresses=["tcp://127.0.0.1:0"]))
    assert started == []


@pytest.mark.usefixtures("own_modules")
def test_a_server_whose_file_changes_starts_again_at_its_real_address(
    tmp_path: Path, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "alone.py"
    file.write_text(ALONE, encoding="utf-8")
    do_once_it_serves(monkeypatch, lambda _: file.write_text("x", encoding="utf-8"))
    run_reloading(ServeSettings(target=str(file), addresses=["tcp://127.0.0.1:0"]))
    ((_, _, _, place, _),) = started
    host, _, port = place.partition(":")
    assert (host, int(port) > 0) == ("127.0.0.1", True)


@pytest.mark.usefixtures("own_modules")
def test_an_address_that_cannot_be_had_ends_it(tmp_path: Path, started: list[list[str]]) -> None:
    file = tmp_path / "alone.py"
    file.write_text(ALONE, encoding="utf-8")
    (tmp_path / "w").write_text("no socket", encoding="utf-8")
    with pytest.raises(ConnectError):
        run_reloading(ServeSettings(target=str(file), addresses=[f"unix:{tmp_path / 'w'}"]))
    assert started == []


def test_a_server_that_does_not_stop_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "_STOP_GRACE", 0.1)
    file = tmp_path / "alone.py"
    file.write_text("x = 1\n", encoding="utf-8")
    again = threading.Event()
    with Reloader(Server("stuck", stop_within=0), WatchedFiles(file), again.set) as reloader:
        file.write_text("x = 10\n", encoding="utf-8")
        assert again.wait(PATIENCE)
    assert reloader.has_changed


def test_a_program_is_started_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[tuple[object, ...]] = []
    monkeypatch.setattr(os, "execve", lambda *arguments: ran.append((*arguments, Path.cwd())))
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "-m", "mcplumb", "serve", "old"])
    monkeypatch.setattr(sys, "argv", ["/…/mcplumb/__main__.py", "serve", "old"])
    monkeypatch.chdir(tmp_path)
    program, before = ProcessImage(), dict(os.environ)
    monkeypatch.chdir("/")
    monkeypatch.setenv("MORE", "1")
    program.start(["serve", "new"])
    command = [sys.executable, "-X", "dev", "-m", "mcplumb", "serve", "new"]
    assert ran == [(sys.executable, command, before, tmp_path)]


@pytest.mark.usefixtures("own_modules")
def test_the_files_are_those_that_were_imported_from_the_folder(tmp_path: Path) -> None:
    packages = tmp_path / "venv" / "site-packages"
    packages.mkdir(parents=True)
    for name in ("serves", "beside", "unused"):
        (tmp_path / f"{name}.py").write_text("x = 1\n", encoding="utf-8")
    (packages / "installed.py").write_text("x = 1\n", encoding="utf-8")
    sys.path[:0] = [str(tmp_path), str(packages)]
    files = WatchedFiles(tmp_path / "serves.py")
    for name in ("beside", "installed"):
        __import__(name)
    assert files.changed() is None
    for path in (packages / "installed.py", tmp_path / "unused.py"):
        path.write_text("x = 10\n", encoding="utf-8")
        assert files.changed() is None
    (tmp_path / "beside.py").write_text("x = 10\n", encoding="utf-8")
    assert files.changed() == str(tmp_path / "beside.py")


def test_a_file_that_is_gone_may_come_back(tmp_path: Path) -> None:
    file = tmp_path / "serves.py"
    file.write_text("x = 1\n", encoding="utf-8")
    files = WatchedFiles(file)
    file.unlink()
    assert files.changed() is None
    file.write_text("x = 10\n", encoding="utf-8")
    assert files.changed() == str(file)


@pytest.mark.usefixtures("own_modules")
def test_a_file_that_became_something_else_may_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "serves.py"
    file.write_text("x = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    files = WatchedFiles(file)
    __import__("serves")
    assert files.changed() is None
    file.unlink()
    file.mkdir()
    assert files.changed() is None
    file.rmdir()
    file.symlink_to(file)  # which leads nowhere
    assert files.changed() is None
    file.unlink()
    file.write_text("x = 10\n", encoding="utf-8")
    assert files.changed() == str(file)


def test_all_neighbours_count_when_it_matters(tmp_path: Path) -> None:
    file, other = tmp_path / "serves.py", tmp_path / "other.py"
    for path in (file, other):
        path.write_text("x = 1\n", encoding="utf-8")
    files = WatchedFiles(file)
    files.add_neighbours()
    other.write_text("x = 10\n", encoding="utf-8")
    assert files.changed() == str(other)


def test_a_file_that_is_written_all_the_time_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "serves.py"
    file.write_text("", encoding="utf-8")
    files = WatchedFiles(file)
    file.write_text("x", encoding="utf-8")

    def grow(_: float) -> None:
        with file.open("a") as writer:
            writer.write("x")

    monkeypatch.setattr(time, "sleep", grow)
    assert files.changed() == str(file)
    assert file.stat().st_size == 1 + serve._MAX_SETTLE_CHECKS


def test_a_server_can_still_be_stopped_from_its_loop(tmp_path: Path) -> None:
    """The reloader is a host like any other."""
    file = tmp_path / "serves.py"
    file.write_text("x = 1\n", encoding="utf-8")
    server = Server("weather")

    async def main() -> None:
        serve = asyncio.create_task(server.serve("tcp://127.0.0.1:0", on_ready=lambda _: server.stop()))
        await asyncio.wait_for(serve, PATIENCE)

    with Reloader(server, WatchedFiles(file), lambda: None) as reloader:
        asyncio.run(main())
    assert not reloader.has_changed
    assert server.stop() is False
