"""What to try."""

from __future__ import annotations

import pytest

from mcplumb.cli.commands.probe_report import advice
from mcplumb.errors import ConnectError, McplumbError, ServerExited


def exited(code: int | None = 1) -> ServerExited:
    return ServerExited("x", phase="spawn", exit_code=code)


def tried(
    error: McplumbError,
    command: str | None = "python x.py",
    garbage: tuple[str, ...] = (),
    stderr: tuple[str, ...] = (),
) -> list[str]:
    return advice(error, command=command.split() if command else None, garbage=garbage, stderr=stderr)


@pytest.mark.parametrize(
    ("program", "hint"),
    [
        ("npx", "Install Node.js, which includes it."),
        ("uvx", "Install uv, which includes it."),
        ("python", "Try python3."),
        ("other", "Is it installed? Give its whole path, or add its folder to PATH."),
    ],
)
def test_a_program_that_is_missing(program: str, hint: str) -> None:
    error = ConnectError(f"The server could not be started: there is no '{program}' in the PATH that it gets: /bin.")
    assert tried(error, program) == [hint]


@pytest.mark.parametrize("said", ["there is no 'a/x.py' in the PATH that it gets: /bin.", "a/x.py is not executable."])
def test_a_python_file_is_no_program(said: str) -> None:
    hint = "A Python file is started with its interpreter: python a/x.py"
    assert tried(ConnectError(f"The server could not be started: {said}"), "a/x.py") == [hint]


def test_a_program_that_is_no_program() -> None:
    assert tried(ConnectError("The server './x' could not be started: ./x is not executable: allow it."), "./x") == []


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("ModuleNotFoundError: No module named 'yaml'", "Install yaml where python looks for it."),
        ("Error: Cannot find module 'zod'", "Install zod where python looks for it."),
        (
            "KeyError: 'GITHUB_TOKEN'",
            "A server gets few of your variables. Pass this one on: --inherit-env GITHUB_TOKEN",
        ),
        (
            "serving at http://localhost:8000/mcp now",
            "It names an address, and may not speak over stdio. Try: mcplumb probe -s http://localhost:8000/mcp",
        ),
        (
            "the environment is wrong",
            "A server gets few of your variables: pass more on with --inherit-env NAME or -e NAME=VALUE.",
        ),
    ],
)
def test_what_it_says_leads_on(line: str, hint: str) -> None:
    assert tried(exited(), stderr=(line,))[0] == hint


@pytest.mark.parametrize("line", ["ModuleNotFoundError: No module named 'yaml'", "SyntaxError: invalid syntax"])
def test_what_has_another_cause_leads_to_no_variables(line: str) -> None:
    assert not any("variables" in hint for hint in tried(exited(), stderr=(line,)))


def test_a_name_in_capitals_is_not_always_a_variable() -> None:
    assert not any("Pass this one" in hint for hint in tried(exited(), stderr=("BAD_THING happened",)))


def test_a_server_that_prints() -> None:
    assert tried(exited(), garbage=("hello",), stderr=("x",))[0].startswith("Stdout is for messages only")


def test_a_server_that_just_ends() -> None:
    assert tried(exited(0)) == ["It ended by itself: it may need an argument, such as stdio, to stay and listen."]
    assert tried(exited(1))[0] == "It said nothing: run the command by itself to see what happens."
    assert tried(exited(None), stderr=("x",)) == []


def test_a_server_that_does_not_answer() -> None:
    assert tried(ConnectError("It did not answer.")) == ["Does it need longer? Allow more with --timeout SECONDS."]


@pytest.mark.parametrize(
    ("said", "hints"),
    [
        (
            "HTTP 401 Unauthorized",
            ["Send a token with --token-file FILE, or another header with --header NAME:VALUE."],
        ),
        ("HTTP 404 Not Found", ["Correct the path: most servers answer at /mcp, and old ones at /sse."]),
        ("HTTP 500", []),
        ("certificate verify failed", ["Trust its certificate with --ca-file FILE."]),
        ("nothing listens there", ["Start it, or correct the address."]),
    ],
)
def test_an_address(said: str, hints: list[str]) -> None:
    assert tried(ConnectError(said), None) == hints


def test_an_address_of_another_kind() -> None:
    hints = tried(ConnectError("ended"), None, garbage=("HTTP/1.1 400 Bad Request", "server: x"))
    assert hints == ["It speaks HTTP: give its address as http://…"]
