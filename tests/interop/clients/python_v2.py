"""Uses a server as a client written with version 2 of the official Python SDK does, and reports what it saw.

python_v2.py MODE COMMAND [ARGUMENT ...], where MODE is auto, legacy or a modern revision; instead of a command, the
address of a server over HTTP, which ends in /sse for HTTP+SSE.
"""

import asyncio
import json
import sys
import warnings
from typing import Any

from mcp import Client, MCPDeprecationWarning, MCPError, StdioServerParameters, types
from mcp.client.context import ClientRequestContext
from mcp.client.sse import sse_client

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

    async def answer(self, _context: ClientRequestContext, question: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(question.message)
        if "cellar" in question.message:
            return types.ElicitResult(action="decline")
        fields = question.requested_schema["properties"]
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
            case types.ResourceUpdatedNotification(params=change):
                await self.changes.put(change.uri)
            case Exception():
                self.complaints.append(str(message))


def said(result: types.CallToolResult) -> dict[str, Any]:
    return {"text": [block.text for block in result.content], "error": result.is_error}


async def visit(client: Client, visitor: Visitor) -> dict[str, Any]:
    report: dict[str, Any] = {"revision": client.protocol_version, "instructions": client.instructions}
    modern = client.session.initialize_result is None
    # A client that takes a revision for granted has asked the server nothing, and does not know who it is.
    report["server"] = client.server_info and [client.server_info.name, client.server_info.version]

    report["tools"] = sorted(tool.name for tool in (await client.list_tools()).tools)
    report["greeting"] = said(await client.call_tool("greet", {"name": "Åse"}))
    report["forecast"] = (await client.call_tool("forecast", {"city": "Oslo", "days": 2})).structured_content
    report["refusal"] = said(await client.call_tool("refuse", {"reason": "The inn is full."}))

    report["resources"] = sorted(resource.uri for resource in (await client.list_resources()).resources)
    templates = (await client.list_resource_templates()).resource_templates
    report["templates"] = [template.uri_template for template in templates]
    report["notes"] = (await client.read_resource(NOTES)).contents[0].text
    picture = (await client.read_resource("interop://dot")).contents[0]
    report["dot"] = [picture.mime_type, picture.blob]
    report["city"] = (await client.read_resource("interop://cities/Oslo")).contents[0].text
    try:
        await client.read_resource("interop://nowhere")
    except MCPError as error:
        report["missing"] = error.code

    report["prompts"] = [prompt.name for prompt in (await client.list_prompts()).prompts]
    plan = await client.get_prompt("plan", {"city": "Oslo"})
    report["plan"] = [[message.role, message.content.text] for message in plan.messages]

    for_prompt = types.PromptReference(name="plan")
    for_template = types.ResourceTemplateReference(uri="interop://cities/{city}")
    argument = {"name": "city", "value": "Os"}
    report["completions"] = [
        (await client.complete(reference, argument)).completion.values for reference in (for_prompt, for_template)
    ]

    # The tool waits after its last step until another call lets it go on.
    climb = asyncio.create_task(client.call_tool("climb", {"steps": 3}, progress_callback=visitor.on_progress))
    await visitor.last_step.wait()
    await client.call_tool("release")
    report["climb"] = said(await climb)
    report["progress"] = visitor.steps

    report["booking"] = said(await client.call_tool("book", {"room": "the attic"}))
    report["declined"] = said(await client.call_tool("book", {"room": "the cellar"}))
    report["asked"] = visitor.asked

    if not modern:
        await client.set_logging_level("info")
    await client.call_tool("announce", {"text": "Dinner is served."})
    report["log"] = await visitor.log.get()

    if modern:
        async with client.listen(resource_subscriptions=[NOTES]) as changes:
            await client.call_tool("rewrite", {"text": "Bring a hat."})
            change = (await anext(changes)).uri
    else:
        await client.subscribe_resource(NOTES)
        await client.call_tool("rewrite", {"text": "Bring a hat."})
        change = await visitor.changes.get()
    report["changes"] = [change, (await client.read_resource(NOTES)).contents[0].text]

    try:
        await client.call_tool("climb", {"steps": 0}, read_timeout_seconds=2.0)
    except MCPError:
        report["timeout"] = said(await client.call_tool("stopped"))
    return report


def way(command: str, *arguments: str) -> Any:
    if not command.startswith("http"):
        return StdioServerParameters(command=command, args=arguments)
    return sse_client(command) if command.endswith("/sse") else command


async def main() -> None:
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    mode, *command = sys.argv[1:]
    visitor = Visitor()
    async with Client(
        way(*command),
        mode=mode,
        elicitation_callback=visitor.answer,
        logging_callback=visitor.on_log,
        log_level="info",
        message_handler=visitor.on_message,
    ) as client:
        async with asyncio.timeout(LONGEST_SECONDS):
            report = await visit(client, visitor)
    report["complaints"] = visitor.complaints
    print(json.dumps(report))


asyncio.run(main())
