"""Our client with servers that are written with the SDKs of others, in each era that they know.

All of them are the same inn. What an SDK does differently is in its row below.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mcpipe import Client, NoCommonRevision, RemoteError
from mcpipe.client.inputs import Elicitation
from mcpipe.protocol.listening import Change
from mcpipe.types.content import TextContent
from mcpipe.types.log import LogMessageParams
from mcpipe.types.prompts import GetPromptResult
from tests.interop.environments import (
    FASTMCP_3,
    FASTMCP_4,
    PYTHON_V1,
    PYTHON_V2,
    TYPESCRIPT_V1,
    TYPESCRIPT_V2,
    Environment,
)
from tests.interop.visiting import LEGACY, MODERN, read, said, visiting

HERE = Path(__file__).parent
NOTES = "interop://notes"


class Inn(NamedTuple):
    environment: Environment
    #: What is agreed on.
    revision: str
    #: It knows a newer one, which the client does not allow.
    is_pinned: bool = False
    completes: bool = True
    subscribes: bool = False
    #: Its code for a resource that is not there.
    missing: int = -32602
    #: What its version is, if it cannot be set.
    version: str = "1.0.0"
    #: What it puts before the words of an error that a tool raised.
    error_prefix: str = ""
    #: What is true, in its words.
    true: str = "True"
    #: It sends more than the words of a log message.
    wraps_log: bool = False

    def __str__(self) -> str:
        return f"{self.environment.name}-{self.revision}"

    @property
    def program(self) -> Path:
        return HERE / "servers" / (self.environment.name + (".py" if self.environment.is_python else ".mjs"))


EXECUTING = "Error executing tool refuse: "

INNS = [
    Inn(PYTHON_V1, LEGACY, version="1.30.0", missing=0, error_prefix=EXECUTING),
    Inn(PYTHON_V2, LEGACY, is_pinned=True, error_prefix=EXECUTING),
    Inn(PYTHON_V2, MODERN, subscribes=True, error_prefix=EXECUTING),
    Inn(FASTMCP_3, LEGACY, completes=False, missing=-32002, wraps_log=True),
    Inn(FASTMCP_4, LEGACY, is_pinned=True, completes=False, wraps_log=True),
    Inn(FASTMCP_4, MODERN, completes=False, wraps_log=True),
    Inn(TYPESCRIPT_V1, LEGACY, subscribes=True, true="true"),
    Inn(TYPESCRIPT_V2, LEGACY, is_pinned=True, subscribes=True, true="true"),
    Inn(TYPESCRIPT_V2, MODERN, subscribes=True, true="true"),
]


class Visit(NamedTuple):
    inn: Inn
    #: What our client saw.
    report: dict[str, Any]
    #: How the server's process ended; the one before it too, if it was started again to find its era.
    endings: list[dict[str, Any]]


class Guest:
    """Answers what the server asks, and keeps what it says."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.log: asyncio.Queue[LogMessageParams] = asyncio.Queue()
        self.steps: list[tuple[float, float | None, str | None]] = []
        self.last_step = asyncio.Event()

    def answer(self, question: Elicitation) -> dict[str, Any] | None:
        self.asked.append(question.message)
        assert question.schema is not None
        assert sorted(question.schema["properties"]) == ["breakfast", "nights"]
        return None if "cellar" in question.message else {"nights": 2, "breakfast": True}

    def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.steps.append((progress, total, message))
        if progress == total:
            self.last_step.set()


def said_in(prompt: GetPromptResult) -> list[str]:
    return [
        f"{message.role}: {message.content.text}"
        for message in prompt.messages
        if isinstance(message.content, TextContent)
    ]


