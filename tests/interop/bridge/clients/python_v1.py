"""Tries each feature with version 1 of the official Python SDK, and prints what it observed.

python_v1.py SECONDS COMMAND [ARGUMENT ...], or the address of a server over HTTP, which ends in /sse for HTTP+SSE.
"""

import asyncio
import sys
from typing import Any

from mcp import ClientSession, McpError, StdioServerParameters, stdio_client, types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamablehttp_client
from pydantic import AnyUrl
from steps import ANSWERS, MODEL, NOTES, ROOT, SUMMARY, TRACE, Features, observe


class EchoParams(types.RequestParams):
    text: str


class EchoRequest(types.Request[EchoParams, str]):
    """A request of a method that the SDK does not know."""


class EchoResult(types.Result):
    """Its result."""

    echo: str


class PythonV1(Features):
    error = McpError
    next_cursor = "nextCursor"
    session: ClientSession
    opened: types.InitializeResult

    def code_of(self, error: McpError) -> int:
        return error.error.code

    # --- What the server asks and says ---

    async def on_elicit(self, _context: Any, question: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(question.message)
        if question.mode == "url":
            self.asked.append(question.url)
            return types.ElicitResult(action="accept")
        if "cellar" in question.message:
            return types.ElicitResult(action="decline")
        content = {name: ANSWERS[name] for name in question.requestedSchema["properties"]}
        return types.ElicitResult(action="accept", content=content)

    async def on_sample(self, _context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        self.asked.append(params.messages[0].content.text)
        said = types.TextContent(type="text", text=SUMMARY)
        return types.CreateMessageResult(role="assistant", content=said, model=MODEL)

    async def on_roots(self, _context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=ROOT)])

    async def on_log(self, message: types.LoggingMessageNotificationParams) -> None:
        await self.log.put([message.level, message.data])

    async def on_message(self, message: Any) -> None:
        match message:
            case types.ServerNotification(root=types.ResourceUpdatedNotification(params=change)):
                await self.changes.put(str(change.uri))
            case types.ServerNotification(root=types.ToolListChangedNotification()):
                self.list_changed.set()

    # --- The features ---

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
        result = await self.session.call_tool(name, arguments, **options)
        text = "\n".join(block.text for block in result.content)
        return f"error: {text}" if result.isError else text

    async def read(self, uri: str) -> str:
        part = (await self.session.read_resource(AnyUrl(uri))).contents[0]
        return part.text if isinstance(part, types.TextResourceContents) else part.blob

    async def echo(self, text: str) -> str:
        request = EchoRequest(method="interop/echo", params=EchoParams(text=text))
        return (await self.session.send_request(request, EchoResult)).echo

    async def set_log_level(self) -> None:
        await self.session.set_logging_level("info")

    def lists(self) -> dict[str, tuple[Any, str, str]]:
        return {
            "tools": (self.session.list_tools, "tools", "name"),
            "prompts": (self.session.list_prompts, "prompts", "name"),
            "resources": (self.session.list_resources, "resources", "uri"),
            "templates": (self.session.list_resource_templates, "resourceTemplates", "uriTemplate"),
        }

    async def introduction(self) -> Any:
        return [self.opened.serverInfo.name, self.opened.instructions]

    async def structured_content(self) -> Any:
        return (await self.session.call_tool("forecast", {"city": "Oslo", "days": 2})).structuredContent

    async def metadata(self) -> Any:
        return ((await self.session.call_tool("sign", meta={TRACE: "Åse"})).meta or {}).get(TRACE)

    async def subscriptions(self) -> Any:
        await self.session.subscribe_resource(AnyUrl(NOTES))
        await self.call("rewrite", {"text": "Bring a hat."})
        return [await self.changes.get(), await self.read(NOTES)]

    async def list_changes(self) -> Any:
        before = await self.has_drink()
        await self.call("open_bar")
        await self.list_changed.wait()
        return [before, await self.has_drink()]

    async def cancellation(self) -> Any:
        # This SDK does not tell the server when it gives up; its users can.
        self._id_of_hike = self.session._request_id
        return await super().cancellation()

    async def before_cancelling(self) -> None:
        params = types.CancelledNotificationParams(requestId=self._id_of_hike)
        cancelled = types.CancelledNotification(method="notifications/cancelled", params=params)
        await self.session.send_notification(types.ClientNotification(cancelled))

    async def prompts(self) -> Any:
        plan = await self.session.get_prompt("plan", {"city": "Oslo"})
        return [[message.role, message.content.text] for message in plan.messages]

    async def completion(self) -> Any:
        of_prompt = types.PromptReference(type="ref/prompt", name="plan")
        of_template = types.ResourceTemplateReference(type="ref/resource", uri="interop://cities/{city}")
        argument = {"name": "city", "value": "Os"}
        completions = [await self.session.complete(each, argument) for each in (of_prompt, of_template)]
        return [each.completion.values for each in completions]


def connect(command: str, *arguments: str) -> Any:
    if not command.startswith("http"):
        return stdio_client(StdioServerParameters(command=command, args=arguments))
    return sse_client(command) if command.endswith("/sse") else streamablehttp_client(command)


async def main() -> None:
    seconds, *place = sys.argv[1:]
    features = PythonV1()
    async with (
        connect(*place) as (reading, writing, *_),
        ClientSession(
            reading,
            writing,
            elicitation_callback=features.on_elicit,
            sampling_callback=features.on_sample,
            list_roots_callback=features.on_roots,
            logging_callback=features.on_log,
            message_handler=features.on_message,
        ) as features.session,
    ):
        async with asyncio.timeout(float(seconds) * 2):
            features.opened = await features.session.initialize()
        await observe(features, float(seconds))


asyncio.run(main())
