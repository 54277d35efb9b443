"""Tries with our own client what a reference server has, and prints what it observed: true where it is as it has to be.

reference.py SERVER REVISION SECONDS COMMAND [ARGUMENT ...]; instead of a command, the address of a server.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

from steps import TRIED, Features, observe

from mcplumb import Client, RemoteError, connect
from mcplumb.client.input_handlers import Elicitation
from mcplumb.types.client_features import CreateMessageParams, Root
from mcplumb.types.content import TextContent
from mcplumb.types.notification_params import LogMessageParams

MODERN = "2026-07-28"
DYNAMIC = "demo://resource/dynamic/text/{resourceId}"
GRAPH = "memory://knowledge-graph"
MISSING = (-32602, -32002)


class Visit:
    def __init__(self) -> None:
        self.client: Client
        self.log: asyncio.Queue[str] = asyncio.Queue()
        self.asked: list[str] = []

    def on_elicit(self, question: Elicitation) -> Any:
        self.asked.append(question.url or "elicitation")
        return {} if question.url else {"name": "Åse", "integer": 7}

    def on_sample(self, _: CreateMessageParams) -> str:
        self.asked.append("sampling")
        return "Oslo, I think."

    def on_log(self, message: LogMessageParams) -> None:
        self.log.put_nowait(str(message.data))

    async def says(self, tool: str, part: str, **arguments: Any) -> bool:
        """Return whether the text of a result has this part."""
        return part in (await self.client.call_tool(tool, arguments)).text

    async def fails(self, tool: str, **arguments: Any) -> bool:
        return (await self.client.call_tool(tool, arguments)).is_error

    async def misses(self, uri: str) -> bool:
        """Return whether reading this is answered with a code for a resource that does not exist."""
        try:
            await self.client.read_resource(uri)
        except RemoteError as error:
            return error.code in MISSING
        return False

    async def is_named(self, name: str) -> bool:
        return self.client.server_info is not None and self.client.server_info.name == name

    # --- server-everything ---

    async def structured(self) -> bool:
        weather = await self.client.call_tool("get-structured-content", {"location": "Chicago"})
        return weather.structured_content is not None and weather.structured_content["humidity"] == 82

    async def progress(self) -> bool:
        steps: list[float] = []
        await self.client.call_tool(
            "trigger-long-running-operation",
            {"duration": 0.3, "steps": 3},
            on_progress=lambda progress, _total, _message: steps.append(progress),
        )
        return steps == [1, 2, 3]

    async def resources(self) -> bool:
        found = await self.client.list_resources()
        return bool(found) and bool((await self.client.read_resource(found[0].uri)).contents)

    async def templates(self) -> bool:
        templates = {template.uri_template for template in await self.client.list_resource_templates()}
        read = await self.client.read_resource(DYNAMIC.format(resourceId=7))
        return DYNAMIC in templates and str(read.contents[0].text).startswith("Resource 7: ")

    async def updates(self) -> bool:
        uri = DYNAMIC.format(resourceId=1)
        async with self.client.listen(resources=[uri]) as changes:
            await self.client.call_tool("toggle-subscriber-updates")
            change: Any = await anext(changes)
            await self.client.call_tool("toggle-subscriber-updates")
            return bool(change.uri == uri)

    async def list_changes(self) -> bool:
        async with self.client.listen(resources_list=True) as changes:
            file = {"name": "coat.txt.gz", "data": "data:text/plain,Bring%20a%20coat."}
            await self.client.call_tool("gzip-file-as-resource", file)
            await anext(changes)
        return any(resource.name == file["name"] for resource in await self.client.list_resources())

    async def urls(self) -> bool:
        page = "https://inn.example/pay"
        arguments = {"url": page, "message": "Pay for the room."}
        is_completed = await self.says("trigger-url-elicitation", f"URL: {page}", **arguments)
        return is_completed and page in self.asked

    async def logs(self) -> bool:
        await self.client.set_log_level("debug")
        # It logs at its own pace.
        await self.client.call_tool("toggle-simulated-logging")
        said = await self.log.get()
        await self.client.call_tool("toggle-simulated-logging")
        return bool(said)

    async def prompts(self) -> bool:
        prompt = await self.client.get_prompt("args-prompt", {"city": "Oslo"})
        return prompt.messages[0].content == TextContent("What's weather in Oslo?")

    async def completion(self) -> bool:
        return (await self.client.complete("completable-prompt", "department", "S")).values == ["Sales", "Support"]

    # --- The others ---

    async def files(self) -> bool:
        note = Path.home() / "inn" / "note.txt"
        await self.client.call_tool("write_file", {"path": str(note), "content": "Bring a coat."})
        result = await self.client.call_tool("read_text_file", {"path": str(note)})
        return note.read_text() == result.text == "Bring a coat."

    async def allowed(self) -> bool:
        """Return when the server works in the root: it asks for it when a session begins."""
        while True:
            _, *folders = (await self.client.call_tool("list_allowed_directories")).text.splitlines()
            # The one of its command line is in this one.
            if folders == [str(Path.home())]:
                return True
            await asyncio.sleep(0.05)

    async def file_content(self) -> bool:
        result = await self.client.call_tool("list_directory", {"path": str(Path.home() / "inn")})
        return result.structured_content == {"content": result.text}

    async def entities(self) -> bool:
        entity = {"name": "Åse", "entityType": "guest", "observations": ["stays"]}
        result = await self.client.call_tool("create_entities", {"entities": [entity]})
        return result.structured_content == {"entities": [entity]}

    async def graph(self) -> bool:
        [found] = await self.client.list_resources()
        [part] = (await self.client.read_resource(GRAPH)).contents
        return found.uri == GRAPH and '"entities"' in str(part.text)

    async def graph_updates(self) -> bool:
        guest = {"name": "Bo", "entityType": "guest", "observations": []}
        async with self.client.listen(resources=[GRAPH]) as changes:
            await self.client.call_tool("create_entities", {"entities": [guest]})
            change: Any = await anext(changes)
        [part] = (await self.client.read_resource(GRAPH)).contents
        return bool(change.uri == GRAPH) and '"Bo"' in str(part.text)

    async def time(self) -> bool:
        found = (await self.client.call_tool("get_current_time", {"timezone": "UTC"})).structured_content
        return found is not None and found["timezone"] == "UTC"

    # --- What shows that a server has more than is tried ---

    async def declares_output(self) -> bool:
        return any(tool.output_schema is not None for tool in await self.client.list_tools())

    async def has_pages(self) -> bool:
        return (await self.client.tools_page()).next_cursor is not None

    async def updates_resources(self) -> bool:
        resources = self.client.capabilities.resources
        return resources is not None and bool(resources.subscribe)

    async def completes(self) -> bool:
        return self.client.capabilities.completions is not None

    async def has_logs(self) -> bool:
        return self.client.capabilities.logging is not None

    async def lists_resources(self) -> bool:
        return bool(await self.client.list_resources())

    async def lists_templates(self) -> bool:
        return bool(await self.client.list_resource_templates())

    async def lists_prompts(self) -> bool:
        return bool(await self.client.list_prompts())


Check: TypeAlias = Callable[[Visit], Awaitable[bool]]
CHECKS: dict[str, dict[str, Check]] = {
    "server-everything": {
        "introduction": lambda v: v.is_named("mcp-servers/everything"),
        "calls": lambda v: v.says("echo", "Echo: Åse", message="Åse"),
        "tool_errors": lambda v: v.fails("get-sum", a="two"),
        "protocol_errors": lambda v: v.misses("demo://nowhere"),
        "structured_content": Visit.structured,
        "progress": Visit.progress,
        "logs": Visit.logs,
        "resources": Visit.resources,
        "templates": Visit.templates,
        "subscriptions": Visit.updates,
        "list_changes": Visit.list_changes,
        "prompts": Visit.prompts,
        "completion": Visit.completion,
        "forms": lambda v: v.says("trigger-elicitation-request", "- Name: Åse"),
        "urls": Visit.urls,
        "sampling": lambda v: v.says("trigger-sampling-request", "Oslo, I think.", prompt="The capital?"),
        "roots": lambda v: v.says("get-roots-list", "file:///inn"),
    },
    "server-filesystem": {
        "introduction": lambda v: v.is_named("secure-filesystem-server"),
        "calls": Visit.files,
        "tool_errors": lambda v: v.fails("read_text_file", path="/nowhere/secret.txt"),
        "structured_content": Visit.file_content,
        "roots": Visit.allowed,
    },
    "server-memory": {
        "introduction": lambda v: v.is_named("memory-server"),
        "calls": lambda v: v.says("search_nodes", '"entities": []', query="nobody has this name"),
        "tool_errors": lambda v: v.fails("search_nodes", query=7),
        "protocol_errors": lambda v: v.misses("memory://nowhere"),
        "structured_content": Visit.entities,
        "resources": Visit.graph,
        "subscriptions": Visit.graph_updates,
    },
    "mcp-server-time": {
        "introduction": lambda v: v.is_named("mcp-time"),
        "calls": lambda v: v.says(
            "convert_time", "+9.0h", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"
        ),
        "tool_errors": lambda v: v.fails("get_current_time", timezone="Nowhere/Inn"),
        "protocol_errors": lambda v: v.misses("time://nowhere"),
        "structured_content": Visit.time,
    },
}
#: What shows that a server has a feature that it is not tried for. The matrix would be wrong about it.
SIGNS: dict[str, Check] = {
    "protocol_errors": lambda v: v.misses("inn://nowhere"),
    "structured_content": Visit.declares_output,
    "logs": Visit.has_logs,
    "resources": Visit.lists_resources,
    "templates": Visit.lists_templates,
    "subscriptions": Visit.updates_resources,
    "prompts": Visit.lists_prompts,
    "completion": Visit.completes,
    "pagination": Visit.has_pages,
}


class Reference(Features):
    """The features that the server has, one method for each."""


def feature(check: Check | None, sign: Check | None, visit: Visit) -> Callable[[], Awaitable[bool]]:
    async def attempt() -> bool:
        if check is not None:
            return await check(visit)
        if sign is not None and await sign(visit):
            return True  # A matrix that says otherwise is found to be wrong.
        raise LookupError("the server has no such thing")

    return attempt


async def main() -> None:
    server, revision, seconds, *place = sys.argv[1:]
    visit, features = Visit(), Reference()
    checks = dict(CHECKS[server])
    if server == "server-filesystem" and revision == MODERN:
        del checks["roots"]  # It asks for them when it likes, and a modern client can be asked only within a call.
    for name in TRIED:
        setattr(features, name, feature(checks.get(name), SIGNS.get(name), visit))
    async with connect(
        place[0] if place[0].startswith("http") else place,
        revisions=[revision],
        on_elicit=visit.on_elicit,
        on_sample=visit.on_sample,
        on_log=visit.on_log,
        roots=[Root(Path.home().as_uri() if server == "server-filesystem" else "file:///inn")],
    ) as visit.client:
        await observe(features, float(seconds))


if __name__ == "__main__":
    asyncio.run(main())
