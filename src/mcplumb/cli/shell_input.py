"""Lines of input from a terminal or a pipe, with editing, history and completion.

Output that arrives while a line is typed is written above it. Only the main thread, which reads the line, can redraw
it: other threads queue their output and wake it with a signal.
"""
# pathlib is avoided: this module works with descriptors.
# ruff: noqa: PTH103, PTH120

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import ModuleType
from typing import Any, TextIO, TypeAlias, cast

from mcplumb.cli.render.output import say
from mcplumb.config.files import ConfigError, locked, read_file, replace_file

__all__ = ["MAX_HISTORY", "Complete", "History", "LineReader", "editor"]


# --- History ---

#: Lines that are kept. The file grows to twice as many before it is truncated.
MAX_HISTORY = 1000
_MAX_LINE = 10_000
_OWNER_ONLY = 0o600


class History:
    """The typed lines, newest last, in a file that only its owner can read.

    Lines that begin with a space, and repetitions of the last line, are not kept. Failures to read or write the file
    raise `ConfigError` or OSError.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._last = ""

    def load(self) -> list[str]:
        """Return the stored lines."""
        data = read_file(self._file)
        if data is None:
            return []
        # Make a file private that others can read.
        os.chmod(self._file, _OWNER_ONLY)  # noqa: PTH101
        lines = data.decode(errors="replace").split("\n")[:-1]
        if len(lines) > 2 * MAX_HISTORY:
            with locked(self._file):
                replace_file(self._file, "".join(f"{line}\n" for line in lines[-MAX_HISTORY:]).encode())
        return lines[-MAX_HISTORY:]

    def add(self, line: str) -> bool:
        """Append a line to the file at once, because other shells may be open; return whether it is kept."""
        if not line.strip() or line.startswith(" ") or line == self._last or len(line) > _MAX_LINE:
            return False
        self._last = line
        os.makedirs(os.path.dirname(self._file), mode=0o700, exist_ok=True)
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY)
        try:
            os.write(descriptor, f"{line}\n".encode(errors="replace"))
        finally:
            os.close(descriptor)
        return True


# --- Lines ---

#: Returns the completions of a word; called with the line up to the word, and the word.
Complete: TypeAlias = Callable[[str, str], list[str]]

#: The signal that wakes the main thread to write queued output; its default action is to be ignored.
_WAKE_SIGNAL = signal.SIGURG
#: Seconds between two wake-ups while a line is typed, and between two checks of a full queue.
_WAKE_INTERVAL = 0.25
_QUEUE_CHECK_INTERVAL = 0.005
#: Pieces of output that may be queued; a thread with more waits, and so does the server.
_MAX_QUEUED = 1000


def editor() -> ModuleType | None:
    """Return the ``readline`` module; None if Python was built without it."""
    try:
        import readline
    except ImportError:
        return None
    return readline


class LineReader:
    """Reads lines in the main thread.

    ``is_asking`` is whether the input is a terminal, which gets a prompt. With ``complete``, Tab completes; with
    ``history``, the arrow keys recall earlier lines, also those of earlier shells.
    """

    def __init__(self, complete: Complete | None = None, history: History | None = None) -> None:
        self.is_asking = sys.stdin.isatty() and sys.stderr.isatty()
        #: Whether a line is being typed.
        self.is_open = False
        self._complete = complete
        self._history = history
        self._found: list[str] = []
        self._prompt = ""
        #: Output to write above the line: file descriptors and bytes.
        self._above: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        self._is_drawing = False
        # Python uses readline only if stdin and stdout are terminals.
        self._readline = editor() if self.is_asking and sys.stdout.isatty() else None
        if self._readline is not None:
            self._set_up(self._readline)

    def read(self, prompt: str) -> str:
        """Return the next line without its newline; raise EOFError at the end, KeyboardInterrupt for Ctrl-C."""
        self._prompt = prompt
        self.is_open = True
        try:
            if self._readline is not None:
                try:
                    line = _typed(prompt)
                finally:
                    self.is_open = False
                    self._write_above()
                self._keep(line, self._readline)
                return line
            if self.is_asking:
                sys.stderr.write(prompt)
                sys.stderr.flush()
            # Not through the text layer, which would buffer input that commands may want to read.
            data = sys.stdin.buffer.readline()
        finally:
            self.is_open = False
        if not data:
            raise EOFError
        return data.decode(errors="replace").rstrip("\r\n")

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Write output above the line that is being typed, and redraw that line, within the block."""
        if self._readline is None:
            yield
            return
        streams = sys.stdout, sys.stderr
        handler = signal.signal(_WAKE_SIGNAL, self._redraw)
        sys.stdout, sys.stderr = (cast("TextIO", _StreamAbove(stream, self)) for stream in streams)
        is_done = threading.Event()
        waker = threading.Thread(target=self._keep_waking, args=(is_done,), name="mcplumb lines", daemon=True)
        waker.start()
        try:
            yield
        finally:
            is_done.set()
            waker.join()
            sys.stdout, sys.stderr = streams
            signal.signal(_WAKE_SIGNAL, handler)

    def put_above(self, descriptor: int, text: str) -> None:
        """Write output above the line being typed. Called from other threads; blocks while the queue is full."""
        while self._above.qsize() >= _MAX_QUEUED and self.is_open:
            _wake()
            time.sleep(_QUEUE_CHECK_INTERVAL)
        self._above.put((descriptor, text.encode(errors="backslashreplace")))
        _wake()

    def _keep_waking(self, is_done: threading.Event) -> None:
        """Wake the main thread regularly: a signal that arrives just before readline blocks is handled at the next."""
        while not is_done.wait(_WAKE_INTERVAL):
            if self.is_open:
                _wake()

    def _redraw(self, number: int, frame: object) -> None:
        # After the line was read, `read` has written the queue. A signal during the redrawing is ignored: its output is
        # written at the next wake-up, and handlers do not nest ever deeper.
        if not self.is_open or self._above.empty() or self._is_drawing:
            return
        self._is_drawing = True
        try:
            _write(1, b"\r\x1b[K")
            self._write_above()
            line = cast("Any", self._readline).get_line_buffer()
            _write(1, f"{self._prompt}{line}".encode(errors="backslashreplace"))
        finally:
            self._is_drawing = False

    def _write_above(self) -> None:
        for _ in range(self._above.qsize()):
            _write(*self._above.get())

    # --- Editing ---

    def _set_up(self, readline: Any) -> None:
        is_libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
        readline.set_completer_delims(" \t\n")
        readline.set_completer(self._suggest)
        readline.set_auto_history(False)
        readline.clear_history()
        if self._history is not None:
            with self._disable_history_on_error():
                for line in self._history.load():
                    readline.add_history(line)

    def _keep(self, line: str, readline: Any) -> None:
        """Add a line to the history of readline and to the file."""
        if self._history is None:
            if line.strip():
                readline.add_history(line)
            return
        with self._disable_history_on_error():
            if self._history.add(line):
                readline.add_history(line)

    @contextmanager
    def _disable_history_on_error(self) -> Iterator[None]:
        """Report a history file that cannot be used once, and go on without it."""
        try:
            yield
        except (ConfigError, OSError) as error:
            self._history = None
            say(f"The history is not kept: {error}")

    def _suggest(self, word: str, number: int) -> str | None:
        """Return the completion with this number; readline asks until it gets None."""
        if number == 0:
            readline = cast("Any", self._readline)
            line = readline.get_line_buffer()[: readline.get_begidx()]
            self._found = self._complete(line, word) if self._complete is not None else []
        return self._found[number] if number < len(self._found) else None


class _StreamAbove:
    """A stream that writes above the line that is being typed."""

    def __init__(self, stream: TextIO, lines: LineReader) -> None:
        self._stream = stream
        self._lines = lines

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if not self._lines.is_open or not text:
            return self._stream.write(text)
        self._lines.put_above(self._stream.fileno(), text)
        return len(text)


def _typed(prompt: str) -> str:
    """Call ``input``; if Ctrl-C and the wake signal arrive together, turn Python's SystemError into the interrupt."""
    try:
        return input(prompt)
    except SystemError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


def _wake() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, _WAKE_SIGNAL)


def _write(descriptor: int, data: bytes) -> None:
    """Write all data directly to the descriptor: a write to the buffered stream may be in progress."""
    while data:
        data = data[os.write(descriptor, data) :]
