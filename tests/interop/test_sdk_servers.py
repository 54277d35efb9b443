"""Our client with servers that are written with the SDKs of others, in each era and over each transport they know."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mcplumb import Client, NoCommonRevision
from mcplumb.protocol.subscription_state import Change
from tests.interop.environments import PYTHON_V1, PYTHON_V2, TYPESCRIPT_V1, TYPESCRIPT_V2, Environment
from tests.interop.sdk_servers import NOTES, OVER_HTTP, OVER_STDIO, Callbacks, SdkServer, use
from tests.interop.serving import calling, serving
from tests.interop.visiting import LEGACY, MODERN, said, visiting

HERE = Path(__file__).parent


class Visit(NamedTuple):
    sdk_server: SdkServer
    #: What our client saw.
    report: dict[str, Any]
    #: How the server's process ended; the one before it too, if it was started again to find its era.
    endings: list[dict[str, Any]]
    #: What a server over HTTP wrote down.
    log: str = ""


async def visit(
    sdk_server: SdkServer, visited: AbstractAsyncContextManager[Client], callbacks: Callbacks
) -> dict[str, Any]:
    async with visited as client:
        return await use(client, callbacks, sdk_server)


@pytest.fixture(scope="module", params=OVER_STDIO + OVER_HTTP, ids=str)
def visited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    sdk_server: SdkServer = request.param
    scratch = tmp_path_factory.mktemp(str(sdk_server))
    callbacks = Callbacks()
    options: dict[str, Any] = {
        "revisions": [LEGACY] if sdk_server.is_pinned else None,
        "on_elicit": callbacks.answer,
        "on_log": callbacks.log.put_nowait,
    }
    if sdk_server.way != "stdio":
        with serving(sdk_server.command(scratch), scratch / "log") as server:
            report = asyncio.run(visit(sdk_server, calling(server.url(sdk_server.path), **options), callbacks))
            return Visit(sdk_server, report, [], server.said)
    endings = scratch / "endings"
    endings.mkdir()
    command = [sys.executable, str(HERE / "witness.py"), str(endings), *sdk_server.command(scratch)]
    report = asyncio.run(visit(sdk_server, visiting(command, **options), callbacks))
    return Visit(sdk_server, report, [json.loads(path.read_text()) for path in sorted(endings.iterdir())])


@pytest.mark.req("LEG-1")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
@pytest.mark.parametrize("environment", [PYTHON_V1, PYTHON_V2, TYPESCRIPT_V1, TYPESCRIPT_V2], ids=lambda it: it.name)
def test_older_revisions(environment: Environment, revision: str, tmp_path: Path) -> None:
    async def go() -> None:
        command = SdkServer(environment, revision).command(tmp_path)
        async with visiting(command, revisions=[revision]) as client:
            assert str(client.revision) == revision
            assert len(await client.list_tools()) == 9
            assert said(await client.call_tool("greet", {"name": "Åse"})) == "Hello, Åse!"

    asyncio.run(go())


@pytest.mark.req("ERA-8")
def test_a_client_that_allows_only_what_a_server_does_not_know(tmp_path: Path) -> None:
    async def go() -> None:
        command = SdkServer(TYPESCRIPT_V1, LEGACY).command(tmp_path)
        async with visiting(command, revisions=[MODERN]):
            raise AssertionError("They cannot agree.")

    with pytest.raises(NoCommonRevision, match=MODERN) as refused:
        asyncio.run(go())
    assert LEGACY in str(refused.value)


@pytest.mark.req("ERA-1", "ERA-2", "ERA-4")
def test_the_newest_common_revision_is_agreed_on(visited: Visit) -> None:
    assert visited.report["revision"] == visited.sdk_server.revision


def test_the_server_introduces_itself(visited: Visit) -> None:
    assert visited.report["server"] == ["inn", visited.sdk_server.version]
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
    assert visited.report["refusal"] == f"error: {visited.sdk_server.error_prefix}The inn is full."


def test_resources_are_listed_and_read(visited: Visit) -> None:
    assert visited.report["resources"] == ["interop://dot", NOTES]
    assert visited.report["templates"] == ["interop://cities/{city}"]
    assert visited.report["read"] == ["Bring a coat.", "iVBORw0K", "Oslo is a city."]


def test_a_resource_that_is_not_there_is_an_error(visited: Visit) -> None:
    assert visited.report["missing"] == visited.sdk_server.missing


def test_prompts_are_listed_and_got(visited: Visit) -> None:
    assert visited.report["prompts"] == ["plan"]
    assert visited.report["plan"] == ["user: Plan a day in Oslo."]


def test_arguments_are_completed(visited: Visit) -> None:
    completed = [["Oslo", "Osaka"], ["Oslo", "Osaka"]] if visited.sdk_server.completes else None
    assert visited.report.get("completions") == completed


def test_progress_arrives_while_the_call_runs(visited: Visit) -> None:
    if "progress" not in visited.sdk_server.lacks:
        assert visited.report["progress"] == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
        assert visited.report["climb"] == "climbed 3 steps"


@pytest.mark.req("MRT-4", "MRT-5")
def test_forms_are_filled_in_and_declined(visited: Visit) -> None:
    if "questions" not in visited.sdk_server.lacks:
        assert visited.report["asked"] == ["How long do you stay in the attic?", "How long do you stay in the cellar?"]
        assert visited.report["booking"] == f"the attic: 2 nights, breakfast {visited.sdk_server.true}"
        assert visited.report["declined"] == "the cellar: decline"


def test_log_messages_arrive(visited: Visit) -> None:
    words = "Dinner is served."
    if "log" not in visited.sdk_server.lacks:
        assert visited.report["log"] == [
            "info",
            {"msg": words, "extra": None} if visited.sdk_server.wraps_log else words,
        ]


@pytest.mark.req("SUB-3", "SUB-6")
def test_a_change_of_a_resource_is_heard_of(visited: Visit) -> None:
    can_hear = visited.sdk_server.subscribes and "changes" not in visited.sdk_server.lacks
    heard = [Change("updates", NOTES), "Bring a hat."] if can_hear else None
    assert visited.report.get("change") == heard


@pytest.mark.req("CAN-1")
def test_a_call_that_is_cancelled_is_stopped_on_the_server(visited: Visit) -> None:
    if "progress" not in visited.sdk_server.lacks:
        assert visited.report["stopped"] == "stopped"
    assert visited.report["still there"] == "Hello, again!"


def test_nobody_complains(visited: Visit) -> None:
    stats = visited.report["stats"]
    assert (stats.bad_lines, stats.violations, stats.unknown_answers, stats.strays) == (0, 0, 0, 0)


@pytest.mark.req("LIF-2", "HTP-6")
def test_the_server_is_left_well(visited: Visit) -> None:
    if visited.sdk_server.way == "stdio":
        assert visited.endings[-1] == {"status": 0, "signals": []}
    else:
        assert visited.log.count("DELETE /mcp") == visited.sdk_server.has_session
