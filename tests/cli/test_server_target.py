"""How a server is named, and how it is started or reached."""

from __future__ import annotations

import json
import shlex
import socket
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import pytest
from click.testing import CliRunner

from mcplumb.cli.command_runner import GlobalOptions
from mcplumb.cli.commands.tap import tap
from mcplumb.cli.server_target import ServerCommand, Target, server_command
from mcplumb.errors import UsageError
from tests.cli.kit import LEGACY, PYTHON, WEATHER, here, serving

SHOW = (
    "import json, os; print(json.dumps({**{n: v for n, v in os.environ.items() if 'OURS' in n}, 'cwd': os.getcwd()}))"
)


@server_command("look")
@click.argument("words", nargs=-1)
@click.option("--own", help="An option of its own.")
def look(target: Target, words: tuple[str, ...], own: str | None) -> list[Any]:
    """Look at a server."""
    return [target, words, own]


def target(*words: str) -> Target:
    found: Target = look.main(list(words), prog_name="mcplumb look", standalone_mode=False, obj=GlobalOptions())[0]
    return found


def refusal(*words: str) -> str:
    with pytest.raises((UsageError, click.UsageError)) as caught:
        target(*words)
    return caught.value.message if isinstance(caught.value, click.UsageError) else str(caught.value)


def test_a_command_behind_the_dashes_is_the_server_s() -> None:
    found, words, own = look.main(
        ["a", "--own", "x", "b=c", "--", "npx", "-y", "pkg", "--", "--own", "y z"],
        standalone_mode=False,
        obj=GlobalOptions(),
    )
    assert (words, own) == (("a", "b=c"), "x")
    assert found.place == ["npx", "-y", "pkg", "--", "--own", "y z"]
    assert found.title == "npx -y pkg -- --own 'y z'"
    assert found.is_started


@pytest.mark.parametrize("address", ["http://127.0.0.1:8000/mcp", "unix:/x.sock", "tcp://localhost:7000", "HTTPS://x"])
def test_an_address_is_a_server(address: str) -> None:
    found = target("-s", address)
    assert (found.place, found.title) == (address, address)
    assert not found.is_started
    assert "stderr" not in found.options


def test_a_query_may_hold_a_secret_and_is_not_shown() -> None:
    assert target("-s", "https://x.y/mcp?key=secret").title == "https://x.y/mcp"


