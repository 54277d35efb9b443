"""Uses a server as a client written with version 1 of the official Python SDK does, and reports what it saw.

python_v1.py COMMAND [ARGUMENT ...], or the address of a server over HTTP, which ends in /sse for HTTP+SSE.
"""

import asyncio
import json
import sys
from datetime import timedelta
from typing import Any

from mcp import ClientSession, McpError, StdioServerParameters, stdio_client, types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamablehttp_client
from pydantic import AnyUrl

NOTES = "interop://notes"
LONGEST_SECONDS = 50


class Visitor:
    """What the server says of its own accord, and the answers to what it asks."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.log: asyncio.Queue[list[Any]] = asyncio.Queue()
        self.steps: list[list[Any]] = []
        self.last_step = asyncio.Event()
        self.changes: asyncio.Queue[str] = asyncio.Queue()
        self.late_answer = asyncio.Event()

    async def answer(self, _context: Any, question: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(question.message)
        if "cellar" in question.message:
            return types.ElicitResult(action="decline")
        fields = question.requestedSchema["properties"]
        answers: dict[str, Any] = {"nights": 2, "breakfast": True, "sure": True}
        return types.ElicitResult(action="accept", content={name: answers[name] for name in fields})

    async def on_log(self, message: types.LoggingMessageNotificationParams) -> None:
        await self.log.put([message.level, message.data])

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.steps.append([progress, total, message])
        if progress == total:
            self.last_step.set()

    async def on_message(self, message: Any) -> None:
        match message:
            case types.ServerNotification(root=types.ResourceUpdatedNotification(params=change)):
                await self.changes.put(str(change.uri))
            case Exception() if "unknown request ID" in str(message):
                self.late_answer.set()
            case Exception():
                self.complaints.append(str(message))


def said(result: types.CallToolResult) -> dict[str, Any]:
    return {"text": [block.text for block in result.content], "error": result.isError}


async def visit(session: ClientSession, visitor: Visitor) -> dict[str, Any]:
    report: dict[str, Any] = {}

    opened = await session.initialize()
    report["revision"] = opened.protocolVersion
    report["server"] = [opened.serverInfo.name, opened.serverInfo.version]
    report["instructions"] = opened.instructions

    report["tools"] = sorted(tool.name for tool in (await session.list_tools()).tools)
    report["greeting"] = said(await session.call_tool("greet", {"name": "Åse"}))
    report["forecast"] = (await session.call_tool("forecast", {"city": "Oslo", "days": 2})).structuredContent
    report["refusal"] = said(await session.call_tool("refuse", {"reason": "The inn is full."}))

    report["resources"] = sorted(str(resource.uri) for resource in (await session.list_resources()).resources)
    templates = (await session.list_resource_templates()).resourceTemplates
    report["templates"] = [template.uriTemplate for template in templates]
    report["notes"] = (await session.read_resource(AnyUrl(NOTES))).contents[0].text
    picture = (await session.read_resource(AnyUrl("interop://dot"))).contents[0]
    report["dot"] = [picture.mimeType, picture.blob]
    report["city"] = (await session.read_resource(AnyUrl("interop://cities/Oslo"))).contents[0].text
    try:
        await session.read_resource(AnyUrl("interop://nowhere"))
    except McpError as error:
        report["missing"] = error.error.code

    report["prompts"] = [prompt.name for prompt in (await session.list_prompts()).prompts]
    plan = await session.get_prompt("plan", {"city": "Oslo"})
    report["plan"] = [[message.role, message.content.text] for message in plan.messages]

    for_prompt = types.PromptReference(type="ref/prompt", name="plan")
    for_template = types.ResourceTemplateReference(type="ref/resource", uri="interop://cities/{city}")
    argument = {"name": "city", "value": "Os"}
    report["completions"] = [
        (await session.complete(reference, argument)).completion.values for reference in (for_prompt, for_template)
    ]

    # The tool waits after its last step until another call lets it go on.
    climb = asyncio.create_task(session.call_tool("climb", {"steps": 3}, progress_callback=visitor.on_progress))
    await visitor.last_step.wait()
    await session.call_tool("release")
    report["climb"] = said(await climb)
    report["progress"] = visitor.steps

    report["booking"] = said(await session.call_tool("book", {"room": "the attic"}))
    report["declined"] = said(await session.call_tool("book", {"room": "the cellar"}))
    report["asked"] = visitor.asked

    await session.set_logging_level("info")
    await session.call_tool("announce", {"text": "Dinner is served."})
    report["log"] = await visitor.log.get()

    await session.subscribe_resource(AnyUrl(NOTES))
    await session.call_tool("rewrite", {"text": "Bring a hat."})
    report["changes"] = [await visitor.changes.get(), (await session.read_resource(AnyUrl(NOTES))).contents[0].text]

    # This SDK gives up without telling the server, so the tool goes on waiting and its answer comes late.
    try:
        await session.call_tool("climb", {"steps": 0}, read_timeout_seconds=timedelta(seconds=2))
    except McpError:
        report["timeout"] = said(await session.call_tool("release"))
        await visitor.late_answer.wait()
    return report


def connect(command: str, *arguments: str) -> Any:
    if not command.startswith("http"):
        return stdio_client(StdioServerParameters(command=command, args=arguments))
    return sse_client(command) if command.endswith("/sse") else streamablehttp_client(command)


async def main() -> None:
    visitor = Visitor()
    async with (
        connect(*sys.argv[1:]) as (reading, writing, *_),
        ClientSession(
            reading,
            writing,
            elicitation_callback=visitor.answer,
            logging_callback=visitor.on_log,
            message_handler=visitor.on_message,
        ) as session,
    ):
        async with asyncio.timeout(LONGEST_SECONDS):
            report = await visit(session, visitor)
    report["complaints"] = visitor.complaints
    print(json.dumps(report))


asyncio.run(main())
