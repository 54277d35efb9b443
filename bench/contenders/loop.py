"""A floor: a server by hand on asyncio, with a task for each call and one write a turn, that checks nothing.

``loop.py [TOOLS [ADDRESS]]``: with so many tools, on a socket. What grows here, too, is asyncio's, or the machine's.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable

import msgspec

CHUNK = 64 * 1024
#: Tools on a page of the list.
PAGE = 1000


class Arguments(msgspec.Struct):
    text: str = ""
    a: int = 0
    b: int = 0
    party: int = 0


class Params(msgspec.Struct):
    name: str = ""
    arguments: Arguments | None = None
    cursor: str = "0"


class Request(msgspec.Struct):
    method: str
    id: int = 0
    params: Params | None = None


RESULT = b'{"jsonrpc":"2.0","id":%d,"result":{"resultType":"complete",%b}}\n'
DISCOVERED = (
    b'"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private",'
    b'"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"growth","version":"1"}}'
)
TOOL = b'{"name":"tool_%d","inputSchema":{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}}'

decode = msgspec.json.Decoder(Request).decode
encode = msgspec.json.encode

waiting: list[asyncio.Future[None]] = []


async def echo(arguments: Arguments) -> str:
    return arguments.text


async def add(arguments: Arguments) -> str:
    return str(arguments.a + arguments.b)


async def meet(arguments: Arguments) -> str:
    """Waits until so many calls are in flight, and lets all of them go."""
    loop = asyncio.get_running_loop()
    waiting.append(turn := loop.create_future())
    if len(waiting) == arguments.party:
        loop.call_soon(release)
    await turn
    return arguments.text


def release() -> None:
    for turn in waiting:
        turn.set_result(None)
    waiting.clear()


def pages(count: int) -> dict[str, bytes]:
    """The list of tools, as results that are written already."""
    written = {}
    for start in range(0, count, PAGE):
        end = min(start + PAGE, count)
        more = b'"nextCursor":"%d",' % end if end < count else b""
        listed = b",".join([TOOL % number for number in range(start, end)])
        written[str(start)] = more + b'"tools":[%b],"ttlMs":0,"cacheScope":"private"' % listed
    return written


COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 0
PAGES = pages(COUNT)
TOOLS: dict[str, Callable[[Arguments], Awaitable[str]]] = {"echo": echo, "add": add, "meet": meet}
TOOLS.update((f"tool_{number}", echo) for number in range(COUNT))


class Wire:
    """One connection."""

    def __init__(self, reads: int, writes: int, ended: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._reads, self._writes = reads, writes
        self._ended = ended
        self._pieces: list[bytes] = []
        self._answers: list[bytes] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop.add_reader(reads, self._read)

    def _read(self) -> None:
        chunk = os.read(self._reads, CHUNK)
        if not chunk:
            self._loop.remove_reader(self._reads)
            self._ended()
        first, *more = chunk.split(b"\n")
        self._pieces.append(first)
        if more:
            lines = [b"".join(self._pieces), *more[:-1]]
            self._pieces = [more[-1]]
            for line in lines:
                self._take(decode(line))

    def _take(self, request: Request) -> None:
        if request.method == "tools/call":
            task = self._loop.create_task(self._call(request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif request.method == "tools/list" and request.params:
            self._answer(RESULT % (request.id, PAGES[request.params.cursor]))
        elif request.method == "server/discover":
            self._answer(RESULT % (request.id, DISCOVERED))

    async def _call(self, request: Request) -> None:
        assert request.params
        assert request.params.arguments
        text = await TOOLS[request.params.name](request.params.arguments)
        self._answer(RESULT % (request.id, b'"content":[{"type":"text","text":%b}]' % encode(text)))

    def _answer(self, answer: bytes) -> None:
        if not self._answers:
            self._loop.call_soon(self._flush)
        self._answers.append(answer)

    def _flush(self) -> None:
        """Waits for the peer, who always reads."""
        answers = memoryview(b"".join(self._answers))
        self._answers.clear()
        while answers:
            answers = answers[os.write(self._writes, answers) :]


async def main() -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    if len(sys.argv) < 3:
        Wire(0, 1, ended.set)
        await ended.wait()
        return
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[2].removeprefix("unix:"))
    listener.listen(1024)
    listener.setblocking(False)
    while True:
        accepted, _ = await loop.sock_accept(listener)
        accepted.setblocking(True)
        Wire(accepted.fileno(), accepted.fileno(), accepted.close)


asyncio.run(main())
