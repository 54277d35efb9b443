"""``mcplumb bridge``: real processes at both sides."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from mcplumb import ConnectError, sync
from tests.cli.kit import PYTHON, mcplumb
from tests.cli.reading import Watched
from tests.kit.loop import blocking_until

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
