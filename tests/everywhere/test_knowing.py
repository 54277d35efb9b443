"""What a client learns of a server, whichever way it came."""

from __future__ import annotations

import pytest

from mcplumb import Client
from mcplumb.errors import RemoteError
from mcplumb.types import Implementation
from tests.everywhere.ways import MODERN, everywhere, meet
from tests.everywhere.words import structured, text

pytestmark = everywhere


def test_who_it_is(way: str) -> None:
    async def body(client: Client) -> None:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("everywhere", "3.1")
        assert client.server_info.title == ("Everywhere" if client.revision.has_titles else None)
        assert client.instructions == "Come as you are."
        assert client.process is None or way.startswith("stdio")
        await client.ping()

    meet(way, body)


def test_what_it_can_do(way: str) -> None:
    async def body(client: Client) -> None:
        can = client.capabilities
        assert can.tools is not None
        assert can.tools.list_changed
        assert can.prompts is not None
        assert can.prompts.list_changed
        assert can.resources is not None
        assert can.resources.list_changed
        assert can.resources.subscribe
        assert can.logging is not None
        assert (can.completions is not None) == client.revision.has_completions_capability

    meet(way, body)


def test_whom_it_talks_to(way: str) -> None:
    async def body(client: Client) -> None:
        said = structured(await client.call_tool("whoami", meta={"com.example/trace": "abc"}))
        assert said == {
            "client": "somebody",
            "revision": str(client.revision),
            "lifespan": "a lifespan",
            "meta": "abc",
        }

    meet(way, body, client_info=Implementation("somebody", "1"))


def test_which_headers_came_with_a_request(way: str) -> None:
    is_http = way.startswith("http")

    async def body(client: Client) -> None:
        for tool in ("header", "header_in_a_thread"):
            assert text(await client.call_tool(tool, {"name": "x-tenant"})) == ("blue, green" if is_http else "no HTTP")
            assert text(await client.call_tool(tool, {"name": "x-nothing"})) == ("none" if is_http else "no HTTP")

    meet(way, body, **({"headers": {"X-Tenant": "blue, green"}} if is_http else {}))


def test_the_revision_that_was_asked_for_is_spoken(way: str) -> None:
    async def body(client: Client) -> None:
        assert client.revision.is_modern == (str(client.revision) == MODERN)
        assert client.revision.is_modern != way.endswith(("legacy", "sse"))

    meet(way, body)


def test_lists_come_whole_over_several_pages(way: str) -> None:
    async def body(client: Client) -> None:
        tools = await client.list_tools()
        names = [tool.name for tool in tools]
        assert len(names) == len(set(names)) > 20
        assert next(tool for tool in tools if tool.name == "add").description == "Add two numbers."
        page = await client.tools_page()
        assert [tool.name for tool in page.tools] == names[:4]
        assert page.next_cursor is not None
        assert [tool.name for tool in (await client.tools_page(page.next_cursor)).tools] == names[4:8]
        assert [resource.uri for resource in await client.list_resources()] == ["place://map", "place://book"]
        assert [each.uri_template for each in await client.list_resource_templates()] == [
            "event://{word}",
            "place://{place}/now",
        ]
        (prompt,) = await client.list_prompts()
        assert (prompt.name, prompt.description) == ("plan", "Plan a journey.")
        assert prompt.arguments is not None
        assert [argument.name for argument in prompt.arguments] == ["city", "days"]

    meet(way, body)


def test_what_may_be_kept(way: str) -> None:
    async def body(client: Client) -> None:
        page = await client.tools_page()
        has_hints = client.revision.has_cache_hints
        assert (page.ttl_ms, page.cache_scope) == ((60_000, "public") if has_hints else (None, None))
        result = await client.read_resource("place://oslo/now")
        assert (result.ttl_ms, result.cache_scope) == ((30_000, "private") if has_hints else (None, None))
        sent = client.stats.messages_out
        assert await client.tools_page() == page
        assert await client.read_resource("place://oslo/now") == result
        assert client.stats.messages_out == sent + (0 if has_hints else 2)

    meet(way, body)


def test_requests_and_notifications_of_its_own(way: str) -> None:
    async def body(client: Client) -> None:
        answer = await client.request("example/double", {"number": 21})
        assert answer["doubled"] == 42
        with pytest.raises(RemoteError) as caught:
            await client.request("example/double")
        assert (caught.value.code, caught.value.message) == (-32602, "No number.")
        with pytest.raises(RemoteError) as caught:
            await client.request("example/triple", {"number": 21})
        assert caught.value.code == -32601
        await client.notify("notifications/example", {"word": "hello"})
        assert text(await client.call_tool("seen", {"event": "heard hello"})) == "1"

    meet(way, body)