def test_a_name_is_looked_up(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    entry = {"command": PYTHON, "args": [LEGACY[2]], "env": {"A": "1", "B": "2"}}
    file.write_text(json.dumps({"mcpServers": {"old": entry}}), encoding="utf-8")
    assert here("--config", str(file), "ping", "-s", "old").code == 0
    assert here("ping", "-s", "old", "--config", str(file)).code == 0
    done = here("--config", str(file), "ping", "-s", "nothing")
    assert done.code == 2
    assert "nothing" in done.err
    found = target("-s", "old", "--config", str(file), "-e", "B=3", "--inherit-env", "X")
    assert found.options["env"] == {"A": "1", "B": "3"}
    assert "X" in found.options["inherit_env"]
    assert (found.title, found.is_started) == ("old", True)


def test_without_a_server_the_three_ways_are_shown() -> None:
    said = refusal()
    assert said.startswith("Which server? Name it in one of three ways:\n\n")
    for way in ("mcplumb look -- python weather.py ", "mcplumb look -s http://", "mcplumb look -s weather "):
        assert f"  {way}" in said
    assert refusal("--").startswith("There is no command after the --. Name it")
    done = here("tools")
    assert done.code == 2
    assert "mcplumb tools -s weather" in done.err


def test_a_tap_names_only_what_it_takes() -> None:
    done = here("tap")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Error: Which server? Name it in one of three ways:\n\n")
    for way, what in {
        "mcplumb tap -- python weather.py": "a command that starts it",
        "mcplumb tap --http 127.0.0.1:9000 -s http://127.0.0.1:8000/mcp": "its address, and where the tap listens",
        "mcplumb tap -s weather": "its name in a config file; 'mcplumb servers' lists them",
    }.items():
        assert f"  {way:62}  {what}\n" in done.err


@pytest.mark.parametrize("command", ["tap", "login", "logout"])
def test_the_help_names_only_the_addresses_that_a_command_takes(command: str) -> None:
    said = " ".join(here(command, "--help").out.split())
    assert "Its address (http://… or https://…), or its name." in said
    assert "tcp://" not in said


def test_one_server_is_enough() -> None:
    assert refusal("-s", "tcp://x:1", "--", "cmd") == "The server is named twice: give -s, or a command after --."


def test_dashes_that_are_missing_are_missed() -> None:
    done = here("tools", "python", "weather.py")
    assert done.code == 2
    assert "(python weather.py). The command that starts a server goes after --." in done.err
    assert "stands behind" not in here("tools", "x", "--", "cmd").err
    assert "stands behind" not in here("tools", "--nothing").err


def test_messages_are_traced_while_the_command_runs() -> None:
    lines: list[str] = []
    options = GlobalOptions(trace=True)
    found: Target = look.main(["--", "x"], standalone_mode=False, obj=options)[0]
    found.options["trace"]("in", b"before")
    options.tracer = lambda direction, line: lines.append(f"{direction} {line.decode()}")
    found.options["trace"]("in", b"meanwhile")
    assert lines == ["in meanwhile"]


def test_what_the_server_says_beside_is_shown() -> None:
    server = ["--", "sh", "-c", f"echo 'by the way\x1b' >&2; exec {PYTHON} {LEGACY[2]}"]
    assert "by the way\\x1b\n" in here("-v", "ping", *server).err
    assert "by the way" not in here("-v", "ping", "--quiet", *server).err
    assert here("ping", *server).err == ""


def test_options_become_those_of_connect(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("# mine\n\n abc \n", encoding="utf-8")
    found = target(
        *["-s", "https://x.y/mcp", "--header", "X-A: b:c", "--header", "X-D:e", "--token-file", str(token), "--sse"],
        *["--timeout", "2.5", "--revision", "2025-06-18", "--revision", "2025-03-26", "--no-restart"],
    )
    waits = found.options.pop("waits")
    assert waits.patience == 2.5
    assert found.options.pop("era_memory").endswith("/mcplumb/eras.json")
    assert found.options == {
        "headers": {"X-A": "b:c", "X-D": "e"},
        "token": "abc",
        "http_sse": True,
        "timeout": 2.5,
        "revisions": ("2025-06-18", "2025-03-26"),
        "restart": False,
    }
    found = target("-e", "A=b=c", "-e", "D=", "--inherit-env", "X", "--cwd", "/", "-q", "--", "cmd")
    del found.options["era_memory"]
    assert found.options == {"env": {"A": "b=c", "D": ""}, "inherit_env": ("X",), "cwd": "/", "stderr": "capture"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-e", "secret", "--", "x"], "--env takes NAME=VALUE; one of the values does not have that form."),
        (["-e", "=secret", "--", "x"], "--env takes NAME=VALUE; one of the values does not have that form."),
        (
            ["--header", "secret", "-s", "http://x"],
            "--header takes NAME:VALUE; one of the values does not have that form.",
        ),
        (["--token-file", "/nothing", "-s", "http://x"], "The token file /nothing cannot be read: No such file"),
        (["--ca-file", "/nothing", "-s", "https://x"], "/nothing"),
        (["--timeout", "0", "--", "x"], "'0' is not a number of seconds above 0."),
        (["--timeout", "soon", "--", "x"], "'soon' is not a number of seconds above 0."),
        (["--timeout", "nan", "--", "x"], "'nan' is not a number of seconds above 0."),
        (["-s", "http://user:secret@x"], "An address must have no user name"),
        (["-s", "ftp://x"], "The address 'ftp://x' cannot be used"),
    ],
)
def test_what_cannot_be_used_is_said(words: list[str], said: str) -> None:
    message = refusal(*words)
    assert said in message
    assert "secret" not in message


def test_a_token_file_has_one_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a\nb\n", encoding="utf-8")
    assert refusal("--token-file", str(file), "-s", "http://x").endswith(
        "has 2 tokens: write one, on a line of its own."
    )
    file.write_bytes(b"\xff")
    assert "cannot be read" in refusal("--token-file", str(file), "-s", "http://x")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["-e", "A=b", "-s", "tcp://127.0.0.1:1"],
            "Error: --env is only for a server that mcplumb starts, and this one has an address.",
        ),
        (["--header", "A:b", *LEGACY], "Error: --header is for a server with an http:// or https:// address."),
        (["--revision", "2025", *LEGACY], "There is no protocol revision '2025'."),
        (["--cwd", "/nothing/of/this/name", *LEGACY], "/nothing/of/this/name"),
    ],
)
def test_options_that_do_not_fit_are_refused(words: list[str], said: str) -> None:
    done = here("ping", *words)
    assert done.code in (2, 3)
    assert said in done.err


