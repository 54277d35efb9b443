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
from steps import ANSWERS, MODEL, NOTES, ROOT, SUMMARY, TRACE, Heard, existing, joined, new_folder, observe, pages


class EchoParams(types.RequestParams):
    text: str


class EchoRequest(types.Request[EchoParams, str]):
    """A request of a method that the SDK does not know."""


class EchoResult(types.Result):
    """Its result."""

    echo: str


class Features:
    def __init__(self) -> None:
        self.heard = Heard()
        self.session: ClientSession
        self.opened: types.InitializeResult

    # --- What the server asks and says ---

    async def on_elicit(self, _context: Any, question: types.ElicitRequestParams) -> types.ElicitResult:
        self.heard.asked.append(question.message)
        if question.mode == "url":
            self.heard.asked.append(question.url)
            return types.ElicitResult(action="accept")
        if "cellar" in question.message:
            return types.ElicitResult(action="decline")
        content = {name: ANSWERS[name] for name in question.requestedSchema["properties"]}
        return types.ElicitResult(action="accept", content=content)

    async def on_sample(self, _context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        self.heard.asked.append(params.messages[0].content.text)
        said = types.TextContent(type="text", text=SUMMARY)
        return types.CreateMessageResult(role="assistant", content=said, model=MODEL)

    async def on_roots(self, _context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=ROOT)])

    async def on_log(self, message: types.LoggingMessageNotificationParams) -> None:
        await self.heard.log.put([message.level, message.data])

    async def on_message(self, message: Any) -> None:
        match message:
            case types.ServerNotification(root=types.ResourceUpdatedNotification(params=change)):
                await self.heard.changes.put(str(change.uri))
            case types.ServerNotification(root=types.ToolListChangedNotification()):
                self.heard.list_changed.set()

    # --- The features ---

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
        result = await self.session.call_tool(name, arguments, **options)
        text = "\n".join(block.text for block in result.content)
        return f"error: {text}" if result.isError else text

    async def read(self, uri: str) -> str:
        part = (await self.session.read_resource(AnyUrl(uri))).contents[0]
        return part.text if isinstance(part, types.TextResourceContents) else part.blob

    async def introduction(self) -> Any:
        return [self.opened.serverInfo.name, self.opened.instructions]

    async def calls(self) -> Any:
        return await self.call("greet", {"name": "Åse"})

    async def tool_errors(self) -> Any:
        return await self.call("refuse", {"reason": "The inn is full."})

    async def protocol_errors(self) -> Any:
        try:
            return await self.read("interop://nowhere")
        except McpError as error:
            return error.error.code

    async def structured_content(self) -> Any:
        return (await self.session.call_tool("forecast", {"city": "Oslo", "days": 2})).structuredContent

    async def metadata(self) -> Any:
        return ((await self.session.call_tool("sign", meta={TRACE: "Åse"})).meta or {}).get(TRACE)

    async def resources(self) -> Any:
        async def page(cursor: str | None) -> Any:
            result = await self.session.list_resources(cursor)
            return [str(resource.uri) for resource in result.resources], result.nextCursor

        return [joined(await pages(page)), await self.read(NOTES), await self.read("interop://dot")]

    async def templates(self) -> Any:
        async def page(cursor: str | None) -> Any:
            result = await self.session.list_resource_templates(cursor)
            return [template.uriTemplate for template in result.resourceTemplates], result.nextCursor

        return [joined(await pages(page)), await self.read("interop://cities/Oslo")]

    async def subscriptions(self) -> Any:
        await self.session.subscribe_resource(AnyUrl(NOTES))
        await self.call("rewrite", {"text": "Bring a hat."})
        return [await self.heard.changes.get(), await self.read(NOTES)]

    async def list_changes(self) -> Any:
        async def page(cursor: str | None) -> Any:
            result = await self.session.list_tools(cursor)
            return [tool.name for tool in result.tools], result.nextCursor

        before = "drink" in joined(await pages(page))
        await self.call("open_bar")
        await self.heard.list_changed.wait()
        return [before, "drink" in joined(await pages(page))]

    async def prompts(self) -> Any:
        plan = await self.session.get_prompt("plan", {"city": "Oslo"})
        return [[message.role, message.content.text] for message in plan.messages]

    async def pagination(self) -> Any:
        async def page(cursor: str | None) -> Any:
            result = await self.session.list_prompts(cursor)
            return [prompt.name for prompt in result.prompts], result.nextCursor

        return await pages(page)

    async def completion(self) -> Any:
        of_prompt = types.PromptReference(type="ref/prompt", name="plan")
        of_template = types.ResourceTemplateReference(type="ref/resource", uri="interop://cities/{city}")
        argument = {"name": "city", "value": "Os"}
        completions = [await self.session.complete(each, argument) for each in (of_prompt, of_template)]
        return [each.completion.values for each in completions]

    async def forms(self) -> Any:
        self.heard.asked = []
        booked = [await self.call("book", {"room": room}) for room in ("the attic", "the cellar")]
        return [self.heard.asked, booked]

    async def urls(self) -> Any:
        self.heard.asked = []
        return [await self.call("pay"), self.heard.asked]

    async def sampling(self) -> Any:
        self.heard.asked = []
        return [await self.call("summarize", {"text": "a long text"}), self.heard.asked]

    async def roots(self) -> Any:
        return await self.call("look_around")

    async def logs(self) -> Any:
        await self.session.set_logging_level("info")
        await self.call("announce", {"text": "Dinner is served."})
        return await self.heard.log.get()

    async def extension_methods(self) -> Any:
        request = EchoRequest(method="interop/echo", params=EchoParams(text="Åse"))
        try:
            return (await self.session.send_request(request, EchoResult)).echo
        except McpError as error:
            return error.error.code

    async def cancellation(self) -> Any:
        # This SDK does not tell the server when it gives up; its users can.
        id_of_hike = self.session._request_id
        folder = new_folder()
        hike = asyncio.create_task(self.call("hike", {"steps": 0, "folder": str(folder)}))
        await existing(folder / "begun")
        params = types.CancelledNotificationParams(requestId=id_of_hike)
        await self.session.send_notification(
            types.ClientNotification(types.CancelledNotification(method="notifications/cancelled", params=params))
        )
        hike.cancel()
        await existing(folder / "stopped")
        return "stopped"

    async def progress(self) -> Any:
        folder = new_folder()
        arguments = {"steps": 3, "folder": str(folder)}
        hike = asyncio.create_task(self.call("hike", arguments, progress_callback=self.heard.on_progress))
        await self.heard.last_step.wait()
        (folder / "home").touch()
        return [self.heard.progress, await hike]


def connect(command: str, *arguments: str) -> Any:
    if not command.startswith("http"):
        return stdio_client(StdioServerParameters(command=command, args=arguments))
    return sse_client(command) if command.endswith("/sse") else streamablehttp_client(command)


async def main() -> None:
    seconds, *place = sys.argv[1:]
    features = Features()
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
