"""Tries each feature with our own client, over what no SDK has, and prints what it observed.

own.py REVISION SECONDS ADDRESS
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from steps import ANSWERS, MODEL, NOTES, ROOT, SUMMARY, TRACE, Heard, existing, new_folder, observe, pages

from mcplumb import Client, RemoteError, connect
from mcplumb.client.input_handlers import Elicitation
from mcplumb.types.client_features import CreateMessageParams, CreateMessageResult, Root
from mcplumb.types.content import TextContent
from mcplumb.types.notification_params import LogMessageParams


class Features:
    def __init__(self) -> None:
        self.heard = Heard()
        self.client: Client

    def on_elicit(self, question: Elicitation) -> Any:
        self.heard.asked.append(question.message)
        if question.url is not None:
            self.heard.asked.append(question.url)
            return {}
        if "cellar" in question.message:
            return None
        assert question.schema is not None
        return {name: ANSWERS[name] for name in question.schema["properties"]}

    def on_sample(self, params: CreateMessageParams) -> CreateMessageResult:
        [said] = params.messages[0].blocks
        assert isinstance(said, TextContent)
        self.heard.asked.append(said.text)
        return CreateMessageResult(role="assistant", content=TextContent(SUMMARY), model=MODEL)

    def on_log(self, message: LogMessageParams) -> None:
        self.heard.log.put_nowait([message.level, message.data])

    def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.heard.progress.append([progress, total, message])
        if progress == total:
            self.heard.last_step.set()

    # --- The features ---

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
        result = await self.client.call_tool(name, arguments, **options)
        return f"error: {result.text}" if result.is_error else result.text

    async def read(self, uri: str) -> str | None:
        [part] = (await self.client.read_resource(uri)).contents
        return part.text if part.is_text else part.blob

    async def introduction(self) -> Any:
        assert self.client.server_info is not None
        return [self.client.server_info.name, self.client.instructions]

    async def calls(self) -> Any:
        return await self.call("greet", {"name": "Åse"})

    async def tool_errors(self) -> Any:
        return await self.call("refuse", {"reason": "The inn is full."})

    async def protocol_errors(self) -> Any:
        try:
            return await self.read("interop://nowhere")
        except RemoteError as error:
            return error.code

    async def structured_content(self) -> Any:
        return (await self.client.call_tool("forecast", {"city": "Oslo", "days": 2})).structured_content

    async def metadata(self) -> Any:
        return ((await self.client.call_tool("sign", meta={TRACE: "Åse"})).meta or {}).get(TRACE)

    async def resources(self) -> Any:
        uris = sorted(resource.uri for resource in await self.client.list_resources())
        return [uris, await self.read(NOTES), await self.read("interop://dot")]

    async def templates(self) -> Any:
        templates = [template.uri_template for template in await self.client.list_resource_templates()]
        return [templates, await self.read("interop://cities/Oslo")]

    async def subscriptions(self) -> Any:
        async with self.client.listen(resources=[NOTES]) as changes:
            await self.call("rewrite", {"text": "Bring a hat."})
            change: Any = await anext(changes)
            return [change.uri, await self.read(NOTES)]

    async def list_changes(self) -> Any:
        before = "drink" in {tool.name for tool in await self.client.list_tools()}
        async with self.client.listen(tools=True) as changes:
            await self.call("open_bar")
            await anext(changes)
        return [before, "drink" in {tool.name for tool in await self.client.list_tools()}]

    async def prompts(self) -> Any:
        plan = await self.client.get_prompt("plan", {"city": "Oslo"})
        return [
            [message.role, message.content.text]
            for message in plan.messages
            if isinstance(message.content, TextContent)
        ]

    async def pagination(self) -> Any:
        async def page(cursor: str | None) -> Any:
            result = await self.client.prompts_page(cursor)
            return [prompt.name for prompt in result.prompts], result.next_cursor

        return await pages(page)

    async def completion(self) -> Any:
        of = ("plan", "interop://cities/{city}")
        return [(await self.client.complete(each, "city", "Os")).values for each in of]

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
        await self.client.set_log_level("info")
        await self.call("announce", {"text": "Dinner is served."})
        return await self.heard.log.get()

    async def extension_methods(self) -> Any:
        try:
            return (await self.client.request("interop/echo", {"text": "Åse"})).get("echo")
        except RemoteError as error:
            return error.code

    async def cancellation(self) -> Any:
        folder = new_folder()
        hike = asyncio.create_task(self.call("hike", {"steps": 0, "folder": str(folder)}))
        await existing(folder / "begun")
        hike.cancel()
        await existing(folder / "stopped")
        return "stopped"

    async def progress(self) -> Any:
        folder = new_folder()
        arguments = {"steps": 3, "folder": str(folder)}
        hike = asyncio.create_task(self.call("hike", arguments, on_progress=self.on_progress))
        await self.heard.last_step.wait()
        (folder / "home").touch()
        return [self.heard.progress, await hike]


async def main() -> None:
    revision, seconds, address = sys.argv[1:]
    features = Features()
    async with connect(
        address,
        revisions=[revision],
        on_elicit=features.on_elicit,
        on_sample=features.on_sample,
        roots=[Root(ROOT)],
        on_log=features.on_log,
    ) as features.client:
        await observe(features, float(seconds))


if __name__ == "__main__":
    asyncio.run(main())