def test_a_server_gets_the_variables_and_the_folder_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS_PASSED", "1")
    monkeypatch.setenv("OURS_KEPT", "2")
    options = ["-e", "NOT_OURS=3", "--inherit-env", "OURS_PASSED", "--cwd", str(tmp_path)]
    done = here("probe", "--json", *options, "--", PYTHON, "-c", SHOW)
    assert json.loads(done.json["first_bad_line"]) == {"OURS_PASSED": "1", "NOT_OURS": "3", "cwd": str(tmp_path)}


def revision(*words: str) -> Any:
    return here("probe", "--quick", "--json", *words).json["revision"]


@pytest.mark.req("STR-1")
def test_every_way_leads_to_the_server() -> None:
    with TemporaryDirectory() as folder, serving("--unix", f"{folder}/s", "--tcp", ":0", "--http", ":0") as addresses:
        assert len(addresses) == 3
        for address in addresses:
            assert revision("-s", address) == "2026-07-28"
            assert revision("-s", address, "--revision", "2025-06-18") == "2025-06-18"
    assert revision("--revision", "2025-03-26", *WEATHER) == "2025-03-26"


def test_help_has_the_options_in_three_parts() -> None:
    result = CliRunner().invoke(look, ["--help"], prog_name="mcplumb look")
    assert result.output.startswith("Usage: mcplumb look [OPTIONS] [WORDS]... -- COMMAND...\n")
    own, server, everywhere = (
        result.output.index(f"\n{part}:\n") for part in ("Options", "The server", "Global options")
    )
    assert own < result.output.index("--own") < server < result.output.index("-s, --server") < everywhere
    assert result.output.index("--trace") > everywhere
    bare = CliRunner().invoke(server_command("bare")(lambda target: None), ["--help"])
    assert "\nOptions:\n" not in bare.output


def test_a_command_is_a_command() -> None:
    assert isinstance(look, ServerCommand)
    assert look.name == "look"
    assert shlex.split(target("--", "a b").title) == ["a b"]


def test_the_era_of_a_server_is_remembered_for_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert '"method":"server/discover"' in here("ping", "--trace", *LEGACY).err
    assert '"method":"server/discover"' not in here("ping", "--trace", *LEGACY).err
    # A probe finds out anew.
    assert "server/discover with error" in here("probe", "--quick", *LEGACY).out
    # Where nothing can be kept, nothing is.
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    done = here("ping", "--trace", *LEGACY)
    assert '"method":"server/discover"' in done.err
    assert "cannot be" not in done.err


@pytest.mark.parametrize(
    ("server", "meant"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000/mcp, or tcp://127.0.0.1:8000"),
        ("localhost:8000/mcp", "http://localhost:8000/mcp"),
        ("weather.example/mcp", "https://weather.example/mcp"),
    ],
)
def test_an_address_without_its_scheme_is_recognised(server: str, meant: str) -> None:
    assert refusal("-s", server) == f"{server!r} is not the name of a server. If it is an address, write {meant}."


def test_a_path_is_not_taken_for_an_address(tmp_path: Path) -> None:
    (tmp_path / "weather.d").mkdir()
    (tmp_path / "weather.d" / "server.py").touch()
    with chdir(tmp_path):
        assert "A command that starts a server goes after --" in refusal("-s", "weather.d/server.py")
        assert "A command that starts a server goes after --" in refusal("-s", "./server.py")


def test_options_that_do_not_apply_are_not_in_the_help_and_refused() -> None:
    words = ["--timeout", "3", "--", "python", "weather.py"]
    with pytest.raises(UsageError, match=r"^mcplumb tap does not take --timeout\.$"):
        tap.main(words, prog_name="mcplumb tap", standalone_mode=False, obj=GlobalOptions())
    shown = CliRunner().invoke(tap, ["--help"], obj=GlobalOptions()).output
    assert "--record" in shown
    assert not any(option in shown for option in ("--timeout", "--revision", "--no-restart", "--quiet", "--sse"))


def test_a_socket_is_recognised() -> None:
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/s")
        with chdir(folder):
            assert refusal("-s", "s").endswith("If it is an address, write unix:s.")


def test_the_three_ways_are_those_of_the_command() -> None:
    assert "  mcplumb call TOOL -- python weather.py " in here("call", "x").err
    assert "  mcplumb read URI -s weather " in here("read", "x:y").err
