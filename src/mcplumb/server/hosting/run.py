"""Running a server as what its process is for, until it ends or a signal comes."""

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

from mcplumb._fast.keep_memory import keep_memory
from mcplumb.server.hosting.stderr_logs import LogFormat, set_up_logs, trace_line, write_stderr
from mcplumb.transports.line_connection import Trace
from mcplumb.transports.stdio import Stdio

if TYPE_CHECKING:
    from mcplumb.server.server import Server

__all__ = ["run_on_stdio", "run_process", "what_it_waits_for"]

_Main: TypeAlias = Callable[[Trace | None], Coroutine[Any, Any, None]]

_logger = logging.getLogger("mcplumb.server")

#: How long what nothing can stop may keep the process once the server should have ended.
_GRACE = 3.0
#: How long the end of a server may take beyond the time that its requests have: the last answers, and the lifespan.
_LAST_STEPS = 1.5


def run_on_stdio(server: Server, stdio: Stdio, *, log_format: LogFormat | None, trace: bool | None) -> None:
    """Run a server on standard input and output, which are not given back, to its end."""
    if stdio.is_terminal:
        import shlex

        words = what_it_waits_for(shlex.join(sys.orig_argv), 'run("http://127.0.0.1:8000/mcp")')
        write_stderr(f"{words}\n".encode(errors="backslashreplace"))

    async def serve(tracer: Trace | None) -> None:
        await server.serve_connection(stdio.connection(limits=server.limits, trace=tracer))

    run_process(server, serve, log_format=log_format, trace=trace)


def what_it_waits_for(command: str, with_address: str) -> str:
    """What to tell somebody at a terminal who has started a server by this command, and may think that it hangs."""
    return (
        f"This waits for messages on standard input, from a client that has started it: mcplumb tools -- {command}. "
        f"To let clients come to it, give an address, such as {with_address}. Ctrl-C ends it."
    )


def run_process(server: Server, serve: _Main, *, log_format: LogFormat | None, trace: bool | None) -> None:
    """Serve to the end, as what the process is for.

    SIGINT and SIGTERM stop it, and a second one ends the process at once. Whatever a signal finds, such as a handler
    that blocks the event loop or a lifespan that hangs, the process ends soon after the time that the server has to
    stop in. Threads and children that nothing can stop keep it for no more than a few seconds after the server's end.
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
    """The signals that end the process, while the server runs. Only the main thread can have them.

    They are handled between any two steps of the program, not by the event loop, which a handler may have blocked.
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
                self._previous[number] = signal.signal(number, self._came)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _came(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self._process:
            # A fork has this handler, too, but not the server.
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            return
        code = 128 + number
        if self._is_stopping:
            os._exit(code)
        self._is_stopping = True
        within = self._server.stop_within + _GRACE
        _end_process_after(within, code, "The process ends, although something in it does not stop.")
        self._loop.call_soon_threadsafe(self._stop, signal.Signals(number).name)

    def _stop(self, name: str) -> None:
        _logger.info("%s came: the server stops.", name)
        # Beyond that there is only the lifespan, on its way in or out.
        patience = self._server.stop_within + _LAST_STEPS if self._server.stop() else 0
        self._loop.call_later(patience, self._main.cancel)


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
        # Not by logging, which may be what does not stop.
        write_stderr(f"{sentence}\n".encode())
        os._exit(code)

    threading.Thread(target=wait_and_end, name="mcplumb-end", daemon=True).start()
