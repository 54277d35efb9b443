"""Lines from a pipe and from a terminal; that which needs a real one is in test_shell.py."""

from __future__ import annotations

import builtins
import io
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mcplumb.cli import shell_input as lines_module
from mcplumb.cli.shell_input import History, LineReader, editor


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def __init__(self, text: str = "", descriptor: int | None = None) -> None:
        super().__init__(io.BytesIO(text.encode()), encoding="utf-8", write_through=True)
        self.descriptor = descriptor

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return super().fileno() if self.descriptor is None else self.descriptor

    @property
    def shown(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


class Editor(SimpleNamespace):
    """What is used of readline: it notes what it is told."""

    def __init__(self, doc: str = "GNU readline") -> None:
        self.lines: list[str] = []
        self.bound = ""
        super().__init__(
            __doc__=doc,
            set_completer_delims=lambda _: None,
            set_completer=lambda function: setattr(self, "completer", function),
            set_auto_history=lambda _: None,
            clear_history=self.lines.clear,
            add_history=self.lines.append,
            parse_and_bind=lambda text: setattr(self, "bound", text),
            get_line_buffer=lambda: "call fore",
            get_begidx=lambda: 5,
        )


def at_terminal(monkeypatch: pytest.MonkeyPatch, doc: str = "GNU readline") -> Editor:
    """Called by each test: what captures output replaces the streams after the fixtures."""
    ours = Editor(doc)
    monkeypatch.setattr(lines_module, "editor", lambda: ours)
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, Terminal())
    return ours


def test_a_pipe_has_no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\r\n\xff\nrest")))
    lines = LineReader()
    assert not lines.is_asking
    with lines.shared():
        assert [lines.read("> ") for _ in range(2)] == ["one", "�"]
        # Whoever wants the rest finds all of it.
        assert sys.stdin.buffer.read() == b"rest"
        with pytest.raises(EOFError):
            lines.read("> ")


def test_without_readline_there_is_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    at_terminal(monkeypatch)
    monkeypatch.setattr(lines_module, "editor", lambda: None)
    monkeypatch.setattr(sys, "stdin", Terminal("ping\n"))
    lines = LineReader()
    assert lines.is_asking
    assert lines.read("> ") == "ping"
    assert isinstance(sys.stderr, Terminal)
    assert sys.stderr.shown == "> "


def test_readline_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert editor() is not None
    monkeypatch.setitem(sys.modules, "readline", None)
    assert editor() is None


def test_tab_asks_for_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    asked: list[tuple[str, str]] = []

    def complete(before: str, word: str) -> list[str]:
        asked.append((before, word))
        return ["forecast ", "foresee "]

    LineReader(complete)
    assert terminal.bound == "tab: complete"
    assert [terminal.completer("fore", number) for number in range(3)] == ["forecast ", "foresee ", None]
    assert asked == [("call ", "fore")]
    LineReader()
    assert terminal.completer("fore", 0) is None


def test_another_editor_is_bound_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    other = at_terminal(monkeypatch, "libedit")
    LineReader()
    assert other.bound == "bind ^I rl_complete"


def test_lines_are_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terminal = at_terminal(monkeypatch)
    typed = iter(["ping", " secret", "tools", ""] * 2)
    monkeypatch.setattr(builtins, "input", lambda _: next(typed))
    file = tmp_path / "history"
    file.write_text("old\n")
    lines = LineReader(history=History(str(file)))
    assert [lines.read("> ") for _ in range(4)] == ["ping", " secret", "tools", ""]
    assert terminal.lines == ["old", "ping", "tools"]
    lines = LineReader()
    for _ in range(4):
        lines.read("> ")
    assert terminal.lines == ["ping", " secret", "tools"]
    assert file.read_text() == "old\nping\ntools\n"


