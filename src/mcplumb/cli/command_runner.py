"""Run a command: its event loop, its logs, signals, and its exit code.

Commands raise exceptions; `run_cli` turns them into one message on stderr and one exit code.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcplumb.cli.main import NEEDS_PACKAGES, PACKAGES
from mcplumb.cli.std_streams import BROKEN_PIPE, NOT_WRITTEN, OutputLost
from mcplumb.errors import (
    Closed,
    ConnectError,
    McplumbError,
    RemoteError,
    RequestCancelled,
    RequestLost,
    StoreUnavailable,
    ToolError,
    ToolFailed,
    UsageError,
)

if TYPE_CHECKING:
    from mcplumb.cli.log_output import ServerStderr
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

#: Every exit code and its meaning. They are part of the public interface.
EXIT_CODES = {
    DONE: "Done.",
    TOOL_FAILED: "The tool was called, and says that it failed.",
    WRONG_USAGE: "Wrong usage: an option, an argument or a file that cannot be used, or a question without an answer.",
    UNREACHABLE: "The server could not be started or reached, no common revision was found, or it was lost.",
    REFUSED: "The server answered with an error, or broke the protocol.",
    TIMED_OUT: "The server did not answer in time.",
    FAULT: "A bug in mcplumb, shown with its traceback.",
    NOT_WRITTEN: "The output could not be written: the disk is full, or stdout is closed.",
    HUNG_UP: "The terminal was closed; what was under way is cancelled, and the server ended, as by Ctrl-C.",
    INTERRUPTED: "Ctrl-C; what was under way is cancelled on the server, too.",
    BROKEN_PIPE: "The reader of the output closed the pipe.",
    TERMINATED: "SIGTERM; what was under way is cancelled, and the server ended, as by Ctrl-C.",
}

#: The text between an error and the tail of the server's stderr.
_STDERR_MARK = "; the end of its stderr:\n"
#: Phrases of the Python API in error messages, and their equivalents on the command line.
_PHRASES = {
    "(EraWaits.patience)": "(--timeout)",
    "connect(…, auth=OAuth())": "mcplumb login",
    "connect(…, token=…)": "--token-file FILE",
    "give it a longer timeout": "allow more with --timeout SECONDS",
}
#: The maximum length of an error's data in a message.
_MAX_DATA = 500


class GlobalOptions(msgspec.Struct, kw_only=True):
    """The options that all commands share, and the state of the running command."""

    #: 0 for warnings, 1 for information, 2 for debugging.
    verbose: int = 0
    trace: bool = False
    log_file: str | None = None
    #: The config file to look up servers in; None to discover the files.
    config: str | None = None
    #: What to try if the server cannot be reached.
    hint: str = ""
    #: The stderr of the server that the command started; None without one, or with ``--quiet``.
    stderr: ServerStderr | None = None
    #: The callback for each message; None without ``--trace``. Set by `run`.
    tracer: Trace | None = None


def global_options() -> GlobalOptions:
    """Return the options of the running command."""
    context = click.get_current_context(silent=True)
    return GlobalOptions() if context is None else context.ensure_object(GlobalOptions)


def run(main: Coroutine[Any, Any, int | None]) -> int:
    """Run a command's coroutine in a new event loop and return its exit code; the coroutine may return None for 0.

    Logs and the trace are set up meanwhile. Ctrl-C cancels the coroutine, and with it its requests on the server,
    before `KeyboardInterrupt` is raised; a second Ctrl-C does not wait. SIGTERM and SIGHUP also cancel it, and become
    exit codes, so that no server process is left running.
    """
    if _Runner.current is not None:
        return _Runner.current(main) or DONE
    import asyncio

    from mcplumb.cli.log_output import logs

    received: list[int] = []
    code = DONE
    try:
        with logs(global_options()):
            code = asyncio.run(_cancel_on_signal(main, received)) or DONE
    except asyncio.CancelledError:
        if not received:
            raise
    finally:
        main.close()  # in case it was never started
    return 128 + received[0] if received else code


async def _cancel_on_signal(main: Coroutine[Any, Any, int | None], received: list[int]) -> int | None:
    """Run a coroutine; SIGTERM and SIGHUP cancel it and are appended to ``received``."""
    import asyncio

    loop = asyncio.get_running_loop()
    task = loop.create_task(main)

    def on_signal(number: int) -> None:
        received.append(number)
        loop.remove_signal_handler(number)  # a second one ends the process at once
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # not if it is ignored, as with nohup
            loop.add_signal_handler(number, on_signal, number)
    return await task


class _Runner:
    """The function that replaces `run` while a command such as the shell has its own event loop."""

    current: Callable[[Coroutine[Any, Any, int | None]], int | None] | None = None


@contextmanager
def using_runner(runner: Callable[[Coroutine[Any, Any, int | None]], int | None]) -> Iterator[None]:
    """Let `run` pass its coroutines to this function within the block."""
    _Runner.current = runner
    try:
        yield
    finally:
        _Runner.current = None


def exit_code_of(error: McplumbError) -> int:
    """Return the exit code for an error."""
    if isinstance(error, UsageError):
        return WRONG_USAGE
    if isinstance(error, ToolError | ToolFailed):
        return TOOL_FAILED
    if isinstance(error, TimeoutError):
        return TIMED_OUT
    if isinstance(error, ConnectError | StoreUnavailable | RequestLost | RequestCancelled | Closed):
        return UNREACHABLE
    return REFUSED


def run_cli(program: click.Command) -> int:
    """Run the command line and return its exit code; raise nothing but `OutputLost`."""
    try:
        return _run_program(program)
    except OutputLost:
        raise
    except Exception as error:  # noqa: BLE001 - shown in full
        return _report_fault(error)


def _run_program(program: click.Command) -> int:
    options = GlobalOptions()
    try:
        code = program.main(prog_name="mcplumb", standalone_mode=False, obj=options)
    except McplumbError as error:
        code = exit_code_of(error)
        _report_error(error, code, options)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    return code if isinstance(code, int) else DONE


def _report_fault(error: Exception) -> int:
    """Report a missing package or folder, or an unexpected exception with its traceback; return the exit code."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in PACKAGES:
        sys.stderr.write(NEEDS_PACKAGES)
        return WRONG_USAGE
    if isinstance(error, FileNotFoundError) and not _has_current_folder():
        sys.stderr.write("Error: The current directory does not exist any more: go to another one.\n")
        return WRONG_USAGE
    import traceback

    from mcplumb.cli.render.output import clean

    shown = clean("".join(traceback.format_exception(error)))
    sys.stderr.write(f"{shown}\nThis is a bug in mcplumb: please report it.\n")
    return FAULT


