"""Tries each feature with version 2 of the official Python SDK, and prints what it observed.

python_v2.py MODE SECONDS COMMAND [ARGUMENT ...], where MODE is legacy or a modern revision; instead of a command, the
address of a server over HTTP, which ends in /sse for HTTP+SSE.
"""

import asyncio
import sys
import warnings
from typing import Any

from mcp import Client, MCPDeprecationWarning, MCPError, StdioServerParameters, types
from mcp.client.sse import sse_client
from steps import ANSWERS, MODEL, NOTES, ROOT, SUMMARY, TRACE, Features, observe


class EchoParams(types.RequestParams):
    text: str


class EchoRequest(types.Request[EchoParams, str]):
    """A request of a method that the SDK does not know."""


class EchoResult(types.Result):
    """Its result."""

    echo: str


class PythonV2(Features):
    error = MCPError
    client: Client

    @property
    def is_modern(self) -> bool:
        return self.client.session.initialize_result is None

    # --- What the server asks and says ---

    async def on_elicit(self, _context: Any, question: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(question.message)
        if question.mode == "url":
            self.asked.append(question.url)
            return types.ElicitResult(action="accept")
        if "cellar" in question.message:
            return types.ElicitResult(action="decline")
        content = {name: ANSWERS[name] for name in question.requested_schema["properties"]}
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
            case types.ResourceUpdatedNotification(params=change):
                await self.changes.put(change.uri)
            case types.ToolListChangedNotification():
                self.list_changed.set()

    # --- The features ---

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
        result = await self.client.call_tool(name, arguments, **options)
        text = "\n".join(block.text for block in result.content)
        return f"error: {text}" if result.is_error else text

    async def read(self, uri: str) -> str:
        part = (await self.client.read_resource(uri)).contents[0]
        return part.text if isinstance(part, types.TextResourceContents) else part.blob

    async def echo(self, text: str) -> str:
        request = EchoRequest(method="interop/echo", params=EchoParams(text=text))
        return (await self.client.session.send_request(request, EchoResult)).echo

    async def set_log_level(self) -> None:
        if not self.is_modern:
            await self.client.set_logging_level("info")

    def lists(self) -> dict[str, tuple[Any, str, str]]:
        return {
            "tools": (self.client.list_tools, "tools", "name"),
            "prompts": (self.client.list_prompts, "prompts", "name"),
            "resources": (self.client.list_resources, "resources", "uri"),
            "templates": (self.client.list_resource_templates, "resource_templates", "uri_template"),
        }

    async def introduction(self) -> Any:
        # A client that is told the modern revision has asked the server nothing: it does so now.
        if self.is_modern:
            discovered = await self.client.session.send_discover(self.client.protocol_version)
            return [discovered["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], discovered["instructions"]]
        return [self.client.server_info.name, self.client.instructions]

    async def structured_content(self) -> Any:
        return (await self.client.call_tool("forecast", {"city": "Oslo", "days": 2})).structured_content

    async def metadata(self) -> Any:
        return ((await self.client.call_tool("sign", meta={TRACE: "Åse"})).meta or {}).get(TRACE)

    async def subscriptions(self) -> Any:
        if self.is_modern:
            async with self.client.listen(resource_subscriptions=[NOTES]) as changes:
                await self.call("rewrite", {"text": "Bring a hat."})
                return [(await anext(changes)).uri, await self.read(NOTES)]
        await self.client.subscribe_resource(NOTES)
        await self.call("rewrite", {"text": "Bring a hat."})
        return [await self.changes.get(), await self.read(NOTES)]

    async def list_changes(self) -> Any:
        before = await self.has_drink()
        if self.is_modern:
            async with self.client.listen(tools_list_changed=True) as changes:
                await self.call("open_bar")
                await anext(changes)
        else:
            await self.call("open_bar")
            await self.list_changed.wait()
        return [before, await self.has_drink()]

    async def prompts(self) -> Any:
        plan = await self.client.get_prompt("plan", {"city": "Oslo"})
        return [[message.role, message.content.text] for message in plan.messages]

    async def completion(self) -> Any:
        of_prompt = types.PromptReference(type="ref/prompt", name="plan")
        of_template = types.ResourceTemplateReference(type="ref/resource", uri="interop://cities/{city}")
        argument = {"name": "city", "value": "Os"}
        completions = [await self.client.complete(each, argument) for each in (of_prompt, of_template)]
        return [each.completion.values for each in completions]


def way(command: str, *arguments: str) -> Any:
    if not command.startswith("http"):
        return StdioServerParameters(command=command, args=arguments)
    return sse_client(command) if command.endswith("/sse") else command


async def main() -> None:
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    mode, seconds, *place = sys.argv[1:]
    features = PythonV2()
    async with Client(
        way(*place),
        mode=mode,
        elicitation_callback=features.on_elicit,
        sampling_callback=features.on_sample,
        list_roots_callback=features.on_roots,
        logging_callback=features.on_log,
        log_level="info",
        message_handler=features.on_message,
        cache=None,
    ) as features.client:
        await observe(features, float(seconds))


asyncio.run(main())