async def use(client: Client, guest: Guest) -> dict[str, Any]:
    assert client.server_info is not None
    report: dict[str, Any] = {
        "revision": str(client.revision),
        "server": [client.server_info.name, client.server_info.version],
        "instructions": client.instructions,
        "tools": sorted(tool.name for tool in await client.list_tools()),
        "greeting": said(await client.call_tool("greet", {"name": "Åse"})),
        "forecast": (await client.call_tool("forecast", {"city": "Oslo", "days": 2})).structured_content,
        "refusal": said(await client.call_tool("refuse", {"reason": "The inn is full."})),
        "resources": sorted(resource.uri for resource in await client.list_resources()),
        "templates": [template.uri_template for template in await client.list_resource_templates()],
        "read": [await read(client, uri) for uri in (NOTES, "interop://dot", "interop://cities/Oslo")],
        "prompts": [prompt.name for prompt in await client.list_prompts()],
        "plan": said_in(await client.get_prompt("plan", {"city": "Oslo"})),
    }
    try:
        await client.read_resource("interop://nowhere")
    except RemoteError as error:
        report["missing"] = error.code

    if client.capabilities.completions is not None:
        completions = [await client.complete(ref, "city", "Os") for ref in ("plan", "interop://cities/{city}")]
        report["completions"] = [completion.values for completion in completions]

    # The tool waits after its last step until another call lets it go on.
    climb = asyncio.create_task(client.call_tool("climb", {"steps": 3}, on_progress=guest.on_progress))
    await guest.last_step.wait()
    await client.call_tool("release")
    report["climb"] = said(await climb)
    report["progress"] = list(guest.steps)

    report["booking"] = said(await client.call_tool("book", {"room": "the attic"}))
    report["declined"] = said(await client.call_tool("book", {"room": "the cellar"}))
    report["asked"] = guest.asked

    if client.capabilities.logging is not None or not client.revision.has_set_level:
        await client.set_log_level("info")
    await client.call_tool("announce", {"text": "Dinner is served."})
    message = await guest.log.get()
    report["log"] = [message.level, message.data]

    if client.capabilities.resources is not None and client.capabilities.resources.subscribe:
        async with client.listen(resources=[NOTES]) as changes:
            await client.call_tool("rewrite", {"text": "Bring a hat."})
            change = await anext(changes)
        report["change"] = [change, await read(client, NOTES)]

    guest.last_step.clear()
    climb = asyncio.create_task(client.call_tool("climb", {"steps": 1}, on_progress=guest.on_progress))
    await guest.last_step.wait()
    climb.cancel()
    report["stopped"] = said(await client.call_tool("stopped"))
    report["still there"] = said(await client.call_tool("greet", {"name": "again"}))
    report["stats"] = client.stats
    return report


async def visit(command: list[str], inn: Inn) -> dict[str, Any]:
    guest = Guest()
    revisions = [LEGACY] if inn.is_pinned else None
    async with visiting(command, revisions=revisions, on_elicit=guest.answer, on_log=guest.log.put_nowait) as client:
        return await use(client, guest)


@pytest.fixture(scope="module", params=INNS, ids=str)
def visited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    inn: Inn = request.param
    scratch = tmp_path_factory.mktemp(str(inn))
    endings = scratch / "endings"
    endings.mkdir()
    witness = [sys.executable, str(HERE / "witness.py"), str(endings)]
    command = [*witness, *inn.environment.command(inn.program, scratch)]
    report = asyncio.run(visit(command, inn))
    return Visit(inn, report, [json.loads(path.read_text()) for path in sorted(endings.iterdir())])


@pytest.mark.req("LEG-1")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
@pytest.mark.parametrize("environment", [PYTHON_V1, PYTHON_V2, TYPESCRIPT_V1, TYPESCRIPT_V2], ids=lambda it: it.name)
def test_older_revisions(environment: Environment, revision: str, tmp_path: Path) -> None:
    async def go() -> None:
        command = environment.command(Inn(environment, revision).program, tmp_path)
        async with visiting(command, revisions=[revision]) as client:
            assert str(client.revision) == revision
            assert len(await client.list_tools()) == 9
            assert said(await client.call_tool("greet", {"name": "Åse"})) == "Hello, Åse!"

    asyncio.run(go())


