"""What servers cost that have much to do with: raw bytes on pipes, or on many sockets."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from bench.contenders.growth_orders import STRIDE
from bench.driver import PATIENCE, Driven, TooSlow, driven, launched
from bench.growth.costs import WARMING, WARMING_SIZE, Cost, Costs, calls_for, echoes_for, lists_for
from bench.machine import cpu_seconds
from bench.traffic import MODERN, Calls, Failed

__all__ = ["MEASURES", "served"]

CHUNK = 64 * 1024
CALL = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{' + MODERN.meta + b'"name":"%b","arguments":%b}}\n'
LIST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{%b' + MODERN.meta.rstrip(b",") + b"}}\n"

T = TypeVar("T")


class Page(msgspec.Struct):
    """Of a list of tools."""

    tools: list[msgspec.Raw]
    next_cursor: str | None = msgspec.field(default=None, name="nextCursor")


class Listed(msgspec.Struct):
    """The answer with a page."""

    result: Page


decode_page = msgspec.json.Decoder(Listed).decode


def calls(tool: Callable[[int], str], ids: range, party: int = 0, size: int = 0) -> Calls:
    """Calls of what ``tool`` says for each id, with a text of its own, or of so many characters."""
    texts = {number: "x" * size or f"hello from call {number}" for number in ids}
    more = b',"party":%d' % party if party else b""
    requests = [
        CALL % (number, tool(number).encode(), b'{"text":"%b"%b}' % (text.encode(), more))
        for number, text in texts.items()
    ]
    return Calls(requests, texts)


def echo(_: int) -> str:
    return "echo"


def meet(_: int) -> str:
    return "meet"


def cost(pid: int, count: int, work: Callable[[], object]) -> Cost:
    """Of one, if the work is so many."""
    used, started = cpu_seconds(pid), time.perf_counter()
    work()
    return Cost((cpu_seconds(pid) - used) / count, (time.perf_counter() - started) / count)


def flight(command: Sequence[str], size: int) -> Costs:
    """Calls that wait until so many of them are in flight. What they wait for is only each other."""
    with driven([*command, "0"], MODERN) as server:
        server.in_flight(calls(meet, range(1, 1 + calls_for(size, WARMING)), party=size), size)
        count = calls_for(size)
        measured = calls(meet, range(1_000_000, 1_000_000 + count), party=size)
        return {"flight": cost(server.pid, count, lambda: server.in_flight(measured, size))}


def tools(command: Sequence[str], size: int) -> Costs:
    """Calls of so many tools, one at a time, one tool after the other; and the list of all of them."""
    with driven([*command, str(size)], MODERN) as server:

        def tool(number: int) -> str:
            return f"tool_{number * STRIDE % size}"

        server.in_flight(calls(tool, range(1, 1 + WARMING)), 1)
        walk(server)
        count, times = calls_for(1), lists_for(size)
        measured = calls(tool, range(1_000_000, 1_000_000 + count))
        return {
            "calls": cost(server.pid, count, lambda: server.in_flight(measured, 1)),
            "lists": cost(server.pid, times * size, lambda: [walk(server) for _ in range(times)]),
        }


def walk(server: Driven) -> int:
    """The list of all tools, page by page: how many there are."""
    page = decode_page(server.ask(LIST % b"")).result
    count = len(page.tools)
    while page.next_cursor is not None:
        page = decode_page(server.ask(LIST % (b'"cursor":"%b",' % page.next_cursor.encode()))).result
        count += len(page.tools)
    return count


def messages(command: Sequence[str], size: int) -> Costs:
    """Echoes of so many bytes, one at a time."""
    with driven([*command, "0"], MODERN) as server:
        server.in_flight(calls(echo, range(1, 2), size=min(size, WARMING_SIZE)), 1)
        count = echoes_for(size)
        measured = calls(echo, range(1_000_000, 1_000_000 + count), size=size)
        return {"messages": cost(server.pid, count * size, lambda: server.in_flight(measured, 1))}


@contextmanager
def served(command: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The number of a server process on a socket, and the path of that."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = str(Path(folder, "socket"))
        with launched([*command, "0", f"unix:{path}"]) as process:
            try:
                patiently(lambda: connected(path)).close()
                yield process.pid, path
            finally:
                process.terminate()


def patiently(attempt: Callable[[], T]) -> T:
    """What an attempt gives, as soon as a server is there."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return attempt()
        except OSError as error:
            if time.monotonic() > deadline:
                raise TooSlow(f"the server did not begin to listen: {error}") from None
            time.sleep(0.005)


def connected(path: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(path)
    except BaseException:
        client.close()
        raise
    return client


def clients(command: Sequence[str], size: int) -> Costs:
    """Calls of so many clients: one after the other, and all at once, each with one in flight."""
    with served(command) as (pid, path), ExitStack() as stack:
        crowd = [stack.enter_context(connected(path)) for _ in range(size)]
        together(crowd, range(1, 1 + calls_for(size, WARMING)))
        count = calls_for(size)
        one_by_one, at_once = range(1_000_000, 1_000_000 + count), range(2_000_000, 2_000_000 + count)
        return {
            "turns": cost(pid, count, lambda: turns(crowd, one_by_one)),
            "together": cost(pid, count, lambda: together(crowd, at_once)),
        }


def turns(crowd: Sequence[socket.socket], ids: range) -> None:
    for number in ids:
        client = crowd[number % len(crowd)]
        client.sendall(request(number))
        check(read_line(client), number)


def together(crowd: Sequence[socket.socket], ids: range) -> None:
    for first in ids[:: len(crowd)]:
        for place, client in enumerate(crowd):
            client.sendall(request(first + place))
        for place, client in enumerate(crowd):
            check(read_line(client), first + place)


def request(number: int) -> bytes:
    return CALL % (number, b"echo", b'{"text":"hello from call %d"}' % number)


def read_line(client: socket.socket) -> bytes:
    line = client.recv(CHUNK)
    while not line.endswith(b"\n"):
        if not (more := client.recv(CHUNK)):
            raise Failed("the server hung up instead of answering")
        line += more
    return line


def check(line: bytes, number: int) -> None:
    if b'"hello from call %d"' % number not in line:
        raise Failed(f"the call {number} should have been answered: {line[:200]!r}")


#: What each of them grows with, and how that is measured.
MEASURES: Mapping[str, Callable[[Sequence[str], int], Costs]] = {
    "flight": flight,
    "clients": clients,
    "tools": tools,
    "messages": messages,
}
