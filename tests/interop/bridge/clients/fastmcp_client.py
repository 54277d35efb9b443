"""What the clients that are written with FastMCP share: its versions build on different versions of the official SDK.

FastMCP has no subscriptions to resources and no methods of extensions of its own: ``client.session``, the session of
the official SDK, has them.
"""

import dataclasses
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.messages import MessageHandler
from fastmcp.client.transports import StdioTransport
from mcp import types
from steps import ANSWERS, MODEL, NOTES, ROOT, SUMMARY, TRACE, Features


class EchoParams(types.RequestParams):
    text: str


class EchoRequest(types.Request[EchoParams, str]):
    """A request of a method that the SDK does not know."""


class EchoResult(types.Result):
    """Its result."""

    echo: str


class Changes(MessageHandler):
    """Keeps what the server announces."""

    def __init__(self, features: Features) -> None:
        self.features = features

    async def on_resource_updated(self, message: Any) -> None:
        await self.features.changes.put(str(message.params.uri))

    async def on_tool_list_changed(self, _message: Any) -> None:
        self.features.list_changed.set()


class FastMCPFeatures(Features):
    progress_option = "progress_handler"
    #: The attribute of a page that has the templates, and that of a template.
    template_names = ("resource_templates", "uri_template")
    client: Client

    def connect(self, place: list[str], **options: Any) -> Client:
        where = place[0] if place[0].startswith("http") else StdioTransport(place[0], place[1:], keep_alive=False)
        return Client(
            where,
            roots=[ROOT],
            sampling_handler=self.on_sample,
            elicitation_handler=self.on_elicit,
            log_handler=self.on_log,
            message_handler=Changes(self),
            **options,
        )

    # --- What the server asks and says ---

    async def on_elicit(self, message: str, form: Any, question: Any, _context: Any) -> Any:
        self.asked.append(message)
        if form is None:
            self.asked.append(question.url)
            return ElicitResult(action="accept")
        if "cellar" in message:
            return ElicitResult(action="decline")
        return form(**{field.name: ANSWERS[field.name] for field in dataclasses.fields(form)})

    async def on_sample(self, messages: Any, _params: Any, _context: Any) -> types.CreateMessageResult:
        self.asked.append(messages[0].content.text)
        said = types.TextContent(type="text", text=SUMMARY)
        return types.CreateMessageResult(role="assistant", content=said, model=MODEL)

    async def on_log(self, message: types.LoggingMessageNotificationParams) -> None:
        await self.log.put([message.level, message.data])

    # --- The features ---

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
        result = await self.client.call_tool(name, arguments, raise_on_error=False, **options)
        text = "\n".join(block.text for block in result.content)
        return f"error: {text}" if result.is_error else text

    async def read(self, uri: str) -> str:
        [part] = await self.client.read_resource(uri)
        return part.text if isinstance(part, types.TextResourceContents) else part.blob

    async def echo(self, text: str) -> str:
        request = EchoRequest(method="interop/echo", params=EchoParams(text=text))
        return (await self.client.session.send_request(request, EchoResult)).echo

    async def set_log_level(self) -> None:
        await self.client.set_logging_level("info")

    def lists(self) -> dict[str, tuple[Any, str, str]]:
        return {
            "tools": (self.client.list_tools_mcp, "tools", "name"),
            "prompts": (self.client.list_prompts_mcp, "prompts", "name"),
            "resources": (self.client.list_resources_mcp, "resources", "uri"),
            "templates": (self.client.list_resource_templates_mcp, *self.template_names),
        }

    async def structured_content(self) -> Any:
        return (await self.client.call_tool("forecast", {"city": "Oslo", "days": 2})).structured_content

    async def metadata(self) -> Any:
        return ((await self.client.call_tool("sign", meta={TRACE: "Åse"})).meta or {}).get(TRACE)

    async def subscriptions(self) -> Any:
        await self.client.session.subscribe_resource(NOTES)
        await self.call("rewrite", {"text": "Bring a hat."})
        return [await self.changes.get(), await self.read(NOTES)]

    async def list_changes(self) -> Any:
        before = await self.has_drink()
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
        return [(await self.client.complete(each, argument)).values for each in (of_prompt, of_template)]
