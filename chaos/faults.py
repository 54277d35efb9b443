"""Calls that make their server fail, among other calls that must not notice: over stdio, HTTP, and a bridge."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

from chaos.closes import SERVERS
from chaos.report import Report
from chaos.servers import CRASHES, HTTP_FAULTS, STDIO_FAULTS
from mcplumb import Client, McplumbError, connect
from mcplumb.bridge.bridge import Bridge
from mcplumb.protocol.restart import RestartPolicy
from mcplumb.protocol.stop_ladder import StopLadder

__all__ = ["run_bridged_http_faults", "run_bridged_stdio_faults", "run_http_faults", "run_stdio_faults"]

#: Seconds for a call.
TIMEOUT = 2.0
#: Seconds by which a call may be later than that: a lost call that is sent again gets its timeout once more, the second
#: server may be slow to start, and the machine is busy.
MARGIN = 8.0
#: Clients at once, each with a server of its own.
CLIENTS = 10
#: Crashes after an answer that lacks only its newline, so that it can be read.
WHOLE_ANSWERS = {"torn_before_the_newline"}
#: Bridges at once, each with a server of its own and these clients, which share it: their revisions.
BRIDGES = 5
BRIDGED = ("2026-07-28", "2025-11-25")
#: Calls that each client has open besides the one that makes the server fail.
BYSTANDERS = 3
RESTART = RestartPolicy(first_wait=0.01, factor=1.0, max_wait=0.05, jitter=0.0, breaker_after=1_000_000)
STOP = StopLadder(close_wait=0.5, term_wait=0.5)


async def run_stdio_faults(count: int, seed: int, report: Report) -> None:
    """Commit so many faults over stdio."""
    plan = _plan(count, seed, list(STDIO_FAULTS))
    numbers = itertools.count()

    async def one_client() -> None:
        async with connect(_command(report), restart=RESTART, stop=STOP, timeout=TIMEOUT, stderr="capture") as client:
            await client.list_tools()
            for tool, fault in plan:
                await _round(client, tool, fault, "stdio", numbers, report)

    await asyncio.gather(*(one_client() for _ in range(CLIENTS)))


async def run_http_faults(count: int, seed: int, report: Report) -> None:
    """Commit so many faults over HTTP."""
    plan = _plan(count, seed, list(HTTP_FAULTS))
    numbers = itertools.count(1_000_000)

    async def one_client() -> None:
        async with (
            _http_server(report) as address,
            connect(address, restart=RESTART, timeout=TIMEOUT, http_sse=False) as client,
        ):
            await client.list_tools()
            for tool, fault in plan:
                await _round(client, tool, fault, "http", numbers, report)

    await asyncio.gather(*(one_client() for _ in range(CLIENTS)))


async def run_bridged_stdio_faults(count: int, seed: int, report: Report) -> None:
    """Commit so many faults over stdio behind a bridge, whose clients use a Unix socket and HTTP."""
    plan, numbers = _plan(count, seed, list(STDIO_FAULTS)), itertools.count(2_000_000)

    async def one_bridge(number: int) -> None:
        bridge = Bridge(_command(report), name="it", restart=RESTART, stop=STOP, stderr="capture")
        await _cross(bridge, f"unix:{report.folder}/bridge-{number}", plan, "bridge to stdio", numbers, report)

    await asyncio.gather(*map(one_bridge, range(BRIDGES)))


async def run_bridged_http_faults(count: int, seed: int, report: Report) -> None:
    """Commit so many faults over HTTP behind a bridge, whose clients use HTTP, too."""
    plan, numbers = _plan(count, seed, list(HTTP_FAULTS)), itertools.count(3_000_000)

    async def one_bridge() -> None:
        async with _http_server(report) as address:
            bridge = Bridge(address, name="it", restart=RESTART, http_sse=False)
            await _cross(bridge, "http://127.0.0.1:0/mcp", plan, "bridge to http", numbers, report)

    await asyncio.gather(*(one_bridge() for _ in range(BRIDGES)))


async def _cross(
    bridge: Bridge, place: str, plan: Iterator[tuple[str, str]], name: str, numbers: Iterator[int], report: Report
) -> None:
    """Commit the faults through a bridge, by a client of each era that share the server."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(bridge.serve(place, on_ready=ready.set_result))

    try:
        await asyncio.wait((ready, serving), return_when=asyncio.FIRST_COMPLETED)
        async with AsyncExitStack() as stack:
            opened = [connect(ready.result(), revisions=[each], restart=RESTART, timeout=TIMEOUT) for each in BRIDGED]
            clients = [await stack.enter_async_context(each) for each in opened]
            for client in clients:
                await client.list_tools()
            for turn, (tool, fault) in enumerate(plan):
                # One fault at a time: a call that is lost three times may itself be what makes the server exit.
                culprit, other = clients[turn % 2], clients[(turn + 1) % 2]
                harmed = (_call(other, "echo", "", name, next(numbers), report) for _ in range(BYSTANDERS))
                await asyncio.gather(_round(culprit, tool, fault, name, numbers, report), *harmed)
    finally:
        bridge.stop()
        await serving


