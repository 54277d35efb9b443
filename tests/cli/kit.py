"""Running ``mcplumb`` as its users do: with pipes, at a terminal, and in this process, where coverage sees it."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pty
import re
import select
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from mcplumb.cli.render import output
from tests.kit.loop import PATIENCE
from tests.repo.source import ROOT

__all__ = ["LEGACY", "PATIENCE", "PYTHON", "SERVERS", "WEATHER", "Done", "here", "mcplumb", "on_terminal", "serving"]

PYTHON = sys.executable
SERVERS = Path(__file__).parent / "servers"
#: Commands of servers, as words for a command line.
WEATHER = ["--", PYTHON, str(ROOT / "examples" / "weather.py")]
LEGACY = ["--", PYTHON, str(SERVERS / "legacy.py")]


class Done(NamedTuple):
    """How a command ended, and what it wrote. At a terminal, everything is in ``out``."""

    code: int
    out: str
    err: str = ""

    @property
    def json(self) -> Any:
        """The one document that was printed."""
        return json.loads(self.out)


# A program that makes its stdin the terminal from which it is controlled, so that Ctrl-C reaches it.
_AT_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


_WAITING = re.compile(r"\x1b\[\?25l[^\n]{0,20}Waiting for .*?\x1b\[\?25h\r\x1b\[1A\x1b\[2K", re.DOTALL)


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    # Of the terminal that runs the tests, nothing is left.
    ours = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    return {**ours, "TERM": "xterm-256color", **env}


def mcplumb(*words: str, stdin: str = "", cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Done:
    """``mcplumb`` as a process, with pipes."""
    done = subprocess.run(
        [PYTHON, "-m", "mcplumb", *words],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=_environment(env or {}),
        timeout=PATIENCE,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def on_terminal(
    *words: str,
    typed: Sequence[tuple[str, str | Callable[[str], str]]] = (),
    columns: int = 80,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Done:
    """``mcplumb`` as a process at a terminal of its own: all that it shows, with ``\\n`` at the ends of lines.

    The spinner is left out that appears, and is erased again, if the server takes long to start.
    ``typed`` is what the user types: each text once the words before it have been shown, after those before. A function
    makes it from what is shown.
    """
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, columns))
    process = subprocess.Popen(
        [PYTHON, "-c", _AT_TERMINAL, "-m", "mcplumb", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env=_environment(env or {}),
        start_new_session=True,
    )
    os.close(theirs)
    shown, seen, waiting = "", 0, list(typed)
    deadline = time.monotonic() + PATIENCE
    try:
        while True:
            while waiting and (at := shown.find(waiting[0][0], seen)) >= 0:
                seen = at + len(waiting[0][0])
                text = waiting.pop(0)[1]
                os.write(ours, (text if isinstance(text, str) else text(shown)).encode())
            assert time.monotonic() < deadline, f"nothing ended, after:\n{shown}"
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    chunk = os.read(ours, 65536)
                except OSError:  # the terminal has hung up
                    break
                if not chunk:
                    break
                shown += chunk.decode("utf-8", "replace").replace("\r\n", "\n")
        code = process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert not waiting, f"{waiting[0][0]!r} was not shown, but:\n{shown}"
    return Done(code, _WAITING.sub("", shown))


def here(*words: str, cwd: Path | None = None) -> Done:
    """``mcplumb`` in this process: what it changes in the process is put back."""
    from mcplumb.cli.main import main
    from mcplumb.client.handshake import process_memory

    process_memory._eras.clear()  # as in a new process
    # Commands also write bytes.
    written = io.BytesIO()
    out, err = io.TextIOWrapper(written, encoding="utf-8", write_through=True), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_logging_kept())
        stack.enter_context(patch.object(sys, "argv", ["mcplumb", *words]))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.callback(output.set_color, None)
        if cwd is not None:
            stack.enter_context(contextlib.chdir(cwd))
        try:
            main()
            code: Any = 0
        except SystemExit as ended:
            code = ended.code
    shown = written.getvalue().decode()
    if isinstance(code, str):
        return Done(1, shown, err.getvalue() + code)
    return Done(code or 0, shown, err.getvalue())


@contextlib.contextmanager
def _logging_kept() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("", "mcplumb", "mcplumb.client", "mcplumb.trace")]
    before = [(list(logger.handlers), logger.level) for logger in loggers]
    try:
        yield
    finally:
        for logger, (handlers, level) in zip(loggers, before, strict=True):
            logger.handlers[:] = handlers
            logger.setLevel(level)


@contextlib.contextmanager
def serving(*options: str, file: Path = ROOT / "examples" / "weather.py") -> Iterator[list[str]]:
    """A server process at addresses, until the end of the block; gives these addresses."""
    count = sum(option.startswith("--") for option in options)
    process = subprocess.Popen(
        [PYTHON, "-m", "mcplumb", "serve", str(file), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    try:
        assert process.stderr is not None
        addresses: list[str] = []
        for line in process.stderr:
            if "Serving at " in line:
                addresses.append(line.partition("Serving at ")[2].strip())
            if len(addresses) == count:
                break
        # How long it is used is not for it to say: a module's tests may take longer on a machine that has much to do.
        timer.cancel()
        yield addresses
    finally:
        timer.cancel()
        process.terminate()
        process.communicate(timeout=PATIENCE)
