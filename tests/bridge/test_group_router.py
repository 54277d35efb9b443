"""Several servers behind one bridge: names, routes, failures, changes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import aiohttp
import pytest

from mcplumb import (
    Bridge,
    Client,
    Context,
    Header,
    HttpOptions,
    RemoteError,
    Server,
    UsageError,
    connect,
    load_config,
)
from mcplumb.bridge.bridge import Updated
from mcplumb.client import Changes
from mcplumb.limits import Limits
from mcplumb.protocol.subscription_state import Change
from mcplumb.transports.connection import ANYONE, Peer
from mcplumb.types import SubscriptionFilter
from tests.bridge.ends import Back, Backs, Front, Refused, text
from tests.bridge.group_servers import LEGACY, MODERN, files, notes
from tests.client.peers import skip
from tests.kit.loop import PATIENCE, turns, until
from tests.kit.servers import serving

META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}

eras = pytest.mark.parametrize("era", [MODERN, LEGACY])
backs = pytest.mark.parametrize("back", [MODERN, LEGACY])


async def until_all_announced(changes: Changes, wanted: set[Change]) -> None:
    async with asyncio.timeout(PATIENCE):
        async for change in changes:
            wanted.discard(change)
            if not wanted:
                return


def group(back: str, **more: Any) -> dict[str, Any]:
    return {"notes": notes(back), "my_files": files(back), **more}


@asynccontextmanager
async def client_of(bridge: Bridge, era: str, **options: Any) -> AsyncIterator[Client]:
    async with connect(bridge, revisions=[era], **options) as client:
        yield client


@pytest.mark.req("GRP-1")
@pytest.mark.parametrize("kind", ["unix", "tcp", "http"])
async def test_a_bridge_is_not_one_of_its_own_servers(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = {"unix": f"unix:{tmp_path / 's'}", "tcp": "tcp://127.0.0.1:0", "http": "http://127.0.0.1:0/mcp"}[kind]
    bridge = Bridge({"notes": notes(MODERN)})
    for _ in range(2):
        async with serving(bridge, place) as (address,):
            await bridge.update({"notes": notes(MODERN), "me": address.replace("127.0.0.1", "localhost")})
            async with connect(address) as client:
                assert "notes_add" in [tool.name for tool in await client.list_tools()]
                assert "cannot be used at the moment: me." in (client.instructions or "")
            assert bridge.health["me"] == "failed"
            assert "is this bridge itself" in caplog.text
            await bridge.update({"notes": notes(MODERN)})


@eras
@backs
@pytest.mark.req("GRP-1")
@pytest.mark.req("BRG-1")
async def test_names_get_the_prefix_of_their_server(era: str, back: str) -> None:
    async with client_of(Bridge(group(back)), era) as client:
        tools = [tool.name for tool in await client.list_tools()]
        assert tools[:2] == ["notes_add", "notes_delete"]
        (dotted,) = [name for name in tools if name.startswith("notes_dotted_name_x")]
        assert (await client.call_tool("notes_add", {"a": 1, "b": 2})).text == "3"
        assert (await client.call_tool(dotted)).text == "dotted"
        assert [prompt.name for prompt in await client.list_prompts()] == ["notes_write"]
        prompt = await client.get_prompt("notes_write", {"topic": "tea"})
        assert "Write about tea." in str(prompt.messages)
        assert (await client.complete("notes_write", "topic", "tea")).values == [f"tea of the {back} server"]


@eras
async def test_a_name_that_was_cut_is_found_without_a_list(era: str) -> None:
    async with client_of(Bridge(group(MODERN)), era) as client:
        listed = [tool.name for tool in await client.list_tools()]
    (dotted,) = [name for name in listed if name.startswith("notes_dotted_name_x")]
    async with client_of(Bridge(group(MODERN)), era) as client:
        assert (await client.call_tool(dotted)).text == "dotted"


@eras
@backs
@pytest.mark.req("BRG-2")
async def test_questions_of_each_server_reach_the_client(era: str, back: str) -> None:
    async with client_of(Bridge(group(back)), era, on_elicit=lambda question: {"name": "Ada"}) as client:
        assert (await client.call_tool("notes_greet")).text == "Hello Ada"


@eras
@backs
async def test_a_resource_is_read_where_it_is_listed(era: str, back: str) -> None:
    async with client_of(Bridge(group(back)), era) as client:
        # Without a list before: the bridge asks the servers itself.
        assert (await client.read_resource("file:///a")).contents[0].text == "the file a"
        assert [resource.uri for resource in await client.list_resources()] == ["note://first"]
        assert (await client.read_resource("note://first")).contents[0].text == f"the first note of the {back} server"
        (template,) = await client.list_resource_templates()
        assert (await client.complete(template.uri_template, "path", "b")).values == ["b.txt"]
        with pytest.raises(RemoteError) as caught:
            await client.read_resource("other://x")
        assert caught.value.code == client.revision.resource_not_found


@eras
@pytest.mark.parametrize(
    ("name", "said"),
    [("notes_nothing", "nothing"), ("nobody_add", "nobody_add"), ("add", "add"), ("my__files_add", "add")],
)
async def test_there_is_no_such_tool(era: str, name: str, said: str) -> None:
    async with client_of(Bridge(group(MODERN)), era) as client:
        with pytest.raises(RemoteError, match=f"There is no tool '{said}'"):
            await client.call_tool(name)


@eras
async def test_what_no_server_can_be_named_for_is_refused(era: str) -> None:
    async with client_of(Bridge(group(MODERN)), era) as client:
        with pytest.raises(RemoteError, match="does not say which of the servers"):
            await client.request("custom/method")
        with pytest.raises(RemoteError, match="There is no such page"):
            await client.request("tools/list", {"cursor": "2"})


@eras
async def test_only_and_hide_choose_tools(era: str) -> None:
    async with client_of(Bridge(group(MODERN), only=["notes_*"], hide=["*_delete", "*_dotted*"]), era) as client:
        assert [tool.name for tool in await client.list_tools()] == ["notes_add", "notes_greet", "notes_shout"]
        with pytest.raises(RemoteError, match="There is no tool"):
            await client.call_tool("notes_delete")


@eras
async def test_all_pages_are_merged(era: str) -> None:
    async with client_of(Bridge({"notes": notes(MODERN, page_size=2)}), era) as client:
        assert len(await client.list_tools()) == 5


@eras
@pytest.mark.req("BRG-5")
@pytest.mark.req("GRP-1")
async def test_a_server_that_fails_is_named_and_left_out(era: str) -> None:
    broken = [sys.executable, "-c", "import sys; sys.exit('no database')"]
    bridge = Bridge(group(MODERN, broken=broken), stderr="capture")
    async with client_of(bridge, era) as client:
        assert client.instructions is not None
        assert "# notes\n\nWrite short notes." in client.instructions
        assert "These servers cannot be used at the moment: broken." in client.instructions
        assert "notes_add" in [tool.name for tool in await client.list_tools()]
        assert bridge.health == {"notes": "running", "my_files": "running", "broken": "failed"}
        with pytest.raises(RemoteError, match=r"'broken'[\s\S]*no database"):
            await client.call_tool("broken_tool")


@pytest.mark.req("BRG-5", "GRP-1")
async def test_entries_of_a_config_file_that_cannot_be_used_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "mcplumb.bridge")
    file = tmp_path / "servers.json"
    entries: dict[str, Any] = {
        "unset": {"command": "true", "env": {"TOKEN": "${THIS_IS_NOT_SET}"}},
        "wrong": {"command": 7},
        "off": {"command": "there-is-no-such-program", "disabled": True},
    }
    async with serving(notes(MODERN), "http://127.0.0.1:0/mcp") as (url,):
        entries["web"] = {"url": url}
        file.write_text(json.dumps({"mcpServers": entries}))
        bridge = Bridge(load_config(file))
        async with client_of(bridge, MODERN) as client:
            assert client.instructions is not None
            assert "These servers cannot be used at the moment: unset, wrong." in client.instructions
            assert bridge.health == {"unset": "failed", "web": "running", "wrong": "failed"}
            assert "'unset' could not be started. In " in caplog.text
            assert "'wrong' could not be started. In " in caplog.text
            with pytest.raises(RemoteError, match="key 'command': it must be a string"):
                await client.call_tool("wrong_tool")
            nothing: list[str] = []
            assert await bridge.update(load_config(file)) == Updated(nothing, nothing, nothing)
            entries["wrong"] = entries["web"]
            file.write_text(json.dumps({"mcpServers": entries}))
            assert await bridge.update(load_config(file)) == Updated(nothing, nothing, ["wrong"])
            assert (await client.call_tool("wrong_add", {"a": 1, "b": 2})).text == "3"
    file.write_text(json.dumps({"mcpServers": {"off": entries["off"]}}))
    with pytest.raises(UsageError, match="at least one server"):
        Bridge(load_config(file))


async def test_a_config_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(notes(MODERN), "http://127.0.0.1:0/mcp") as (url,):
        monkeypatch.setenv("THE_URL", url)
        entries: dict[str, Any] = {
            "web": {"url": "${THE_URL}"},
            "wrong": {"command": 7},
            "off": {"command": "there-is-no-such-program", "disabled": True},
        }
        bridge = Bridge({"mcpServers": entries})
        assert set(bridge.servers) == {"web", "wrong"}
        async with client_of(bridge, MODERN) as client:
            assert (await client.call_tool("web_add", {"a": 1, "b": 2})).text == "3"
            with pytest.raises(RemoteError, match="In the given mapping, server 'wrong', key 'command': it must be a "):
                await client.call_tool("wrong_tool")
            nothing: list[str] = []
            assert await bridge.update({"mcpServers": entries}) == Updated(nothing, nothing, nothing)
            entries["wrong"] = dict(entries["web"])
            assert await bridge.update({"mcpServers": entries}) == Updated(nothing, nothing, ["wrong"])
            assert (await client.call_tool("wrong_add", {"a": 1, "b": 2})).text == "3"
    with pytest.raises(UsageError, match="at least one server"):
        Bridge({"mcpServers": {"off": entries["off"]}})


@eras
async def test_logs_of_all_servers_arrive(era: str) -> None:
    logs: list[Any] = []
    bridge = Bridge({"one": notes(MODERN), "two": notes(LEGACY)})
    async with client_of(bridge, era, on_log=lambda message: logs.append(message.data)) as client:
        await client.set_log_level("info")
        await client.call_tool("one_shout")
        await client.call_tool("two_shout")
    assert logs == [f"a warning of the {MODERN} server", f"a warning of the {LEGACY} server"]


@eras
@backs
@pytest.mark.req("BRG-6")
async def test_servers_come_and_go_while_it_runs(era: str, back: str) -> None:
    stays, goes = notes(back), files(back)
    bridge = Bridge({"stays": stays, "goes": goes})
    async with client_of(bridge, era) as client, client.listen(tools=True, resources_list=True) as changes:
        assert changes.honoured == SubscriptionFilter(tools_list_changed=True, resources_list_changed=True)
        # After this, the bridge has read that a legacy client is initialized.
        assert await client.list_resource_templates() != []
        comes = notes(back)
        assert await bridge.update({"stays": stays, "comes": comes}) == Updated(["comes"], ["goes"], [])
        await until_all_announced(changes, {Change("tools"), Change("resources")})
        assert "comes_add" in [tool.name for tool in await client.list_tools()]
        assert await client.list_resource_templates() == []
        with pytest.raises(RemoteError):
            await client.read_resource("file:///a")
        comes.remove_tool("add")
        await until_all_announced(changes, {Change("tools")})
        assert "comes_add" not in [tool.name for tool in await client.list_tools()]


def slow_server() -> tuple[Server, asyncio.Event, asyncio.Event]:
    """Return a server with a tool that waits, whether it was called, and whether it may go on."""
    server, began, may_end = Server("slow", revisions=[MODERN]), asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        began.set()
        await may_end.wait()
        return "done"

    return server, began, may_end


@eras
async def test_a_server_that_is_replaced_finishes_its_calls(era: str) -> None:
    slow, began, may_end = slow_server()
    bridge = Bridge({"slow": slow, "other": notes(MODERN)})
    async with client_of(bridge, era) as client:
        call = asyncio.create_task(client.call_tool("slow_wait"))
        await began.wait()
        updating = asyncio.create_task(bridge.update({"other": bridge.servers["other"], "slow": notes(MODERN)}))
        await turns()  # the old server is not routed to any more
        assert "slow_add" in [tool.name for tool in await client.list_tools()]
        may_end.set()
        assert (await call).text == "done"
        assert (await updating).changed == ["slow"]


def listing(**results: Any) -> Any:
    """Return a handler that answers lists with these, by the member of the result; the others are empty."""
    lists = {"tools": [], "prompts": [], "resources": [], "resourceTemplates": []} | results

    async def handle(back: Back, request: dict[str, Any]) -> Any:
        if request["method"] == "tools/call":
            return text("done")
        if request["method"] == "resources/read":
            return {"contents": [{"uri": request["params"]["uri"], "text": cast("Named", back.backs).name}]}
        name = "resourceTemplates" if "templates" in request["method"] else request["method"].partition("/")[0]
        found = lists[name]
        return await found(back, request) if callable(found) else {name: found}

    return handle


class Named(Backs):
    """A played server with a name and lists."""

    def __init__(self, name: str, **lists: Any) -> None:
        super().__init__(handler=listing(**lists))
        self.name = name


TOOL = {"name": "do", "inputSchema": {"type": "object"}}


@pytest.mark.req("BRG-5")
@pytest.mark.parametrize("stays", [True, False])
async def test_a_call_that_waits_for_a_server_that_is_replaced_goes_to_the_new_one(stays: bool) -> None:
    old, new = Named("old", tools=[TOOL]), Named("new", tools=[TOOL])
    old.starts = asyncio.Event()
    bridge = Bridge({"it": old})
    async with Front(bridge, peer=ANYONE if stays else Peer("modern", None, is_remote=True)) as front:
        call, listed = front.begin("it_do"), front.post("tools/list", front.params({}))
        await until(lambda: bridge.health == {"it": "starting"}, "the start")
        await bridge.update({"it": new})
        assert (await front.answer_to(call))["content"] == text("done")["content"]
        assert [tool["name"] for tool in (await front.answer_to(listed))["tools"]] == ["it_do"]
        assert not old.open


@pytest.mark.req("BRG-5")
@pytest.mark.parametrize("stays", [True, False])
async def test_a_call_that_waits_for_a_server_that_is_removed_is_told_so(stays: bool) -> None:
    old = Named("old", tools=[TOOL])
    old.starts = asyncio.Event()
    bridge = Bridge({"it": old, "other": notes(MODERN)})
    async with Front(bridge, peer=ANYONE if stays else Peer("modern", None, is_remote=True)) as front:
        call = front.begin("it_do")
        await until(lambda: bridge.health.get("it") == "starting", "the start")
        await bridge.update({"other": bridge.servers["other"]})
        with pytest.raises(Refused) as refused:
            await front.answer_to(call)
        assert refused.value.message == "The server 'it' is not there any more."


@pytest.mark.req("GRP-1")
async def test_a_list_has_no_server_that_was_removed_while_others_answered() -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def later(_: Back, __: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        await may_answer.wait()
        return {"tools": [TOOL]}

    slow, quick = Named("slow", tools=later), Named("quick", tools=[TOOL])
    bridge = Bridge({"slow": slow, "quick": quick})
    async with Front(bridge) as front:
        listed = front.post("tools/list", front.params({}))
        await asked.wait()
        await quick.until(lambda: any(message.get("method") == "tools/list" for message in quick.all[0].seen))
        await turns()
        await bridge.update({"slow": slow})
        may_answer.set()
        assert [tool["name"] for tool in (await front.answer_to(listed))["tools"]] == ["slow_do"]
        with pytest.raises(Refused, match="There is no tool 'quick_do'"):
            await front.call("quick_do")


@pytest.mark.req("BRG-5")
@pytest.mark.parametrize("stays", [True, False])
async def test_a_server_that_hangs_at_its_start_is_announced_when_it_is_there(stays: bool) -> None:
    good, hanging = Named("good", tools=[TOOL]), Named("hanging", tools=[TOOL])
    hanging.starts = asyncio.Event()
    bridge = Bridge({"good": good, "hangs": hanging})
    peer = ANYONE if stays else Peer("modern", None, is_remote=True)

    async def ask(front: Front, method: str) -> Any:
        """Ask, and let the time pass for which the one that hangs is waited for."""
        asked = front.post(method, front.params({}))
        answers = sum(len(back.seen) for back in good.all)
        await until(lambda: bridge.health == {"good": "running", "hangs": "starting"}, "the start")
        if method != "server/discover":
            await until(lambda: sum(len(back.seen) for back in good.all) > answers, "the question")
        await turns()
        skip(20.1 if method == "server/discover" else 1.1)
        return await front.answer_to(asked)

    async with Front(bridge, peer=peer) as front, Front(bridge) as listener:
        described = await ask(front, "server/discover")
        assert "cannot be used at the moment: hangs." in described["instructions"]
        for _ in range(2):
            assert [tool["name"] for tool in (await ask(front, "tools/list"))["tools"]] == ["good_do"]
        assert len(hanging.all) == 1  # it goes on starting
        wanted = {"notifications": {"toolsListChanged": True}}
        listener.post("subscriptions/listen", listener.params(wanted))
        await turns()
        skip(1.1)
        await listener.until(lambda: listener.notes("notifications/subscriptions/acknowledged"))
        hanging.starts.set()
        await listener.until(lambda: listener.notes("notifications/tools/list_changed"))
        listed = await front.ask("tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["good_do", "hangs_do"]
        assert bridge.health == {"good": "running", "hangs": "running"}


@pytest.mark.req("BRG-5")
async def test_a_server_that_does_not_list_delays_the_others_once() -> None:
    async def never(back: Back, request: dict[str, Any]) -> Any:
        await asyncio.Event().wait()

    good, hanging = Named("good", tools=[TOOL]), Named("hanging", tools=never)
    async with Front(Bridge({"good": good, "hangs": hanging})) as front:
        await front.ask("server/discover")
        for number, wait in enumerate((20.1, 1.1, 1.1), 1):
            listing = front.post("tools/list", front.params({}))
            lists = [good, hanging]
            await until(lambda: all(asked_of(each, "tools/list") == number for each in lists), "the questions")  # noqa: B023
            await turns()
            skip(wait)
            assert [tool["name"] for tool in (await front.answer_to(listing))["tools"]] == ["good_do"]
        assert (await front.call("hangs_do"))["content"][0]["text"] == "done"


def asked_of(backs: Backs, method: str) -> int:
    return sum(message.get("method") == method for back in backs.all for message in back.seen)


@pytest.mark.req("BRG-5")
@pytest.mark.parametrize("cursors", [["a", "a"], ["a", "b", "a"]])
async def test_a_list_without_end_is_left_out(cursors: list[str], caplog: pytest.LogCaptureFixture) -> None:
    async def page(back: Back, request: dict[str, Any]) -> Any:
        number = asked_of(back.backs, "tools/list") - 1
        return {"tools": [TOOL], "nextCursor": cursors[number % len(cursors)]}

    endless = Named("endless", tools=page)
    async with Front(Bridge({"good": Named("good", tools=[TOOL]), "endless": endless})) as front:
        listed = await front.ask("tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["good_do"]
        assert asked_of(endless, "tools/list") == len(cursors)
        await front.ask("resources/list")
        await front.ask("tools/list")
        [warned] = [record for record in caplog.records if record.levelname == "WARNING"]
        assert "The server 'endless' is left out. The pages of its tools/list have no end" in warned.getMessage()
        with pytest.raises(Refused, match=r"'endless'.* its tools/list have no end"):
            await front.call("endless_cut_x00000000")


@pytest.mark.req("BRG-5")
async def test_a_list_that_fits_into_no_message_is_left_out() -> None:
    async def page(back: Back, request: dict[str, Any]) -> Any:
        number = asked_of(back.backs, "tools/list")
        return {"tools": [TOOL | {"name": f"{number}", "description": "x" * 5000}], "nextCursor": str(number)}

    bridge = Bridge(
        {"good": Named("good", tools=[TOOL]), "big": Named("big", tools=page)}, limits=Limits(max_line=20_000)
    )
    async with Front(bridge) as front:
        assert [tool["name"] for tool in (await front.ask("tools/list"))["tools"]] == ["good_do"]


@pytest.mark.req("GRP-1")
async def test_a_resource_that_moves_is_read_at_its_new_place() -> None:
    uri = {"uri": "note://one", "name": "one"}
    first, second = Named("first", resources=[uri]), Named("second", resources=[])
    async with Front(Bridge({"first": first, "second": second})) as front:

        async def read() -> str:
            return str((await front.ask("resources/read", uri="note://one"))["contents"][0]["text"])

        assert await read() == "first"
        first.handler, second.handler = listing(), listing(resources=[uri])
        await front.ask("resources/list")
        assert await read() == "second"
        first.handler = listing(resources=[uri])
        await front.ask("resources/list")
        assert await read() == "first"  # of both, it comes first


@pytest.mark.req("GRP-1")
async def test_a_server_that_refuses_a_resource_still_announces_its_lists() -> None:
    refusing, other = Named("refusing"), Named("other")
    refusing.refuses = "resources/subscribe"
    async with Front(Bridge({"refusing": refusing, "other": other})) as front:
        wanted = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["note://one"]}}
        front.post("subscriptions/listen", front.params(wanted))
        await front.until(lambda: front.notes("notifications/subscriptions/acknowledged"))
        (acknowledged,) = front.notes("notifications/subscriptions/acknowledged")
        assert acknowledged["notifications"] == wanted["notifications"]
        refusing.all[0].tell("notifications/tools/list_changed")
        await front.until(lambda: front.notes("notifications/tools/list_changed"))
        other.all[0].tell("notifications/resources/updated", uri="note://one")
        await front.until(lambda: front.notes("notifications/resources/updated"))


@eras
@pytest.mark.req("BRG-6")
async def test_all_servers_may_go_and_others_come(era: str) -> None:
    bridge = Bridge(group(MODERN))
    async with client_of(bridge, era) as client:
        assert await client.list_tools()
        await bridge.update({})
        assert bridge.health == {}
        assert await client.list_tools() == []
        await bridge.update({"again": notes(MODERN), "first": files(MODERN)})
        assert "again_add" in [tool.name for tool in await client.list_tools()]
        await bridge.update({"first": bridge.servers["first"], "again": bridge.servers["again"]})
        assert list(bridge.health) == ["first", "again"]


async def test_an_update_that_is_refused_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = Bridge(group(MODERN))
    async with client_of(bridge, MODERN) as client:
        monkeypatch.setattr("mcplumb.protocol.group_routing._tag", lambda original: "x00000000")
        with pytest.raises(UsageError, match="get the same prefix"):
            await bridge.update({"näher": notes(MODERN), "nüher": notes(MODERN)})
        assert list(bridge.servers) == list(bridge.health) == ["notes", "my_files"]
        assert "notes_add" in [tool.name for tool in await client.list_tools()]


@pytest.mark.req("BRG-6")
async def test_a_file_that_changes_twice_is_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = tmp_path / "servers"
    watched.write_text("notes")
    slow, began, may_end = slow_server()
    known = {"notes": notes(MODERN), "slow": slow}

    def reload() -> dict[str, Any]:
        return {name: known[name] for name in watched.read_text().split()}

    bridge = Bridge(known, watch=[watched], reload=reload)
    async with client_of(bridge, MODERN) as client:
        call = asyncio.create_task(client.call_tool("slow_wait"))
        await began.wait()
        watched.write_text("unknown")  # raises KeyError
        await until(lambda: "The servers stay as they are" in caplog.text, "the warning")
        watched.write_text("notes")
        await until(lambda: list(bridge.health) == ["notes"], "the removal")
        # The old server finishes its call, and the next change does not wait for it.
        watched.write_text("notes slow ")
        await until(lambda: list(bridge.health) == ["notes", "slow"], "the addition")
        may_end.set()
        assert (await call).text == "done"


@pytest.mark.req("BRG-6")
async def test_a_file_that_changes_while_nobody_is_there_is_followed(tmp_path: Path) -> None:
    watched = tmp_path / "servers"
    known = {"notes": notes(MODERN), "more": notes(MODERN), "most": notes(MODERN)}
    bridge = Bridge(
        {"notes": known["notes"]},
        watch=[watched],
        reload=lambda: {name: known[name] for name in watched.read_text().split()},
    )
    watched.write_text("notes more")
    async with client_of(bridge, MODERN):
        await until(lambda: list(bridge.health) == ["notes", "more"], "the addition")
    watched.write_text("most")
    async with client_of(bridge, MODERN):
        await until(lambda: list(bridge.health) == ["most"], "the replacement")


async def test_what_a_bridge_cannot_be() -> None:
    with pytest.raises(UsageError, match="at least one server"):
        Bridge({})
    with pytest.raises(UsageError, match="only and hide"):
        Bridge(notes(MODERN), hide=["*"])
    with pytest.raises(UsageError, match="watch and reload"):
        Bridge(notes(MODERN), watch=["file"], reload=dict)
    with pytest.raises(UsageError, match="cannot be updated"):
        await Bridge(notes(MODERN)).update({})
    unnamed: Any = {7: notes(MODERN)}
    with pytest.raises(UsageError, match="must be a string, not a int"):
        Bridge(unnamed)
    with pytest.raises(TypeError, match="'tmeout'"):
        Bridge({"notes": notes(MODERN)}, tmeout=5)


@pytest.mark.req("BRG-7", "GRP-1")
async def test_a_server_may_have_options_of_its_own() -> None:
    token = "a-token-of-this-server-only-0123456789"
    plain = Server("plain")

    @plain.tool
    async def credentials(ctx: Context) -> str:
        return str((ctx.headers or {}).get("authorization"))

    async with (
        serving(notes(MODERN), "http://127.0.0.1:0/mcp", http=HttpOptions(tokens=(token,))) as (locked,),
        serving(plain, "http://127.0.0.1:0/mcp") as (open_to_all,),
    ):
        servers = {"locked": {"target": locked, "token": token}, "plain": open_to_all, "wrong": {"token": token}}
        bridge = Bridge(servers)
        async with client_of(bridge, MODERN) as client:
            assert (await client.call_tool("locked_add", {"a": 1, "b": 2})).text == "3"
            assert (await client.call_tool("plain_credentials")).text == "None"
            with pytest.raises(RemoteError, match="'wrong' has no \"target\""):
                await client.call_tool("wrong_tool")
            assert bridge.health == {"locked": "running", "plain": "running", "wrong": "failed"}


@pytest.mark.req("GRP-1")
async def test_health_names_the_servers_that_fail() -> None:
    bridge = Bridge({"notes": notes(MODERN), "broken": ["false"]}, stderr="discard")
    async with serving(bridge, "http://127.0.0.1:0/mcp") as [url]:
        async with connect(url) as client:
            await client.list_tools()
        async with aiohttp.ClientSession() as session, session.get(url.replace("/mcp", "/health")) as response:
            health = await response.json()
    assert health == {"status": "ok", "servers": {"notes": "running", "broken": "failed"}}


@pytest.mark.req("HTP-2")
async def test_headers_that_differ_from_the_arguments_are_refused() -> None:
    server = Server("weather", revisions=[MODERN])

    @server.tool
    async def forecast(city: Annotated[str, Header("City")]) -> str:
        return f"sun in {city}"

    async with serving(Bridge({"weather": server}), "http://127.0.0.1:0/mcp") as [url]:
        async with connect(url) as client:
            await client.list_tools()
            assert (await client.call_tool("weather_forecast", {"city": "Oslo"})).text == "sun in Oslo"
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "weather_forecast", "arguments": {"city": "Oslo"}, "_meta": META},
        }
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/call",
            "Mcp-Name": "weather_forecast",
            "Mcp-Param-City": "Rome",
        }
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json=message, headers=headers) as response,
        ):
            refused = await response.json()
    assert (response.status, refused["error"]["code"]) == (400, -32020)
