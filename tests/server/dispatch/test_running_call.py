"""One request at work: what it may still send, from which thread, and how it is stopped."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from mcplumb.errors import RequestCancelled, UsageError
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from mcplumb.server.context import Context
from mcplumb.server.server import Server
from mcplumb.sync import Context as BlockingContext
from mcplumb.types.meta import LOG_LEVEL
from mcplumb.types.notification_params import LOGGING_LEVELS, LoggingLevel
from mcplumb.wire.messages import Notification
from tests.client.peers import skip
from tests.kit.loop import PATIENCE, happens, run, turns
from tests.kit.results import text_of
from tests.server.harness import (
    ABLE,
    ALL_REVISIONS,
    ONE_OF_EACH_ERA,
    Plain,
    make_server,
    methods_in,
    progress_in,
    raw_client,
)

every_revision = pytest.mark.parametrize("revision", ALL_REVISIONS, ids=str)
both_eras = pytest.mark.parametrize("revision", ONE_OF_EACH_ERA, ids=str)
both_kinds = pytest.mark.parametrize("kind", ["async", "plain"])

WANTED: Plain = {"progressToken": "token"}
LARGE = "x" * 100_000


def wanting(revision: Revision) -> Plain:
    """Metadata that asks for progress and all logs; a legacy session has those of *info* and above from the start."""
    return {**WANTED, LOG_LEVEL: "debug"} if revision.is_modern else WANTED


def reporting(kind: str, values: list[Any]) -> Callable[..., Any]:
    """A tool that reports these values; each is a number or the arguments of ``progress``."""

    async def report(ctx: Context) -> str:
        for value in values:
            await ctx.progress(*(value if isinstance(value, tuple) else (value,)))
        return "done"

    def plain_report(ctx: Context) -> str:
        for value in values:
            ctx.progress(*(value if isinstance(value, tuple) else (value,)))
        return "done"

    return report if kind == "async" else plain_report


def reported(kind: str, values: list[Any], revision: Revision = LATEST, meta: Plain = WANTED) -> list[Plain]:
    """Everything that a client gets for a call that reports these."""
    server = make_server()
    server.add_tool(reporting(kind, values), name="report")

    async def main() -> list[Plain]:
        async with raw_client(server, revision) as peer:
            assert await peer.text("report", meta=meta) == "done"
            return list(peer.seen)

    return run(main())


# Progress


@pytest.mark.req("PRG-1", "LEG-5")
@every_revision
@both_kinds
def test_progress_comes_before_the_answer_under_its_token(revision: Revision, kind: str) -> None:
    *progress, answer = reported(kind, [(1, 2, "half"), (2, 2, "all")], revision)
    assert methods_in(progress) == ["notifications/progress"] * 2
    assert "result" in answer
    first, second = (each["params"] for each in progress)
    assert (first["progressToken"], first["progress"], first["total"]) == ("token", 1, 2)
    assert second["progress"] == 2
    assert first.get("message") == ("half" if revision.has_progress_message else None)


@pytest.mark.req("PRG-1")
@both_eras
@both_kinds
def test_who_did_not_ask_for_progress_gets_none(revision: Revision, kind: str) -> None:
    assert len(reported(kind, [1, 2, 3], revision, {})) == 1


@pytest.mark.parametrize("token", [0, 7, -1, "", "x", 2**53])
def test_a_token_keeps_its_type(token: Any) -> None:
    first = reported("async", [1], meta={"progressToken": token})[0]
    assert first["params"]["progressToken"] == token
    assert type(first["params"]["progressToken"]) is type(token)


@pytest.mark.req("PRG-1")
@both_kinds
def test_progress_grows(kind: str) -> None:
    values = [1, 1, 0.5, 2, float("nan"), float("inf"), -3, 2.5, (3, float("inf")), 10**400]
    came = reported(kind, values)
    assert progress_in(came)[:4] == [1, 2, 2.5, 3]
    assert len(progress_in(came)) == 5
    assert "total" not in came[3]["params"]


@pytest.mark.req("PRG-2")
@both_kinds
def test_a_flood_is_thinned_out_but_the_last_value_arrives(kind: str) -> None:
    count = 50_000 if kind == "async" else 2000
    came = reported(kind, list(range(1, count + 1)))
    progress = progress_in(came)
    assert progress == sorted(set(progress))
    assert progress[-1] == count
    assert len(progress) < count / 2
    assert "result" in came[-1]


@pytest.mark.req("PRG-2")
async def test_what_was_held_back_comes_in_time_also_when_nothing_else_happens() -> None:
    server = make_server()
    go = asyncio.Event()

    @server.tool
    async def burst(ctx: Context) -> str:
        for round_number in range(3):
            for step in range(100):
                ctx.progress(round_number * 100 + step + 1)
            await go.wait()
            go.clear()
        return "done"

    async with raw_client(server) as peer:
        request_id = peer.post_call("burst", meta=WANTED)
        for last in (100, 200):
            await peer.until(lambda last=last: last in progress_in(peer.seen))  # type: ignore[misc]
            go.set()
        # The last round has begun, so the word to go on has been heard twice.
        await peer.until(lambda: progress_in(peer.seen)[-1] > 200)
        go.set()
        await peer.answer(request_id)
        assert progress_in(peer.seen)[-1] == 300


@pytest.mark.req("PRG-1")
async def test_nothing_comes_after_the_answer() -> None:
    server = make_server()
    background: list[asyncio.Task[None]] = []

    @server.tool
    async def late(ctx: Context) -> str:
        async def report() -> None:
            for step in range(100):
                await asyncio.sleep(0)
                await ctx.progress(step + 2)
                await ctx.error("too late")

        await ctx.progress(1)
        background.append(asyncio.create_task(report()))
        return "answered"

    async with raw_client(server) as peer:
        await peer.call("late", meta={**WANTED, LOG_LEVEL: "debug"})
        await background[0]
        await peer.settled()
        assert progress_in(peer.seen) == [1]
        assert methods_in(peer.seen) == ["notifications/progress"]


def flooding_server() -> tuple[Server, list[int]]:
    """A server with two tools that talk a lot, and how far they are."""
    server = make_server()
    told: list[int] = []

    @server.tool
    async def flood(count: int, ctx: Context) -> str:
        for number in range(count):
            await ctx.info(f"{number} {LARGE}")
            told.append(number)
            await ctx.progress(number + 1)
        return "done"

    @server.tool
    def plain_flood(count: int, ctx: Context) -> str:
        for number in range(count):
            ctx.info(f"{number} {LARGE}")
            told.append(number)
            ctx.progress(number + 1)
        return "done"

    return server, told


@both_eras
@pytest.mark.parametrize("tool", ["flood", "plain_flood"])
async def test_a_client_that_does_not_read_holds_up_who_talks_to_it(revision: Revision, tool: str) -> None:
    """And gets everything once it reads: nothing is lost, and no more than a little is ever queued."""
    server, told = flooding_server()

    async with raw_client(server, revision) as peer:
        peer.connection.pause()
        request_id = peer.post_call(tool, {"count": 100}, meta=wanting(revision))
        before = -1
        while len(told) > before or before < 5:
            before = len(told)
            await asyncio.sleep(0.02)
        assert len(told) < 20
        peer.connection.resume()
        assert "result" in await peer.answer(request_id)
        logs = [each for each in peer.seen if each.get("method") == "notifications/message"]
        assert [int(each["params"]["data"].split()[0]) for each in logs] == list(range(100))
        assert progress_in(peer.seen)[-1] == 100


async def test_progress_waits_for_a_client_that_does_not_read() -> None:
    """Also if nobody awaits it."""
    server = make_server()
    go, clogged = asyncio.Event(), asyncio.Event()

    @server.tool
    async def work(ctx: Context) -> str:
        for _ in range(15):
            ctx.info(LARGE)
        for step in range(10):
            ctx.progress(step + 1)
        clogged.set()
        await go.wait()
        return "done"

    async with raw_client(server) as peer:
        peer.connection.pause()
        request_id = peer.post_call("work", meta={**WANTED, LOG_LEVEL: "info"})
        await clogged.wait()
        for _ in range(2):  # it tries in vain
            skip(0.2)
            await turns()
        peer.connection.resume()
        await peer.until(lambda: progress_in(peer.seen))
        assert progress_in(peer.seen) == [10]
        go.set()
        await peer.answer(request_id)
        # A message that nobody waits for is dropped when there is no room for it.
        assert 10 <= methods_in(peer.seen).count("notifications/message") < 15


@pytest.mark.req("CAN-2")
@pytest.mark.parametrize("held_by", ["rate", "client"])
async def test_progress_that_is_held_back_is_forgotten_with_its_request(held_by: str) -> None:
    server = make_server()
    started = asyncio.Event()

    @server.tool
    async def work(ctx: Context) -> str:
        if held_by == "client":
            while not ctx._call.session.connection.is_clogged:
                ctx.info(LARGE)
        for step in range(100):
            ctx.progress(step + 1)
        started.set()
        await asyncio.Event().wait()
        return "never"

    async with raw_client(server) as peer:
        # However long it takes to cancel the request, what is held back is not due before.
        loop = asyncio.get_running_loop()
        now = loop.time()
        vars(loop)["time"] = lambda: now
        if held_by == "client":
            peer.connection.pause()
        request_id = peer.post_call("work", meta={**WANTED, LOG_LEVEL: "info"})
        await started.wait()
        peer.cancel(request_id)
        await turns()
        peer.connection.resume()
        await peer.settled()
        before = len(peer.seen)
        skip(60)  # for a timer that was left behind
        await turns()
        assert len(peer.seen) == before
        assert 100 not in progress_in(peer.seen)


# Logs


@pytest.mark.parametrize("least", [None, *LOGGING_LEVELS])
@both_kinds
async def test_a_modern_request_says_which_logs_it_wants(least: LoggingLevel | None, kind: str) -> None:
    server = make_server()

    @server.tool
    async def log_all(ctx: Context) -> str:
        for level in LOGGING_LEVELS:
            await ctx.log(level, f"a {level}", logger="mine")
        return "done"

    @server.tool
    def plain_log_all(ctx: Context) -> str:
        for level in LOGGING_LEVELS:
            ctx.log(level, f"a {level}", logger="mine")
        return "done"

    async with raw_client(server) as peer:
        tool = "log_all" if kind == "async" else "plain_log_all"
        await peer.call(tool, meta={} if least is None else {LOG_LEVEL: least})
        wanted = [] if least is None else LOGGING_LEVELS[LOGGING_LEVELS.index(least) :]
        assert [each["params"] for each in peer.seen[:-1]] == [
            {"level": level, "data": f"a {level}", "logger": "mine"} for level in wanted
        ]


@pytest.mark.req("META-7")
async def test_the_level_of_one_modern_request_is_not_that_of_the_next() -> None:
    server = make_server()

    @server.tool
    async def log(ctx: Context) -> None:
        await ctx.error("x")

    async with raw_client(server) as peer:
        await peer.call("log", meta={LOG_LEVEL: "debug"})
        await peer.call("log")
        assert methods_in(peer.seen) == ["notifications/message"]


@pytest.mark.req("LEG-4")
@pytest.mark.parametrize("revision", [each for each in ALL_REVISIONS if each.has_set_level], ids=str)
async def test_a_legacy_session_sets_its_level_once(revision: Revision) -> None:
    server = make_server()

    @server.tool
    async def log_all(ctx: Context) -> None:
        for level in LOGGING_LEVELS:
            await ctx.log(level, level)

    async with raw_client(server, revision) as peer:

        async def levels() -> list[str]:
            peer.seen.clear()
            # What a modern request would say means nothing here.
            await peer.call("log_all", meta={"other": "x"})
            return [each["params"]["level"] for each in peer.seen if "method" in each]

        assert await levels() == list(LOGGING_LEVELS[1:])
        for least in ("emergency", "debug", "warning"):
            await peer.result("logging/setLevel", {"level": least})
            assert await levels() == list(LOGGING_LEVELS[LOGGING_LEVELS.index(least) :])


async def test_a_level_that_is_set_while_a_function_runs_counts_at_once() -> None:
    server = make_server()
    started, go = threading.Event(), threading.Event()

    @server.tool
    def log_twice(ctx: Context) -> None:
        ctx.info("one")
        started.set()
        assert go.wait(PATIENCE)
        ctx.info("two")

    async with raw_client(server, LATEST_LEGACY) as peer:
        request_id = peer.post_call("log_twice")
        await happens(started)
        await peer.result("logging/setLevel", {"level": "error"})
        go.set()
        await peer.answer(request_id)
        assert [each["params"]["data"] for each in peer.seen if "method" in each] == ["one"]


async def test_a_message_that_waits_for_the_client_is_forgotten_with_its_request() -> None:
    server = make_server()
    waiting, stopped = asyncio.Event(), asyncio.Event()

    @server.tool
    async def work(ctx: Context) -> None:
        while not ctx._call.session.connection.is_clogged:
            ctx.info(LARGE)
        told = ctx.info("too late")
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
            await told

    async with raw_client(server) as peer:
        peer.connection.pause()
        request_id = peer.post_call("work", meta={LOG_LEVEL: "info"})
        await waiting.wait()
        peer.cancel(request_id)
        await stopped.wait()
        peer.connection.resume()
        await peer.settled()
        assert not any(each.get("params", {}).get("data") == "too late" for each in peer.seen)


# Waiting in other threads


async def test_several_threads_may_wait_at_once() -> None:
    server = make_server()

    @server.tool
    async def ask_all(ctx: BlockingContext) -> list[str]:
        def ask(number: int) -> str:
            return ctx.elicit_url(f"{number}", "https://example.com").action

        return await asyncio.gather(*[asyncio.to_thread(ask, number) for number in range(3)])

    async with raw_client(server, LATEST_LEGACY, capabilities=ABLE) as peer:
        request_id = peer.post_call("ask_all")
        actions = ["accept", "decline", "cancel"]
        for question in [await peer.question() for _ in range(3)]:
            peer.reply(question, {"action": actions[int(question["params"]["message"])]})
        result = (await peer.answer(request_id))["result"]
        assert json.loads(text_of(result)) == actions


async def test_a_thread_waits_for_its_answer() -> None:
    server = make_server()

    @server.tool
    def ask(ctx: BlockingContext) -> str:
        return ctx.elicit_url("Sure?", "https://example.com").action

    async with raw_client(server, LATEST_LEGACY, capabilities=ABLE) as peer:
        request_id = peer.post_call("ask")
        peer.reply(await peer.question(), {"action": "decline"})
        result = (await peer.answer(request_id))["result"]
        assert result["content"][0]["text"] == "decline"


@pytest.mark.req("CAN-2", "CAN-3")
@pytest.mark.parametrize("where", ["question", "clog"])
def test_a_thread_that_waits_is_woken_by_a_cancellation(where: str) -> None:
    server = make_server()
    ended = threading.Event()
    raised: list[BaseException] = []
    waiting = threading.Event()

    @server.tool
    def wait(ctx: BlockingContext) -> str:
        try:
            if where == "question":
                ctx.elicit_url("Sure?", "https://example.com")
            else:
                while not ctx.cancelled:
                    ctx.info(LARGE)
                    waiting.set()
                ctx.info("nobody hears this")
        except BaseException as error:
            raised.append(error)
            raise
        finally:
            ended.set()
        return "too late"

    async def main() -> None:
        async with raw_client(server, LATEST_LEGACY, capabilities=ABLE) as peer:
            if where == "clog":
                peer.connection.pause()
            request_id = peer.post_call("wait")
            question = await peer.question() if where == "question" else {}
            if where == "clog":
                await happens(waiting)
            peer.cancel(request_id)
            await happens(ended)
            peer.connection.resume()
            await peer.settled()
            assert not any(each.get("id") == request_id and "method" not in each for each in peer.seen)
            if where == "question":
                assert (await peer.notification("notifications/cancelled")) == {
                    "requestId": question["id"],
                    "reason": "The caller does not wait for the answer any more.",
                }

    run(main())
    assert [type(error) for error in raised] == ([RequestCancelled] if where == "question" else [])


def block_until(condition: Callable[[], object]) -> None:
    patience = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < patience
        time.sleep(0.001)


@pytest.mark.req("CAN-3")
async def test_a_thread_is_woken_also_if_the_loop_has_not_come_to_its_question_yet() -> None:
    server = make_server()
    contexts: list[Context] = []
    started, go, woken = threading.Event(), threading.Event(), threading.Event()

    @server.tool
    def ask(ctx: BlockingContext) -> None:
        contexts.append(ctx)
        started.set()
        assert go.wait(PATIENCE)
        try:
            ctx.roots()
        except RequestCancelled:
            woken.set()

    @server.tool
    async def freeze() -> str:
        """Keeps the loop busy until the thread waits for it, and then brings the cancellation."""
        call = contexts[0]._call
        go.set()
        block_until(lambda: call.waits)
        params = msgspec.Raw(msgspec.json.encode({"requestId": call.id}))
        call.session.received(Notification("notifications/cancelled", params))
        assert woken.wait(PATIENCE)
        return "thawed"

    async with raw_client(server, LATEST_LEGACY, capabilities=ABLE) as peer:
        request_id = peer.post_call("ask")
        await happens(started)
        assert await peer.text("freeze") == "thawed"
        await peer.settled()
        assert methods_in(peer.seen) == []
        assert not any(each["id"] == request_id for each in peer.seen)


@both_eras
async def test_nobody_is_asked_for_a_request_that_has_ended(revision: Revision) -> None:
    server = make_server()
    contexts: list[BlockingContext] = []

    @server.tool
    async def keep(ctx: BlockingContext) -> str:
        contexts.append(ctx)
        return "done"

    async with raw_client(server, revision, capabilities=ABLE) as peer:
        await peer.call("keep")
        with pytest.raises(RequestCancelled):
            await contexts[0].roots()
        await peer.settled()
        assert methods_in(peer.seen) == []


@pytest.mark.req("CAN-2")
def test_nobody_is_asked_for_a_request_that_was_cancelled() -> None:
    server = make_server()
    started = asyncio.Event()
    raised: list[BaseException] = []

    @server.tool
    async def persist(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            try:
                await ctx.roots()
            except RequestCancelled as error:
                raised.append(error)
            raise

    async def main() -> None:
        async with raw_client(server, LATEST_LEGACY, capabilities=ABLE) as peer:
            request_id = peer.post_call("persist")
            await started.wait()
            peer.cancel(request_id)
            await peer.settled()
            assert methods_in(peer.seen) == []

    run(main())
    assert len(raised) == 1


@both_eras
def test_a_thread_that_the_function_started_may_use_the_context_until_the_end(revision: Revision) -> None:
    server = make_server()
    outcomes: list[Any] = []
    helpers: list[threading.Thread] = []
    told, go = threading.Event(), threading.Event()

    @server.tool
    async def delegate(ctx: BlockingContext) -> str:
        def help_out() -> None:
            ctx.progress(1)
            told.set()
            assert go.wait(PATIENCE)
            # Telling is over, without a word. Asking has to say so.
            ctx.progress(2)
            ctx.error("too late")
            try:
                ctx.roots()
            except RequestCancelled as error:
                outcomes.append(error)

        helpers.append(threading.Thread(target=help_out))
        helpers[0].start()
        await happens(told)
        return "done"

    async def main() -> None:
        async with raw_client(server, revision, capabilities=ABLE) as peer:
            await peer.call("delegate", meta=wanting(revision))
            go.set()
            await asyncio.to_thread(helpers[0].join, PATIENCE)
            await peer.settled()
            assert methods_in(peer.seen) == ["notifications/progress"]
            assert progress_in(peer.seen) == [1]

    run(main())
    assert [str(error) for error in outcomes] == [
        "The request was cancelled or has ended, and nothing more is sent for it."
    ]


def test_a_question_of_a_helper_ends_with_the_request() -> None:
    server = make_server()
    asked, ended = asyncio.Event(), threading.Event()
    raised: list[BaseException] = []

    @server.tool
    async def delegate(ctx: BlockingContext) -> str:
        def help_out() -> None:
            try:
                ctx.roots()
            except RequestCancelled as error:
                raised.append(error)
            ended.set()

        threading.Thread(target=help_out).start()
        await asked.wait()
        return "done"

    async def main() -> None:
        async with raw_client(server, LATEST_LEGACY, capabilities=ABLE) as peer:
            request_id = peer.post_call("delegate")
            question = await peer.question("roots/list")
            asked.set()
            assert "result" in await peer.answer(request_id)
            assert await peer.notification("notifications/cancelled") == {
                "requestId": question["id"],
                "reason": "The caller does not wait for the answer any more.",
            }
            await happens(ended)

    run(main())
    assert len(raised) == 1


async def test_progress_that_is_no_number_is_refused_where_it_is_told() -> None:
    server = make_server()

    @server.tool
    def fail(ctx: Context) -> str:
        try:
            ctx.progress("no number")  # type: ignore[arg-type]  # the wrong thing, on purpose
        except UsageError:
            return "caught"
        return "nothing happened"

    async with raw_client(server) as peer:
        assert await peer.text("fail", meta=WANTED) == "caught"


@pytest.mark.parametrize("kind", [KeyError, RuntimeError])
async def test_an_error_on_the_loop_is_raised_in_the_thread_that_waits(kind: type[Exception]) -> None:
    server = make_server()

    @dataclass
    class Picky:
        name: str

        def __post_init__(self) -> None:
            raise kind(self.name)

    @server.tool
    def ask(ctx: BlockingContext) -> str:
        try:
            ctx.elicit("Name?", Picky)
        except kind as error:
            return f"caught {error}"
        return "not reached"

    async with raw_client(server, LATEST_LEGACY, capabilities=ABLE) as peer:
        request_id = peer.post_call("ask")
        peer.reply(await peer.question(), {"action": "accept", "content": {"name": "Ada"}})
        text = text_of((await peer.answer(request_id))["result"])
        assert text.startswith("caught") or "does not match" in text, text


def test_a_context_outlives_its_loop_without_harm() -> None:
    server = make_server()
    contexts: list[BlockingContext] = []

    @server.tool
    async def keep(ctx: BlockingContext) -> str:
        contexts.append(ctx)
        return "done"

    async def main() -> None:
        async with raw_client(server, LATEST_LEGACY, capabilities=ABLE) as peer:
            await peer.call("keep", meta=WANTED)

    run(main())
    (ctx,) = contexts
    for step in range(100):
        ctx.progress(step)
        ctx.error("x")
    raised: list[BaseException] = []

    def ask() -> None:
        ctx.progress(1000)
        ctx.error("x")
        try:
            ctx.roots()
        except RequestCancelled as error:
            raised.append(error)

    helper = threading.Thread(target=ask)
    helper.start()
    helper.join(PATIENCE)
    assert len(raised) == 1


# Stopping


@pytest.mark.req("CAN-3")
async def test_a_plain_function_that_waits_for_a_thread_is_never_called() -> None:
    server = make_server(threads=1)
    started, go = threading.Event(), threading.Event()
    called: list[int] = []

    @server.tool
    def work(number: int) -> str:
        called.append(number)
        started.set()
        assert go.wait(PATIENCE)
        return "done"

    async with raw_client(server) as peer:
        ids = [peer.post_call("work", {"number": number}) for number in range(3)]
        await happens(started)
        peer.cancel(ids[1])
        await peer.settled()
        go.set()
        await peer.answer(ids[2])
        await peer.answer(ids[0])
        await peer.settled()
        assert called == [0, 2]
        assert not any(each["id"] == ids[1] for each in peer.seen)


@pytest.mark.req("CAN-3")
async def test_a_plain_function_that_runs_is_told_and_loses_its_place() -> None:
    server = make_server(threads=1)
    started, noticed = threading.Event(), threading.Event()

    @server.tool
    def work(ctx: Context) -> str:
        assert not ctx.cancelled
        started.set()
        while not ctx.cancelled:
            threading.Event().wait(0.001)
        noticed.set()
        return "too late"

    @server.tool
    def quick() -> str:
        return "quick"

    async with raw_client(server) as peer:
        request_id = peer.post_call("work")
        await happens(started)
        peer.cancel(request_id)
        assert await peer.text("quick") == "quick"
        await happens(noticed)
        await peer.settled()
        assert not any(each["id"] == request_id for each in peer.seen)


async def test_a_call_that_has_been_answered_is_not_cancelled() -> None:
    server = make_server()
    contexts: list[Context] = []

    @server.on_request("example.com/keep")
    async def keep(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        contexts.append(ctx)
        return params

    async with raw_client(server) as peer:
        request_id = peer.post("example.com/keep")
        await peer.answer(request_id)
        peer.cancel(request_id)
        await peer.settled()
        assert not contexts[0].cancelled