def _command(report: Report) -> list[str]:
    return [sys.executable, "-S", str(SERVERS), "stdio", report.options()]


@asynccontextmanager
async def _http_server(report: Report) -> AsyncIterator[str]:
    """Keep an HTTP server running; gives its address."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        keeper = asyncio.create_task(_keep_running(listener, report))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)


async def _keep_running(listener: socket.socket, report: Report) -> None:
    """Start the HTTP server, and start it again when it has crashed."""
    listener.set_inheritable(True)
    words = report.options(listener=listener.fileno())
    while True:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-S", str(SERVERS), "http", words, pass_fds=(listener.fileno(),)
        )
        try:
            await process.wait()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise


def _plan(count: int, seed: int, faults: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the tools and faults: each fault equally often, in a random order."""
    chance = random.Random(seed)
    order = [faults[number % len(faults)] for number in range(count)]
    chance.shuffle(order)
    return iter([(chance.choice(("echo", "act")), fault) for fault in order])


async def _round(client: Client, tool: str, fault: str, transport: str, numbers: Iterator[int], report: Report) -> None:
    """Make the server fail once, and call it from others meanwhile."""
    calls = [(tool, fault), *(("echo", "") for _ in range(BYSTANDERS))]
    await asyncio.gather(*(_call(client, *call, transport, next(numbers), report) for call in calls))


async def _call(client: Client, tool: str, fault: str, transport: str, number: int, report: Report) -> None:
    text = f"{number}-" + "x" * 200
    arguments = {"text": text, "number": number} | ({"fault": fault} if fault else {})
    name = f"{transport}: {fault or 'bystander'}"
    began = time.monotonic()
    try:
        async with asyncio.timeout(TIMEOUT + 3 * MARGIN):
            result = await client.call_tool(tool, arguments)
    except McplumbError as error:
        outcome = type(error).__name__
        is_safe = tool == "echo" and (not fault or fault in CRASHES)
        if not str(error) or (is_safe and time.monotonic() - began < TIMEOUT):
            report.lost.append(f"{name} ({tool}): {error!r:.300}")
    except TimeoutError:
        outcome = "no outcome"
        report.lost.append(f"{name} ({tool}): neither an answer nor an error")
    except Exception as error:  # noqa: BLE001 - that is what is searched for
        outcome = type(error).__name__
        report.lost.append(f"{name} ({tool}): {error!r}")
    else:
        outcome = "answered"
        answers = [getattr(part, "text", None) for part in result.content]
        if answers != [text] or result.is_error:
            report.wrong.append(f"{name} ({tool}): {answers!r:.80} instead of {text!r:.40}")
        elif tool == "act" and fault in CRASHES and fault not in WHOLE_ANSWERS:
            report.wrong.append(f"{name} ({tool}): sent twice, although it may have an effect each time")
    report.outcomes[f"{name}: {outcome}"] += 1
    if (took := time.monotonic() - began) > TIMEOUT + MARGIN:
        report.late.append(f"{name} ({tool}): {outcome} after {took:.1f} s")
