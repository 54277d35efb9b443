"""The pages about moving from another library are true: both programs do the same, and every name exists."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mcplumb import Client, Context, RemoteError, Server, connect
from mcplumb.types import TextContent
from tests.interop.environments import FASTMCP_4, PYTHON_V1, PYTHON_V2, ROOT, Environment
from tools.doc_examples import PYTHON

BEFORE = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (.*?) \| (.*) \|$", re.MULTILINE)
CODE = re.compile(r"`[^`]+`")
NAME = re.compile(r"(?<![\w.])(server|ctx|client)\.(\w+)")
IMPORT = re.compile(r"`(from [\w.]+ import [\w, ]+)`")
#: Prints those of the names that its classes do not have.
LOOK_UP = """
import json, sys
{imports}
classes = dict(server=Server, ctx=Context, client=Client)
print(json.dumps([name for name in json.load(sys.stdin) if not hasattr(classes[name[0]], name[1])]))
"""


class Peer(NamedTuple):
    page: str
    environment: Environment
    imports: str
    #: What it says for a tool's own error, and for a list of data.
    refusal: str
    list_texts: list[str]
    #: Whether it takes arguments that a tool does not have.
    takes_unknown: bool

    def text(self) -> str:
        return (ROOT / "docs" / "howto" / self.page).read_text(encoding="utf-8")


PEERS = [
    Peer(
        "move-from-mcp.md",
        PYTHON_V2,
        "from mcp import Client; from mcp.server.mcpserver import Context, MCPServer as Server",
        "Error executing tool forecast: There is no forecast for Rome.",
        ["sun", "sun"],
        takes_unknown=True,
    ),
    Peer(
        "move-from-fastmcp.md",
        FASTMCP_4,
        "from fastmcp import Client, Context, FastMCP as Server",
        "There is no forecast for Rome.",
        ['["sun","sun"]'],
        takes_unknown=False,
    ),
]
each_peer = pytest.mark.parametrize("peer", PEERS, ids=[peer.page for peer in PEERS])


def names(cell: str) -> list[tuple[str, str]]:
    return [name for code in CODE.findall(cell) for name in NAME.findall(code)]


async def look(command: list[str]) -> dict[str, Any]:
    async def texts(arguments: dict[str, Any]) -> tuple[bool, list[str]]:
        result = await client.call_tool("forecast", arguments)
        return bool(result.is_error), [block.text for block in result.content if isinstance(block, TextContent)]

    seen: list[tuple[float, float | None]] = []
    async with connect(command, stderr="capture", timeout=30) as client:
        (tool,) = await client.list_tools()
        result = await client.call_tool(
            "forecast", {"city": "Oslo", "days": 2}, on_progress=lambda done, total, _: seen.append((done, total))
        )
        try:
            unknown = "a result" if (await client.call_tool("nothing")).is_error else "done"
        except RemoteError:
            unknown = "an error"
        prompt = await client.get_prompt("plan", {"city": "Oslo"})
        same = {
            "names": (client.server_info and client.server_info.name, tool.name, tool.description),
            "arguments": (sorted(tool.input_schema["properties"]), tool.input_schema["required"]),
            "progress": seen,
            "today": (await client.read_resource("weather://Oslo/today")).contents[0].text,
            "plan": [message.content for message in prompt.messages],
        }
        return {
            "same": same,
            "list": (result.structured_content, (await texts({"city": "Oslo", "days": 2}))[1]),
            "refusal": await texts({"city": "Rome"}),
            "text for a number": await texts({"city": "Oslo", "days": "2"}),
            "unknown argument": await texts({"city": "Oslo", "nights": 2}),
            "unknown tool": unknown,
        }


@each_peer
def test_both_servers_do_the_same_but_for_what_the_page_says(peer: Peer, tmp_path: Path) -> None:
    (before,) = BEFORE.findall(peer.text())
    after, *_ = PYTHON.findall(peer.text())  # the others show ways around
    for name, program in (("before.py", before), ("after.py", after)):
        (tmp_path / name).write_text(program, encoding="utf-8")
    theirs = asyncio.run(look(peer.environment.command(tmp_path / "before.py", tmp_path)))
    ours = asyncio.run(look([sys.executable, str(tmp_path / "after.py")]))
    assert theirs["same"] == ours["same"]
    assert theirs["list"] == ({"result": ["sun", "sun"]}, peer.list_texts)
    assert ours["list"] == (["sun", "sun"], ['["sun","sun"]'])
    assert (theirs["refusal"][1], ours["refusal"][1]) == ([peer.refusal], ["There is no forecast for Rome."])
    assert (theirs["text for a number"][0], ours["text for a number"][0]) == (False, True)
    assert (theirs["unknown argument"][0], ours["unknown argument"][0]) == (not peer.takes_unknown, True)
    assert (theirs["unknown tool"], ours["unknown tool"]) == ("a result", "an error")


def test_what_the_tables_import_can_be_imported() -> None:
    imports = [code for before, _ in ROW.findall(PEERS[0].text()) for code in IMPORT.findall(before)]
    assert len(imports) > 1
    # Only the table about version 1 has any.
    subprocess.run([str(PYTHON_V1.made() / "bin" / "python"), "-c", "\n".join(imports)], timeout=60, check=True)


@each_peer
def test_every_name_in_the_tables_exists(peer: Peer) -> None:
    rows = ROW.findall(peer.text())
    theirs = sorted({name for before, _ in rows for name in names(before)})
    assert len(theirs) > 20
    done = subprocess.run(
        [str(peer.environment.made() / "bin" / "python"), "-c", LOOK_UP.format(imports=peer.imports)],
        input=json.dumps(theirs),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout) == []
    classes = {"server": Server, "ctx": Context, "client": Client}
    assert [name for _, after in rows for name in names(after) if not hasattr(classes[name[0]], name[1])] == []
