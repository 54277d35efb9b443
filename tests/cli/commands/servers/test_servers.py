"""``mcplumb servers``, ``add``, ``remove``, and servers by name, as a user has them."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcplumb.cli.commands.servers import add, remove, servers
from mcplumb.cli.main import OVERVIEW
from tests.cli.kit import PYTHON, WEATHER, here, mcplumb, on_terminal, serving

COMMAND = {"command": PYTHON, "args": WEATHER[2:]}


def own(home: Path) -> Path:
    return home / ".config" / "mcplumb" / "servers.json"


def written(home: Path) -> Any:
    return msgspec.json.decode(own(home).read_bytes())["mcpServers"]


def write(path: Path, servers: dict[str, Any], **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode({"mcpServers": servers, **more}))


# --- A whole life ---


def test_a_server_is_added_used_listed_and_removed(home: Path) -> None:
    done = mcplumb("add", "weather", *WEATHER)
    assert (done.code, done.out) == (0, "")
    assert done.err == "Added to ~/.config/mcplumb/servers.json. Use it with: mcplumb tools -s weather\n"
    assert stat.S_IMODE(own(home).stat().st_mode) == 0o600
    done = mcplumb("tools", "-s", "weather")
    assert done.code == 0
    assert "forecast" in done.out
    assert "weather" in mcplumb("servers").out
    done = mcplumb("remove", "weather")
    assert (done.code, done.err) == (0, "Removed from ~/.config/mcplumb/servers.json.\n")
    done = mcplumb("tools", "-s", "weather")
    assert done.code == 2
    assert "There is no server 'weather' in the config files." in done.err


def test_an_address_is_added_and_used(home: Path) -> None:
    with serving("--http", "127.0.0.1:0") as [address]:
        assert here("add", "remote", address).code == 0
        assert written(home)["remote"] == {"type": "http", "url": address}
        done = mcplumb("tools", "-s", "remote")
        assert done.code == 0
        assert "forecast" in done.out


def test_the_examples_of_the_help_are_true(home: Path) -> None:
    for command, name in ((servers, "servers"), (add, "add"), (remove, "remove")):
        help_text = here(name, "--help").out
        assert f"  {name:<10}  {command.get_short_help_str(100)}\n" in OVERVIEW
        assert re.findall(rf"^ +mcplumb {name}\b.*$", help_text, re.MULTILINE)
    Path("weather.py").write_text("")
    assert here("add", "weather", "--", "python", "weather.py").code == 0
    header = "Authorization: Bearer ${TOKEN}"
    assert here("add", "docs", "https://example.com/mcp", "--header", header).code == 0
    assert written(home)["docs"]["headers"] == {"Authorization": "Bearer ${TOKEN}"}
    for words in ([], ["--json"], ["weather"]):
        assert here("servers", *words).code == 0
    assert here("remove", "weather").code == 0


# --- servers ---


def test_nothing_is_configured() -> None:
    done = here("servers")
    assert (done.code, done.out) == (0, "")
    assert done.err == "No server is configured. Add one with: mcplumb add NAME -- COMMAND\n"
    assert here("servers", "--json").json == {"servers": [], "signedIn": {}, "signInExpired": {}, "faults": []}


def test_servers_are_listed_with_where_they_are(home: Path, project: Path) -> None:
    write(home / ".cursor" / "mcp.json", {"a": {"command": "x"}, "b": {"command": "y", "disabled": True}})
    write(own(home), {"b": {"url": "https://x.y/mcp"}})
    write(project / ".mcp.json", {"p": {"command": "z", "env": {"A": "${GONE}"}}, "bad": {}})
    inputs = [{"id": "key"}]
    write(project / ".vscode" / "mcp.json", {"v": {"command": "z", "args": ["${input:key}"]}}, inputs=inputs)
    done = here("servers")
    assert done.code == 0
    lines = [re.split(r"  +", line) for line in done.out.splitlines()]
    assert lines == [
        ["NAME", "SERVER", "FILE", "NOTE"],
        ["b", "https://x.y/mcp", "~/.config/mcplumb/servers.json"],
        ["p", "z", f"{project}/.mcp.json", "needs GONE, asks before its first use"],
        ["v", "z '${input:key}'", f"{project}/.vscode/mcp.json", "asks for key, asks before its first use"],
        ["a", "x", "~/.cursor/mcp.json"],
        ["b", "y", "~/.cursor/mcp.json", "not used: the name is taken in ~/.config/mcplumb/servers.json"],
    ]
    assert done.err.startswith(f"Warning: In {project}/.mcp.json, server 'bad': it needs a")
    found = here("servers", "--json").json
    assert [one["name"] for one in found["servers"]] == ["b", "p", "v", "a", "b"]
    assert len(found["faults"]) == 1


def test_without_notes_there_is_no_column_for_them(home: Path) -> None:
    write(own(home), {"a": {"command": "x"}})
    assert here("servers").out.splitlines()[0].split() == ["NAME", "SERVER", "FILE"]


def test_a_table_fits_the_terminal(home: Path) -> None:
    write(own(home), {"a": {"command": "program", "args": ["argument"] * 30}})
    done = on_terminal("servers", columns=60)
    assert done.code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.out)
    assert max(len(line.rstrip()) for line in plain.splitlines()) <= 60


def test_all_that_is_known_of_one(home: Path) -> None:
    raw = {"command": "x", "args": ["--token", "hunter2"], "env": {"A": "hunter2", "B": "${C:-}"}, "cwd": "/d"}
    write(own(home), {"a": {**raw, "envFile": "/gone/.env"}, "b": {"url": "http://x", "headers": {"K": "hunter2"}}})
    done = here("servers", "a")
    assert [re.split(r"  +", line) for line in done.out.splitlines()] == [
        ["name", "a"],
        ["type", "stdio"],
        ["command", "x --token '***'"],
        ["cwd", "/d"],
        ["env", "A=***"],
        ["env", "B=***"],
        ["envFile", "/gone/.env"],
        ["file", "~/.config/mcplumb/servers.json"],
        ["written for", "mcplumb"],
        ["note", f"In {own(home)}, server 'a', key 'envFile': there is no file /gone/.env."],
    ]
    assert "header" in here("servers", "b").out
    one = here("servers", "b", "--json").json
    assert one["headers"] == {"K": "***"}
    assert here("servers", "c").code == 2


@pytest.mark.parametrize("words", [[], ["a"], ["b"], ["--json"], ["a", "--json"], ["b", "--json"]])
def test_no_secret_is_ever_shown(home: Path, words: list[str]) -> None:
    servers = {
        "a": {"command": "x", "args": ["--key=hunter2"], "env": {"A": "hunter2", "B": "${GONE:-hunter2}"}},
        "b": {"url": "https://x.y/mcp?k=hunter2", "headers": {"A": "Bearer hunter2"}},
    }
    write(own(home), servers)
    write(home / ".cursor" / "mcp.json", servers)
    done = here("servers", *words)
    assert done.code == 0
    assert "hunter2" not in done.out + done.err


def test_text_of_files_does_not_drive_the_terminal(project: Path) -> None:
    write(project / ".mcp.json", {"a\x1b[2J": {"command": "x\x1b[2J"}, "\x1b]0;b": {}})
    for done in (here("servers"), here("servers", "--json"), here("servers", "a\x1b[2J")):
        assert "\x1b" not in done.out + done.err


def test_one_file_only(project: Path, home: Path) -> None:
    write(own(home), {"a": {"command": "x"}})
    write(project / "other.json", {"b": {"command": "y"}})
    for done in (here("servers", "--config", "other.json"), here("--config", "other.json", "servers")):
        assert done.code == 0
        assert [line.split()[0] for line in done.out.splitlines()] == ["NAME", "b"]
    done = here("servers", "--config", "gone.json")
    assert (done.code, done.err) == (2, f"Error: In {project}/gone.json: there is no such file.\n")


def test_a_name_that_is_hidden_by_a_bad_one(project: Path, home: Path) -> None:
    write(project / ".mcp.json", {"a": {}})
    write(home / ".cursor" / "mcp.json", {"a": {"command": "x"}})
    assert f"not used: the name is taken in {project}/.mcp.json" in here("servers").out


# --- add ---


def test_everything_that_can_be_said_of_a_command(home: Path) -> None:
    words = ["-e", "A=b=c", "-e", "T=${T}", "--inherit-env", "V", "--cwd", "sub", "--", "x", "-y", "--", "z"]
    done = here("add", "it", *words)
    assert done.code == 0
    assert written(home)["it"] == {
        "command": "x",
        "args": ["-y", "--", "z"],
        "env": {"A": "b=c", "T": "${T}"},
        "inheritEnv": ["V"],
        "cwd": str(Path("sub").absolute()),
    }


def test_everything_that_can_be_said_of_an_address(home: Path) -> None:
    words = ["https://x.y/sse", "--sse", "--header", "A: b:c", "--header", "Authorization: Bearer hunter2"]
    done = here("add", "it", *words)
    assert written(home)["it"] == {
        "type": "sse",
        "url": "https://x.y/sse",
        "headers": {"A": "b:c", "Authorization": "Bearer hunter2"},
    }
    assert "The value of Authorization is in the file now. To keep it out, write ${NAME}" in done.err
    assert "hunter2" not in done.err
    assert here("add", "sock", "unix:/run/x.sock").code == 0
    assert here("add", "var", "https://${HOST}:${PORT}/mcp").code == 0
    assert here("add", "all", "${URL}", "--header", "A:b").code == 0
    assert {name: one.get("url") for name, one in written(home).items() if name != "it"} == {
        "sock": "unix:/run/x.sock",
        "var": "https://${HOST}:${PORT}/mcp",
        "all": "${URL}",
    }


def test_a_command_that_names_a_file_here_runs_here(home: Path, project: Path) -> None:
    Path("weather.py").write_text("")
    done = here("add", "it", "python", "weather.py")
    assert written(home)["it"] == {"command": "python", "args": ["weather.py"], "cwd": str(project)}
    assert f"It will run in {project}, because its command names a file there." in done.err
    here("add", "other", "python", str(project / "weather.py"))
    assert "cwd" not in written(home)["other"]


def test_a_name_that_is_taken(home: Path) -> None:
    here("add", "it", "x")
    done = here("add", "it", "y")
    assert done.code == 2
    assert f"There is a server 'it' in {own(home)} already: choose another name, or give --replace." in done.err
    assert here("add", "it", "--replace", "y").code == 0
    assert written(home)["it"]["command"] == "y"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["it"], "Missing argument 'ADDRESS | -- COMMAND...'"),
        (["a b", "x"], "A server cannot have the name 'a b'"),
        (["it", "-e", "A", "x"], "--env takes NAME=VALUE; one of the values does not have that form."),
        (["it", "--header", ":x", "http://x"], "--header takes NAME:VALUE; one of the values does not have that form."),
        (["it", "-e", "A=b", "http://x"], "--env, --inherit-env and --cwd are for a command, and this is an address."),
        (["it", "--sse", "x", "y"], "--header and --sse are for an address, and this is a command."),
        (["it", "http:/x"], "The address 'http:/x' cannot be used: it must begin with http://."),
        (["it", "x", "${config:y}"], "key 'args': mcplumb does not know what ${config:y} means."),
    ],
)
def test_what_cannot_be_added(home: Path, words: list[str], said: str) -> None:
    done = here("add", *words)
    assert done.code == 2
    assert said in done.err
    assert not own(home).exists()


@pytest.mark.parametrize("words", [["add", "it", "x"], ["remove", "it"]])
def test_only_our_own_file_is_changed(home: Path, words: list[str]) -> None:
    done = here("--config", "f.json", *words)
    assert done.code == 2
    assert f"changes {own(home)} only: leave --config out." in done.err


def test_a_file_that_is_broken_is_left_alone(home: Path) -> None:
    own(home).parent.mkdir(parents=True)
    own(home).write_text("{ // mine\n}")
    done = here("add", "it", "x")
    assert done.code == 2
    assert "it has comments or trailing commas, which would be lost" in done.err
    assert own(home).read_text() == "{ // mine\n}"


# --- remove ---


def test_a_server_of_another_program_is_not_removed(home: Path) -> None:
    write(home / ".cursor" / "mcp.json", {"it": {"command": "x"}})
    done = here("remove", "it")
    assert done.code == 2
    assert f"The server 'it' is in {home}/.cursor/mcp.json, a file of Cursor, which mcplumb does not change" in done.err
    done = here("remove", "other")
    assert done.code == 2
    assert "There is no server 'other' in ~/.config/mcplumb/servers.json." in done.err


# --- servers by name ---


def test_names_that_are_something_else(project: Path) -> None:
    (project / "weather.py").write_text("")
    for name in ("weather.py", "./gone.py"):
        done = here("tools", "-s", name)
        assert done.code == 2
        assert "A command that starts a server goes after --, without -s." in done.err
    assert "stands behind" not in here("tools", "-s", "weather").err


def test_what_a_user_says_goes_over_an_entry(home: Path) -> None:
    program = "import os, sys; sys.exit(f\"{os.environ['A']} {os.environ['B']}\")"
    write(own(home), {"it": {"command": PYTHON, "args": ["-c", program], "env": {"A": "entry", "B": "entry"}}})
    done = mcplumb("tools", "-s", "it", "-e", "B=user", "--no-restart")
    assert done.code == 3
    assert "entry user" in done.err


def test_a_named_file_is_agreed_to(project: Path) -> None:
    write(project / ".mcp.json", {"it": COMMAND})
    done = here("--config", ".mcp.json", "tools", "-s", "it")
    assert done.code == 0
    assert "forecast" in done.out


@pytest.mark.parametrize(
    "words", [["--", "\udcff"], ["-e", "A=\udcff", "--", "true"], ["--cwd", "/\udcff", "--", "true"]]
)
def test_what_the_file_cannot_hold_is_not_added(home: Path, words: list[str]) -> None:
    """Such as the name of a folder in an old encoding."""
    done = here("add", "x", *words)
    said = "The server 'x' cannot be added: a text in its entry is not valid UTF-8, and so cannot be written as JSON."
    assert done == (2, "", f"Error: {said}\n")
    assert not own(home).exists()
