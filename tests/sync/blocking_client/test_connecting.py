from __future__ import annotations

import inspect
import ssl
import threading
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mcplumb import Server
from mcplumb.client import connector as async_connecting
from mcplumb.client.auth.oauth import Auth
from mcplumb.client.input_handlers import Elicitation
from mcplumb.errors import Closed, ConnectError, NoCommonRevision, RequestCancelled, UsageError
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.recording.recorded_trace import Place
from mcplumb.revisions import REVISIONS
from mcplumb.sync import blocking_client
from mcplumb.sync.blocking_client import Client, Connecting, connect
from mcplumb.types.client_features import CreateMessageParams
from mcplumb.types.notification_params import LogMessageParams
from tests.kit.loop import PATIENCE
from tests.sync.world import ROOT, World, command, in_threads, own_threads, text, wait_until

OLDEST, LATEST = REVISIONS[-1].name, REVISIONS[0].name


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    wait_until(lambda: not own_threads())


def test_a_connection_that_is_not_open_says_how_to_open_it() -> None:
    connection: Any = connect(World().server)
    with pytest.raises(AttributeError) as caught:
        connection.list_tools()
    assert str(caught.value) == (
        "The return value of connect has no 'list_tools'. Use the client that it gives: with connect(...) as client, "
        "or client = connect(...).open()."
    )
    assert not hasattr(connection, "nothing")


def test_a_client_comes_out_of_a_context() -> None:
    connection = connect(World().server)
    assert own_threads() == []
    with connection as client:
        assert isinstance(client, Client)
        assert own_threads() == ["mcplumb-sync"]
        assert text(client.call_tool("echo", {"text": "hi"})) == "hi"
    assert own_threads() == []


def test_a_client_can_be_opened_and_closed_by_hand() -> None:
    client = connect(World().server).open()
    assert text(client.call_tool("echo", {"text": "hi"})) == "hi"
    client.close()
    client.close()
    assert own_threads() == []
    with pytest.raises(Closed):
        client.ping()


@pytest.mark.req("LIF-11")
def test_it_connects_once() -> None:
    connection = connect(World().server)
    with connection as client:
        with pytest.raises(UsageError, match="call connect again"):
            connection.open()
        client.ping()
    with pytest.raises(UsageError, match="call connect again"):
        connection.open()


@pytest.mark.req("LIF-11")
def test_the_body_of_a_context_may_close_or_fail() -> None:
    with pytest.raises(KeyError), connect(World().server):
        raise KeyError
    with connect(World().server) as client:
        client.close()
    connect(World().server).__exit__(None, None, None)


def test_what_fails_to_connect_leaves_nothing() -> None:
    with pytest.raises(NoCommonRevision):
        connect(Server("old", revisions=["2025-06-18"]), revisions=["2025-11-25"]).open()
    assert own_threads() == []
    with pytest.raises(ConnectError), connect(["a-command-that-is-not-there"]):
        pytest.fail("It cannot be entered.")
    assert own_threads() == []


@pytest.mark.req("LIF-11")
def test_many_threads_connect_and_close_at_once() -> None:
    meeting = threading.Barrier(8, timeout=PATIENCE)

    def use() -> None:
        meeting.wait()
        for number in range(5):
            with connect(World().server) as client:
                assert text(client.call_tool("echo", {"text": f"{number}"})) == f"{number}"

    in_threads(*[use] * 8)


# The options are those of the other one


def annotated_as_functions() -> set[str]:
    names = vars(async_connecting) | vars(stderr_module()) | {"ssl": ssl, "Auth": Auth, "Place": Place}
    hints = typing.get_type_hints(async_connecting.connect, names)
    return {name for name, hint in hints.items() if name not in ("return", "target") and "Callable" in str(hint)}


def stderr_module() -> Any:
    from mcplumb.transports.process import stderr

    return stderr


def test_the_options_are_those_of_the_async_one() -> None:
    ours, theirs = inspect.signature(connect), inspect.signature(async_connecting.connect)
    assert ours.parameters == theirs.parameters
    assert ours.return_annotation == "Connecting"
    assert typing.get_type_hints(connect)["return"] is Connecting


def test_every_option_that_may_be_a_function_is_called_in_a_thread() -> None:
    # A trace is shown messages where they come and go, which takes no time.
    assert annotated_as_functions() - {"trace"} == {*blocking_client._CALLBACKS, "stderr"}


def test_options_reach_the_client() -> None:
    with connect(World().server, revisions=["2025-06-18"], stop=StopLadder(close_wait=1)) as client:
        assert str(client.revision) == "2025-06-18"
    with pytest.raises(UsageError, match="timeout is -1"):
        connect(World().server, timeout=-1)
    with pytest.raises(TypeError, match="colour"):
        connect(World().server, colour="red")  # type: ignore[call-arg]


# Functions of the user's


async def later(*arguments: Any) -> Any: ...


