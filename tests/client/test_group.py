"""Groups of servers in this process and over HTTP. Processes are in tests/launch/test_groups.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcplumb import Client, Group, Server, connect_all, load_config
from mcplumb.client import Change, GroupUpdate, Origin, UnknownName
from mcplumb.errors import Closed, ConnectError, McplumbError, RemoteError, RequestTimeout, UsageError
from mcplumb.protocol.era import EraWaits
from mcplumb.revisions import LATEST, LATEST_LEGACY
from mcplumb.types.prompts import PromptReference, ResourceTemplateReference
from mcplumb.types.resources import ReadResourceResult
from tests.kit.leaks import leaves_nothing
from tests.kit.results import text_of
from tests.kit.servers import serving
from tests.kit.web import Reply, web_server

ERAS = (LATEST.name, LATEST_LEGACY.name)
both_eras = pytest.mark.parametrize("era", ERAS)


def notes(name: str = "notes") -> Server:
    """A server with something of everything, whose resources are its own."""
    server = Server(name, instructions=f"The {name}.")

    @server.tool
    def search(word: str) -> str:
        """Search."""
        return f"{name}: {word}"

    @server.tool
    async def hold() -> str:
        return await asyncio.Future()

    @server.resource(f"{name}://all")
    def everything() -> str:
        return f"all {name}"

    @server.resource("shared://list")
    def shared() -> str:
        return f"shared of {name}"

    @server.resource(f"{name}://by-id/{{number}}")
    def one(number: str) -> str:
        return f"{name} {number}"

    @server.resource("common://{number}")
    def common(number: str) -> str:
        return f"common {name} {number}"

    @server.prompt
    def summarize(topic: str) -> str:
        return f"Summarize {topic} of {name}."

    @server.completion("summarize", "topic")
    def topics(value: str) -> list[str]:
        return [f"{name} {value}"]

    return server


def text_in(result: ReadResourceResult) -> str | None:
    (contents,) = result.contents
    return contents.text


@contextlib.asynccontextmanager
async def two(**options: Any) -> AsyncIterator[Group]:
    async with connect_all({"a": notes("a"), "b": notes("b")}, **options) as group:
        yield group


@pytest.mark.req("GRP-1")
@leaves_nothing
@both_eras
async def test_a_group_over_http(era: str) -> None:
    """One of each era beside those that are refused, answer nonsense or do not answer."""
    async with (
        serving(notes("here"), "http://127.0.0.1:0/mcp") as (here,),
        serving(notes("there"), "http://127.0.0.1:0/mcp") as (there,),
    ):
        with socket.create_server(("127.0.0.1", 0)) as silent, web_server(lambda _: Reply(500, "No.")) as broken:
            port = silent.getsockname()[1]
            servers: dict[str, Any] = {
                "here": {"target": here, "revisions": [era]},
                "there": there,
                "refused": "http://127.0.0.1:1/mcp",
                "broken": broken,
                "silent": {"target": f"http://127.0.0.1:{port}/mcp", "waits": EraWaits(patience=0.5)},
            }
            async with connect_all(servers) as group:
                assert list(group) == ["here", "there"]
                assert set(group.failures) == {"refused", "broken", "silent"}
                assert str(group["here"].revision) == era
                assert [tool.name for tool in await group.list_tools()] == [
                    *("here_search", "here_hold", "there_search", "there_hold"),
                ]
                for name in group:
                    result = await group.call_tool(f"{name}_search", {"word": "milk"})
                    assert text_of(result) == f"{name}: milk"
                assert text_in(await group.read_resource("there://by-id/7")) == "there 7"


@both_eras
async def test_everything_is_merged_and_routed(era: str) -> None:
    async with two(revisions=[era]) as group:
        assert isinstance(group["a"], Client)
        assert dict(group) == {"a": group["a"], "b": group["b"]}
        assert [tool.name for tool in await group.list_tools()] == ["a_search", "a_hold", "b_search", "b_hold"]
        assert [prompt.name for prompt in await group.list_prompts()] == ["a_summarize", "b_summarize"]
        assert text_of(await group.call_tool("b_search", {"word": "x"})) == "b: x"
        prompt = await group.get_prompt("a_summarize", {"topic": "x"})
        assert getattr(prompt.messages[0].content, "text", "") == "Summarize x of a."
        uris = [resource.uri for resource in await group.list_resources()]
        assert uris == ["a://all", "shared://list", "b://all", "shared://list"]
        templates = [template.uri_template for template in await group.list_resource_templates()]
        assert templates == ["a://by-id/{number}", "common://{number}", "b://by-id/{number}", "common://{number}"]
        assert await group.find_tool("a_search") == Origin("a", "search")
        assert await group.find_prompt("b_summarize") == Origin("b", "summarize")


@both_eras
async def test_resources_are_read_from_who_has_them(era: str) -> None:
    async with two(revisions=[era]) as group:
        assert text_in(await group.read_resource("b://all")) == "all b"
        assert text_in(await group.read_resource("a://by-id/1")) == "a 1"
        assert await group.find_resource("a://by-id/1") == ["a"]
        assert await group.find_resource("shared://list") == ["a", "b"]
        for uri in ("shared://list", "common://1"):
            with pytest.raises(UsageError, match=f"Several servers have '{uri}': name one with server=. They are a, b"):
                await group.read_resource(uri)
        assert text_in(await group.read_resource("shared://list", server="b")) == "shared of b"
        assert text_in(await group.read_resource("common://1", server="a")) == "common a 1"
        assert await group.find_resource("nowhere://1") == []
        with pytest.raises(
            UsageError, match=r"No server lists 'nowhere://1', or has a template for it. Name one .*: a, b"
        ):
            await group.read_resource("nowhere://1")
        with pytest.raises(RemoteError, match="Server 'a': The server answered resources/read"):
            await group.read_resource("nowhere://1", server="a")
        with pytest.raises(UnknownName, match="The group has no server 'c'"):
            await group.read_resource("nowhere://1", server="c")


async def test_a_uri_that_nobody_lists_goes_to_the_only_server_with_resources() -> None:
    async with connect_all({"a": notes("a")}) as group:
        with pytest.raises(RemoteError, match="Server 'a': The server answered resources/read"):
            await group.read_resource("nowhere://1")
        await group.remove("a")
        with pytest.raises(UsageError, match="None of them has resources"):
            await group.read_resource("nowhere://1")


async def test_completions_are_routed() -> None:
    async with two() as group:
        for ref in ("b_summarize", PromptReference("b_summarize")):
            assert (await group.complete(ref, "topic", "x")).values == ["b x"]
        for template in ("a://by-id/{number}", ResourceTemplateReference("a://by-id/{number}")):
            assert (await group.complete(template, "number", "")).values == []
        with pytest.raises(UsageError, match=r"Several servers have 'common://{number}': name one"):
            await group.complete("common://{number}", "number", "")
        assert (await group.complete("common://{number}", "number", "", server="b")).values == []
        with pytest.raises(RemoteError, match="Server 'b': "):
            await group.complete("b_unknown", "topic", "x")


async def test_errors_keep_what_they_are_and_name_the_server() -> None:
    async with two() as group:
        with pytest.raises(RemoteError, match="Server 'a': The server answered tools/call 'serch'") as caught:
            await group.call_tool("a_serch")
        assert caught.value.code == -32602
        assert isinstance(caught.value.__cause__, RemoteError)
        with pytest.raises(RequestTimeout, match="Server 'b': "):
            await group.call_tool("b_hold", timeout=0.01)
        with pytest.raises(RemoteError, match="Server 'a': "):
            await group.get_prompt("a_nothing")


async def test_a_misspelled_name_is_corrected() -> None:
    async with two() as group:
        with pytest.raises(
            UnknownName, match=r"The group has no tool 'serch'\. No tools are listed yet: call list_tools first\."
        ):
            await group.call_tool("serch")
        await group.list_tools()
        with pytest.raises(
            UnknownName, match=r"The group has no tool 'c_search'. Did you mean 'b_search' or 'a_search'"
        ):
            await group.call_tool("c_search")
        with pytest.raises(
            UnknownName, match=r"The group has no tool 'zzz'\. Known are a_hold, a_search, b_hold, b_search"
        ):
            await group.call_tool("zzz")
        for number in range(20):
            await group.add(f"more-{number}", notes())
        with pytest.raises(
            UnknownName, match=r"The group has no server 'zzz'\. Known are a, b, more-0, .*more-17, …\."
        ):
            group["zzz"]
        with pytest.raises(KeyError):
            group["c"]
        assert group.get("c") is None


async def test_only_and_hide_select_by_globs() -> None:
    async with two(only=["a_*", "*_hold"], hide=["a_hold"]) as group:
        assert [tool.name for tool in await group.list_tools()] == ["a_search", "b_hold"]
        assert [prompt.name for prompt in await group.list_prompts()] == ["a_summarize"]
        for name in ("a_hold", "b_search"):
            with pytest.raises(UnknownName, match=f"The group has no tool '{name}'"):
                await group.call_tool(name)
        assert text_of(await group.call_tool("a_search", {"word": "x"})) == "a: x"


async def test_without_prefixes_only_shared_names_have_them() -> None:
    other = Server("other")
    other.add_tool(lambda: "other", name="unique")
    other.add_tool(lambda: "other", name="search")
    async with connect_all({"a": notes("a"), "b": other}, prefix=False) as group:
        assert text_of(await group.call_tool("unique")) == "other"
        assert {tool.name for tool in await group.list_tools()} == {"a_search", "hold", "unique", "b_search"}
        with pytest.raises(UnknownName, match="Did you mean"):
            await group.call_tool("search")
        assert text_of(await group.call_tool("b_search")) == "other"
        assert (await group.find_prompt("summarize")) == ("a", "summarize")


async def test_a_server_that_cannot_list_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async with two() as group:
        await group["a"].close()
        assert [tool.name for tool in await group.list_tools()] == ["b_search", "b_hold"]
        assert any(message.startswith("The server 'a' is left out of tools/list: ") for message in caplog.messages)
        with pytest.raises(Closed, match="Server 'a': "):
            await group.call_tool("a_search", {"word": "x"})
        await group["b"].close()
        with pytest.raises(ConnectError, match="None of the 2 servers could be asked for tools/list"):
            await group.list_tools()
        await group.remove("b")
        with pytest.raises(Closed, match="Server 'a': "):
            await group.list_tools()


@both_eras
async def test_servers_come_and_go(era: str) -> None:
    async with two(revisions=[era]) as group:
        async with group.listen(tools=True) as changes:
            client = await group.add("c", notes("c"))
            assert client is group["c"]
            assert await anext(changes) == ("c", Change("tools"))
            assert text_of(await group.call_tool("c_search", {"word": "x"})) == "c: x"
            await group.list_tools()
            await group.list_resources()
            await group.remove("c")
            assert await anext(changes) == ("c", Change("tools"))
            assert list(group) == ["a", "b"]
            with pytest.raises(UnknownName, match=r"The group has no tool 'c_search'"):
                await group.call_tool("c_search")
            assert await group.find_resource("c://all") == []
            with pytest.raises(Closed):
                await client.ping()
        with pytest.raises(UsageError, match="The group has a server 'a' already"):
            await group.add("a", notes())
        with pytest.raises(ConnectError, match="Server 'd': The server"):
            await group.add("d", ["there-is-no-such-program"])
        assert (list(group), group.failures) == (["a", "b"], {})
        for missing in (group.remove("e"), group.reconnect("e")):
            with pytest.raises(UnknownName, match="The group has no server 'e'"):
                await missing


async def test_changes_of_all_servers_are_merged() -> None:
    a, b = notes("a"), notes("b")
    async with connect_all({"a": a, "b": b}) as group, group.listen(prompts=True, resources_list=True) as changes:
        a.prompt(name="another")(lambda: "x")
        assert await anext(changes) == ("a", Change("prompts"))
        b.resource("b://another", name="another")(lambda: "x")
        assert await anext(changes) == ("b", Change("resources"))


async def test_a_group_may_be_empty() -> None:
    async with connect_all({}) as group:
        assert (len(group), await group.list_tools(), repr(group)) == (0, [], "<Group of no servers>")
        async with group.listen(tools=True) as changes:
            assert await group.update({"a": notes("a")}) == GroupUpdate(added=("a",))
            assert await anext(changes) == ("a", Change("tools"))


async def test_a_group_is_opened_once_and_closed_for_good() -> None:
    connecting = connect_all({"a": notes("a")})
    group = await connecting
    with pytest.raises(UsageError, match="connected already"):
        await connecting
    async with group.listen(tools=True) as changes:
        await group.close()
        assert [change async for change in changes] == []
    await group.close()
    for after in (
        group.list_tools(), group.add("b", notes()), group.remove("a"), group.reconnect("a"), group.update({}),
    ):  # fmt: skip
        with pytest.raises(Closed, match="The group is closed"):
            await after
    with pytest.raises(ConnectError, match=r"'a_search' was not sent: server 'a' is not connected. It was closed."):
        await group.call_tool("a_search")
    with pytest.raises(UsageError, match="connected already"):
        await connecting


async def test_a_group_that_was_closed_is_not_opened() -> None:
    connecting = connect_all({"a": notes("a")})
    await connecting.__aexit__(None, None, None)
    with pytest.raises(UsageError, match="connected already"):
        await connecting


async def test_a_custom_transport_that_raises_anything_is_left_out() -> None:
    async def open_connection() -> Any:
        raise OSError("The cable is cut.")

    async with connect_all({"a": notes("a"), "cut": open_connection}) as group:
        assert "The cable is cut." in str(group.failures["cut"])
        with pytest.raises(McplumbError, match=r"Server 'cut': .*The cable is cut\."):
            await group.reconnect("cut")


async def test_options_of_one_server_take_precedence() -> None:
    def asked(_: object) -> None:
        return None

    server = notes("a")
    async with connect_all({"a": server, "b": {"target": server, "on_elicit": asked, "timeout": 7}}) as group:
        assert group["a"]._supervisor.settings.timeout == 60
        assert group["b"]._supervisor.settings.timeout == 7
        assert await group.update({"a": server, "b": {"target": server, "on_elicit": asked, "timeout": 7}}) == (
            GroupUpdate()
        )


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        (["python x.py"], "connect_all takes a mapping of names to servers, or a loaded config, not a list"),
        ({7: "x"}, "The name of a server must be a string, not 7"),
        (
            {"a": {"command": "x"}},
            """The server 'a' has no "target", .* below "mcpServers": {"mcpServers": {"a": {…}}}""",
        ),
    ],
)
async def test_what_is_no_group_is_refused(servers: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        async with connect_all(servers):
            pytest.fail("It was entered.")


@pytest.mark.parametrize("options", [{"resources": "a://b"}, {}])
async def test_listening_needs_something_to_listen_for(options: dict[str, Any]) -> None:
    async with two() as group:
        with pytest.raises(UsageError, match="listen "):
            group.listen(**options)


async def test_a_loaded_config(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    async with serving(notes("web"), "http://127.0.0.1:0/mcp") as (url,):
        servers: dict[str, Any] = {
            "web": {"type": "http", "url": url},
            "off": {"command": "there-is-no-such-program", "disabled": True},
            "unset": {"type": "http", "url": "${THIS_IS_NOT_SET}"},
            "wrong": {"args": ["no command"]},
        }
        file.write_text(json.dumps({"mcpServers": servers}))
        async with connect_all(load_config(file)) as group:
            assert list(group) == ["web"]
            assert set(group.failures) == {"unset", "wrong"}
            web = group["web"]
            with pytest.raises(UsageError, match=r"Server 'wrong': In .*mcp.json"):
                await group.reconnect("wrong")
            assert await group.update(load_config(file)) == GroupUpdate()
            assert set(group.failures) == {"unset", "wrong"}
            servers["wrong"] = servers["web"]
            del servers["unset"]
            file.write_text(json.dumps({"mcpServers": servers}))
            update = await group.update(load_config(file))
            assert update == GroupUpdate(removed=("unset",), changed=("wrong",))
            assert group["web"] is web
            assert text_of(await group.call_tool("wrong_search", {"word": "x"})) == "web: x"
            assert await group.update(load_config(file)) == GroupUpdate()


async def test_a_config_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(notes("web"), "http://127.0.0.1:0/mcp") as (url,):
        monkeypatch.setenv("THE_URL", url)
        servers: dict[str, Any] = {
            "web": {"type": "http", "url": "${THE_URL}"},
            "off": {"command": "there-is-no-such-program", "disabled": True},
            "unset": {"type": "http", "url": "${THIS_IS_NOT_SET}"},
            "wrong": {"args": ["no command"]},
        }
        async with connect_all({"mcpServers": servers}) as group:
            assert list(group) == ["web"]
            assert {name: str(error) for name, error in group.failures.items()} == {
                "unset": "In the given mapping, server 'unset': it needs the variable THIS_IS_NOT_SET, which is not "
                "set in the environment.",
                "wrong": 'In the given mapping, server \'wrong\': it needs a "command" that starts it, or the "url" '
                "where it is.",
            }
            assert text_of(await group.call_tool("web_search", {"word": "x"})) == "web: x"
            assert await group.update({"mcpServers": servers}) == GroupUpdate()
            servers["wrong"] = dict(servers["web"])
            del servers["unset"]
            assert await group.update({"mcpServers": servers}) == GroupUpdate(removed=("unset",), changed=("wrong",))


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
async def test_a_server_may_have_the_name_of_the_key_of_a_config(key: str) -> None:
    servers: Any
    for servers in ({key: notes()}, {key: {"target": notes()}}):
        async with connect_all(servers) as group:
            assert list(group) == [key]
    async with connect_all({"a": notes()}) as group:
        await group.add(key, {"target": notes()})
        assert list(group) == ["a", key]
        with pytest.raises(UsageError, match='has no "target"'):
            await group.add("mcpServers" if key == "servers" else "servers", {"b": {"command": "x"}})


async def test_a_config_may_have_a_server_named_target() -> None:
    async with (
        serving(notes("web"), "http://127.0.0.1:0/mcp") as (url,),
        connect_all({"mcpServers": {"target": {"url": url}}}) as group,
    ):
        assert list(group) == ["target"]


async def test_a_group_is_equal_to_itself_only() -> None:
    async with two() as group:
        assert group == group
        assert group != dict(group)
        assert len({group}) == 1
