from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from mcplumb.client.client import Client
from mcplumb.client.connector import connect
from mcplumb.client.requests import MAX_ROUNDS
from mcplumb.errors import ProtocolError, RemoteError, UsageError
from mcplumb.revisions import LATEST
from mcplumb.rpc.handler import CallOptions
from mcplumb.server.server import Server
from mcplumb.types.base import Implementation
from mcplumb.types.content import TextContent
from mcplumb.types.meta import LOG_LEVEL
from mcplumb.types.prompts import Completion, PromptReference, ResourceTemplateReference
from mcplumb.types.resources import ResourceContents
from tests.client.peers import TEXT, Peer, modern, nothing, talk, talk_in, talk_legacy

ERAS = ["modern", "legacy"]

ITEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "tools/list": ("tools", {"inputSchema": {"type": "object"}}),
    "resources/list": ("resources", {"uri": "a:b"}),
    "resources/templates/list": ("resourceTemplates", {"uriTemplate": "a:{b}"}),
    "prompts/list": ("prompts", {}),
}


def page(method: str, *names: str, cursor: str | None = None) -> dict[str, Any]:
    key, rest = ITEMS[method]
    result = {key: [{"name": name, **rest} for name in names], "ttlMs": 0, "cacheScope": "private"}
    return result if cursor is None else {**result, "nextCursor": cursor}


async def list_names(client: Client, method: str) -> list[str]:
    lists: dict[str, Any] = {
        "tools/list": client.list_tools,
        "resources/list": client.list_resources,
        "resources/templates/list": client.list_resource_templates,
        "prompts/list": client.list_prompts,
    }
    return [item.name for item in await lists[method]()]


def test_it_knows_its_server() -> None:
    async def play(peer: Peer) -> None:
        await peer.discover(instructions="Be kind.")
        await peer.gone()

    async def body(client: Client) -> None:
        assert client.revision == LATEST
        assert client.server_info == Implementation("peer", "1")
        assert client.capabilities.logging == {}
        assert client.instructions == "Be kind."
        assert repr(client) == "<Client of 'peer', 2026-07-28>"
        assert client.stats.messages_out == 1
        await client.close()

    talk(Peer(play), body)


# --- lists ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("method", ITEMS)
def test_a_list_has_all_pages(era: str, method: str) -> None:
    async def play(peer: Peer) -> None:
        for cursor, names, following in ((None, "ab", "1"), ("1", "c", ""), ("", "", None)):
            request = await peer.expect(method)
            assert request["params"].get("cursor") == cursor
            peer.answer(request, page(method, *names, cursor=following))

    async def body(client: Client) -> None:
        assert await list_names(client, method) == ["a", "b", "c"]

    talk_in(era, play, body)


@pytest.mark.parametrize("method", ITEMS)
def test_a_single_page_can_be_had(method: str) -> None:
    async def play(peer: Peer) -> None:
        for cursor in (None, "1"):
            request = await peer.expect(method)
            assert request["params"].get("cursor") == cursor
            peer.answer(request, page(method, "a", cursor="2"))

    async def body(client: Client) -> None:
        pages: dict[str, Any] = {
            "tools/list": client.tools_page,
            "resources/list": client.resources_page,
            "resources/templates/list": client.resource_templates_page,
            "prompts/list": client.prompts_page,
        }
        assert (await pages[method]()).next_cursor == "2"
        assert (await pages[method]("1")).next_cursor == "2"

    talk(modern(play), body)


def test_a_list_that_goes_in_circles_has_an_end() -> None:
    async def play(peer: Peer) -> None:
        for cursor in ("1", "2", "1"):
            peer.answer(await peer.expect("tools/list"), page("tools/list", "a", cursor=cursor))

    async def body(client: Client) -> None:
        with pytest.raises(ProtocolError, match="The pages of tools/list have no end"):
            await client.list_tools()

    talk(modern(play), body)


