"""One small server, written with each SDK of others, and what a client of ours does with it.

What an SDK does differently, and what a way of serving leaves out, is in its row below.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Literal, NamedTuple

from mcplumb import Client, RemoteError
from mcplumb.client.input_handlers import Elicitation
from mcplumb.types.content import TextContent
from mcplumb.types.notification_params import LogMessageParams
from mcplumb.types.prompts import GetPromptResult
from tests.interop.environments import (
    FASTMCP_3,
    FASTMCP_4,
    PYTHON_V1,
    PYTHON_V2,
    TYPESCRIPT_V1,
    TYPESCRIPT_V2,
    Environment,
)
from tests.interop.visiting import LEGACY, MODERN, read, said

HERE = Path(__file__).parent
NOTES = "interop://notes"


class SdkServer(NamedTuple):
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
    #: How it is served. The other ones of HTTP are the choices that SDKs give.
    way: Literal["stdio", "http", "http-json", "http-stateless", "http-sessions", "sse"] = "stdio"
    #: What it cannot do if it is served like that.
    lacks: tuple[Literal["progress", "log", "questions", "changes"], ...] = ()

    def __str__(self) -> str:
        return f"{self.environment.name}-{self.revision}-{self.way}"

    @property
    def program(self) -> Path:
        return HERE / "servers" / (self.environment.name + (".py" if self.environment.is_python else ".mjs"))

    @property
    def path(self) -> str:
        """Where it is, over HTTP."""
        return "/sse" if self.way == "sse" else "/mcp"

    @property
    def has_session(self) -> bool:
        """Whether a client has to say goodbye."""
        ways = ("http-sessions",) if self.environment is TYPESCRIPT_V2 else ("http", "http-json")
        return self.revision == LEGACY and self.way in ways

    def command(self, scratch: Path, *, is_full: bool = False) -> list[str]:
        """Runs it; over HTTP, at a port that is to be filled in. The full one has more features."""
        command = self.environment.command(self.program, scratch)
        if self.way == "stdio":
            return [*command, "stdio", "0", "full"] if is_full else command
        return [*command, self.way, "{port}", *(["full"] if is_full else [])]


EXECUTING = "Error executing tool refuse: "

OVER_STDIO = [
    V1 := SdkServer(PYTHON_V1, LEGACY, version="1.30.0", missing=0, error_prefix=EXECUTING),
    V2_LEGACY := SdkServer(PYTHON_V2, LEGACY, is_pinned=True, error_prefix=EXECUTING),
    V2 := SdkServer(PYTHON_V2, MODERN, subscribes=True, error_prefix=EXECUTING),
    FAST_3 := SdkServer(FASTMCP_3, LEGACY, completes=False, missing=-32002, wraps_log=True),
    FAST_4_LEGACY := SdkServer(FASTMCP_4, LEGACY, is_pinned=True, wraps_log=True),
    FAST_4 := SdkServer(FASTMCP_4, MODERN, wraps_log=True),
    TS_1 := SdkServer(TYPESCRIPT_V1, LEGACY, subscribes=True, true="true"),
    TS_2_LEGACY := SdkServer(TYPESCRIPT_V2, LEGACY, is_pinned=True, subscribes=True, true="true"),
    TS_2 := SdkServer(TYPESCRIPT_V2, MODERN, subscribes=True, true="true"),
]

OVER_HTTP = [
    V1._replace(way="http"),
    V1._replace(way="http-json", lacks=("progress", "log", "questions")),
    V1._replace(way="http-stateless", lacks=("questions",)),
    V1._replace(way="sse"),
    V2_LEGACY._replace(way="http"),
    V2_LEGACY._replace(way="http-json", lacks=("progress", "log", "questions")),
    V2_LEGACY._replace(way="http-stateless", lacks=("questions",)),
    V2_LEGACY._replace(way="sse", is_pinned=False),
    V2._replace(way="http"),
    V2._replace(way="http-json", lacks=("progress", "log")),
    FAST_3._replace(way="http"),
    FAST_3._replace(way="sse"),
    FAST_4_LEGACY._replace(way="http"),
    FAST_4_LEGACY._replace(way="sse", is_pinned=False),
    FAST_4._replace(way="http"),
    TS_1._replace(way="http"),
    TS_1._replace(way="http-json", lacks=("progress",)),
    TS_1._replace(way="sse"),
    TS_2_LEGACY._replace(way="http", lacks=("questions", "changes")),
    TS_2_LEGACY._replace(way="http-sessions"),
    TS_2._replace(way="http"),
]


class Callbacks:
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


async def use(client: Client, callbacks: Callbacks, sdk_server: SdkServer) -> dict[str, Any]:
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

    if "progress" not in sdk_server.lacks:
        # The tool waits after its last step until another call lets it go on.
        climb = asyncio.create_task(client.call_tool("climb", {"steps": 3}, on_progress=callbacks.on_progress))
        await callbacks.last_step.wait()
        await client.call_tool("release")
        report["climb"] = said(await climb)
        report["progress"] = list(callbacks.steps)

    if "questions" not in sdk_server.lacks:
        report["booking"] = said(await client.call_tool("book", {"room": "the attic"}))
        report["declined"] = said(await client.call_tool("book", {"room": "the cellar"}))
        report["asked"] = callbacks.asked

    if "log" not in sdk_server.lacks:
        if client.capabilities.logging is not None or not client.revision.has_set_level:
            await client.set_log_level("info")
        await client.call_tool("announce", {"text": "Dinner is served."})
        message = await callbacks.log.get()
        report["log"] = [message.level, message.data]

    resources = client.capabilities.resources
    if resources is not None and resources.subscribe and "changes" not in sdk_server.lacks:
        async with client.listen(resources=[NOTES]) as changes:
            await client.call_tool("rewrite", {"text": "Bring a hat."})
            change = await anext(changes)
        report["change"] = [change, await read(client, NOTES)]

    if "progress" not in sdk_server.lacks:
        callbacks.last_step.clear()
        climb = asyncio.create_task(client.call_tool("climb", {"steps": 1}, on_progress=callbacks.on_progress))
        await callbacks.last_step.wait()
        climb.cancel()
        report["stopped"] = said(await client.call_tool("stopped"))
    report["still there"] = said(await client.call_tool("greet", {"name": "again"}))
    report["stats"] = client.stats
    return report
