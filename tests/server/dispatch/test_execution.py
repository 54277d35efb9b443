"""Calling functions: what they return and raise becomes an answer, and nothing of it harms another request."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest

from mcplumb.errors import DecodeError, RemoteError, RequestError, StateRefused, ToolError, UsageError
from mcplumb.limits import Limits
from mcplumb.revisions import LATEST, Revision
from mcplumb.server.context import Context
from mcplumb.server.dispatch.client_input import InputNeeded
from mcplumb.server.server import Server
from mcplumb.types.client_features import ListRootsRequest
from mcplumb.types.meta import LOG_LEVEL
from tests.client.peers import LOOPS, skip
from tests.kit.loop import PATIENCE, happens, run, turns
from tests.kit.results import text_of
from tests.server.harness import ABLE, ONE_OF_EACH_ERA, Plain, make_server, raw_client


class Numbered(msgspec.Struct):
    number: int


color: ContextVar[str] = ContextVar("color", default="none")

both_eras = pytest.mark.parametrize("revision", ONE_OF_EACH_ERA, ids=str)
both_kinds = pytest.mark.parametrize("kind", ["async", "plain"])


def add_tool(server: Server, kind: str, function: Callable[[], Any], name: str = "tool") -> None:
    """Add a function as a tool of this kind."""

    async def call() -> Any:
        return function()

    server.add_tool(function if kind == "plain" else call, name=name)


def raising(error: BaseException) -> Callable[[], Any]:
    def function() -> Any:
        raise error

    return function


def outcome(kind: str, function: Callable[[], Any], revision: Revision = LATEST) -> Plain:
    """The response to a call of this function."""
    server = make_server()
    add_tool(server, kind, function)

    async def main() -> Plain:
        async with raw_client(server, revision) as peer:
            response = await peer.request("tools/call", {"name": "tool"})
            # Whatever it was, the server goes on.
            assert "result" in await peer.request("tools/list")
            return response

    return run(main())


# Results


@both_eras
@both_kinds
def test_a_value_becomes_a_result(revision: Revision, kind: str) -> None:
    assert text_of(outcome(kind, lambda: "done", revision)["result"]) == "done"


async def test_async_functions_run_on_the_loop_and_plain_ones_in_threads() -> None:
    server = make_server()
    add_tool(server, "async", lambda: threading.current_thread().name, "of_async")
    add_tool(server, "plain", lambda: threading.current_thread().name, "of_plain")

    async with raw_client(server) as peer:
        assert await peer.text("of_async") == threading.current_thread().name
        assert (await peer.text("of_plain")).startswith("mcplumb-worker")


async def test_blocked_plain_functions_do_not_delay_async_ones() -> None:
    server = make_server(threads=4)
    go = threading.Event()
    add_tool(server, "plain", lambda: go.wait(PATIENCE), "block")
    add_tool(server, "async", lambda: "quick", "quick")

    async with raw_client(server) as peer:
        blocked = [peer.post_call("block") for _ in range(200)]
        assert await peer.text("quick") == "quick"
        assert len(peer.seen) == 1
        go.set()
        for request_id in blocked:
            assert "result" in await peer.answer(request_id)


async def test_async_functions_run_concurrently() -> None:
    server = make_server()
    arrived: list[int] = []
    everyone = asyncio.Event()

    @server.tool
    async def meet(number: int) -> list[int]:
        arrived.append(number)
        if len(arrived) == 5:
            everyone.set()
        await everyone.wait()
        return arrived

    async with raw_client(server) as peer:
        ids = [peer.post_call("meet", {"number": number}) for number in range(5)]
        for request_id in ids:
            assert (await peer.answer(request_id))["result"]["structuredContent"] == [0, 1, 2, 3, 4]


# Errors

INTERNALS = "password=hunter2"

FAULTS: list[BaseException] = [
    ValueError(INTERNALS),
    SystemExit(INTERNALS),
    asyncio.CancelledError(INTERNALS),
    ExceptionGroup(INTERNALS, [ToolError(INTERNALS)]),
    BaseExceptionGroup(INTERNALS, [KeyboardInterrupt(INTERNALS)]),
    StateRefused(INTERNALS),
    DecodeError(INTERNALS),
    TimeoutError(INTERNALS),
]


@both_eras
@both_kinds
@pytest.mark.parametrize("error", FAULTS, ids=lambda error: type(error).__name__)
def test_a_fault_is_logged_in_full_and_told_without_internals(
    revision: Revision, kind: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    result = outcome(kind, raising(error), revision)["result"]
    assert result["isError"] is True
    assert text_of(result) == "The tool 'tool' failed, and the server's log says why."
    assert "The tool 'tool' failed." in caplog.text
    assert f"{type(error).__name__}: {INTERNALS}" in caplog.text
    assert "raise error" in caplog.text


@pytest.mark.parametrize("error", [KeyboardInterrupt(INTERNALS), GeneratorExit(INTERNALS), StopIteration(INTERNALS)])
def test_a_thread_may_raise_anything(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    result = outcome("plain", raising(error))["result"]
    assert text_of(result) == "The tool 'tool' failed, and the server's log says why."
    assert INTERNALS in caplog.text


@both_eras
@both_kinds
def test_the_author_s_words_are_told(revision: Revision, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    result = outcome(kind, raising(ToolError("There is no room 13.")), revision)["result"]
    assert (result["isError"], text_of(result)) == (True, "There is no room 13.")
    assert caplog.records == []


@both_kinds
@pytest.mark.parametrize("data", [None, {"day": "Monday"}])
def test_an_error_of_the_author_s_own_is_the_answer(kind: str, data: Any, caplog: pytest.LogCaptureFixture) -> None:
    error = outcome(kind, raising(RequestError(-32099, "Closed.", data)))["error"]
    assert error == {"code": -32099, "message": "Closed."} | ({"data": data} if data else {})
    assert caplog.records == []


@pytest.mark.parametrize("data", [object(), {"text": "\ud800"}])
def test_an_error_that_cannot_be_written_is_answered_all_the_same(data: Any) -> None:
    error = outcome("async", raising(RequestError(-32099, "Closed.", data)))["error"]
    assert error == {"code": -32603, "message": "The answer cannot be written as JSON."}


def surrogate() -> str:
    return "half a \ud800 pair"


def generator() -> Any:
    return (number for number in range(3))


def circle() -> list[Any]:
    one: list[Any] = []
    one.append(one)
    return one


def deep() -> list[Any]:
    one: list[Any] = []
    for _ in range(100_000):
        one = [one]
    return one


@both_eras
@both_kinds
# From Python 3.14 on, the depth of a value is limited by the size of the stack only: clients refuse such a message.
@pytest.mark.parametrize(
    "make", [object, surrogate, generator, circle, *([deep] if sys.version_info < (3, 14) else [])]
)
def test_a_value_that_cannot_be_written_is_a_fault(
    revision: Revision, kind: str, make: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    response = outcome(kind, make, revision)
    if "result" in response:
        assert text_of(response["result"]) == "The tool 'tool' failed, and the server's log says why."
    else:  # it was found only when the message was written
        assert response["error"]["code"] == -32603
    assert caplog.records != []


FAILED = "The prompt 'ask' failed, and the server's log says why."


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ToolError("Not here."), -32603, "Not here."),
        (RemoteError(-1, INTERNALS), -32603, FAILED),
        (RequestError(-32000, "Not I."), -32000, "Not I."),
        (StateRefused(INTERNALS, reason="forged"), -32603, FAILED),
        (DecodeError(INTERNALS), -32603, FAILED),
        (ValueError(INTERNALS), -32603, FAILED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@both_kinds
def test_what_has_no_result_for_errors_gets_an_error(
    kind: str, error: Exception, code: int, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()

    async def ask() -> str:
        raise error

    def plain_ask() -> str:
        raise error

    server.add_prompt(ask if kind == "async" else plain_ask, name="ask")

    async def main() -> None:
        async with raw_client(server) as peer:
            assert await peer.error("prompts/get", {"name": "ask"}) == {"code": code, "message": message}

    run(main())
    assert (INTERNALS in caplog.text) == (message == FAILED)


def test_an_error_that_cannot_say_what_it_is_is_answered_all_the_same() -> None:
    class Mute(ToolError):
        def __str__(self) -> str:
            raise ValueError(INTERNALS)

    error = outcome("async", raising(Mute()))["error"]
    assert error == {"code": -32603, "message": "The tool 'tool' failed, and the server's log says why."}


@both_eras
def test_a_function_for_which_there_is_no_thread_has_failed(
    revision: Revision, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    server = make_server()
    add_tool(server, "plain", lambda: "done")

    async def main() -> None:
        async with raw_client(server, revision) as peer:
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", refuse)
                failed = (await peer.request("tools/call", {"name": "tool"}))["result"]
            assert failed["isError"]
            assert text_of(failed) == "The tool 'tool' failed, and the server's log says why."
            assert text_of((await peer.request("tools/call", {"name": "tool"}))["result"]) == "done"

    run(main())
    assert "The system has no thread left" in caplog.text


def test_a_question_that_nobody_could_ask_is_answered_all_the_same() -> None:
    key: Any = []
    request = ListRootsRequest()
    result = outcome("async", raising(InputNeeded(key, request)))["result"]
    assert text_of(result) == "The tool 'tool' failed, and the server's log says why."


@both_eras
async def test_what_the_client_sent_is_explained_to_it(revision: Revision, caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()
    add_tool(server, "async", lambda: "x")

    @server.on_request("example.com/echo")
    async def echo(params: dict[str, Any]) -> dict[str, Any]:
        return {"got": params.get("a")}

    async with raw_client(server, revision) as peer:
        assert (await peer.result("example.com/echo", {"a": 1}))["got"] == 1
        error = await peer.error("tools/call", {"name": 5})
        assert error["code"] == -32602
        assert error["message"].startswith("The params cannot be read")
        if revision.is_modern:
            error = await peer.error("tools/call", {"name": "tool", "requestState": "forged"})
            assert error["code"] == -32602
            assert "was refused" in caplog.text


def test_a_function_whose_loop_is_gone_is_let_go() -> None:
    server = make_server()
    events: list[str] = []
    tasks: list[asyncio.Task[Any] | None] = []

    @server.tool
    async def stubborn() -> str:
        tasks.append(asyncio.current_task())
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                events.append("cancelled")
            except GeneratorExit:
                events.append("closed")
                raise

    async def main() -> None:
        async with raw_client(server) as peer:
            peer.post_call("stubborn")
            await turns()

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # asyncio complains of the task
    loop.run_until_complete(main())
    loop.close()
    tasks.clear()
    gc.collect()
    assert set(events) == {"cancelled", "closed"}


def test_an_interrupt_on_the_loop_is_for_the_program() -> None:
    server = make_server()
    add_tool(server, "async", raising(KeyboardInterrupt()))

    async def main() -> None:
        async with raw_client(server) as peer:
            await peer.call("tool")

    with pytest.raises(KeyboardInterrupt):
        run(main())


# Questions from several tasks


def asking_server(*also: Exception) -> Server:
    server = make_server()

    async def fail(error: Exception) -> None:
        raise error

    @server.tool
    async def ask_all(ctx: Context) -> list[str]:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(_url(ctx, f"Question {number}?")) for number in range(12)]
            for error in also:
                group.create_task(fail(error))
        return [task.result() for task in asked]

    return server


async def _url(ctx: Context, message: str) -> str:
    return (await ctx.elicit_url(message, "https://example.com")).action


@pytest.mark.req("MRT-1")
@pytest.mark.parametrize("eager", LOOPS)
def test_questions_of_a_task_group_are_asked_at_once(eager: bool) -> None:
    async def main() -> None:
        async with raw_client(asking_server(), capabilities=ABLE) as peer:
            asked = await peer.call("ask_all")
            assert asked["resultType"] == "input_required"
            requests = asked["inputRequests"]
            assert [requests[str(number + 1)]["params"]["message"] for number in range(12)] == [
                f"Question {number}?" for number in range(12)
            ]
            actions = ["accept", "decline", "cancel"] * 4
            result = await peer.result(
                "tools/call",
                {
                    "name": "ask_all",
                    "arguments": {},
                    "requestState": asked["requestState"],
                    "inputResponses": {str(number + 1): {"action": actions[number]} for number in range(12)},
                },
            )
            assert result["structuredContent"] == actions

    run(main(), eager=eager)


def test_a_fault_beside_a_question_is_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with raw_client(asking_server(ValueError(INTERNALS)), capabilities=ABLE) as peer:
            result = await peer.call("ask_all")
            assert text_of(result) == "The tool 'ask_all' failed, and the server's log says why."

    run(main())
    assert INTERNALS in caplog.text


async def test_groups_may_be_nested() -> None:
    server = make_server()

    @server.tool
    async def ask_both(ctx: Context) -> list[str]:
        async def inner() -> str:
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(_url(ctx, "Inside?"))
            return asked.result()

        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(inner()), group.create_task(_url(ctx, "Outside?"))]
        return [task.result() for task in asked]

    async with raw_client(server, capabilities=ABLE) as peer:
        params: Plain = {"name": "ask_both", "arguments": {}}
        rounds = 0
        while (result := await peer.result("tools/call", params))["resultType"] == "input_required":
            rounds += 1
            params["requestState"] = result["requestState"]
            params["inputResponses"] = {key: {"action": "accept"} for key in result["inputRequests"]}
        assert result["structuredContent"] == ["accept", "accept"]
        assert rounds <= 3


async def test_a_function_that_swallows_every_error_still_asks() -> None:
    server = make_server()

    @server.tool
    async def careful(ctx: Context) -> str:
        try:
            return await _url(ctx, "Sure?")
        except Exception:  # noqa: BLE001 - as some authors do
            return "swallowed"

    async with raw_client(server, capabilities=ABLE) as peer:
        assert (await peer.call("careful"))["resultType"] == "input_required"


async def test_state_that_becomes_too_large_is_told_to_the_model() -> None:
    server = make_server()

    @server.tool
    async def hoard(ctx: Context) -> str:
        for number in range(2):
            await ctx.sample(f"Tell me a lot, {number}", max_tokens=10)
        return "done"

    async with raw_client(server, capabilities=ABLE) as peer:
        asked = await peer.call("hoard")
        much = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "x" * 100_000}}
        result = await peer.result(
            "tools/call",
            {
                "name": "hoard",
                "arguments": {},
                "requestState": asked["requestState"],
                "inputResponses": {"1": much},
            },
        )
        assert result["isError"] is True
        assert "at most 65536 are allowed" in text_of(result)


# Functions that outlive what they work for


@pytest.mark.req("CAN-2", "CAN-3")
@pytest.mark.parametrize("then", ["raises", "returns", "fails"])
async def test_a_cancelled_async_function_is_stopped_and_says_no_more(then: str) -> None:
    server = make_server()
    started, stopped = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait(ctx: Context) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            await ctx.progress(1)
            await ctx.error("Nobody hears this.")
            if then == "raises":
                raise
        if then == "fails":
            raise ValueError(INTERNALS)
        return "too late"

    async with raw_client(server, capabilities=ABLE) as peer:
        request_id = peer.post_call("wait", meta={"progressToken": 1, LOG_LEVEL: "debug"})
        await started.wait()
        peer.cancel(request_id)
        await stopped.wait()
        await peer.settled()
        assert [each for each in peer.seen if "method" in each or each["id"] == request_id] == []


@pytest.mark.req("CAN-3")
async def test_a_plain_function_may_outlive_its_connection() -> None:
    server = make_server(threads=1)
    started, go, ended = threading.Event(), threading.Event(), threading.Event()

    @server.tool
    def stubborn(ctx: Context) -> str:
        started.set()
        assert go.wait(PATIENCE)
        ctx.progress(1)
        ctx.error("Nobody hears this.")
        ended.set()
        return "too late"

    add_tool(server, "plain", lambda: "quick", "quick")

    async with raw_client(server) as peer:
        peer.post_call("stubborn", meta={"progressToken": 1})
        await happens(started)
    # The next connection is not held up by it.
    async with raw_client(server) as peer:
        assert await peer.text("quick") == "quick"
    go.set()
    await happens(ended)
    await turns()


def test_a_plain_function_may_outlive_the_event_loop() -> None:
    server = make_server()
    started, go, ended = threading.Event(), threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    @server.tool
    def stubborn(ctx: Context) -> str:
        threads.append(threading.current_thread())
        started.set()
        assert go.wait(PATIENCE)
        assert ctx.cancelled
        ctx.progress(1)
        ended.set()
        return "too late"

    async def main() -> None:
        async with raw_client(server) as peer:
            peer.post_call("stubborn", meta={"progressToken": 1})
            await happens(started)

    run(main())
    go.set()
    assert ended.wait(PATIENCE)
    threads[0].join(PATIENCE)
    assert not threads[0].is_alive()


# Context variables


@both_kinds
async def test_a_request_begins_with_the_variables_of_whoever_serves(kind: str) -> None:
    server = make_server(limits=Limits(max_in_flight=1))

    def swap() -> str:
        before = color.get()
        color.set("left behind")
        return before

    add_tool(server, kind, swap, "swap")

    color.set("of the program")
    async with raw_client(server) as peer:
        # All but the first are held back, and begin when the one before has ended.
        for request_id in [peer.post_call("swap") for _ in range(5)]:
            assert text_of((await peer.answer(request_id))["result"]) == "of the program"
    assert color.get() == "of the program"


# Notifications


def handler_server(kind: str, function: Callable[[dict[str, Any]], Any], **options: Any) -> Server:
    server = make_server(**options)

    async def hear(params: dict[str, Any]) -> None:
        function(params)

    def plain_handler(params: dict[str, Any]) -> None:
        function(params)

    server.notification("example.com/hello")(hear if kind == "async" else plain_handler)
    return server


@both_eras
@both_kinds
async def test_a_notification_is_heard(revision: Revision, kind: str) -> None:
    heard: list[dict[str, Any]] = []
    both = threading.Event()

    def hear(params: dict[str, Any]) -> None:
        heard.append(params)
        if len(heard) == 2:
            both.set()

    async with raw_client(handler_server(kind, hear), revision) as peer:
        peer.notify("example.com/hello", {"a": 1})
        peer.notify("example.com/other", {"a": 2})
        peer.notify("example.com/hello")
        await happens(both)
        await peer.settled()
        assert sorted(heard, key=str) == [{"a": 1}, {}]
        assert [each for each in peer.seen if "error" in each] == []


@both_kinds
@pytest.mark.parametrize(
    "error",
    [ValueError(INTERNALS), SystemExit(INTERNALS), StopIteration(INTERNALS), ExceptionGroup(INTERNALS, [KeyError()])],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_to_hear_is_logged_and_harms_nobody(
    kind: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    failed = threading.Event()

    def hear(_: dict[str, Any]) -> None:
        failed.set()
        raise error

    async def main() -> None:
        async with raw_client(handler_server(kind, hear)) as peer:
            peer.notify("example.com/hello", {})
            await happens(failed)
            while not caplog.records:
                await peer.settled()

    run(main())
    assert "The notification handler 'example.com/hello' failed." in caplog.text
    assert INTERNALS in caplog.text


async def test_a_handler_that_cancels_itself_harms_nobody() -> None:
    def hear(_: dict[str, Any]) -> None:
        raise asyncio.CancelledError

    async with raw_client(handler_server("async", hear)) as peer:
        peer.notify("example.com/hello", {})
        await peer.settled()


@pytest.mark.parametrize("params", ['{"number":"x"}', "{}"])
def test_a_notification_that_does_not_fit_is_passed_over(params: str, caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()
    heard: list[Any] = []

    @server.on_notification("example.com/hello")
    async def hear(params: Numbered) -> None:
        heard.append(params)

    async def main() -> None:
        async with raw_client(server) as peer:
            peer.send_line(b'{"jsonrpc":"2.0","method":"example.com/hello","params":%b}' % params.encode())
            peer.notify("example.com/hello", {"number": 5})
            await peer.settled()

    run(main())
    assert [each.number for each in heard] == [5]
    assert "A notification for the notification handler 'example.com/hello' was ignored." in caplog.text


@pytest.mark.parametrize("ends", ["connection", "loop"])
def test_a_plain_handler_may_outlive_its_connection(ends: str) -> None:
    started, go = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def hear(_: dict[str, Any]) -> None:
        threads.append(threading.current_thread())
        started.set()
        assert go.wait(PATIENCE)

    server = handler_server("plain", hear, threads=1)
    add_tool(server, "plain", lambda: "quick", "quick")

    async def main() -> None:
        async with raw_client(server) as peer:
            peer.notify("example.com/hello", {})
            await happens(started)
        if ends == "connection":
            # Its place is free for others.
            async with raw_client(server) as peer:
                assert await peer.text("quick") == "quick"
            go.set()
            await asyncio.to_thread(threads[0].join, PATIENCE)
            await turns()

    run(main())
    go.set()
    threads[0].join(PATIENCE)
    assert not threads[0].is_alive()


async def test_a_notification_handler_that_waits_ends_with_the_connection() -> None:
    ended: list[str] = []
    server = make_server()

    @server.on_notification("example.com/hello")
    async def hear(params: dict[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("hear")

    async with raw_client(server) as peer:
        peer.notify("example.com/hello", {})
        await peer.settled()
        assert ended == []
    assert ended == ["hear"]


@both_eras
async def test_an_async_tool_that_takes_too_long_is_cancelled(revision: Revision) -> None:
    server = make_server()
    ends: list[str] = []

    @server.tool(timeout=0.01)
    async def wait() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        return "never"

    async with raw_client(server, revision) as peer:
        result = await peer.call("wait")
        assert result["isError"] is True
        assert text_of(result) == "The tool 'wait' took longer than 0.01 seconds, and was stopped."
        assert ends == ["cancelled"]


@both_eras
async def test_a_plain_tool_that_takes_too_long_is_answered_and_can_see_it(revision: Revision) -> None:
    server = make_server()
    begun = threading.Event()
    seen = threading.Event()
    answered = threading.Event()

    @server.tool(timeout=500)
    def work(ctx: Context) -> str:
        begun.set()
        answered.wait(PATIENCE)
        if ctx.cancelled:
            seen.set()
        return "late"

    async with raw_client(server, revision) as peer:
        request_id = peer.post_call("work")
        await happens(begun)  # a function that has not begun is not called at all
        skip(500)
        result = (await peer.answer(request_id))["result"]
        assert result["isError"] is True
        assert text_of(result) == (
            "The tool 'work' took longer than 500 seconds. It cannot be stopped, and may still run."
        )
        answered.set()
        await happens(seen)


@both_kinds
async def test_a_tool_within_its_timeout_is_as_without_one(kind: str) -> None:
    server = make_server()

    async def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    def add_plainly(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    server.add_tool(add if kind == "async" else add_plainly, name="add", timeout=60)
    async with raw_client(server) as peer:
        (tool,) = (await peer.result("tools/list"))["tools"]
        assert (tool["description"], sorted(tool["inputSchema"]["properties"])) == ("Add two numbers.", ["a", "b"])
        assert text_of(await peer.call("add", {"a": 1})) == "3"


@both_kinds
async def test_a_timeout_that_a_tool_raises_itself_is_an_error_like_others(kind: str) -> None:
    server = make_server()

    async def fetch() -> str:
        raise TimeoutError("the database")

    def fetch_plainly() -> str:
        raise TimeoutError("the database")

    server.add_tool(fetch if kind == "async" else fetch_plainly, name="fetch", timeout=60)
    async with raw_client(server) as peer:
        assert text_of(await peer.call("fetch")) == "The tool 'fetch' failed, and the server's log says why."


@both_eras
async def test_a_tool_with_a_timeout_may_ask(revision: Revision) -> None:
    server = make_server()

    @server.tool(timeout=60)
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit_url("Sure?", "https://example.com")).action

    async with raw_client(server, revision, capabilities=ABLE) as peer:
        request_id = peer.post_call("ask")
        if revision.is_modern:
            assert (await peer.answer(request_id))["result"]["resultType"] == "input_required"
        else:
            peer.reply(await peer.question(), {"action": "accept"})
            assert text_of((await peer.answer(request_id))["result"]) == "accept"


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), "3", True])
def test_a_timeout_is_a_number_of_seconds(seconds: Any) -> None:
    server = make_server()
    with pytest.raises(UsageError, match=r"The tool 'f' cannot have a timeout of .*: give a number of seconds above 0"):

        @server.tool(timeout=seconds)
        def f() -> None: ...


# Threads of cancelled calls


async def stuck_calls(peer: Any, count: int, started: threading.Semaphore) -> None:
    """Call `stubborn` so often, and cancel each call once its function runs."""
    for _ in range(count):
        request_id = peer.post_call("stubborn")
        assert await asyncio.to_thread(started.acquire, timeout=PATIENCE)
        peer.notify("notifications/cancelled", {"requestId": request_id})
    await peer.settled()


@both_eras
@pytest.mark.req("CAN-3")
async def test_cancelled_plain_functions_do_not_starve_others(revision: Revision) -> None:
    server = make_server(threads=2)
    started, go = threading.Semaphore(0), threading.Event()

    @server.tool
    def stubborn() -> None:
        started.release()
        go.wait(PATIENCE)

    add_tool(server, "plain", lambda: "quick", "quick")

    async with raw_client(server, revision) as peer:
        await stuck_calls(peer, 10, started)
        assert await peer.text("quick") == "quick"
        go.set()


@both_eras
async def test_without_a_thread_a_call_says_at_once_how_many_cancelled_ones_run(
    revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server(threads=1, max_threads=3)
    started, go = threading.Semaphore(0), threading.Event()

    @server.tool
    def stubborn() -> None:
        started.release()
        go.wait(PATIENCE)

    add_tool(server, "plain", lambda: "quick", "quick")
    add_tool(server, "async", lambda: "other", "other")

    async with raw_client(server, revision) as peer:
        await stuck_calls(peer, 3, started)
        error = await peer.error("tools/call", {"name": "quick"})
        assert error["code"] == -32603
        assert "3 cancelled calls still run" in error["message"]
        assert await peer.text("other") == "other"
        go.set()
        while "result" not in (response := await peer.request("tools/call", {"name": "quick"})):
            await turns()
        assert text_of(response["result"]) == "quick"
    assert "The tool 'quick' was not called." in caplog.text