def test_a_list_without_an_end_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(peer: Peer) -> None:
        for number in range(5):
            peer.answer(await peer.expect("tools/list"), page("tools/list", "a", cursor=str(number)))

    async def body(client: Client) -> None:
        with pytest.raises(ProtocolError, match="The pages of tools/list have no end"):
            await client.list_tools()

    monkeypatch.setattr("mcplumb.client.requests._MAX_PAGES", 5)
    talk(modern(play), body)


# --- tools, resources, prompts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("arguments", [None, {}, {"city": "Oslo", "days": 3}])
def test_a_tool_is_called(era: str, arguments: dict[str, Any] | None) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        assert (request["params"]["name"], request["params"]["arguments"]) == ("forecast", arguments or {})
        peer.answer(request, {**TEXT, "structuredContent": {"celsius": [21, 19.5]}, "isError": False})

    async def body(client: Client) -> None:
        result = await client.call_tool("forecast", arguments)
        assert result.content == [TextContent("done")]
        assert result.structured_content == {"celsius": [21, 19.5]}
        assert result.is_error is False

    talk_in(era, play, body)


def test_a_resource_is_read_and_a_prompt_is_got() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("resources/read")
        assert request["params"]["uri"] == "a:b"
        peer.answer(request, {"contents": [{"uri": "a:b", "text": "hi"}]})
        for arguments in ({"city": "Oslo"}, {}):
            request = await peer.expect("prompts/get")
            assert (request["params"]["name"], request["params"]["arguments"]) == ("plan", arguments)
            peer.answer(request, {"messages": [{"role": "user", "content": {"type": "text", "text": "Go."}}]})

    async def body(client: Client) -> None:
        assert (await client.read_resource("a:b")).contents == [ResourceContents("a:b", text="hi")]
        prompt = await client.get_prompt("plan", {"city": "Oslo"})
        assert prompt.messages[0].content == TextContent("Go.")
        await client.get_prompt("plan")

    talk(modern(play), body)


@pytest.mark.parametrize(
    ("value", "shown"), [(5, "5"), (None, "None"), (["Oslo"] * 9, r"\['Oslo', 'Oslo', .*\.\.\.\]")]
)
def test_an_argument_of_a_prompt_that_is_no_string_is_named(value: Any, shown: str) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("ping")
        peer.answer(request, {})

    async def body(client: Client) -> None:
        arguments: dict[str, Any] = {"day": "Friday", "city": value}
        with pytest.raises(UsageError, match=f"^The argument 'city' of 'plan' is {shown}: it must be a string.$"):
            await client.get_prompt("plan", arguments)
        with pytest.raises(UsageError, match=f"^The argument 'city' of 'plan' is {shown}: it must be a string.$"):
            await client.complete("plan", "day", "Fri", arguments)
        with pytest.raises(UsageError, match=f"^The argument 'city' of 'plan' is {shown}: it must be a string.$"):
            await client.complete("plan", "city", value)
        await client.ping()  # nothing else was sent

    talk_legacy(play, body)


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25"])
def test_an_argument_is_completed(revision: str) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("completion/complete")
        knows_context = revision == "2025-11-25"
        assert request["params"] == {
            "ref": {"type": "ref/prompt", "name": "plan"},
            "argument": {"name": "city", "value": "O"},
        } | ({"context": {"arguments": {"land": "no"}}} if knows_context else {})
        peer.answer(request, {"completion": {"values": ["Oslo"], "total": 1, "hasMore": False}})
        request = await peer.expect("completion/complete")
        assert request["params"]["ref"] == {"type": "ref/resource", "uri": "a:{b}"}
        peer.answer(request, {"completion": {"values": []}})

    async def body(client: Client) -> None:
        found = await client.complete(PromptReference("plan"), "city", "O", {"land": "no"})
        assert found == Completion(["Oslo"], 1, False)
        assert await client.complete(ResourceTemplateReference("a:{b}"), "b", "") == Completion([])

    talk_legacy(play, body, revision)


