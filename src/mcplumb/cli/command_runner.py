"""Running a command: its event loop, its logs, Ctrl-C, and how its end becomes an exit code.

Commands raise; `run_cli`, around all of them, turns what they raise into one message on stderr and one exit code.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcplumb.cli.help_text import NEEDS_PACKAGES, PACKAGES
from mcplumb.cli.std_streams import BROKEN_PIPE, NOT_WRITTEN, OutputLost
from mcplumb.errors import (
    Closed,
    ConnectError,
    McplumbError,
    RemoteError,
    RequestCancelled,
    RequestLost,
    ToolError,
    UsageError,
)

if TYPE_CHECKING:
    from mcplumb.transports.line_connection import Trace

__all__ = [
    "DONE",
    "EXIT_CODES",
    "FAULT",
    "HUNG_UP",
    "INTERRUPTED",
    "REFUSED",
    "TERMINATED",
    "TIMED_OUT",
    "TOOL_FAILED",
    "UNREACHABLE",
    "WRONG_USAGE",
    "GlobalOptions",
    "error_text",
    "exit_code_of",
    "global_options",
    "run",
    "run_cli",
    "using_runner",
]

DONE = 0
TOOL_FAILED = 1
WRONG_USAGE = 2
UNREACHABLE = 3
REFUSED = 4
TIMED_OUT = 5
FAULT = 70
HUNG_UP = 128 + signal.SIGHUP
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

#: Every exit code, and what it means. They do not change.
EXIT_CODES = {
    DONE: "Done.",
    TOOL_FAILED: "The tool was called, and says that it failed.",
    WRONG_USAGE: "Wrong usage: an option, an argument or a file that cannot be used, or a question without an answer.",
    UNREACHABLE: "The server could not be started or reached, no agreement was found, or it was lost.",
    REFUSED: "The server answered with an error, or broke the protocol.",
    TIMED_OUT: "The server did not answer in time.",
    FAULT: "A fault in mcplumb itself, shown with its traceback.",
    NOT_WRITTEN: "The output could not be written: the disk is full, or stdout is closed.",
    HUNG_UP: "The terminal was closed; what was under way is cancelled, and the server ended, as by Ctrl-C.",
    INTERRUPTED: "Ctrl-C; what was under way is cancelled on the server, too.",
    BROKEN_PIPE: "Whoever read the output stopped reading.",
    TERMINATED: "SIGTERM; what was under way is cancelled, and the server ended, as by Ctrl-C.",
}

#: What errors say before the end of a server's stderr.
_TAIL = "; the end of its stderr:\n"
#: Words of the package that mean nothing on a command line, and what to say instead.
_WORDS = {
    "(EraWaits.patience)": "(--timeout)",
    "connect(…, token=…)": "--token-file FILE",
    "give it a longer timeout": "allow more with --timeout SECONDS",
    "The peer answered": "The server answered",
}
#: Characters of the data of an error.
_MOST_DATA = 500


class GlobalOptions(msgspec.Struct, kw_only=True):
    """What was said before, or after, the name of the command, and holds for all commands."""

    #: 0 for warnings, 1 for what happens, 2 for everything.
    verbose: int = 0
    trace: bool = False
    log_file: str | None = None
    #: The file to look up names of servers in; None for those that are found.
    config: str | None = None
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
    server, before it becomes a `KeyboardInterrupt`; a second one does not wait for that. SIGTERM and SIGHUP do the
    same, and become exit codes, so that no server is left behind.
    """
    if _Runner.current is not None:
        return _Runner.current(main) or DONE
    import asyncio

    from mcplumb.cli.log_output import logs

    told: list[int] = []
    code = DONE
    try:
        with logs(global_options()):
            code = asyncio.run(_heeding(main, told)) or DONE
    except asyncio.CancelledError:
        if not told:
            raise
    finally:
        main.close()  # if it was not even begun
    return 128 + told[0] if told else code


async def _heeding(main: Coroutine[Any, Any, int | None], told: list[int]) -> int | None:
    """Run a coroutine. A signal that would end the process cancels it, and is added to ``told``."""
    import asyncio

    loop = asyncio.get_running_loop()
    task = loop.create_task(main)

    def heed(number: int) -> None:
        told.append(number)
        loop.remove_signal_handler(number)  # a second one does not wait
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # and not ignored, as with nohup
            loop.add_signal_handler(number, heed, number)
    return await task


class _Runner:
    """Who runs coroutines, if a command that lasts has an event loop for those that it runs."""

    current: Callable[[Coroutine[Any, Any, int | None]], int | None] | None = None


@contextmanager
def using_runner(runner: Callable[[Coroutine[Any, Any, int | None]], int | None]) -> Iterator[None]:
    """Within the block, `run` leaves its coroutines to this function."""
    _Runner.current = runner
    try:
        yield
    finally:
        _Runner.current = None


def exit_code_of(error: McplumbError) -> int:
    """The exit code of a command that fails like this."""
    if isinstance(error, UsageError):
        return WRONG_USAGE
    if isinstance(error, ToolError):
        return TOOL_FAILED
    if isinstance(error, TimeoutError):
        return TIMED_OUT
    if isinstance(error, ConnectError | RequestLost | RequestCancelled | Closed):
        return UNREACHABLE
    return REFUSED


def run_cli(program: click.Command) -> int:
    """Run the command line; returns its exit code, and raises nothing but `OutputLost`."""
    try:
        return _run(program)
    except OutputLost:
        raise
    except Exception as error:  # noqa: BLE001 - shown in full
        return _admit(error)


def _run(program: click.Command) -> int:
    options = GlobalOptions()
    try:
        code = program.main(prog_name="mcplumb", standalone_mode=False, obj=options)
    except McplumbError as error:
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

    from mcplumb.cli.render.output import clean

    shown = clean("".join(traceback.format_exception(error)))
    sys.stderr.write(f"{shown}\nThis is a fault in mcplumb: please report it.\n")
    return FAULT


def error_text(error: McplumbError) -> str:
    """What an error says, in the words of the command line, and without the stderr that may be quoted in it."""
    said, tail, _ = str(error).partition(_TAIL)
    for ours, theirs in _WORDS.items():
        said = said.replace(ours, theirs)
    return said + ("." if tail else "")


def _complain(error: McplumbError, code: int, options: GlobalOptions) -> None:
    from mcplumb.cli.render.output import clean_line, json_text, say_error

    _, _, tail = str(error).partition(_TAIL)
    text = error_text(error)
    if tail:
        text += " Its stderr is above." if options.shows_stderr else f" The end of its stderr:\n{tail}"
    if isinstance(error, RemoteError) and error.data is not None:
        text += f"\nIts data: {clean_line(json_text(error.data), _MOST_DATA)}"
    say_error(text, options.hint if code in (UNREACHABLE, TIMED_OUT) else "")
