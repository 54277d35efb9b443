"""The server that authors write: what it takes, what it refuses, and how it is run."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from mcplumb import connect
from mcplumb.errors import UsageError
from mcplumb.limits import Limits
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from mcplumb.server.context import Context
from mcplumb.server.server import Server
from mcplumb.types.tools import ToolAnnotations
from tests.kit.loop import PATIENCE, happens, run, turns
from tests.kit.results import text_of
from tests.server.harness import ONE_OF_EACH_ERA, Plain, lines, make_server, methods_in, raw_client, standard_streams

both_eras = pytest.mark.parametrize("revision", ONE_OF_EACH_ERA, ids=str)


# What it is made of


def test_a_server_knows_its_name_and_limits() -> None:
    limits = Limits(max_in_flight=7)
    server = Server("weather", limits=limits)
    assert server.name == "weather"
    assert server.limits is limits
    assert repr(server) == "Server('weather')"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"page_size": 0}, "page size is 0"),
        ({"finish_within": -1}, "at least 0"),
        ({"finish_within": float("inf")}, "finite"),
        ({"stop_within": float("nan")}, "finite"),
        ({"ttl": -1}, "Results cannot be cached for -1 seconds"),
        ({"ttl": float("inf")}, "finite"),
        ({"threads": 0}, "at least 1"),
        ({"revisions": ["1999-01-01"]}, "There is no protocol revision '1999-01-01'"),
        ({"revisions": []}, "allows nothing"),
        ({"state_keys": [b"short"]}, "at least 32"),
    ],
)
def test_what_a_server_cannot_be_made_with(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Server("test", **options)


@pytest.mark.parametrize(("name", "version"), [("", "1"), (5, "1"), ("x", 1.0)])
def test_a_server_has_a_name_and_a_version(name: Any, version: Any) -> None:
    with pytest.raises(UsageError, match="A server needs a name and a version"):
        Server(name, version=version)


# What it has


def listed(server: Server, method: str, field: str) -> list[Plain]:
    async def main() -> list[Plain]:
        async with raw_client(server) as peer:
            entries: list[Plain] = (await peer.result(method))[field]
            return entries

    return run(main())


def test_decorators_leave_functions_as_they_are() -> None:
    server = make_server()

    def one() -> str:
        return "one"

    def two() -> str:
        return "two"

    def given(params: dict[str, Any]) -> None: ...

    assert server.tool(one) is one
    assert server.tool(title="Two", annotations=ToolAnnotations(read_only_hint=True))(two) is two
    assert server.prompt(one) is one
    assert server.prompt(title="Two")(two) is two
    assert server.resource("a://1")(one) is one
    assert server.completion("one", "x")(given) is given
    assert server.request("example.com/x")(given) is given
    assert server.notification("example.com/x")(given) is given
    tools = listed(server, "tools/list", "tools")
    assert [(tool["name"], tool.get("title")) for tool in tools] == [("one", None), ("two", "Two")]
    assert tools[1]["annotations"] == {"readOnlyHint": True}
    prompts = listed(server, "prompts/list", "prompts")
    assert [(prompt["name"], prompt.get("title")) for prompt in prompts] == [("one", None), ("two", "Two")]


def test_options_count_when_a_decorator_is_called_with_a_function() -> None:
    def one() -> str:
        return "one"

    server = make_server()
    decorators: Any = server  # type checkers know the usual form only, for which there is no function yet
    assert decorators.tool(one, name="a", scopes=["notes:write"]) is one
    assert decorators.prompt(one, name="b") is one
    assert [tool["name"] for tool in listed(server, "tools/list", "tools")] == ["a"]
    assert [prompt["name"] for prompt in listed(server, "prompts/list", "prompts")] == ["b"]


def test_a_resource_may_be_described() -> None:
    server = make_server()
    server.resource("a://1", name="n", title="T", description="D", mime_type="text/x", size=3, meta={"a": 1})(
        lambda: ""
    )
    (entry,) = listed(server, "resources/list", "resources")
    assert entry == {
        "uri": "a://1",
        "name": "n",
        "title": "T",
        "description": "D",
        "mimeType": "text/x",
        "size": 3,
        "_meta": {"a": 1},
    }


@pytest.mark.parametrize("decorate", [lambda server: server.tool("name"), lambda server: server.prompt("name")])
def test_a_decorator_that_gets_no_function_says_so(decorate: Callable[[Server], Any]) -> None:
    with pytest.raises(UsageError, match="not a function"):
        decorate(make_server())


def test_a_resource_has_an_address() -> None:
    def notes() -> str:
        return ""

    wrong: Any = notes
    with pytest.raises(UsageError, match="A resource needs a URI"):
        make_server().resource(wrong)


def test_names_are_there_once_and_only_what_is_there_can_be_removed() -> None:
    server = make_server()
    kinds: list[tuple[Callable[[], None], Callable[[], None]]] = [
        (lambda: server.add_tool(lambda: None, name="x"), lambda: server.remove_tool("x")),
        (lambda: server.add_prompt(lambda: "", name="x"), lambda: server.remove_prompt("x")),
        (lambda: server.add_resource("a://x", lambda: "", name="x"), lambda: server.remove_resource("a://x")),
        (lambda: server.add_resource("a://{x}", lambda x: x, name="x"), lambda: server.remove_resource("a://{x}")),
    ]
    for add, remove in kinds:
        with pytest.raises(UsageError, match="to remove"):
            remove()
        add()
        with pytest.raises(UsageError, match="already"):
            add()
        remove()
        add()


def test_a_resource_s_time_to_live_is_checked() -> None:
    with pytest.raises(UsageError, match="Results cannot be cached for -5 seconds"):
        make_server().add_resource("a://x", lambda: "", name="x", ttl=-5)


@both_eras
def test_a_resource_s_scheme_and_host_may_be_written_in_any_case(revision: Revision) -> None:
    server = make_server()
    server.add_resource("Weather://Oslo/Now", lambda: "snow", name="now")

    async def main() -> None:
        async with raw_client(server, revision) as peer:
            for uri in ("Weather://Oslo/Now", "weather://oslo/Now", "WEATHER://OSLO/Now"):
                assert (await peer.result("resources/read", {"uri": uri}))["contents"][0]["text"] == "snow"
            assert "error" in await peer.request("resources/read", {"uri": "weather://oslo/now"})
            assert (await peer.result("resources/list"))["resources"][0]["uri"] == "Weather://Oslo/Now"

    run(main())
    server.remove_resource("weather://oslo/Now")
    assert listed(server, "resources/list", "resources") == []


@both_eras
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_tool_may_be_removed_while_it_runs(revision: Revision, kind: str) -> None:
    server = make_server()
    started, go = threading.Event(), threading.Event()

    async def work() -> str:
        started.set()
        await asyncio.to_thread(go.wait, PATIENCE)
        return "done"

    def plain_work() -> str:
        started.set()
        assert go.wait(PATIENCE)
        return "done"

    server.add_tool(work if kind == "async" else plain_work, name="work")

    async with raw_client(server, revision) as peer:
        request_id = peer.post_call("work")
        await happens(started)
        server.remove_tool("work")
        assert (await peer.error("tools/call", {"name": "work"}))["code"] == -32602
        go.set()
        assert text_of((await peer.answer(request_id))["result"]) == "done"


async def test_a_change_of_a_resource_is_told_to_who_subscribed() -> None:
    server = make_server()

    async with raw_client(server, LATEST_LEGACY) as peer, raw_client(server, LATEST_LEGACY) as other:
        await peer.result("resources/subscribe", {"uri": "a://1"})
        server.resource_changed("a://1")
        await asyncio.to_thread(server.resource_changed, "a://2")
        assert await peer.notification("notifications/resources/updated") == {"uri": "a://1"}
        await other.settled()
        assert methods_in(other.seen) == []


async def test_tools_may_come_and_go_from_many_threads_while_clients_look() -> None:
    server = make_server()

    def change(own: int) -> None:
        for number in range(100):
            server.add_tool(lambda: None, name=f"t{own}.{number}")
            if number % 2:
                server.remove_tool(f"t{own}.{number}")

    async with raw_client(server, LATEST_LEGACY) as peer:
        await peer.settled()
        threads = [threading.Thread(target=change, args=(own,)) for own in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            tools = (await peer.result("tools/list"))["tools"]
            assert len({tool["name"] for tool in tools}) == len(tools)
        for thread in threads:
            thread.join(PATIENCE)
        await peer.settled()
        assert len((await peer.result("tools/list"))["tools"]) == 200
        assert "notifications/tools/list_changed" in methods_in(peer.seen)


# Several connections


async def test_many_clients_are_served_at_once_and_do_not_know_of_each_other() -> None:
    server = make_server()
    go = asyncio.Event()

    @server.tool
    async def who(ctx: Context) -> str:
        await go.wait()
        assert ctx.client_info is not None
        return f"{ctx.client_info.name} {ctx.revision} {ctx.request_id}"

    async with (
        raw_client(server) as modern,
        raw_client(server, LATEST_LEGACY) as legacy,
        raw_client(server) as leaving,
    ):
        for peer in (modern, legacy, leaving):
            peer.post_call("who", request_id="same")
        await turns()
        leaving.connection.abort()
        await turns()
        go.set()
        assert text_of((await modern.answer("same"))["result"]) == f"peer {LATEST} same"
        assert text_of((await legacy.answer("same"))["result"]) == f"peer {LATEST_LEGACY} same"


@pytest.mark.req("MRT-3")
async def test_servers_that_share_their_keys_share_their_clients() -> None:
    def make(**options: Any) -> Server:
        server = make_server(**options)

        @server.tool
        async def ask(ctx: Context) -> str:
            return (await ctx.elicit_url("Sure?", "https://example.com")).action

        return server

    keys = [b"k" * 32]
    one, other, stranger = make(state_keys=keys), make(state_keys=[b"n" * 32, *keys]), make()
    able: Plain = {"elicitation": {"url": {}}}

    async with (
        raw_client(one, capabilities=able) as first,
        raw_client(other, capabilities=able) as second,
        raw_client(stranger, capabilities=able) as third,
    ):
        asked = await first.call("ask")
        retry = {
            "name": "ask",
            "arguments": {},
            "requestState": asked["requestState"],
            "inputResponses": {"1": {"action": "accept"}},
        }
        assert text_of(await second.result("tools/call", retry)) == "accept"
        assert (await third.error("tools/call", retry))["code"] == -32602


async def test_threads_end_with_the_last_connection() -> None:
    server = make_server()
    threads: list[threading.Thread] = []

    @server.tool
    def work() -> str:
        threads.append(threading.current_thread())
        return "done"

    for _ in range(3):
        async with raw_client(server) as peer, raw_client(server) as other:
            assert await peer.text("work") == await other.text("work") == "done"
        for thread in threads:
            await asyncio.to_thread(thread.join, PATIENCE)
            assert not thread.is_alive()


# Lifespans


class Resource:
    """A lifespan that keeps a record, and may fail or wait."""

    def __init__(self, *, fails_at: str = "", held_at: str = "") -> None:
        self.events: list[str] = []
        self.go = asyncio.Event()
        self._fails_at = fails_at
        self._held_at = held_at

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[dict[str, int]]:
        for place in ("open", "close"):
            if place == self._held_at:
                await self.go.wait()
            if place == self._fails_at:
                raise ConnectionError(f"The database failed to {place}.")
            self.events.append(place)
            if place == "open":
                yield {"visits": 0}


def counting_server(resource: Resource, **options: Any) -> Server:
    server = make_server(lifespan=resource, **options)

    @server.tool
    async def visit(ctx: Context) -> int:
        resource.events.append("visit")
        ctx.lifespan["visits"] += 1
        visits: int = ctx.lifespan["visits"]
        return visits

    @server.tool
    def plain_visit(ctx: Context) -> int:
        ctx.lifespan["visits"] += 1
        visits: int = ctx.lifespan["visits"]
        return visits

    return server


async def test_a_lifespan_is_open_while_there_are_clients() -> None:
    resource = Resource()
    server = counting_server(resource)

    async with raw_client(server) as peer:
        assert await peer.text("visit") == "1"
        assert await peer.text("plain_visit") == "2"
        async with raw_client(server, LATEST_LEGACY) as other:
            assert await other.text("visit") == "3"
        assert await peer.text("visit") == "4"
    assert resource.events == ["open", "visit", "visit", "visit", "close"]
    async with raw_client(server) as peer:
        assert await peer.text("visit") == "1"


async def test_requests_wait_for_the_lifespan() -> None:
    resource = Resource(held_at="open")
    server = counting_server(resource)

    async with raw_client(server) as peer:
        request_id = peer.post_call("visit")
        await turns()
        assert resource.events == []
        resource.go.set()
        assert text_of((await peer.answer(request_id))["result"]) == "1"


async def test_a_lifespan_that_fails_to_open_ends_the_connection() -> None:
    server = counting_server(Resource(fails_at="open"))

    async with raw_client(server) as peer:
        peer.post_call("visit")
        await peer.until(lambda: peer.has_ended or peer.errors)
        with pytest.raises(ConnectionError, match="The database failed to open"):
            await peer.serving
        peer.serving = asyncio.create_task(asyncio.sleep(0))
        assert peer.seen == []


async def test_a_lifespan_that_fails_to_close_is_the_program_s_to_know() -> None:
    server = counting_server(Resource(fails_at="close"))

    async with raw_client(server) as peer:
        assert await peer.text("visit") == "1"
        server.stop()
        with pytest.raises(ConnectionError, match="The database failed to close"):
            await peer.serving
        peer.serving = asyncio.create_task(asyncio.sleep(0))


@pytest.mark.parametrize("how", ["stop", "cancel", "leave"])
async def test_a_server_may_end_before_it_has_begun(how: str) -> None:
    resource = Resource(held_at="open")
    server = counting_server(resource)

    async with raw_client(server) as peer:
        peer.post_call("visit")
        await turns()
        if how == "stop":
            assert server.stop() is True
            await peer.served()
        elif how == "cancel":
            peer.serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await peer.serving
            peer.serving = asyncio.create_task(asyncio.sleep(0))
        else:
            resource.go.set()
    assert "visit" not in resource.events
    assert server.stop() is False


async def test_a_lifespan_that_does_not_close_does_not_keep_the_server() -> None:
    resource = Resource(held_at="close")
    server = counting_server(resource, finish_within=0.05)

    async with raw_client(server) as peer:
        await peer.text("visit")
        server.stop()
        await peer.served()
    assert resource.events == ["open", "visit"]


# Stopping


async def test_a_server_may_be_stopped_from_any_thread() -> None:
    server = make_server()

    async with raw_client(server) as peer, raw_client(server, LATEST_LEGACY) as other:
        await peer.settled()
        assert await asyncio.to_thread(server.stop) is True
        await peer.served()
        await other.served()
        assert await asyncio.to_thread(server.stop) is False


async def test_telling_a_server_whose_loop_is_gone_harms_nobody() -> None:
    """Another loop may have been closed around it, without a chance to clean up."""
    server = make_server()

    async with raw_client(server) as peer:
        await peer.settled()
        (session,) = server.active_sessions._sessions
        closed = asyncio.new_event_loop()
        closed.close()
        session.loop, own = closed, session.loop
        try:
            await asyncio.to_thread(server.add_tool, lambda: None, name="x")
        finally:
            session.loop = own


# Standard input and output


def test_run_serves_standard_input_and_output_to_its_end() -> None:
    server = make_server(finish_within=PATIENCE)

    @server.tool
    def stray() -> str:
        print("stray")
        return "done"

    with standard_streams() as streams:
        streams.feed(lines({"method": "tools/list"}, {"method": "tools/call", "params": {"name": "stray"}}))
        streams.end()
        server.run()
        listed, called = streams.messages()
    assert listed["id"] == 0
    assert text_of(called["result"]) == "done"


def test_serve_does_the_same_inside_a_loop() -> None:
    server = make_server(finish_within=PATIENCE)

    with standard_streams() as streams:
        streams.feed(lines({"method": "tools/list"}))
        streams.end()
        run(server.serve())
        (answer,) = streams.messages()
    assert answer["id"] == 0


@pytest.mark.parametrize("address", ["", "stdout", "7000"])
def test_an_address_that_cannot_be_served_is_refused(address: str) -> None:
    server = make_server()
    with pytest.raises(UsageError, match="cannot run on"):
        server.run(address)
    with pytest.raises(UsageError, match="cannot run on"):
        run(server.serve(address))


async def test_run_is_not_for_a_running_loop() -> None:
    with pytest.raises(UsageError, match="serve"):
        make_server().run()


@pytest.mark.parametrize("structured", [None, "object"])
@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"])
async def test_lists_are_objects_where_the_revision_wants_objects(revision: str, structured: Any) -> None:
    """The client validates the result against the output schema, which has to fit in each revision."""
    server = Server("lists", structured=structured)

    @server.tool
    async def numbers() -> list[int]:
        return [1, 2]

    @server.tool(output_schema={"type": "array", "items": {"type": "integer"}})
    async def described() -> list[int]:
        return [1, 2]

    @server.tool(structured=structured or True)
    async def number() -> int:
        return 5

    async with connect(server, revisions=[revision], check_output=True) as client:
        await client.list_tools()
        is_wrapped = not client.revision.has_any_structured_content or structured == "object"
        for name, value in (("numbers", [1, 2]), ("described", [1, 2]), ("number", 5)):
            result = await client.call_tool(name)
            expected: Any = {"result": value} if is_wrapped else value
            assert result.structured_content == (expected if client.revision.has_structured_content else None)
            assert json.loads(result.text) == value


def _nothing() -> None: ...


def test_structured_has_few_values() -> None:
    server = Server("s")
    with pytest.raises(UsageError, match="'objects': it must be True, False or 'object'"):
        server.add_tool(_nothing, structured=cast("Any", "objects"))
    with pytest.raises(UsageError, match="it may be 'object' or None"):
        Server("s", structured=cast("Any", True))


def test_the_short_names_of_handlers_are_accepted() -> None:
    assert (Server.request, Server.notification) == (Server.on_request, Server.on_notification)
