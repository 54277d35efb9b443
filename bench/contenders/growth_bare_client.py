"""The floor of growth: clients on asyncio, by hand, without a check: ``growth_bare_client.py CLIENTS SERVER``."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import Any, Self, cast

import msgspec

from bench.contenders.growth_orders import obey, target
from bench.wire import META


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


class Bare(asyncio.SubprocessProtocol, asyncio.Protocol):
    """A client over a pipe or a socket."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._answers: dict[int, asyncio.Future[Result]] = {}
        self._pieces: list[bytes] = []
        self._requests: list[bytes] = []
        self._next = 0
        self._ended = self._loop.create_future()
        self._pipe: asyncio.WriteTransport

    async def __aenter__(self) -> Self:
        where = target()
        if isinstance(where, str):
            socket, _ = await self._loop.create_unix_connection(lambda: self, where.removeprefix("unix:"))
            self._pipe = socket
        else:
            process, _ = await self._loop.subprocess_exec(lambda: self, *where, stderr=None)
            self._pipe = cast("asyncio.WriteTransport", process.get_pipe_transport(0))
        return self

    async def __aexit__(self, *error: object) -> None:
        self._pipe.close()
        await self._ended

    def connection_lost(self, error: Exception | None) -> None:
        self._ended.set_result(None)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.data_received(data)

    def data_received(self, data: bytes) -> None:
        first, *more = data.split(b"\n")
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
        if not self._requests:
            self._loop.call_soon(self._flush)
        self._requests.append(REQUEST % (self._next, method, params))
        answer = self._answers[self._next] = self._loop.create_future()
        return answer

    def _flush(self) -> None:
        self._pipe.write(b"".join(self._requests))
        self._requests.clear()


async def main() -> None:
    async with AsyncExitStack() as stack:
        await obey([await stack.enter_async_context(Bare()) for _ in range(int(sys.argv[1]))])


asyncio.run(main())
