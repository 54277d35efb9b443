"""Running a server as what its process is for: on stdio, until its input ends or a signal comes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from mcpipe.server.logs import LogFormat, set_up_logs, trace_line
from mcpipe.transports.framed import Trace
from mcpipe.transports.stdio import Stdio

if TYPE_CHECKING:
    from mcpipe.server.server import Server

__all__ = ["run_on_stdio"]

_logger = logging.getLogger("mcpipe.server")

#: How long what nothing can stop may keep the process once the server should have ended.
_GRACE = 3.0


def run_on_stdio(server: Server, stdio: Stdio, *, log_format: LogFormat | None, trace: bool | None) -> None:
    """Run a server on standard input and output, which are not given back, to its end.

    SIGINT and SIGTERM stop it, and a second one ends the process at once. Whatever a signal finds, such as a handler
    that blocks the event loop or a lifespan that hangs, the process ends soon after the time that the server has to
    stop in. Threads that nothing can stop keep it for no more than a few seconds after the server's end.
    """
    tracer = trace_line if set_up_logs(log_format, trace=trace) else None
    before = set(threading.enumerate())
    loop = asyncio.new_event_loop()
    try:
        main = loop.create_task(_serve(server, stdio, tracer))
        with suppress(asyncio.CancelledError), _Signals(server, loop, main):
            loop.run_until_complete(main)
        _cancel_rest(loop)
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    stuck = sorted(thread.name for thread in set(threading.enumerate()) - before if not thread.daemon)
    if stuck:
        _end_process_after(_GRACE, 0, f"The process ends without waiting for {', '.join(stuck)} any longer.")


async def _serve(server: Server, stdio: Stdio, tracer: Trace | None) -> None:
    await server.serve_connection(stdio.connection(limits=server.limits, trace=tracer))


class _Signals:
    """The signals that end the process, while the server runs. Only the main thread can have them.

    They are handled between any two steps of the program, not by the event loop, which a handler may have blocked.
    """

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, main: asyncio.Task[None]) -> None:
        self._server = server
        self._loop = loop
        self._main = main
        self._is_stopping = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._came)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _came(self, number: int, _: FrameType | None) -> None:
        code = 128 + number
        if self._is_stopping:
            os._exit(code)
        self._is_stopping = True
        within = self._server.stop_within + _GRACE
        _end_process_after(within, code, "The process ends, although something in it does not stop.")
        self._loop.call_soon_threadsafe(self._stop, signal.Signals(number).name)

    def _stop(self, name: str) -> None:
        _logger.info("%s came: the server stops.", name)
        if not self._server.stop():
            # It has not begun, or is about to end.
            self._main.cancel()


def _cancel_rest(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks that the program left behind."""
    rest = asyncio.all_tasks(loop)
    for task in rest:
        task.cancel()
    if rest:
        loop.run_until_complete(asyncio.wait(rest, timeout=_GRACE))


def _end_process_after(seconds: float, code: int, sentence: str) -> None:
    """End the process then, unless it has ended by itself."""

    def wait_and_end() -> None:
        time.sleep(seconds)
        _logger.warning("%s", sentence)
        os._exit(code)

    threading.Thread(target=wait_and_end, name="mcpipe-end", daemon=True).start()