@pytest.mark.req("MRT-4")
def test_what_the_server_wants_to_know_is_told_but_not_for_ever() -> None:
    async def play(peer: Peer) -> None:
        for _ in range(MAX_ROUNDS):
            asked = {"resultType": "input_required", "inputRequests": {"where": {"method": "roots/list"}}}
            peer.answer(await peer.expect("tools/call"), asked)

    async def body(client: Client) -> None:
        with pytest.raises(ProtocolError, match=f"asked for input {MAX_ROUNDS} times"):
            await client.call_tool("x")

    talk(modern(play), body, roots=[])


# --- the rest -------------------------------------------------------------------------------------------------------


@pytest.mark.req("LEG-4")
def test_a_legacy_server_is_pinged_and_a_modern_one_is_asked_what_it_is() -> None:
    async def pinged(peer: Peer) -> None:
        peer.answer(await peer.expect("ping"), {})
        peer.refuse(await peer.expect("ping"), -1)

    async def body(client: Client) -> None:
        await client.ping()
        with pytest.raises(RemoteError):
            await client.ping()

    talk_legacy(pinged, body)

    async def asked(peer: Peer) -> None:
        await peer.discover()
        peer.refuse(await peer.expect("server/discover"), -1)

    talk(modern(asked), body)


@pytest.mark.req("LEG-4", "LEG-5")
def test_the_log_level_is_set_the_way_of_the_era() -> None:
    async def legacy_play(peer: Peer) -> None:
        request = await peer.expect("logging/setLevel")
        assert request["params"] == {"level": "warning"}
        peer.answer(request, {})
        peer.answer(await peer.expect("tools/call"), TEXT)

    async def modern_play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        assert request["params"]["_meta"][LOG_LEVEL] == "warning"
        peer.answer(request, TEXT)

    async def body(client: Client) -> None:
        with pytest.raises(UsageError, match="There is no log level 'loud': use one of debug, "):
            await client.set_log_level("loud")  # type: ignore[arg-type]
        await client.set_log_level("warning")
        await client.call_tool("x")

    talk_legacy(legacy_play, body)
    talk(modern(modern_play), body)


def test_a_legacy_server_hears_that_the_roots_changed() -> None:
    async def told(peer: Peer) -> None:
        await peer.expect("notifications/roots/list_changed")

    async def not_told(peer: Peer) -> None:
        await peer.gone()
        assert len(peer.seen) == 1

    async def body(client: Client) -> None:
        await client.roots_changed()

    talk_legacy(told, body, roots=[])
    talk(modern(not_told), body, roots=[])


def test_anything_can_be_asked_and_told() -> None:
    async def play(peer: Peer) -> None:
        meta = peer.seen[0]["params"]["_meta"]
        request = await peer.expect("x/ask")
        assert request["params"] == {"_meta": meta}
        peer.answer(request, {"resultType": "x", "any": [1]})
        request = await peer.expect("x/ask")
        assert request["params"] == {"a": 1, "_meta": {**meta, "b": 2, "c": 3, "progressToken": request["id"]}}
        peer.notify("notifications/progress", progressToken=request["id"], progress=1)
        peer.answer(request, None)
        assert "params" not in await peer.expect("x/tell")
        assert (await peer.expect("x/tell"))["params"] == {"a": 1}

    async def body(client: Client) -> None:
        assert await client.request("x/ask") == {"resultType": "x", "any": [1]}
        params = {"a": 1, "_meta": {"b": 2}}
        seen: list[Any] = []
        assert await client.request("x/ask", params, meta={"c": 3}, on_progress=lambda *news: seen.append(news)) is None
        assert params == {"a": 1, "_meta": {"b": 2}}
        assert seen == [(1, None, None)]
        await client.notify("x/tell")
        await client.notify("x/tell", {"a": 1})

    talk(modern(play), body)