def _has_current_folder() -> bool:
    """Whether relative paths mean something: another program may have deleted the folder."""
    try:
        os.getcwd()  # noqa: PTH109 - pathlib is slow to load
    except OSError:
        return False
    return True


def error_text(error: McplumbError) -> str:
    """Return an error's message in terms of the command line, without the quoted tail of the server's stderr."""
    text, mark, _ = str(error).partition(_STDERR_MARK)
    for api_phrase, cli_phrase in _PHRASES.items():
        text = text.replace(api_phrase, cli_phrase)
    return text + ("." if mark else "")


def _report_error(error: McplumbError, code: int, options: GlobalOptions) -> None:
    from mcplumb.cli.render.output import clean_line, json_text, say_error

    _, _, tail = str(error).partition(_STDERR_MARK)
    text = error_text(error)
    shown = options.stderr
    if tail:
        text += " Its stderr is above." if shown is not None and shown.has_shown else f" The end of its stderr:\n{tail}"
    elif shown is not None and shown.tail and code in (UNREACHABLE, TIMED_OUT):
        text += f" When it started, it wrote to stderr:\n{shown.tail}"
    if isinstance(error, RemoteError) and error.data is not None:
        text += f"\nIts data: {clean_line(json_text(error.data), _MAX_DATA)}"
    say_error(text, options.hint if code in (UNREACHABLE, TIMED_OUT) else "")
