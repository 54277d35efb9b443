"""A process that answers on its standard streams, as the tests start it: each request gets its params back.

A request for ``do`` is answered after some code of the test has been run, and one for ``stop`` is the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mcplumb.errors import McplumbError
from mcplumb.transports.fd_connection import StreamConnection
from mcplumb.transports.stdio import Stdio, take_stdio
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import Error, ErrorDetail, Message, Notification, Request, RequestId, Result


class Echo:
    def __init__(self, connection: StreamConnection, do: Callable[[], object]) -> None:
        self.connection = connection
        self.do = do
        self.is_done = asyncio.Event()

    def received(self, item: Message | BadMessage | Batch) -> None:
        if isinstance(item, Request):
            if item.method == "do":
                self.do()
            self.connection.send(Result(item.id, item.params))
            if item.method == "stop":
                self.is_done.set()
        elif isinstance(item, BadMessage):
            self.connection.send(Error(0, ErrorDetail(item.code, item.reason)))

    def ended(self, *, clean: bool) -> None:
        self.connection.send(Notification("ended", {"clean": clean}))
        self.is_done.set()

    def hung_up(self) -> None:
        """Nothing to do."""

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        raise AssertionError(f"{request_id!r} failed: {error}")

    def broke(self, error: OSError) -> None:
        self.is_done.set()


async def echo(stdio: Stdio, do: Callable[[], object] = lambda: None) -> None:
    """Answer until the end of the input."""
    connection = stdio.connection()
    receiver = Echo(connection, do)
    connection.start(receiver)
    await receiver.is_done.wait()
    await connection.close()


def serve(do: Callable[[], object] = lambda: None) -> None:
    """Echo as a whole program: the streams are not given back."""
    asyncio.run(echo(take_stdio(), do))