@pytest.mark.parametrize(
    ("own", "asked", "limits"),
    [
        ((60, 600), {}, (60, 600)),
        ((60, 600), {"timeout": 5}, (5, 600)),
        ((60, 600), {"timeout": 1000}, (1000, 1000)),
        ((60, 600), {"timeout": None}, (None, None)),
        ((60, 600), {"timeout": 5, "max_timeout": None}, (5, None)),
        ((60, 600), {"timeout": None, "max_timeout": 9}, (None, 9)),
        ((60, None), {"timeout": 5}, (5, None)),
        ((None, 600), {}, (None, None)),
    ],
)
def test_timeouts_are_the_calls_or_the_clients(own: Any, asked: dict[str, Any], limits: Any) -> None:
    seen: list[Any] = []

    async def body(client: Client) -> None:
        class Fake:
            async def request(self, _: str, __: object, options: CallOptions, ___: object) -> bytes:
                seen.append((options.timeout, options.max_timeout))
                return b'{"content":[]}'

            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

        real = client._supervisor.session.endpoint
        client._supervisor.session.endpoint = Fake()  # type: ignore[assignment]
        await client.call_tool("x", **asked)

    talk(modern(nothing), body, timeout=own[0], max_timeout=own[1])
    assert seen == [limits]


def test_listening_needs_something_to_listen_for() -> None:
    async def body(client: Client) -> None:
        with pytest.raises(UsageError, match="something to listen for"):
            client.listen()
        with pytest.raises(UsageError, match="a list of addresses"):
            client.listen(resources="a:b")
        assert client.listen(resources=["a:b"]).timeout == 60

    talk(modern(nothing), body)


@pytest.mark.parametrize("number", [b"1e999", b"9" * 5000])
def test_a_number_that_python_cannot_read_is_an_error_like_any_other(number: bytes) -> None:
    async def play(peer: Peer) -> None:
        peer.refuse(await peer.expect("tools/call"), -1, data=msgspec.Raw(number))
        peer.refuse(await peer.expect("subscriptions/listen"), -1, data=msgspec.Raw(number))
        peer.answer(await peer.expect("x/y"), msgspec.Raw(b'{"n":' + number + b"}"))

    async def body(client: Client) -> None:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("x")
        assert caught.value.data == number.decode()
        with pytest.raises(RemoteError):
            async with client.listen(tools=True):
                pass
        with pytest.raises(ProtocolError, match="result of x/y cannot be read"):
            await client.request("x/y")

    talk(modern(play), body)


def test_a_client_belongs_to_its_event_loop() -> None:
    async def body(client: Client) -> None:
        def elsewhere() -> list[str]:
            async def use() -> list[str]:
                said = []
                for awaited in (
                    client.list_tools(),
                    client.notify("x"),
                    client.listen(tools=True).__aenter__(),
                    client.close(),
                ):
                    with pytest.raises(UsageError, match="belongs to the event loop") as caught:
                        await awaited
                    said.append(str(caught.value))
                return said

            return asyncio.run(use())

        assert len(await asyncio.to_thread(elsewhere)) == 4

    talk(modern(nothing), body)


def test_a_client_cannot_move_to_another_loop_of_its_thread() -> None:
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    server, called = Server("s"), []

    @server.tool
    async def note(word: str) -> None:
        called.append(word)

    connecting = connect(server)
    client = first.run_until_complete(connecting.__aenter__())
    try:
        with pytest.raises(UsageError, match="belongs to the event loop"):
            second.run_until_complete(client.call_tool("note", {"word": "refused"}))
        # Nothing of the refused call is sent, not even later.
        first.run_until_complete(client.call_tool("note", {"word": "accepted"}))
        assert called == ["accepted"]
    finally:
        first.run_until_complete(connecting.__aexit__(None, None, None))
        first.close()
        second.close()


def test_a_client_ends_with_its_loop() -> None:
    kept: list[Client] = []

    async def leave_open() -> None:
        kept.append(await connect(modern(nothing), check_output=False).__aenter__())

    async def use() -> None:
        await kept[0].call_tool("x")

    asyncio.run(leave_open())
    with pytest.raises(UsageError, match="belongs to the event loop"):
        asyncio.run(use())


@pytest.mark.parametrize("limit", ["timeout", "max_timeout"])
def test_a_timeout_is_a_number(limit: str) -> None:
    async def body(client: Client) -> None:
        options: dict[str, Any] = {limit: "5"}
        with pytest.raises(UsageError, match=f"{limit} is '5': give it a number of seconds"):
            await client.call_tool("x", **options)

    talk(modern(nothing), body)