@pytest.mark.req("ERA-8")
def test_a_client_that_allows_only_what_a_server_does_not_know(tmp_path: Path) -> None:
    async def go() -> None:
        command = TYPESCRIPT_V1.command(Inn(TYPESCRIPT_V1, LEGACY).program, tmp_path)
        async with visiting(command, revisions=[MODERN]):
            raise AssertionError("They cannot agree.")

    with pytest.raises(NoCommonRevision, match=MODERN) as refused:
        asyncio.run(go())
    assert LEGACY in str(refused.value)


@pytest.mark.req("ERA-1", "ERA-2", "ERA-4")
def test_the_newest_common_revision_is_agreed_on(visited: Visit) -> None:
    assert visited.report["revision"] == visited.inn.revision


def test_the_server_introduces_itself(visited: Visit) -> None:
    assert visited.report["server"] == ["inn", visited.inn.version]
    assert visited.report["instructions"] == "A small inn, for trying clients."


def test_tools_are_listed(visited: Visit) -> None:
    assert visited.report["tools"] == [
        "announce", "book", "climb", "forecast", "greet", "refuse", "release", "rewrite", "stopped",
    ]  # fmt: skip


def test_a_tool_gives_text(visited: Visit) -> None:
    assert visited.report["greeting"] == "Hello, Åse!"


def test_a_tool_gives_structured_content(visited: Visit) -> None:
    assert visited.report["forecast"] == {"city": "Oslo", "celsius": [0, 1]}


def test_a_tool_fails(visited: Visit) -> None:
    assert visited.report["refusal"] == f"error: {visited.inn.error_prefix}The inn is full."


def test_resources_are_listed_and_read(visited: Visit) -> None:
    assert visited.report["resources"] == ["interop://dot", NOTES]
    assert visited.report["templates"] == ["interop://cities/{city}"]
    assert visited.report["read"] == ["Bring a coat.", "iVBORw0K", "Oslo is a city."]


def test_a_resource_that_is_not_there_is_an_error(visited: Visit) -> None:
    assert visited.report["missing"] == visited.inn.missing


def test_prompts_are_listed_and_got(visited: Visit) -> None:
    assert visited.report["prompts"] == ["plan"]
    assert visited.report["plan"] == ["user: Plan a day in Oslo."]


def test_arguments_are_completed(visited: Visit) -> None:
    completed = [["Oslo", "Osaka"], ["Oslo", "Osaka"]] if visited.inn.completes else None
    assert visited.report.get("completions") == completed


def test_progress_arrives_while_the_call_runs(visited: Visit) -> None:
    assert visited.report["progress"] == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
    assert visited.report["climb"] == "climbed 3 steps"


@pytest.mark.req("MRT-4", "MRT-5")
def test_forms_are_filled_in_and_declined(visited: Visit) -> None:
    assert visited.report["asked"] == ["How long do you stay in the attic?", "How long do you stay in the cellar?"]
    assert visited.report["booking"] == f"the attic: 2 nights, breakfast {visited.inn.true}"
    assert visited.report["declined"] == "the cellar: decline"


def test_log_messages_arrive(visited: Visit) -> None:
    words = "Dinner is served."
    assert visited.report["log"] == ["info", {"msg": words, "extra": None} if visited.inn.wraps_log else words]


@pytest.mark.req("SUB-3", "SUB-6")
def test_a_change_of_a_resource_is_heard_of(visited: Visit) -> None:
    heard = [Change("updates", NOTES), "Bring a hat."] if visited.inn.subscribes else None
    assert visited.report.get("change") == heard


@pytest.mark.req("CAN-1")
def test_a_call_that_is_cancelled_is_stopped_on_the_server(visited: Visit) -> None:
    assert visited.report["stopped"] == "stopped"
    assert visited.report["still there"] == "Hello, again!"


def test_nobody_complains(visited: Visit) -> None:
    stats = visited.report["stats"]
    assert (stats.bad_lines, stats.violations, stats.unknown_answers, stats.strays) == (0, 0, 0, 0)


@pytest.mark.req("LIF-2")
def test_the_server_ends_by_itself_when_the_client_closes(visited: Visit) -> None:
    assert visited.endings[-1] == {"status": 0, "signals": []}
