"""Resources, templates, prompts and completions, whichever way they come."""

from __future__ import annotations

import pytest

from mcplumb import Client
from mcplumb.errors import RemoteError, ToolFailed
from mcplumb.types import PromptReference, ResourceTemplateReference, TextContent
from tests.everywhere.ways import everywhere, meet

pytestmark = everywhere


def test_resources(way: str) -> None:
    async def body(client: Client) -> None:
        (contents,) = (await client.read_resource("place://map")).contents
        assert (contents.uri, contents.blob, contents.mime_type) == ("place://map", "AAE=", "image/png")
        (contents,) = (await client.read_resource("place://book")).contents
        assert contents.text == "é" * 1_000_000

    meet(way, body)


def test_templates(way: str) -> None:
    async def body(client: Client) -> None:
        (contents,) = (await client.read_resource("place://oslo/now")).contents
        assert (contents.uri, contents.text) == ("place://oslo/now", "quiet in oslo")
        for nowhere in ("place://paris/now", "place://nowhere", "other://oslo/now"):
            with pytest.raises(RemoteError) as caught:
                await client.read_resource(nowhere)
            assert caught.value.code == client.revision.resource_not_found

    meet(way, body)


def test_a_tool_reads_resources_of_its_server(way: str) -> None:
    async def body(client: Client) -> None:
        for tool in ("quote", "quote_in_a_thread"):
            for uri, expected in (("place://oslo/now", "quiet in oslo"), ("place://book", "é" * 1_000_000)):
                assert (await client.call_tool(tool, {"uri": uri})).raise_for_error().text == expected
            for nowhere in ("place://paris/now", "other://oslo/now"):
                with pytest.raises(ToolFailed, match=f"There is no resource '{nowhere}'"):
                    (await client.call_tool(tool, {"uri": nowhere})).raise_for_error()

    meet(way, body)


def test_prompts(way: str) -> None:
    async def body(client: Client) -> None:
        prompt = await client.get_prompt("plan", {"city": "Oslo", "days": "3"})
        assert [message.content for message in prompt.messages] == [TextContent("Plan 3 days in Oslo.")]
        for name, arguments in (("plan", {}), ("plan", {"city": "Oslo", "days": "many"}), ("no such prompt", {})):
            with pytest.raises(RemoteError) as caught:
                await client.get_prompt(name, arguments)
            assert caught.value.code == -32602

    meet(way, body)


def test_completions(way: str) -> None:
    async def body(client: Client) -> None:
        assert (await client.complete(PromptReference("plan"), "city", "o")).values == ["oslo", "odense"]
        assert (await client.complete("plan", "city", "x")).values == []
        template = ResourceTemplateReference("place://{place}/now")
        completion = await client.complete(template, "place", "os", {"land": "no"})
        assert completion.values == (["os!", "no"] if client.revision.has_completion_context else ["os!"])

    meet(way, body)
