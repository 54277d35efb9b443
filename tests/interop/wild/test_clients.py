"""Clients of third parties with a server of ours, over stdio and Streamable HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import pytest

from tests.interop.environments import NotInstalled
from tests.interop.serving import served
from tests.interop.wild.software import (
    INSPECTOR,
    LANGCHAIN,
    OPENAI_AGENTS,
    OWN_SERVER,
    PROGRAMS,
    PYDANTIC_AI,
    ThirdPartyClient,
)

#: Seconds for one program.
CLIENT_SECONDS = 120

Report = dict[str, Any]


class Case(NamedTuple):
    client: ThirdPartyClient
    way: Literal["stdio", "http"]
    #: The era that it is told to use, where it has a choice.
    era: Literal["legacy", "modern"] | None = None

    def __str__(self) -> str:
        return "-".join(filter(None, [str(self.client), self.era, self.way]))


class Visit(NamedTuple):
    case: Case
    report: Report
    #: How each process of the server ended.
    endings: list[dict[str, Any]]
    stderr: str


CASES = [
    Case(INSPECTOR, "stdio", "legacy"),
    Case(INSPECTOR, "stdio", "modern"),
    Case(INSPECTOR, "http", "legacy"),
    Case(INSPECTOR, "http", "modern"),
    Case(LANGCHAIN, "stdio"),
    Case(LANGCHAIN, "http"),
    Case(PYDANTIC_AI, "stdio"),
    Case(PYDANTIC_AI, "http"),
    Case(OPENAI_AGENTS, "stdio"),
    Case(OPENAI_AGENTS, "http"),
]


def run_program(case: Case, place: list[str], run: Callable[[Sequence[str]], str]) -> Report:
    """Run our program that uses the client's package, and return its report."""
    python = case.client.environment.executable("python")
    report: Report = json.loads(run([python, str(PROGRAMS / "clients" / case.client.program), *place]))
    return report


def run_inspector(case: Case, place: list[str], run: Callable[[Sequence[str]], str]) -> Report:
    """Run the Inspector's command line once for each request, as it serves one only."""
    inspector = [case.client.environment.executable(case.client.program), "--cli", *place]
    inspector += ["--format", "json", "--protocol-era", str(case.era), "--method"]

    def call(tool: str, **arguments: Any) -> dict[str, Any]:
        options = ["--tool-name", tool, "--tool-args-json", json.dumps(arguments)]
        result: dict[str, Any] = json.loads(run([*inspector, "tools/call", *options]))["result"]
        return result

    def text(result: dict[str, Any]) -> dict[str, Any]:
        return {"text": [block["text"] for block in result["content"]], "error": result.get("isError", False)}

    listed = json.loads(run([*inspector, "tools/list"]))["result"]
    return {
        "tools": sorted(tool["name"] for tool in listed["tools"]),
        "greeting": text(call("greet", name="Åse")),
        "forecast": call("forecast", city="Oslo", days=2)["structuredContent"],
        "refusal": text(call("refuse", reason="The inn is full.")),
    }


@pytest.fixture(scope="module", params=CASES, ids=str)
def visited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    case: Case = request.param
    try:
        case.client.environment.made()
    except NotInstalled as error:
        pytest.skip(f"{case.client} cannot be installed: {error}")
    scratch = tmp_path_factory.mktemp("client")
    endings = scratch / "endings"
    endings.mkdir()
    log = scratch / "stderr"
    # It keeps its settings at home, and none may be left over from an earlier run.
    home = {**os.environ, "HOME": str(scratch)}
    witnessed = [sys.executable, str(PROGRAMS / "witness.py"), str(endings), *OWN_SERVER]
    with log.open("w") as stderr, served(witnessed, case.way, stderr) as place:

        def run(command: Sequence[str]) -> str:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=home,
                timeout=CLIENT_SECONDS,
                text=True,
                check=False,
            )
            # A tool that fails is a status of its own for the Inspector.
            if done.returncode not in ((0, 5) if case.client is INSPECTOR else (0,)):
                said = log.read_text(errors="replace")
                pytest.fail(f"{case} ended with status {done.returncode}:\n{said}", pytrace=False)
            return done.stdout

        report = (run_inspector if case.client is INSPECTOR else run_program)(case, place, run)
    records = [json.loads(path.read_text()) for path in sorted(endings.iterdir())]
    return Visit(case, report, records, log.read_text(errors="replace"))


def texts(*said: str, error: bool = False) -> dict[str, Any]:
    return {"text": list(said), "error": error}


def test_tools_are_listed(visited: Visit) -> None:
    assert visited.report["tools"] == [
        "announce", "book", "climb", "forecast", "greet", "refuse", "release", "rewrite", "stopped",
    ]  # fmt: skip


def test_a_tool_gives_text(visited: Visit) -> None:
    assert visited.report["greeting"] == texts("Hello, Åse!")


def test_a_tool_gives_structured_content(visited: Visit) -> None:
    assert visited.report["forecast"] == {"city": "Oslo", "celsius": [0, 1]}


def test_a_tool_fails(visited: Visit) -> None:
    assert visited.report["refusal"] == texts("The inn is full.", error=True)


def test_progress_arrives_while_the_call_runs(visited: Visit) -> None:
    if visited.case.client not in (LANGCHAIN, PYDANTIC_AI):
        assert "progress" not in visited.report  # the others have no way to show it
        return
    assert visited.report["progress"] == [[1, 3, "step 1"], [2, 3, "step 2"], [3, 3, "step 3"]]
    assert visited.report["climb"] == texts("climbed 3 steps")


def test_an_agent_calls_a_tool(visited: Visit) -> None:
    # Of the frameworks, this one has a model that needs no network.
    assert visited.report.get("agent") == ("Hello, Åse!" if visited.case.client is PYDANTIC_AI else None)


def test_a_call_opens_a_session_of_its_own(visited: Visit) -> None:
    # That is what the adapters do by default.
    assert visited.report.get("alone") == (texts("Hello, again!") if visited.case.client is LANGCHAIN else None)


def test_every_process_of_the_server_ends_well(visited: Visit) -> None:
    assert visited.endings
    if visited.case.way == "http":
        assert visited.endings == [{"status": 0, "signals": ["SIGTERM"]}]
    else:
        assert all(ending == {"status": 0, "signals": []} for ending in visited.endings), visited.endings
    assert "Traceback" not in visited.stderr
