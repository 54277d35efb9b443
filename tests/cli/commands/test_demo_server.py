"""The tea house of the demo: a server with a little of everything, for every revision, and a file to start from."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcplumb import connect
from mcplumb.cli.commands import demo_server
from mcplumb.cli.commands.demo_server import TEAS, server
from mcplumb.protocol.subscription_state import Change
from mcplumb.revisions import REVISIONS, Revision
from mcplumb.types.client_features import ElicitResult
from mcplumb.types.tools import CallToolResult
from tests.cli.kit import PYTHON, mcplumb
from tests.kit.products import revisions


@pytest.fixture(autouse=True)
def _same_teas(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = dict(TEAS)
    monkeypatch.setattr(demo_server, "POURING", 0.0)
    yield
    TEAS.clear()
    TEAS.update(before)


def text(result: CallToolResult) -> str:
    return " ".join(getattr(block, "text", "") for block in result.content)


@pytest.mark.parametrize("revision", revisions(), ids=str)
async def test_its_tools_work_for_every_revision(revision: Revision) -> None:
    cups: list[Any] = []
    async with connect(server, revisions=[str(revision)]) as client:
        assert text(await client.call_tool("minutes", {"tea": "assam"})) == "4"
        unknown = await client.call_tool("minutes", {"tea": "coffee"})
        assert (unknown.is_error, text(unknown)) == (True, "There is no coffee. There is assam, rooibos, sencha.")
        brewed = await client.call_tool(
            "brew", {"tea": "sencha", "cups": 2}, on_progress=lambda *report: cups.append(report[:2])
        )
        assert text(brewed) == "2 cups of sencha, steeped for 2 minutes."
        assert cups == [(1, 2), (2, 2)]


@pytest.mark.parametrize("revision", [each for each in REVISIONS if each.has_elicitation], ids=str)
def test_it_asks_before_it_takes_an_order(revision: Revision) -> None:
    async def order(answer: dict[str, Any] | ElicitResult | None) -> CallToolResult:
        async def on_elicit(_: object) -> Any:
            return answer

        async with connect(server, revisions=[str(revision)], on_elicit=on_elicit) as client:
            return await client.call_tool("order")

    assert text(asyncio.run(order({"tea": "assam", "sugar": True}))) == "One assam, with sugar."
    assert text(asyncio.run(order({"tea": "sencha"}))) == "One sencha, without sugar."
    declined = asyncio.run(order(None))
    assert (declined.is_error, text(declined)) == (True, "No order, no tea.")


async def test_a_new_tea_is_announced_and_on_the_menu() -> None:
    async with connect(server) as client, client.listen(resources=["tea://menu"]) as changes:
        assert text(await client.call_tool("add_tea", {"tea": "mate", "minutes": 5})) == "mate is on the menu."
        assert await anext(aiter(changes)) == Change("updates", "tea://menu")
        menu = (await client.read_resource("tea://menu")).contents[0].text
        assert json.loads(menu or "") == TEAS == {"assam": 4, "rooibos": 7, "sencha": 2, "mate": 5}


async def test_it_has_labels_and_a_prompt_with_completion() -> None:
    async with connect(server) as client:
        assert (await client.read_resource("tea://assam/label")).contents[0].text == "ASSAM, 4 minutes"
        with pytest.raises(Exception, match="tea://coffee/label"):
            await client.read_resource("tea://coffee/label")
        prompt = await client.get_prompt("pairing", {"tea": "assam"})
        assert "with a cup of assam" in getattr(prompt.messages[0].content, "text", "")
        assert (await client.complete("pairing", "tea", "ro")).values == ["rooibos"]


def test_it_is_a_program_and_a_file_to_start_from(tmp_path: Path) -> None:
    file = tmp_path / "teahouse.py"
    file.write_text(mcplumb("demo", "--source").out, encoding="utf-8")
    for command in (["-m", "mcplumb.cli.commands.demo_server"], [str(file)], ["-m", "mcplumb", "demo", "--server"]):
        done = mcplumb("call", "minutes", "tea=rooibos", "--", PYTHON, *command)
        assert (done.code, done.out) == (0, "7\n"), command


def test_it_loads_neither_the_client_nor_the_command_line() -> None:
    program = "import sys, mcplumb.cli.commands.demo_server; print(*sys.modules)"
    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=True)
    needless = {"click", "rich", "mcplumb.client", "aiohttp", "uvicorn"}
    if sys.version_info < (3, 14):  # from then on, asyncio loads it
        needless.add("dataclasses")
    assert set(done.stdout.split()) & needless == set()
