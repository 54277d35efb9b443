"""Run a server as the main purpose of its process, until it ends or a signal arrives.

The process always ends soon after a signal, even if a handler blocks the event loop, a lifespan hangs, or threads and
children do not stop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from mcplumb._fast.malloc_settings import keep_memory
from mcplumb.server.stderr_logs import LogFormat, set_up_logs, trace_line, write_stderr
from mcplumb.transports.line_connection import Trace
from mcplumb.transports.stdio import Stdio

if TYPE_CHECKING:
    from mcplumb.server.server import Server

__all__ = ["run_on_stdio", "run_process", "what_it_waits_for"]

_Main: TypeAlias = Callable[[Trace | None], Coroutine[Any, Any, None]]

_logger = logging.getLogger("mcplumb.server")

#: How many seconds threads, children and tasks that do not stop may delay the end of the process.
_GRACE = 3.0
#: How many seconds a stopping server may take beyond the time for its requests: to send the last responses, and to
#: close the lifespan.
_LAST_STEPS = 1.5


def run_on_stdio(server: Server, stdio: Stdio, *, log_format: LogFormat | None, trace: bool | None) -> None:
    """Run a server on standard input and output, which are not restored, until it ends."""
    if stdio.is_terminal:
        import shlex

        words = what_it_waits_for(shlex.join(sys.orig_argv), 'run("http://127.0.0.1:8000/mcp")')
        write_stderr(f"{words}\n".encode(errors="backslashreplace"))

    async def serve(tracer: Trace | None) -> None:
        with server._recorded("stdio", tracer) as trace:
            await server.serve_connection(stdio.connection(limits=server.limits, trace=trace))

    run_process(server, serve, log_format=log_format, trace=trace)


def what_it_waits_for(command: str, with_address: str) -> str:
    """Return a hint for a user who started a server on a terminal with this command, where it seems to hang."""
    return (
        f"This server waits for messages on standard input from a client that starts it: mcplumb tools -- {command}. "
        f"To accept connections, give an address, such as {with_address}. Ctrl-C ends it."
    )


def run_process(server: Server, serve: _Main, *, log_format: LogFormat | None, trace: bool | None) -> None:
    """Run ``serve`` in a new event loop until it ends, as the main purpose of the process.

    SIGINT and SIGTERM stop the server, and a second signal ends the process at once. After a signal, the process ends
    soon after the server's ``stop_within``, even if a handler blocks the event loop or a lifespan hangs. Threads and
    children that do not stop delay its end by a few seconds at most.
    """
    tracer = trace_line if set_up_logs(log_format, trace=trace) else None
    keep_memory()
    before = set(threading.enumerate())
    loop = asyncio.new_event_loop()
    try:
        main = loop.create_task(serve(tracer))
        with suppress(asyncio.CancelledError), _Signals(server, loop, main):
            loop.run_until_complete(main)
        _cancel_rest(loop)
        with suppress(TimeoutError):
            loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), _GRACE))
    finally:
        loop.close()
    stuck = sorted(thread.name for thread in set(threading.enumerate()) - before if not thread.daemon)
    if "multiprocessing" in sys.modules:
        import multiprocessing

        stuck += [child.name for child in multiprocessing.active_children() if not child.daemon]
    if stuck:
        _end_process_after(_GRACE, 0, f"The process ends without waiting for {', '.join(stuck)} any longer.")


class _Signals:
    """Handles SIGINT and SIGTERM while the server runs. Python allows this in the main thread only.

    The handlers run between any two bytecodes, not in the event loop, because a tool may have blocked the loop.
    """

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop, main: asyncio.Task[None]) -> None:
        self._server = server
        self._loop = loop
        self._main = main
        self._process = os.getpid()
        self._is_stopping = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A forked child inherits this handler, but not the server.
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            return
        code = 128 + number
        if self._is_stopping:
            os._exit(code)
        self._is_stopping = True
        within = self._server.stop_within + _GRACE
        _end_process_after(within, code, "The process ends although something in it does not stop.")
        self._loop.call_soon_threadsafe(self._stop, signal.Signals(number).name)

    def _stop(self, name: str) -> None:
        _logger.info("Received %s: the server stops.", name)
        # Without sessions and hosts, only the lifespan may be opening or closing: cancel it at once.
        patience = self._server.stop_within + _LAST_STEPS if self._server.stop() else 0
        self._loop.call_later(patience, self._main.cancel)


def _cancel_rest(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the remaining tasks of the program."""
    rest = asyncio.all_tasks(loop)
    for task in rest:
        task.cancel()
    if rest:
        loop.run_until_complete(asyncio.wait(rest, timeout=_GRACE))


def _end_process_after(seconds: float, code: int, sentence: str) -> None:
    """End the process after this time, unless it ends before."""

    def wait_and_end() -> None:
        time.sleep(seconds)
        # Not through logging, which may be what hangs.
        write_stderr(f"{sentence}\n".encode())
        os._exit(code)

    threading.Thread(target=wait_and_end, name="mcplumb-end", daemon=True).start()
