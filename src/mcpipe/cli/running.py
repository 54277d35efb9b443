"""Running a command: its event loop, its logs, Ctrl-C, and how its end becomes an exit code.

Commands raise; `guarded`, around all of them, turns what they raise into one message on stderr and one exit code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcpipe.cli.overview import NEEDS_PACKAGES, PACKAGES
from mcpipe.errors import (
    Closed,
    ConnectError,
    McpipeError,
    RequestCancelled,
    RequestLost,
    RequestTimeout,
    ToolError,
    UsageError,
)

if TYPE_CHECKING:
    from mcpipe.transports.framed import Trace

__all__ = [
    "BROKEN_PIPE",
    "DONE",
    "EXIT_CODES",
    "FAULT",
    "INTERRUPTED",
    "REFUSED",
    "TIMED_OUT",
    "TOOL_FAILED",
    "UNREACHABLE",
    "WRONG_USAGE",
    "GlobalOptions",
    "exit_code_of",
    "global_options",
    "guarded",
    "run",
    "running_with",
    "sentence_of",
]

DONE = 0
TOOL_FAILED = 1
WRONG_USAGE = 2
UNREACHABLE = 3
REFUSED = 4
TIMED_OUT = 5
FAULT = 70
INTERRUPTED = 130
BROKEN_PIPE = 141

#: Every exit code, and what it means. They do not change.
EXIT_CODES = {
    DONE: "Done.",
    TOOL_FAILED: "The tool was called, and says that it failed.",
    WRONG_USAGE: "Wrong usage: an option, an argument or a file that cannot be used, or a question without an answer.",
    UNREACHABLE: "The server could not be started or reached, no agreement was found, or it was lost.",
    REFUSED: "The server answered with an error, or broke the protocol.",
    TIMED_OUT: "The server did not answer in time.",
    FAULT: "A fault in mcpipe itself, shown with its traceback.",
    INTERRUPTED: "Ctrl-C; what was under way is cancelled on the server, too.",
    BROKEN_PIPE: "Whoever read the output stopped reading.",
}

#: What errors say before the end of a server's stderr.
_TAIL = "; the end of its stderr:\n"


class GlobalOptions(msgspec.Struct, kw_only=True):
    """What was said before, or after, the name of the command, and holds for all commands."""

    #: 0 for warnings, 1 for what happens, 2 for everything.
    verbose: int = 0
    trace: bool = False
    log_file: str | None = None
    #: The file to look up names of servers in; None for those that are found.
    config: str | None = None
    color: bool | None = None
    #: What to try if the command fails because of its server.
    hint: str = ""
    #: Whether the user has seen what the server wrote to its stderr.
    shows_stderr: bool = False
    #: Is shown every message; None unless that was asked for. Made by `run`.
    tracer: Trace | None = None


def global_options() -> GlobalOptions:
    """Those of the command that runs."""
    context = click.get_current_context(silent=True)
    return GlobalOptions() if context is None else context.ensure_object(GlobalOptions)


def run(main: Coroutine[Any, Any, int | None]) -> int:
    """Run a command's coroutine in an event loop of its own; it returns an exit code, or None for 0.

    Logs and the trace are set up for that long. Ctrl-C cancels the coroutine, and with it what it waits for on the
    server, before it becomes a `KeyboardInterrupt`; a second one does not wait for that.
    """
    if _Runner.current is not None:
        return _Runner.current(main) or DONE
    import asyncio

    from mcpipe.cli.logs import logs

    try:
        with logs(global_options()):
            return asyncio.run(main) or DONE
    finally:
        main.close()  # if it was not even begun


class _Runner:
    """Who runs coroutines, if a command that lasts has an event loop for those that it runs."""

    current: Callable[[Coroutine[Any, Any, int | None]], int | None] | None = None


@contextmanager
def running_with(runner: Callable[[Coroutine[Any, Any, int | None]], int | None]) -> Iterator[None]:
    """Within the block, `run` leaves its coroutines to this function."""
    _Runner.current = runner
    try:
        yield
    finally:
        _Runner.current = None


def exit_code_of(error: McpipeError) -> int:
    """The exit code of a command that fails like this."""
    if isinstance(error, UsageError):
        return WRONG_USAGE
    if isinstance(error, ToolError):
        return TOOL_FAILED
    if isinstance(error, RequestTimeout):
        return TIMED_OUT
    if isinstance(error, ConnectError | RequestLost | RequestCancelled | Closed):
        return UNREACHABLE
    return REFUSED


def guarded(program: click.Command) -> int:
    """Run the command line; returns its exit code, and raises nothing."""
    try:
        return _run(program)
    except Exception as error:  # noqa: BLE001 - shown in full
        return _admit(error)


def _run(program: click.Command) -> int:
    options = GlobalOptions()
    try:
        code = program.main(prog_name="mcpipe", standalone_mode=False, obj=options)
    except McpipeError as error:
        code = exit_code_of(error)
        _complain(error, code, options)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    return code if isinstance(code, int) else DONE


def _admit(error: Exception) -> int:
    """Something was raised that nobody had foreseen, unless it is a package that is not there."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in PACKAGES:
        sys.stderr.write(NEEDS_PACKAGES)
        return WRONG_USAGE
    import traceback

    from mcpipe.cli.output import clean

    shown = clean("".join(traceback.format_exception(error)))
    sys.stderr.write(f"{shown}\nThis is a fault in mcpipe: please report it.\n")
    return FAULT


def sentence_of(error: McpipeError) -> str:
    """What an error says, in the words of the command line, and without the stderr that may be quoted in it."""
    said, tail, _ = str(error).partition(_TAIL)
    # The classes of the package mean nothing here.
    return said.replace("(EraWaits.patience)", "(--timeout)") + ("." if tail else "")


def _complain(error: McpipeError, code: int, options: GlobalOptions) -> None:
    from mcpipe.cli.output import complain

    _, _, tail = str(error).partition(_TAIL)
    text = sentence_of(error)
    if tail:
        text += " Its stderr is above." if options.shows_stderr else f" The end of its stderr:\n{tail}"
    complain(text, options.hint if code in (UNREACHABLE, TIMED_OUT) else "")