@pytest.mark.parametrize("name", [*blocking_client._CALLBACKS, "stderr"])
def test_async_functions_are_refused(name: str) -> None:
    options: Any = {name: later}
    with pytest.raises(UsageError, match=f"{name} is an async function"):
        connect(World().server, **options)


@contextmanager
def recorded(name: str, **functions: Callable[..., Any]) -> Iterator[tuple[Client, list[str]]]:
    """A client whose functions use it again, and the names of the threads in which they do."""
    threads: list[str] = []

    def using(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            threads.append(threading.current_thread().name)
            assert text(client.call_tool("echo", {"text": "again"})) == "again"
            return function(*arguments)

        return call

    options: Any = {what: using(function) for what, function in functions.items()}
    with connect(World().server, revisions=[name], **options) as client:
        yield client, threads


@pytest.mark.req("MRT-4", "MRT-5")
@pytest.mark.parametrize("name", ["2025-06-18", "2025-11-25", LATEST])
def test_questions_are_answered_in_threads_that_may_use_the_client(name: str, tmp_path: Path) -> None:
    def on_elicit(question: Elicitation) -> dict[str, Any]:
        return {"name": question.message}

    def on_sample(params: CreateMessageParams) -> str:
        return "42"

    def roots() -> list[Path]:
        return [tmp_path]

    with recorded(name, on_elicit=on_elicit, on_sample=on_sample, roots=roots) as (client, threads):
        assert text(client.call_tool("introduce")) == "{'name': 'Who are you?'}"
        assert text(client.call_tool("think", {"question": "?"})) == "42"
        assert text(client.call_tool("look")) == tmp_path.as_uri()
    assert threads == ["mcplumb-sync-worker"] * 3


def test_roots_may_just_be_given(tmp_path: Path) -> None:
    with connect(World().server, roots=[tmp_path]) as client:
        assert text(client.call_tool("look")) == tmp_path.as_uri()


def test_what_a_function_raises_is_raised_by_the_call() -> None:
    def on_elicit(question: Elicitation) -> None:
        raise KeyError("nobody is here")

    with connect(World().server, on_elicit=on_elicit) as client, pytest.raises(KeyError, match="nobody is here"):
        client.call_tool("introduce")


def test_a_question_does_not_keep_others_from_their_answers() -> None:
    asked, answer = threading.Event(), threading.Event()

    def on_elicit(question: Elicitation) -> dict[str, Any]:
        asked.set()
        assert answer.wait(PATIENCE)
        return {"name": "me"}

    def use() -> None:
        assert asked.wait(PATIENCE)
        for _ in range(3):
            client.ping()
        answer.set()

    with connect(World().server, on_elicit=on_elicit) as client:
        in_threads(use, lambda: client.call_tool("introduce"))


@pytest.mark.parametrize("name", [OLDEST, LATEST])
def test_logs_come_in_order(name: str) -> None:
    logs: list[Any] = []

    def on_log(message: LogMessageParams) -> None:
        logs.append(message.data)

    with recorded(name, on_log=on_log) as (client, threads):
        client.call_tool("count", {"n": 20})
        wait_until(lambda: len(logs) == 20)
    assert logs == [f"log {step}" for step in range(1, 21)]
    assert set(threads) == {"mcplumb-sync-worker"}


def test_a_function_may_close_its_client() -> None:
    closed = threading.Event()

    def on_log(message: LogMessageParams) -> None:
        client.close()
        closed.set()

    with connect(World().server, on_log=on_log, stop=StopLadder(close_wait=0.1)) as client:
        with suppress(RequestCancelled):  # the answer may be faster
            client.call_tool("count", {"n": 1})
        assert closed.wait(PATIENCE)
        with pytest.raises(Closed):
            client.ping()


@pytest.mark.req("LIF-8")
def test_lines_of_stderr_come_in_order_and_to_the_last(capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    threads: set[str] = set()

    def stderr(line: str) -> None:
        client.ping()
        lines.append(line)
        threads.add(threading.current_thread().name)

    with connect(command(), cwd=ROOT, stderr=stderr) as client:
        for number in range(20):
            client.call_tool("mutter", {"text": f"line {number}"})
        wait_until(lambda: len(lines) == 20)
    assert lines == [f"line {number}" for number in range(20)]
    assert threads == {"mcplumb-sync-worker"}
    assert capfd.readouterr().err == ""


@pytest.mark.req("LIF-8")
def test_the_last_lines_of_stderr_may_come_while_closing() -> None:
    lines: list[str] = []
    with connect(command(), cwd=ROOT, stderr=lines.append) as client:
        client.call_tool("mutter", {"text": "the last words"})
    assert lines == ["the last words"]


def test_a_tool_that_calls_its_own_client_in_the_loop_is_told() -> None:
    server = Server("x")

    @server.tool
    async def again() -> str:
        with pytest.raises(UsageError, match="in the thread that does its work"):
            client.ping()
        with pytest.raises(UsageError, match="in the thread that does its work"):
            client.close()
        return "told"

    with connect(server) as client:
        assert text(client.call_tool("again")) == "told"
