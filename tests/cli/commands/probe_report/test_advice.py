"""What to try."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcplumb.cli.commands.probe_report import advice
from mcplumb.errors import ConnectError, ConnectTimeout, McplumbError, ServerExited


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
            "the environment is wrong",
            "A server gets few of your variables: pass more on with --inherit-env NAME or -e NAME=VALUE.",
        ),
    ],
)
def test_what_it_says_leads_on(line: str, hint: str) -> None:
    assert tried(exited(), stderr=(line,))[0] == hint


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("serving at http://localhost:8000/mcp now", "http://localhost:8000/mcp"),
        ("INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)", "http://127.0.0.1:8000"),
        ("Listening at http://127.0.0.1:3000.", "http://127.0.0.1:3000"),
        ("see the migration guide at https://py.sdk.example/migration", None),
        ("Running on https://docs.example.org", None),
        ("Error: cannot connect to the server at http://localhost:11434", None),
        ("http://localhost:9/x", None),
    ],
)
def test_an_address_is_tried_if_the_server_listens_there(line: str, address: str | None) -> None:
    hints = tried(ConnectTimeout("It did not answer."), stderr=(line,))
    said = (
        [f"The command names an address, so the server may not speak over stdio. Try: mcplumb probe -s {address}"]
        if address
        else []
    )
    assert hints == [*said, "Does it need longer? Allow more with --timeout SECONDS."]
    assert not any("address" in hint for hint in tried(exited(), stderr=(line,)))


OF_MCP_2 = (
    "ModuleNotFoundError: No module named 'mcp.server.fastmcp'. This is mcp 2.x, where FastMCP was renamed "
    "and other APIs changed; see the migration guide at https://py.sdk.example/v2/migration/"
)


@pytest.mark.parametrize(
    ("line", "version", "needs"),
    [
        (OF_MCP_2, "1.x", "mcp<2"),
        ("ModuleNotFoundError: No module named mcp.server.fastmcp", "1.x", "mcp<2"),
        ("ImportError: cannot import name 'FastMCP' from 'mcp.server' (/x/__init__.py)", "1.x", "mcp<2"),
        ("ImportError: cannot import name 'McpError' from 'mcp' (/x/__init__.py)", "1.x", "mcp<2"),
        ("AttributeError: 'Server' object has no attribute 'list_tools'", "1.x", "mcp<2"),
        ("AttributeError: module 'mcp.types' has no attribute 'X'", "1.x", "mcp<2"),
        ("ModuleNotFoundError: No module named 'mcp.server.mcpserver'", "2.x", "mcp>=2"),
        ("ImportError: cannot import name 'MCPServer' from 'mcp.server'", "2.x", "mcp>=2"),
    ],
)
def test_a_server_for_another_version_of_the_official_sdk(line: str, version: str, needs: str) -> None:
    traceback = ("Traceback (most recent call last):", '  File "/x.py", line 1, in <module>', line)
    begin = f"It is written for mcp {version}: "
    hints = {
        "uvx x --a b": f"{begin}try uvx --with '{needs}' x --a b",
        "/bin/uv tool run x": f"{begin}try /bin/uv tool run --with '{needs}' x",
        "uv run x.py": f"{begin}try uv run --with '{needs}' x.py",
        "pipx run x": f"{begin}try uvx --with '{needs}' …",
        "python x.py": f"{begin}install '{needs}' where python looks for it.",
    }
    for command, hint in hints.items():
        assert tried(exited(), command, stderr=traceback) == [hint]


def test_a_module_is_advised_only_if_it_ended_the_server() -> None:
    missing = "ModuleNotFoundError: No module named 'ujson'"
    hint = "Install ujson where python looks for it."
    assert tried(exited(), stderr=(missing, "During handling of the above …", missing))[0] == hint
    other = (missing, "During handling of the above …", "ValueError: x")
    assert not any("Install" in each for each in tried(exited(), stderr=other))
    part = ("ModuleNotFoundError: No module named 'yaml.nothing'",)
    hint = "Install the version of yaml that has yaml.nothing where python looks for it."
    assert tried(exited(), stderr=part)[0] == hint
    assert tried(exited(), stderr=("Error: Cannot find module '@a/b'",))[0].startswith("Install @a/b ")


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


def test_a_file_that_does_not_run_its_server(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("from mcplumb import Server\nserver = Server('x')\n")
    hint = f"{file} does not run its server: end it with server.run(), or start it with: mcplumb serve {file}"
    assert tried(exited(0), f"python {file}") == [hint]
    assert tried(exited(0), f"python -u {file} --verbose") == [hint]
    for other in ("from mcplumb import Server\nServer('x').run()\n", "print('hello')\n"):
        file.write_text(other)
        assert tried(exited(0), f"python {file}")[0].startswith("It ended by itself")
    assert tried(exited(0), "python nothing.py")[0].startswith("It ended by itself")


def test_a_server_that_does_not_answer() -> None:
    assert tried(ConnectError("It did not answer.")) == ["Does it need longer? Allow more with --timeout SECONDS."]


@pytest.mark.parametrize(
    ("said", "hints"),
    [
        (
            "HTTP 401 Unauthorized",
            ["Sign in with mcplumb login, send a token with --token-file FILE, or a header with --header NAME:VALUE."],
        ),
        (
            "HTTP 404 Not Found. Is the path of the address right?",
            ["Correct the path: most servers answer at /mcp, and old ones at /sse."],
        ),
        ("HTTP 404 Not Found: 'no session'.", []),
        (
            "HTTP 403 Forbidden. The request named the Host 127.0.0.1:9",
            ["Use the name of this machine that the server allows: localhost, or 127.0.0.1."],
        ),
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
