"""Tries each feature with our own client, and prints what it observed.

own.py REVISION SECONDS COMMAND [ARGUMENT ...]; instead of a command, the address of a server.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from steps import ANSWERS, MODEL, NOTES, ROOT, SUMMARY, TRACE, Features, observe

from mcplumb import Client, RemoteError, connect
from mcplumb.client.input_handlers import Elicitation
from mcplumb.types.client_features import CreateMessageParams, CreateMessageResult, Root
from mcplumb.types.content import TextContent
from mcplumb.types.notification_params import LogMessageParams


class Own(Features):
    error = RemoteError
    progress_option = "on_progress"
    client: Client

    def on_elicit(self, question: Elicitation) -> Any:
        self.asked.append(question.message)
        if question.url is not None:
            self.asked.append(question.url)
            return {}
        if "cellar" in question.message:
            return None
        assert question.schema is not None
        return {name: ANSWERS[name] for name in question.schema["properties"]}

    def on_sample(self, params: CreateMessageParams) -> CreateMessageResult:
        [said] = params.messages[0].blocks
        assert isinstance(said, TextContent)
        self.asked.append(said.text)
        return CreateMessageResult(role="assistant", content=TextContent(SUMMARY), model=MODEL)

    def on_log(self, message: LogMessageParams) -> None:
        self.log.put_nowait([message.level, message.data])

    # --- The features ---

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
        result = await self.client.call_tool(name, arguments, **options)
        return f"error: {result.text}" if result.is_error else result.text

    async def read(self, uri: str) -> str | None:
        [part] = (await self.client.read_resource(uri)).contents
        return part.text if part.is_text else part.blob

    async def echo(self, text: str) -> str:
        return str((await self.client.request("interop/echo", {"text": text}))["echo"])

    async def set_log_level(self) -> None:
        await self.client.set_log_level("info")

    def lists(self) -> dict[str, tuple[Any, str, str]]:
        return {
            "tools": (self.client.tools_page, "tools", "name"),
            "prompts": (self.client.prompts_page, "prompts", "name"),
            "resources": (self.client.resources_page, "resources", "uri"),
            "templates": (self.client.resource_templates_page, "resource_templates", "uri_template"),
        }

    async def introduction(self) -> Any:
        assert self.client.server_info is not None
        return [self.client.server_info.name, self.client.instructions]

    async def structured_content(self) -> Any:
        return (await self.client.call_tool("forecast", {"city": "Oslo", "days": 2})).structured_content

    async def metadata(self) -> Any:
        return ((await self.client.call_tool("sign", meta={TRACE: "Åse"})).meta or {}).get(TRACE)

    async def subscriptions(self) -> Any:
        async with self.client.listen(resources=[NOTES]) as changes:
            await self.call("rewrite", {"text": "Bring a hat."})
            change: Any = await anext(changes)
            return [change.uri, await self.read(NOTES)]

    async def list_changes(self) -> Any:
        before = await self.has_drink()
        async with self.client.listen(tools=True) as changes:
            await self.call("open_bar")
            await anext(changes)
        return [before, await self.has_drink()]

    async def prompts(self) -> Any:
        plan = await self.client.get_prompt("plan", {"city": "Oslo"})
        return [
            [message.role, message.content.text]
            for message in plan.messages
            if isinstance(message.content, TextContent)
        ]

    async def completion(self) -> Any:
        of = ("plan", "interop://cities/{city}")
        return [(await self.client.complete(each, "city", "Os")).values for each in of]


async def main() -> None:
    revision, seconds, *place = sys.argv[1:]
    features = Own()
    async with connect(
        place[0] if ":" in place[0] else place,
        revisions=[revision],
        on_elicit=features.on_elicit,
        on_sample=features.on_sample,
        roots=[Root(ROOT)],
        on_log=features.on_log,
    ) as features.client:
        await observe(features, float(seconds))


if __name__ == "__main__":
    asyncio.run(main())