def test_a_history_that_cannot_be_kept_is_told_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terminal = at_terminal(monkeypatch)
    monkeypatch.setattr(builtins, "input", lambda _: "ping")
    lines = LineReader(history=History(str(tmp_path)))
    assert lines.read("> ") == "ping"
    assert isinstance(sys.stderr, Terminal)
    assert sys.stderr.shown.count("The history is not kept: ") == 1
    assert terminal.lines == ["ping"]


def test_what_is_written_meanwhile_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    at_terminal(monkeypatch)
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stderr", Terminal(descriptor=writing))
    drawn: list[tuple[int, bytes]] = []
    real = os.write

    def write(descriptor: int, data: Any) -> int:
        drawn.append((descriptor, bytes(data)))
        # Of this, only a part is taken at a time.
        return real(descriptor, data[:5]) if descriptor == writing else len(data)

    monkeypatch.setattr(os, "write", write)

    def type_in(prompt: str) -> str:
        sys.stderr.write("news: ü\n")  # the signal comes to this thread, at once
        sys.stderr.write("")
        lines.is_open = False
        lines._redraw(0, None)
        lines.is_open = True
        return "ping"

    monkeypatch.setattr(builtins, "input", type_in)
    lines = LineReader()
    with lines.shared():
        assert sys.stderr.isatty()
        assert lines.read("> ") == "ping"
        sys.stderr.write("later")
    assert os.read(reading, 100) == "news: ü\n".encode()
    assert drawn[0] == (1, b"\r\x1b[K")
    assert drawn[-1] == (1, b"> call fore")
    assert isinstance(sys.stderr, Terminal)
    assert sys.stderr.shown == "later"
    os.close(reading)
    os.close(writing)


def test_news_that_come_while_others_are_written_do_not_lead_deeper(monkeypatch: pytest.MonkeyPatch) -> None:
    at_terminal(monkeypatch)
    lines = LineReader()
    lines.is_open = True
    drawn: list[bytes] = []

    def write(_: int, data: bytes) -> None:
        drawn.append(data)
        if len(drawn) < 2000:
            lines._above.put((1, b"more"))
        lines._redraw(0, None)  # as the next signal does

    monkeypatch.setattr(lines_module, "_write", write)
    lines._above.put((1, b"news"))
    lines._redraw(0, None)
    assert drawn == [b"\r\x1b[K", b"news", b"more", b"> call fore"[2:]]
    assert not lines._is_drawing


def test_who_has_too_much_to_say_has_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    at_terminal(monkeypatch)
    lines = LineReader()
    lines.is_open = True
    monkeypatch.setattr(lines_module, "_wake", lambda: None)
    monkeypatch.setattr(lines_module, "_MAX_QUEUED", 2)

    def talk() -> None:
        for _ in range(3):
            lines.put_above(1, "x")

    talker = threading.Thread(target=talk)
    talker.start()
    while lines._above.qsize() < 2:
        pass
    assert talker.is_alive()
    lines._above.get()
    talker.join(60)
    assert lines._above.qsize() == 2


@pytest.mark.parametrize(("cause", "raised"), [(KeyboardInterrupt, KeyboardInterrupt), (ValueError, SystemError)])
def test_ctrl_c_and_news_at_once_are_a_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, cause: type[BaseException], raised: type[BaseException]
) -> None:
    def meet(_: str) -> str:
        raise SystemError("returned a result with an exception set") from cause()

    at_terminal(monkeypatch)
    monkeypatch.setattr(builtins, "input", meet)
    lines = LineReader()
    with pytest.raises(raised):
        lines.read("> ")
    assert not lines.is_open


def test_readline_is_woken_while_a_line_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[bool] = []
    at_terminal(monkeypatch)
    lines = LineReader()
    monkeypatch.setattr(lines_module, "_wake", lambda: woken.append(lines.is_open))
    ticks = iter([False, True])

    def wait(_: float) -> bool:
        lines.is_open = next(ticks, False)
        return len(woken) == 1

    lines._keep_waking(cast("threading.Event", SimpleNamespace(wait=wait)))
    assert woken == [True]
