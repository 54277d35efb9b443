"""What type checkers say about programs that use the package: real runs of mypy, and of pyright if installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.repo.source import SRC

HEAD = """
from dataclasses import dataclass

from mcplumb import Context, Server, sync


class Db:
    rows: list[int]


@dataclass
class Order:
    size: int


server = Server("shop")
"""

#: Programs without a fault.
FINE = {
    "lifespan": """
@server.tool
async def count(ctx: Context[Db]) -> int:
    return len(ctx.lifespan.rows)


@server.tool
def count_plainly(ctx: sync.Context[Db]) -> int:
    return len(ctx.lifespan.rows)


@server.tool
async def anything(ctx: Context) -> str:
    return str(ctx.lifespan.whatever)
""",
    "accepted": """
@server.tool
async def order(ctx: Context) -> int:
    answer = await ctx.elicit("How large?", Order)
    if answer.action == "accept":
        return answer.data.size
    return 0


@server.tool
async def order_first(ctx: Context) -> int:
    answer = await ctx.elicit("How large?", Order)
    if answer.action != "accept":
        return 0
    return answer.data.size


@server.tool
async def order_or_none(ctx: Context) -> int:
    answer = await ctx.elicit("How large?", Order)
    return 0 if answer.data is None else answer.data.size
""",
    "plain": """
@server.tool
def order(ctx: sync.Context) -> str:
    answer = ctx.elicit("How large?", Order)
    if answer.action == "accept":
        return str(answer.data.size)
    page = ctx.elicit_url("Pay?", "https://example.com")
    ctx.progress(1)
    return page.action + ctx.sample("Say something.", max_tokens=5).text + str([root.uri for root in ctx.roots()])
""",
    "result": """
def use(client: sync.Client) -> str:
    result = client.call_tool("order")
    failed: bool = result.is_error
    return result.raise_for_error().text + str(failed)
""",
    "provider": """
from collections.abc import Iterable
from typing import Any, TypedDict

from mcplumb import result_for_anthropic, result_for_openai, tools_for_anthropic, tools_for_openai


class ProviderTool(TypedDict, total=False):
    name: str


class ProviderMessage(TypedDict, total=False):
    role: str


def create(tools: Iterable[ProviderTool], messages: list[ProviderMessage]) -> None:
    '''As the packages of the providers declare theirs.'''


def use(client: sync.Client) -> None:
    tools, result = client.list_tools(), client.call_tool("order")
    create(tools_for_anthropic(tools), [result_for_anthropic(result, "1")])
    create(tools_for_openai(tools, api="responses"), [result_for_openai(result, "1")])
""",
    "blocking package": """
import mcplumb

with mcplumb.sync.connect("weather") as client:
    client.list_tools()
""",
}

#: The last line of each has a fault.
FAULTY = {
    "no await": """
@server.tool
async def order(ctx: Context) -> str:
    answer = ctx.elicit("How large?", Order)
    return str(answer.action)
""",
    "no await at all": """
@server.tool
async def order(ctx: Context) -> None:
    ctx.elicit("How large?", Order)
""",
    "no await for a page": """
@server.tool
async def pay(ctx: Context) -> str:
    return str(ctx.elicit_url("Pay?", "https://example.com").action)
""",
    "no await for a sample": """
@server.tool
async def think(ctx: Context) -> str:
    return str(ctx.sample("Say something.", max_tokens=5).text)
""",
    "no await for roots": """
@server.tool
async def look(ctx: Context) -> list[str]:
    return [root.uri for root in ctx.roots()]
""",
    "no look at the action": """
@server.tool
async def order(ctx: Context) -> int:
    answer = await ctx.elicit("How large?", Order)
    return answer.data.size
""",
    "unknown name": """
import mcplumb

maker = mcplumb.Servr
""",
    "unknown blocking name": """
connecting = sync.conect
""",
    "another lifespan": """
@server.tool
async def count(ctx: Context[Db]) -> str:
    return str(ctx.lifespan.columns)
""",
}

Check = Callable[[Path, list[Path]], str]


def mypy(folder: Path, programs: list[Path]) -> str:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={folder}/cache"]
    done = subprocess.run(
        [*command, *map(str, programs)],
        cwd=folder,
        env={"MYPYPATH": str(SRC.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def pyright(folder: Path, programs: list[Path]) -> str:
    program = shutil.which("pyright", path=str(Path(sys.executable).parent)) or shutil.which("pyright")
    if program is None:
        pytest.skip("pyright is not installed")
    command = [program, "--pythonpath", sys.executable, *map(str, programs)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("check", [mypy, pyright], ids=["mypy", "pyright"])
def test_type_checkers_know_what_a_context_gives(check: Check, tmp_path: Path) -> None:
    programs = {}
    for name, text in (FINE | FAULTY).items():
        programs[name] = tmp_path / f"{name.replace(' ', '_')}.py"
        programs[name].write_text(HEAD + text)
    # One run for all: loading the package takes most of the time.
    said = check(tmp_path, list(programs.values()))
    for name, program in programs.items():
        lines = {int(line) for line in re.findall(rf"\b{program.name}:(\d+)(?::\d+)?(?:: error| - error)", said)}
        assert lines == ({program.read_text().count("\n")} if name in FAULTY else set()), f"{name}\n{said}"
