"""A floor: a client by hand on asyncio, with a future for each call and one write a turn, that checks nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from bench.contenders.async_orders import clock, obey
from bench.contenders.orders import META, asked

__all__ = ["Client", "connected"]

CHUNK = 64 * 1024


class Text(msgspec.Struct):
    text: str


class Tool(msgspec.Struct, rename="camel"):
    name: str
    input_schema: dict[str, Any]


class Result(msgspec.Struct, rename="camel"):
    content: list[Text] = []
    tools: list[Tool] = []
    next_cursor: str | None = None


class Answer(msgspec.Struct):
    id: int
    result: Result


decode = msgspec.json.Decoder(Answer).decode
encode = msgspec.json.encode

REQUEST = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":{%b' + META + b"}}\n"


class Client:
    """A client over two descriptors, or one twice."""

    def __init__(self, reads: int, writes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._reads, self._writes = reads, writes
        self._answers: dict[int, asyncio.Future[Result]] = {}
        self._pieces: list[bytes] = []
        self._requests: list[bytes] = []
        self._unwritten = memoryview(b"")
        self._next = 0
        # A server that waits until its answers are read must not wait for one who waits until its requests are.
        os.set_blocking(writes, False)
        self._loop.add_reader(reads, self._read)

    def _read(self) -> None:
        chunk = os.read(self._reads, CHUNK)
        if not chunk:
            raise SystemExit("The server has ended.")
        first, *more = chunk.split(b"\n")
        self._pieces.append(first)
        if more:
            lines = [b"".join(self._pieces), *more[:-1]]
            self._pieces = [more[-1]]
            for answer in map(decode, lines):
                self._answers.pop(answer.id).set_result(answer.result)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Result:
        return await self._ask(b"tools/call", b'"name":%b,"arguments":%b,' % (encode(name), encode(arguments)))

    async def list_tools(self) -> list[Tool]:
        page = await self._ask(b"tools/list", b"")
        tools = page.tools
        while page.next_cursor is not None:
            page = await self._ask(b"tools/list", b'"cursor":%b,' % encode(page.next_cursor))
            tools += page.tools
        return tools

    def _ask(self, method: bytes, params: bytes) -> asyncio.Future[Result]:
        self._next += 1
        if not self._requests and not self._unwritten:
            self._loop.call_soon(self._flush)
        self._requests.append(REQUEST % (self._next, method, params))
        answer = self._answers[self._next] = self._loop.create_future()
        return answer

    def _flush(self) -> None:
        data = self._unwritten or memoryview(b"".join(self._requests))
        if not self._unwritten:
            self._requests.clear()
        try:
            self._unwritten = data[os.write(self._writes, data) :]
        except BlockingIOError:
            self._unwritten = data
        if self._unwritten:
            self._loop.add_writer(self._writes, self._flush)
            return
        self._loop.remove_writer(self._writes)
        if self._requests:
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        self._loop.remove_reader(self._reads)


@contextmanager
def connected(where: str | list[str]) -> Iterator[Client]:
    """A client over a socket, or over the pipes of a process."""
    with ExitStack() as stack:
        if isinstance(where, str):
            peer = stack.enter_context(socket.socket(socket.AF_UNIX))
            peer.connect(where.removeprefix("unix:"))
            client = Client(peer.fileno(), peer.fileno())
        else:
            pipes = subprocess.Popen(where, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
            process = stack.enter_context(pipes)
            assert process.stdin
            assert process.stdout
            stack.callback(process.stdin.close)
            client = Client(process.stdout.fileno(), process.stdin.fileno())
        yield client
        client.close()


async def main() -> None:
    _, command = asked()
    started = clock()
    with connected(command) as client:
        await obey(client, started)


if __name__ == "__main__":
    asyncio.run(main())
