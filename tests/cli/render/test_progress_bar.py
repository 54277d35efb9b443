"""Progress: a bar at a terminal, lines elsewhere, and nothing that a server can break."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stderr

import pytest

from mcplumb.cli.render import output, progress_bar
from mcplumb.cli.render.progress_bar import ProgressBar, bars_paused
from tests.kit.loop import turns

HUGE = 10**400


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    yield Terminal()
    output.set_color(None)


@pytest.mark.parametrize(
    ("progress", "total", "message", "line"),
    [
        (1, 3, "one\x1b[2J", "cook: 1/3, one\\x1b[2J"),
        (0.5, None, None, "cook: 0.5"),
        (HUGE, HUGE, None, "cook: ∞/∞"),
        (2, 0, None, "cook: 2/0"),
    ],
    ids=range(4),
)
def test_lines_are_for_those_who_want_them(
    progress: float, total: float | None, message: str | None, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with ProgressBar("cook") as quiet:
        quiet.show(progress, total, message)
    assert capsys.readouterr().err == ""
    with ProgressBar("cook", lines=True) as shown, shown.paused():
        shown.show(progress, total, message)
    assert capsys.readouterr().err == f"{line}\n"


@pytest.mark.parametrize(
    ("progress", "total", "count"),
    [
        (1, 3, "1/3"),
        (5, 3, "5/3"),
        (-1, 3, "-1/3"),
        (7, None, "7"),
        (0, 3, "0/3"),
        (HUGE, 1, "∞/1"),
        (HUGE, 2 * HUGE, "∞/∞"),
    ],
    ids=range(7),
)
def test_a_terminal_gets_a_bar(progress: float, total: float | None, count: str, terminal: Terminal) -> None:
    with redirect_stderr(terminal), ProgressBar("cook") as bar:
        bar.show(progress, total, "[red]one[/red]\x1b]0;x\x07")
        assert terminal.getvalue()
    shown = terminal.getvalue()
    assert "[red]one[/red]\\x1b]0;x\\x07" in shown
    assert "\x1b]" not in shown
    assert f" {count} " in shown
    assert shown.endswith("\x1b[2K")  # it is gone


def test_a_terminal_that_cannot_erase_gets_no_bar(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with redirect_stderr(terminal):
        with ProgressBar("cook") as bar:
            bar.show(1, 3, "one")
        assert terminal.getvalue() == ""
        with ProgressBar("cook", lines=True) as bar:
            bar.show(1, 3, "one")
    assert terminal.getvalue() == "cook: 1/3, one\n"


def test_nothing_is_drawn_while_somebody_is_asked(terminal: Terminal) -> None:
    with redirect_stderr(terminal), ProgressBar("cook") as bar:
        bar.show(1, 3, "one")
        with bar.paused():
            before = terminal.getvalue()
            assert before.endswith("\x1b[2K")
        bar.show(2, 3, "two")
    assert "two" in terminal.getvalue()[len(before) :]


def test_all_bars_can_be_paused(terminal: Terminal) -> None:
    with redirect_stderr(terminal):
        with ProgressBar("cook") as bar:
            bar.show(1, 3, "one")
            with bar.paused():
                with bars_paused():
                    before = terminal.getvalue()
                    bar.show(2, 3, "two")
                assert terminal.getvalue() == before, "The first pause goes on."
            assert "two" in terminal.getvalue()[len(before) :]
        after = terminal.getvalue()
        with bars_paused():
            pass
        assert terminal.getvalue() == after, "There is none any more."


async def test_a_request_without_progress_gets_a_spinner(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bar, "_SPINNER_WAIT", 0)
    with redirect_stderr(terminal):
        with ProgressBar("cook") as bar:
            await turns()
            with bar.paused():
                before = terminal.getvalue()
                assert "cook \x1b[33m0:00:00" in before
                assert before.endswith("\x1b[2K")
            assert "━" not in terminal.getvalue()
            bar.show(1, 3, None)
        assert "━" in terminal.getvalue()
        with ProgressBar("eat") as bar, bar.paused():
            await turns()
            assert "eat" not in terminal.getvalue()
        assert terminal.getvalue().endswith("\x1b[2K")


def test_without_progress_nothing_is_shown(terminal: Terminal) -> None:
    with redirect_stderr(terminal), ProgressBar("cook"):
        pass
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_a_long_message_leaves_room_for_the_bar(
    columns: int, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with redirect_stderr(terminal), ProgressBar("cook") as bar:
        bar.show(500, 1000, "日本語 " + "and much more " * 20)
    assert "━" in terminal.getvalue()
    assert "500/1000" in terminal.getvalue()
