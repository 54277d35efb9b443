"""``mcplumb bridge``: real processes at both sides."""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mcplumb import ConnectError, sync
from tests.cli.kit import PYTHON, mcplumb
from tests.cli.reading import Watched
from tests.kit.loop import PATIENCE, blocking_until

SERVER = """
import sys
from mcplumb import Server

server = Server(sys.argv[1])
print("ready", file=sys.stderr)

@server.tool
async def greet(name: str) -> str:
    return f"{sys.argv[1]} greets {name}"

server.run()
"""


#: It tells who it is, and works until somebody writes to a pipe.
WORKER = """
import os, sys
from pathlib import Path
from mcplumb import Server

server = Server("worker")
print(sys.argv[1], "is ready", file=sys.stderr)

@server.tool
async def pid() -> str:
    return str(os.getpid())

@server.tool
async def secrets() -> str:
    return " ".join(f"{name}={value}" for name, value in os.environ.items() if name.startswith("SECRET_"))

@server.tool
def work() -> str:
    Path("began").touch()
    return Path("may_end").read_text()

server.run()
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "server.py").write_text(SERVER)
    return tmp_path


def write_config(folder: Path, *names: str) -> Path:
    file = folder / "servers.json"
    servers = {name: {"command": sys.executable, "args": [str(folder / "server.py"), name]} for name in names}
    # In one step, because the bridge may read it at any time.
    (folder / "new.json").write_text(json.dumps({"mcpServers": servers}))
    (folder / "new.json").replace(file)
    return file


def bridging(folder: Path, *words: str) -> Watched:
    return Watched([PYTHON, "-m", "mcplumb", "bridge", *words], cwd=folder)


def address_in(reading: Watched) -> str:
    return reading.wait_for("Serving at ").strip()


@pytest.mark.parametrize("revision", ["2026-07-28", "2024-11-05"])
def test_a_command_is_served_on_stdio(folder: Path, revision: str) -> None:
    bridge = [PYTHON, "-m", "mcplumb", "bridge", "--", PYTHON, "server.py", "Ada"]
    done = mcplumb("call", "greet", "name=Bob", "--revision", revision, "-q", "--", *bridge, cwd=folder)
    assert (done.code, done.out) == (0, "Ada greets Bob\n"), done


def test_a_command_is_served_over_http_to_clients_with_a_token(folder: Path) -> None:
    (folder / "tokens").write_text("a-secret-for-the-bridge\n")
    words = ["--http", "127.0.0.1:0", "--client-token-file", "tokens", "--log-dir", "logs"]
    with bridging(folder, *words, "--", PYTHON, "server.py", "Ada") as reading:
        url = address_in(reading)
        for revision in ("2026-07-28", "2025-06-18"):
            with sync.connect(url, token="a-secret-for-the-bridge", revisions=[revision]) as client:
                assert client.call_tool("greet", {"name": "Bob"}).text == "Ada greets Bob"
        with pytest.raises(ConnectError, match="401"), sync.connect(url):
            pass
    (log,) = (folder / "logs").iterdir()
    assert log.read_text() == "ready\n"


@pytest.mark.parametrize("several", [False, True])
def test_http_has_a_door_for_the_old_transport_whether_it_is_named_or_not(folder: Path, several: bool) -> None:
    server = ["--config", str(write_config(folder, "ada"))] if several else ["--", PYTHON, "server.py", "Ada"]
    with (
        bridging(folder, "--http", "127.0.0.1:0", "--sse", *server) as reading,
        sync.connect(address_in(reading).replace("/mcp", "/sse"), http_sse=True) as client,
    ):
        assert [tool.name for tool in client.list_tools()] == ["ada_greet" if several else "greet"]
    done = mcplumb("bridge", "--sse", *server, cwd=folder)
    assert done.code == 2


def test_the_tokens_of_clients_may_come_from_a_pipe(folder: Path) -> None:
    pipe = folder / "tokens"
    os.mkfifo(pipe)
    words = ["--http", "127.0.0.1:0", "--client-token-file", "tokens"]
    with bridging(folder, *words, "--", PYTHON, "server.py", "Ada") as reading:
        # In a thread, because it waits until the bridge reads.
        threading.Thread(target=pipe.write_text, args=["a-secret-for-the-bridge\n"], daemon=True).start()
        with sync.connect(address_in(reading), token="a-secret-for-the-bridge") as client:
            assert client.call_tool("greet", {"name": "Bob"}).text == "Ada greets Bob"


def test_a_server_at_an_address_is_served_on_stdio(folder: Path) -> None:
    with bridging(folder, "--http", "127.0.0.1:0", "--", PYTHON, "server.py", "Ada") as reading:
        inner = [PYTHON, "-m", "mcplumb", "bridge", "-s", address_in(reading)]
        done = mcplumb("call", "greet", "name=Bob", "-q", "--", *inner, cwd=folder)
    assert (done.code, done.out) == (0, "Ada greets Bob\n"), done


@pytest.mark.req("BRG-6")
def test_a_config_file_is_followed(folder: Path) -> None:
    file = write_config(folder, "ada", "bob")
    with bridging(folder, "--config", str(file), "--http", "127.0.0.1:0", "-q") as refused:
        refused.wait_for("--quiet is for one server")
    words = ["--config", str(file), "--http", "127.0.0.1:0", "--hide", "bob_*"]
    with bridging(folder, *words) as reading, sync.connect(address_in(reading)) as client:
        assert [tool.name for tool in client.list_tools()] == ["ada_greet"]
        write_config(folder, "ada", "bob", "eve")
        blocking_until(lambda: len(client.list_tools()) == 2, "the new server")
        assert client.call_tool("eve_greet", {"name": "you"}).text == "eve greets you"


@pytest.mark.req("BRG-6", "BRG-7", "GRP-1")
def test_each_server_has_its_own_environment_and_log(folder: Path) -> None:
    (folder / "worker.py").write_text(WORKER)
    servers = {
        name: {"command": sys.executable, "args": ["worker.py", name], "env": {f"SECRET_{name.upper()}": "x"}}
        for name in ("ada", "bob")
    }
    file = folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    words = ["-v", "bridge", "--config", str(file), "--http", "127.0.0.1:0", "--log-dir", "logs"]
    with (
        Watched([PYTHON, "-m", "mcplumb", *words], cwd=folder) as reading,
        sync.connect(address_in(reading)) as client,
    ):
        for name in servers:
            assert client.call_tool(f"{name}_secrets").text == f"SECRET_{name.upper()}=x"
            reading.wait_for(f" sends tools/call to {name}.")
        file.write_text("{")
        reading.wait_for("The servers stay as they are")
        file.unlink()
        reading.wait_for("there is no such file")
        assert client.call_tool("bob_secrets").text == "SECRET_BOB=x"
    assert {log.name: log.read_text() for log in (folder / "logs").iterdir()} == {
        "ada.log": "ada is ready\n",
        "bob.log": "bob is ready\n",
    }


@pytest.mark.req("BRG-6")
@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_a_bridge_that_is_terminated_finishes_calls_and_leaves_nothing(folder: Path, revision: str) -> None:
    (folder / "worker.py").write_text(WORKER)
    os.mkfifo(folder / "may_end")
    with bridging(folder, "--http", "127.0.0.1:0", "--", PYTHON, "worker.py", "Ada") as reading:
        with sync.connect(address_in(reading), revisions=[revision]) as client, ThreadPoolExecutor() as pool:
            pid = int(client.call_tool("pid").text)
            call = pool.submit(client.call_tool, "work")
            blocking_until((folder / "began").exists, "the call")
            reading.terminate()
            reading.wait_for("Received SIGTERM")
            (folder / "may_end").write_text("done")
            assert call.result(PATIENCE).text == "done"
        assert reading.wait(PATIENCE) == 0
        blocking_until(lambda: not is_alive(pid), "the end of the server")


@pytest.mark.req("BRG-6")
def test_a_server_without_clients_may_be_stopped_at_once(folder: Path) -> None:
    (folder / "worker.py").write_text(WORKER)
    with bridging(folder, "--http", "127.0.0.1:0", "--idle", "0", "--", PYTHON, "worker.py", "Ada") as reading:
        url = address_in(reading)
        pids = []
        for _ in range(2):
            with sync.connect(url, revisions=["2025-11-25"]) as client:
                pids.append(int(client.call_tool("pid").text))
            blocking_until(lambda: not is_alive(pids[-1]), "the end of the server")
        assert pids[0] != pids[1]


def test_some_servers_of_a_config_file(folder: Path) -> None:
    file = write_config(folder, "ada", "bob", "eve")
    words = ["--config", str(file), "bob", "eve", "--http", "127.0.0.1:0"]
    with bridging(folder, *words) as reading, sync.connect(address_in(reading)) as client:
        assert [tool.name for tool in client.list_tools()] == ["bob_greet", "eve_greet"]


def test_entries_that_are_disabled_or_broken_are_left_out(folder: Path) -> None:
    file = write_config(folder, "ada", "bob")
    config = json.loads(file.read_text())
    config["mcpServers"]["bob"]["disabled"] = True
    config["mcpServers"]["eve"] = {"command": 7}
    file.write_text(json.dumps(config))
    with bridging(folder, "--config", str(file), "--http", "127.0.0.1:0") as reading:
        url = address_in(reading)
        with sync.connect(url) as client:
            assert [tool.name for tool in client.list_tools()] == ["ada_greet"]
            assert "cannot be used at the moment: eve." in (client.instructions or "")
        reading.wait_for("'eve' could not be started. In ")
    words = ["--config", str(file), "bob", "--http", "127.0.0.1:0"]
    with bridging(folder, *words) as reading, sync.connect(address_in(reading)) as client:
        assert [tool.name for tool in client.list_tools()] == ["bob_greet"]
    config["mcpServers"] = {"bob": config["mcpServers"]["bob"]}
    file.write_text(json.dumps(config))
    done = mcplumb("bridge", "--config", str(file), "--http", ":0", cwd=folder)
    assert (done.code, "No server is enabled in the config files" in done.err) == (2, True), done


@pytest.mark.parametrize("depth", [1, 2])
def test_a_bridge_in_its_own_config_does_not_start_itself_without_end(folder: Path, depth: int) -> None:
    # Two files whose bridges start each other, or one file whose bridge starts itself.
    files = [folder / f"servers{number}.json" for number in range(depth)]
    for file, other in zip(files, files[1:] + files[:1], strict=True):
        servers = {
            "all": {"command": PYTHON, "args": ["-m", "mcplumb", "bridge", "--config", str(other)]},
            "ada": {"command": PYTHON, "args": [str(folder / "server.py"), "ada"]},
        }
        file.write_text(json.dumps({"mcpServers": servers}))
    with bridging(folder, "--config", str(files[0]), "--http", "127.0.0.1:0") as reading:
        with sync.connect(address_in(reading)) as client:
            tools = [tool.name for tool in client.list_tools()]
        reading.wait_for("is this bridge, which would start itself without end.")
    assert tools == ["all_" * number + "ada_greet" for number in reversed(range(depth))]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Which server?"),
        (["--config", "none.json"], "there is no such file"),
        (["ada", "-s", "http://127.0.0.1:1/mcp"], "Name one server with -s or after --, or several"),
        (["--only", "x_*", "--", "true"], "--only and --hide are for several servers"),
        (["--client-token-file", "server.py", "--", "true"], "Error: --client-token-file is for clients over HTTP"),
        (
            ["--http", ":0", "--client-token-file", "binary", "--", "true"],
            "binary cannot be read: it is not UTF-8 text",
        ),
        (["--share", "maybe", "--", "true"], "'maybe' is not one of"),
        (["--idle", "-1", "--", "true"], "is not a number of seconds, at least 0"),
        (["--idle", "inf", "--", "true"], "is not a number of seconds, at least 0"),
        (["--idle", "soon", "--", "true"], "is not a number of seconds, at least 0"),
    ],
)
def test_what_cannot_be_bridged_is_said_in_one_line(folder: Path, words: list[str], said: str) -> None:
    (folder / "binary").write_bytes(b"\xff\xfet\x00")
    done = mcplumb("bridge", *words, cwd=folder)
    assert done.code == 2
    assert said in done.err
