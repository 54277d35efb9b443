"""Lines of input from a terminal or a pipe, with editing, history and completion."""
# Without pathlib: descriptors are what this is about.
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

__all__ = ["MOST_LINES", "Complete", "History", "LineReader", "editor"]


# The lines that a user has typed, in a file that only that user can read.


#: Lines that are kept. The file has up to twice as many, before it is cut.
MOST_LINES = 1000
_LONGEST = 10_000
_OWN = 0o600


class History:
    """LineReader, the latest last. A line that begins with a space is not kept, nor is one that only repeats the last.

    What cannot be read or written raises `ConfigError` or OSError.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._last = ""

    def load(self) -> list[str]:
        """The lines of earlier times."""
        data = read_file(self._file)
        if data is None:
            return []
        # A file that others could read does not stay like that.
        os.chmod(self._file, _OWN)  # noqa: PTH101
        lines = data.decode(errors="replace").split("\n")[:-1]
        if len(lines) > 2 * MOST_LINES:
            with locked(self._file):
                replace_file(self._file, "".join(f"{line}\n" for line in lines[-MOST_LINES:]).encode())
        return lines[-MOST_LINES:]

    def add(self, line: str) -> bool:
        """Keep a line, at once, as other shells may be open; returns whether it is one that is kept."""
        if not line.strip() or line.startswith(" ") or line == self._last or len(line) > _LONGEST:
            return False
        self._last = line
        os.makedirs(os.path.dirname(self._file), mode=0o700, exist_ok=True)
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _OWN)
        try:
            os.write(descriptor, f"{line}\n".encode(errors="replace"))
        finally:
            os.close(descriptor)
        return True


# Lines of input: from a terminal, with editing, history and completion where Python has readline; or from a pipe.


#: Gives what a word may become: it gets the line up to the word, and the word.
Complete: TypeAlias = Callable[[str, str], list[str]]

#: Tells the main thread that there is something to write; if it comes when nobody waits for it, it means nothing.
_NEWS = signal.SIGURG
_TICK = 0.25
_MOMENT = 0.005
#: Pieces that may wait to be written above the line. Whoever has more waits, too, and with it the server.
_MOST_WAITING = 1000


def editor() -> ModuleType | None:
    """Python's ``readline``, if it was built with it."""
    try:
        import readline
    except ImportError:
        return None
    return readline


class LineReader:
    """Reads one line after the other, in the main thread.

    ``is_asking`` is whether somebody types: then there is a prompt. With ``complete``, Tab completes; with
    ``history``, the arrows bring back earlier lines, also those of earlier times.
    """

    def __init__(self, complete: Complete | None = None, history: History | None = None) -> None:
        self.is_asking = sys.stdin.isatty() and sys.stderr.isatty()
        #: Whether a line is being typed just now.
        self.is_open = False
        self._complete = complete
        self._history = history
        self._found: list[str] = []
        self._prompt = ""
        #: What is to be written above the line: file descriptors and bytes.
        self._above: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        self._is_drawing = False
        # Python edits lines only where both are terminals.
        self._readline = editor() if self.is_asking and sys.stdout.isatty() else None
        if self._readline is not None:
            self._set_up(self._readline)

    def read(self, prompt: str) -> str:
        """The next line, without its end; EOFError if there is none, KeyboardInterrupt for Ctrl-C."""
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
            # Not through the layer of text, which would take more than one line from what others may want to read.
            data = sys.stdin.buffer.readline()
        finally:
            self.is_open = False
        if not data:
            raise EOFError
        return data.decode(errors="replace").rstrip("\r\n")

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Within the block, what is written while a line is typed stands above that line, which is drawn again."""
        if self._readline is None:
            yield
            return
        streams = sys.stdout, sys.stderr
        handler = signal.signal(_NEWS, self._redraw)
        sys.stdout, sys.stderr = (cast("TextIO", _Above(stream, self)) for stream in streams)
        is_over = threading.Event()
        ticker = threading.Thread(target=self._tick, args=(is_over,), name="mcplumb lines", daemon=True)
        ticker.start()
        try:
            yield
        finally:
            is_over.set()
            ticker.join()
            sys.stdout, sys.stderr = streams
            signal.signal(_NEWS, handler)

    def put_above(self, descriptor: int, text: str) -> None:
        """From another thread: write something above the line that is typed."""
        while self._above.qsize() >= _MOST_WAITING and self.is_open:
            _wake()
            time.sleep(_MOMENT)
        self._above.put((descriptor, text.encode(errors="backslashreplace")))
        # Only the thread that reads the line knows, between two keys, what that is.
        _wake()

    def _tick(self, is_over: threading.Event) -> None:
        """A signal that comes just before readline begins to wait, such as Ctrl-C, is noticed with the next one."""
        while not is_over.wait(_TICK):
            if self.is_open:
                _wake()

    def _redraw(self, number: int, frame: object) -> None:
        # A signal that comes too late finds nothing to do: what it was for is written when the line is read. One that
        # comes while this writes is for the next time, or a server that says much would lead deeper and deeper.
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
            with self._history_kept():
                for line in self._history.load():
                    readline.add_history(line)

    def _keep(self, line: str, readline: Any) -> None:
        """Remember a line, for the arrows and for later."""
        if self._history is None:
            if line.strip():
                readline.add_history(line)
            return
        with self._history_kept():
            if self._history.add(line):
                readline.add_history(line)

    @contextmanager
    def _history_kept(self) -> Iterator[None]:
        """A file that cannot be used is told once, and then there is none."""
        try:
            yield
        except (ConfigError, OSError) as error:
            self._history = None
            say(f"The history is not kept: {error}")

    def _suggest(self, word: str, number: int) -> str | None:
        """As readline wants it: it asks for one after the other, until there is no more."""
        if number == 0:
            readline = cast("Any", self._readline)
            line = readline.get_line_buffer()[: readline.get_begidx()]
            self._found = self._complete(line, word) if self._complete is not None else []
        return self._found[number] if number < len(self._found) else None


class _Above:
    """A stream to the terminal at which a line is typed."""

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
    """``input``, also where a Ctrl-C and news come at once: Python then calls the one while it raises the other."""
    try:
        return input(prompt)
    except SystemError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


def _wake() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, _NEWS)


def _write(descriptor: int, data: bytes) -> None:
    """Write all of it, past the buffers, in which another write may be under way."""
    while data:
        data = data[os.write(descriptor, data) :]
