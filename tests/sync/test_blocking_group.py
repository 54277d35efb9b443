from __future__ import annotations

import inspect
import threading
import typing
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from mcplumb import Group as AsyncGroup
from mcplumb import connect_all as async_connect_all
from mcplumb.client import Change, GroupUpdate, Origin
from mcplumb.errors import Closed, ConnectError, UsageError
from mcplumb.sync import Client, Group, connect, connect_all
from mcplumb.sync.blocking_group import ConnectingAll
from tests.sync.world import ROOT, World, command, in_threads, own_threads, text, wait_until


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    wait_until(lambda: not own_threads())


@pytest.mark.req("GRP-1")
def test_a_group_comes_out_of_a_context() -> None:
    connecting = connect_all(
        {"one": World().server, "process": {"target": command(), "cwd": ROOT}, "broken": ["there-is-no-such-program"]}
    )
    assert own_threads() == []
    with connecting as group:
        assert isinstance(group, Group)
        assert (list(group), len(group), "one" in group, "broken" in group) == (["one", "process"], 2, True, False)
        assert list(group.failures) == ["broken"]
        assert repr(group) == "<Group of one, process, without broken>"
        assert {"one_echo", "process_echo"} <= {tool.name for tool in group.list_tools()}
        for name, client in group.items():
            assert isinstance(client, Client)
            assert text(client.call_tool("echo", {"text": "hi"})) == "hi"
            assert text(group.call_tool(f"{name}_echo", {"text": "ho"})) == "ho"
        with pytest.raises(ConnectError, match="Server 'broken' is not connected"):
            group["broken"]
        assert group.find_tool("one_echo") == Origin("one", "echo")
    assert own_threads() == []


def test_a_config_needs_no_file() -> None:
    program, *arguments = command()
    entry = {"command": program, "args": arguments, "cwd": ROOT}
    with connect_all({"mcpServers": {"process": entry, "broken": {"args": []}}}) as group:
        assert list(group) == ["process"]
        assert "In the given mapping, server 'broken'" in str(group.failures["broken"])
        assert text(group.call_tool("process_echo", {"text": "hi"})) == "hi"
        assert group.update({"mcpServers": {"process": dict(entry)}}) == GroupUpdate(removed=("broken",))


def test_a_group_can_be_opened_and_closed_by_hand() -> None:
    connecting = connect_all({"one": World().server})
    group = connecting.open()
    with pytest.raises(UsageError, match="connected already"):
        connecting.open()
    group.close()
    group.close()
    assert own_threads() == []
    with pytest.raises(Closed):
        group.list_tools()
    with pytest.raises(ConnectError):
        group["one"]


def test_closing_one_client_leaves_the_others_and_the_loop() -> None:
    with connect(World().server) as other, connect_all({"one": World().server, "two": World().server}) as group:
        one = group["one"]
        one.close()
        one.close()
        with pytest.raises(Closed):
            one.ping()
        group["two"].ping()
        other.ping()
        assert one.stats.messages_out > 0


def test_servers_come_and_go() -> None:
    with connect_all({"one": World().server}) as group, group.listen(tools=True) as changes:
        added = group.add("two", World().server)
        assert isinstance(added, Client)
        assert next(changes) == ("two", Change("tools"))
        assert text(group.call_tool("two_echo", {"text": "hi"})) == "hi"
        group.remove("two")
        assert next(changes) == ("two", Change("tools"))
        assert isinstance(group.reconnect("one"), Client)
        assert next(changes) == ("one", Change("tools"))
        wait_until(lambda: changes.servers == ["one"])
        assert changes.dropped == 0
        with pytest.raises(ConnectError, match="Server 'three': "):
            group.add("three", ["there-is-no-such-program"])


def test_an_iteration_ends_when_another_thread_closes_it() -> None:
    with connect_all({"one": World().server}) as group:
        with group.listen(tools=True) as changes:
            thread = threading.Timer(0, changes.close)
            thread.start()
            assert list(changes) == []
            thread.join()
        changes.close()
        with group.listen(tools=True) as changes:
            closing = threading.Thread(target=group.close)
            closing.start()
            assert list(changes) == []
            closing.join()


