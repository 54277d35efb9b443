from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from typing import Any, assert_type

import pytest

from mcplumb import ToolError, client
from mcplumb.errors import Closed, McplumbError, RemoteError, RequestTimeout, UsageError
from mcplumb.revisions import LATEST
from mcplumb.sync.blocking_client import Changes, Client, connect
from mcplumb.types.resources import ReadResourceResult
from mcplumb.types.tools import CallToolResult, ListToolsResult, Tool
from tests.kit.loop import PATIENCE
from tests.sync.loop_thread.test_shared_loop import interrupt
from tests.sync.world import World, in_threads, own_threads, text, wait_until


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def connected(world: World) -> Iterator[Client]:
    with connect(world.server) as connected:
        yield connected
    wait_until(lambda: not own_threads())


def public(kind: type) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(public(client.Client)))
def test_it_mirrors_the_async_client(name: str) -> None:
    theirs = public(client.Client)[name]
    ours = public(Client)[name]
    if isinstance(theirs, property):
        assert isinstance(ours, property)
        assert ours.fget is not None
        assert theirs.fget is not None
        assert inspect.signature(ours.fget) == inspect.signature(theirs.fget)
        assert ours.__doc__ == theirs.__doc__
    else:
        assert not inspect.iscoroutinefunction(ours)
        assert inspect.signature(ours) == inspect.signature(theirs)
        assert ours.__name__ == name
        assert ours.__doc__
        assert "async" not in ours.__doc__


def test_it_has_nothing_of_its_own() -> None:
    assert set(public(Client)) == set(public(client.Client))


def test_it_has_the_types_of_the_async_client(connected: Client) -> None:
    assert_type(connected.call_tool("echo", {"text": "x"}, timeout=None), CallToolResult)
    assert_type(connected.list_tools(), list[Tool])
    assert_type(connected.tools_page(None), ListToolsResult)
    assert_type(connected.read_resource("world://map"), ReadResourceResult)
    assert_type(connected.listen(tools=True), Changes)
    with pytest.raises(TypeError, match="colour"):
        connected.call_tool("echo", colour="red")  # type: ignore[call-arg]
    with pytest.raises(UsageError):
        connected.set_log_level("loud")  # type: ignore[arg-type]


def test_it_knows_the_server(connected: Client) -> None:
    assert repr(connected) == f"<Client of 'world', {LATEST}>"
    assert connected.revision == LATEST
    assert connected.server_info is not None
    assert connected.server_info.name == "world"
    assert connected.instructions == "Look around."
    assert connected.capabilities.tools is not None
    assert connected.process is None
    before = connected.stats
    connected.ping()
    assert connected.stats.messages_out == before.messages_out + 1


def test_it_does_what_the_async_client_does(connected: Client) -> None:
    assert {"echo", "hang"} <= {tool.name for tool in connected.list_tools()}
    assert connected.tools_page().tools == connected.list_tools()
    assert [resource.uri for resource in connected.list_resources()] == ["world://map"]
    assert connected.list_resource_templates() == []
    (contents,) = connected.read_resource("world://map").contents
    assert contents.text == "a map"
    assert [prompt.name for prompt in connected.list_prompts()] == ["plan"]
    assert connected.get_prompt("plan", {"city": "Oslo"}).messages[0].role == "user"
    assert connected.complete("plan", "city", "Os").values == []
    connected.set_log_level("warning")
    connected.roots_changed()
    connected.notify("notifications/x")
    assert (
        connected.request("tools/call", {"name": "echo", "arguments": {"text": "raw"}})["content"][0]["text"] == "raw"
    )


def test_errors_are_raised_here_and_say_where(connected: Client) -> None:
    with pytest.raises(RemoteError, match="There is no tool 'nothing'") as caught:
        connected.call_tool("nothing")
    assert caught.traceback[0].name == "test_errors_are_raised_here_and_say_where"
    assert "rpc/endpoint.py" in str(caught.traceback[-1].path)


@pytest.mark.req("CAN-5")
def test_timeouts_are_those_of_the_async_client(world: World, connected: Client) -> None:
    with pytest.raises(RequestTimeout, match="tools/call 'hang'"):
        connected.call_tool("hang", timeout=0.1)
    assert world.cancelled.wait(PATIENCE)


def test_several_threads_use_it_at_once(connected: Client) -> None:
    meeting = threading.Barrier(8, timeout=PATIENCE)

    def use() -> None:
        meeting.wait()
        mine = str(threading.get_ident())
        for number in range(20):
            assert text(connected.call_tool("echo", {"text": f"{mine} {number}"})) == f"{mine} {number}"

    in_threads(*[use] * 8)


def test_it_is_of_use_where_a_loop_runs(connected: Client) -> None:
    async def notebook() -> str:
        return text(connected.call_tool("echo", {"text": "in a cell"}))

    assert asyncio.run(notebook()) == "in a cell"


@pytest.mark.req("CAN-1")
def test_ctrl_c_cancels_the_request_on_the_server(world: World, connected: Client) -> None:
    thread = threading.Thread(target=interrupt, args=(world.hanging,))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        connected.call_tool("hang")
    thread.join()
    assert world.cancelled.wait(PATIENCE)
    connected.ping()


@pytest.mark.req("LIF-11")
def test_closing_in_one_thread_ends_what_others_wait_for(world: World, connected: Client) -> None:
    def wait() -> None:
        with pytest.raises(McplumbError):
            connected.call_tool("hang")

    def close() -> None:
        assert world.hanging.wait(PATIENCE)
        connected.close()

    in_threads(wait, wait, close, close)
    with pytest.raises(Closed):
        connected.list_tools()
    assert connected.revision == LATEST
    assert connected.stats.messages_in > 0


# Progress


def test_progress_comes_to_the_thread_that_waits(connected: Client) -> None:
    seen: list[Any] = []

    def on_progress(*progress: Any) -> None:
        seen.append((*progress, threading.get_ident()))
        connected.ping()

    assert text(connected.call_tool("count", {"n": 3}, on_progress=on_progress)) == "counted"
    assert seen[-1] == (3, 3, "step 3", threading.get_ident())
    assert seen == sorted(seen)
    connected.read_resource("world://map", on_progress=None)


def test_progress_that_fails_is_logged_and_harms_nobody(connected: Client, caplog: pytest.LogCaptureFixture) -> None:
    def on_progress(*progress: Any) -> None:
        raise ToolError("It broke.")

    assert text(connected.call_tool("count", {"n": 1}, on_progress=on_progress)) == "counted"
    assert "The callback on_progress raised an exception" in caplog.text


def test_progress_that_is_interrupted_ends_the_call(connected: Client) -> None:
    def on_progress(*progress: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        connected.call_tool("count", {"n": 1}, on_progress=on_progress)
    connected.ping()


def test_progress_is_not_async(connected: Client) -> None:
    async def on_progress(*progress: Any) -> None: ...

    with pytest.raises(UsageError, match="on_progress is an async function"):
        connected.call_tool("count", {"n": 1}, on_progress=on_progress)
