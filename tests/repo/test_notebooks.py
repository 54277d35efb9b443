"""The package in real IPython shells, which run cells as notebooks do."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

import pytest

#: Runs the cells on stdin, and prints what each shows, and what its last expression displays.
SHELL = """
import contextlib, io, json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
done = []
for cell in json.load(sys.stdin):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        result = shell.run_cell(cell, store_history=True)
    bundle = {} if result.result is None else shell.display_formatter.format(result.result)[0]
    done.append({"shown": shown.getvalue(), "failed": not result.success, "bundle": bundle})
print("\\n" + json.dumps(done))
"""


def run_cells(*cells: str) -> list[dict[str, Any]]:
    program = subprocess.run(
        [sys.executable, "-c", SHELL],
        input=json.dumps([textwrap.dedent(cell) for cell in cells]),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert program.returncode == 0, program.stderr
    done: list[dict[str, Any]] = json.loads(program.stdout.splitlines()[-1])
    return done


SERVER = """
    from mcplumb import Image, Server
    from mcplumb.sync import connect

    server = Server("scratch")
    """
DOUBLE = """
    @server.tool
    def double(number: int) -> int:
        return number * 2
    """
CALL = """
    with connect(server) as client:
        text = [len(client.list_tools()), client.call_tool("double", {"number": 21}).text]
    text
    """


def test_a_cell_that_is_run_again_replaces_its_tool() -> None:
    mended = DOUBLE.replace("number * 2", "number * 2 + 1")
    *_, first, again, second = run_cells(SERVER, DOUBLE, DOUBLE, CALL, mended, CALL)
    assert first["bundle"]["text/plain"] == "[1, '42']"
    assert not again["failed"], again["shown"]
    assert second["bundle"]["text/plain"] == "[1, '43']"


def test_so_do_resources_prompts_and_handlers() -> None:
    cell = """
        @server.resource("notes://all")
        def notes() -> str:
            return "none"

        @server.prompt
        def plan(day: str) -> str:
            return day

        @server.on_request("example/x")
        def x(params: dict) -> dict:
            return params

        @server.tool(timeout=5)
        async def wait() -> str:
            return "done"
        """
    assert [done["shown"] for done in run_cells(SERVER, cell, cell) if done["failed"]] == []


def test_another_function_does_not_take_the_name() -> None:
    *_, done = run_cells(SERVER, DOUBLE, "def triple(number: int) -> int: ...\nserver.add_tool(triple, name='double')")
    assert "UsageError: There is a tool 'double' already." in done["shown"]


@pytest.mark.parametrize(
    "cell",
    [
        "from mcplumb.sync import connect\nclient = connect(['no-such-program']).open()",
        "from mcplumb.sync import connect\nwith connect(['no-such-program']) as client:\n    client.ping()",
        "import mcplumb\nclient = await mcplumb.connect(['no-such-program'])",
        "import sys\nfrom mcplumb.sync import connect\nwith connect([sys.executable, '-c', 'exit(3)']) as client: ...",
    ],
    ids=["open", "with", "await", "exit"],
)
def test_a_failed_connect_shows_the_line_and_the_sentence(cell: str) -> None:
    (done,) = run_cells(cell)
    assert done["failed"]
    lines = done["shown"].strip().splitlines()
    assert len(lines) <= 4, done["shown"]
    assert "connect(" in lines[1]
    assert lines[-1].startswith(("ConnectError: ", "ServerExited: "))


def test_the_own_functions_of_a_user_are_shown() -> None:
    (done,) = run_cells(
        """
        from mcplumb import ToolError

        def check() -> None:
            raise ToolError("The well is dry.")

        check()
        """
    )
    lines = [line.strip() for line in done["shown"].strip().splitlines() if line.strip(" ~^")]
    assert lines[1::2] == ["check()", 'raise ToolError("The well is dry.")']
    assert lines[-1] == "ToolError: The well is dry."


def test_images_are_displayed() -> None:
    paint = """
        @server.tool
        def paint() -> list:
            return ["<b>A dot</b>", Image(b"\\x89PNG\\r\\n\\x1a\\n")]
        """
    call = """
        with connect(server) as client:
            result = client.call_tool("paint")
        result
        """
    *_, whole, block, own, text = run_cells(
        SERVER, paint, call, "result.content[1]", "Image(b'\\x89PNG\\r\\n\\x1a\\n')", "result.content[0]"
    )
    image = '<img src="data:image/png;base64,iVBORw0KGgo=">'
    assert whole["bundle"]["image/png"] == "iVBORw0KGgo="
    assert whole["bundle"]["text/html"] == f"<pre>&lt;b&gt;A dot&lt;/b&gt;</pre>\n{image}"
    for each in (block, own):
        assert (each["bundle"]["image/png"], each["bundle"]["text/html"]) == ("iVBORw0KGgo=", image)
    assert set(text["bundle"]) == {"text/plain"}