def test_several_threads_use_a_group() -> None:
    answers: dict[str, str] = {}

    def call(server: str, word: str) -> None:
        answers[word] = text(group.call_tool(f"{server}_echo", {"text": word}))

    with connect_all({"one": World().server, "two": World().server}) as group:
        in_threads(*(partial(call, server, f"{server} {number}") for server in group for number in range(8)))
    assert len(answers) == 16
    assert all(word == answer for word, answer in answers.items())


def test_callbacks_run_in_threads_and_may_use_the_group() -> None:
    asked: list[str] = []

    def shared(_: Any) -> dict[str, str]:
        asked.append(threading.current_thread().name)
        return {"name": text(group.call_tool("two_echo", {"text": "Ada"}))}

    def own(_: Any) -> dict[str, str]:
        return {"name": "Bob"}

    one, two = World().server, World().server
    servers: dict[str, Any] = {"one": one, "two": {"target": two, "on_elicit": own}}
    with connect_all(servers, on_elicit=shared) as group:
        assert text(group.call_tool("one_introduce")) == "{'name': 'Ada'}"
        assert text(group.call_tool("two_introduce")) == "{'name': 'Bob'}"
        assert asked
        assert asked[0].startswith("mcplumb-sync-worker")
        # The same options are recognised, although their callbacks are wrapped.
        assert group.update({"one": one, "two": {"target": two, "on_elicit": own}}) == GroupUpdate()
        assert group.update({"one": one}) == GroupUpdate(removed=("two",))
        assert group.update({"one": one, "two": two}) == GroupUpdate(added=("two",))


def test_progress_is_reported_in_the_thread_that_waits() -> None:
    seen: list[tuple[float, str]] = []

    def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, threading.current_thread().name))

    with connect_all({"one": World().server}) as group:
        group.call_tool("one_count", {"n": 2}, on_progress=on_progress)
    assert seen == [(1, threading.current_thread().name), (2, threading.current_thread().name)]


def test_lines_of_stderr_reach_their_functions() -> None:
    lines: list[str] = []
    own: list[str] = []
    process = {"target": command(), "cwd": ROOT}
    with connect_all({"a": process, "b": {**process, "stderr": own.append}}, stderr=lines.append) as group:
        group.call_tool("a_mutter", {"text": "I am a."})
        group.call_tool("b_mutter", {"text": "I am b."})
        wait_until(lambda: (lines, own) == (["I am a."], ["I am b."]))


def test_async_callbacks_are_refused() -> None:
    async def on_elicit(_: Any) -> None: ...

    for servers, options in (
        ({"a": World().server}, {"on_elicit": on_elicit}),
        ({"a": {"target": World().server, "on_elicit": on_elicit}}, {}),
    ):
        with pytest.raises(UsageError, match="on_elicit is an async function"):
            connect_all(servers, **options)  # type: ignore[arg-type]


def test_what_is_no_group_is_refused() -> None:
    with pytest.raises(UsageError, match="connect_all takes a mapping of names to servers"):
        connect_all(["python x.py"]).open()  # type: ignore[arg-type]


def test_the_methods_are_those_of_the_async_group() -> None:
    for name, method in vars(AsyncGroup).items():
        if name.startswith("_") or not callable(method):
            continue
        ours = getattr(Group, name)
        assert list(inspect.signature(ours).parameters) == list(inspect.signature(method).parameters), name
        assert ours.__doc__, name
    assert list(inspect.signature(connect_all).parameters) == list(inspect.signature(async_connect_all).parameters)
    assert typing.get_type_hints(connect_all)["return"] is ConnectingAll


def test_a_start_that_fails_leaves_nothing() -> None:
    with pytest.raises(ConnectError, match="None of the 2 servers"):
        connect_all({"a": ["there-is-no-such-program"], "b": ["nor-this-one"]}).open()
    assert own_threads() == []
