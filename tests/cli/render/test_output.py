"""What is shown: tables that fit, JSON that is one document, and no text of a server's that drives the terminal."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import msgspec
import pytest

from mcplumb.cli.render.output import (
    clean,
    clean_line,
    is_terminal,
    json_text,
    print_json,
    print_pairs,
    print_table,
    print_text,
    say,
    say_error,
    set_color,
    stderr,
    stdout,
)
from tests.cli.kit import PYTHON, SERVERS, mcplumb, on_terminal

EVIL = "a\x1b[31mb\x1b]0;title\x07c\rd\x08e\x9b2Jf\u202eg\u2066h\U000e0041i\x7f[bold]j[/bold]:smile:"


@pytest.fixture(autouse=True)
def _fresh_consoles() -> Any:
    yield
    set_color(None)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcödé 漢字 👩‍👧\n\tnext", "plain ünïcödé 漢字 👩‍👧\n\tnext"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\rb\x08c\x00", "a\\x0db\\x08c\\x00"),
        ("\x9b31m\x85", "\\x9b31m\\x85"),
        ("\u202etxt.exe\u2069", "\\u202etxt.exe\\u2069"),
        ("\u2028\u200e\ufeff", "\\u2028\\u200e\\ufeff"),
        ("\U000e0061", "\\U000e0061"),
        ("a\u00adb\u034fc\u3164d\u206ae\U000e0101", "a\\xadb\\u034fc\\u3164d\\u206ae\\U000e0101"),
        ("\ud83d", "\\ud83d"),
        ("[red]x[/red] :smile:", "[red]x[/red] :smile:"),
    ],
)
def test_what_drives_a_terminal_is_shown_and_not_obeyed(text: str, shown: str) -> None:
    assert clean(text) == shown
    assert clean(shown) == shown


def test_a_line_is_one_line() -> None:
    assert clean_line(" a \n\n b\t c\x1b ") == "a b c\\x1b"
    assert clean_line("12345", 5) == "12345"
    assert clean_line("123456", 5) == "1234…"


def test_everything_that_is_printed_is_cleaned(capsys: pytest.CaptureFixture[str]) -> None:
    print_text(EVIL)
    print_table(["A", "B"], [(EVIL, EVIL)])
    print_pairs([(EVIL, EVIL)])
    print_json({EVIL: EVIL})
    say(EVIL)
    say_error(EVIL, EVIL)
    captured = capsys.readouterr()
    for text in captured:
        assert all(character.isprintable() or character == "\n" for character in text)
        assert "[bold]j[/bold]:smile:" in text


def test_json_is_one_document_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    class Record(msgspec.Struct, rename="camel"):
        long_name: str

    print_json([Record(EVIL), "漢字", {"a": None}])
    assert json.loads(capsys.readouterr().out) == [{"longName": EVIL}, "漢字", {"a": None}]


def test_json_on_one_line() -> None:
    text = json_text({"a": [EVIL, 1]})
    assert text.isprintable()
    assert json.loads(text) == {"a": [EVIL, 1]}


def test_json_with_the_name_of_a_file_that_is_no_text() -> None:
    for indent in (-1, 2):
        assert json.loads(json_text({"file": "\udcff"}, indent=indent)) == {"file": "\udcff"}


def test_messages_have_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x\n" * 1_000_000
    say(long)
    say_error(long)
    print_pairs([("a", long)])
    for text in capsys.readouterr():
        assert text.count("x\n") <= 2000
        assert "… (1,998,001 more characters)" in text


def test_a_long_line_has_one_too(capsys: pytest.CaptureFixture[str]) -> None:
    say("x" * 1_000_000)
    assert "x… (900,000 more characters)" in capsys.readouterr().err


def test_names_in_tables_have_one_too(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["A", "B"], [("x" * 1_000_000, "y")])
    assert len(capsys.readouterr().out) < 100_000


def test_text_with_a_million_lines_is_no_work(capsys: pytest.CaptureFixture[str]) -> None:
    text = "line\n" * 1_000_000
    print_text(text)
    assert capsys.readouterr().out == f"{text}\n"


def test_columns_are_aligned_by_what_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["A", "B"], [("漢字", "x"), ("abc", "y")])
    assert capsys.readouterr().out == "A     B\n漢字  x\nabc   y\n"


def test_a_table_that_is_piped_has_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", "MORE"], [("one", "x" * 300), ("two\nlines", "")])
    assert capsys.readouterr().out == f"NAME       MORE\none        {'x' * 300}\ntwo lines\n"


def test_pairs_keep_the_lines_of_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_pairs([("first", "a\nb"), ("", "c")])
    assert capsys.readouterr().out == "first  a\n       b\n       c\n"
    print_pairs([("one", "two")], stderr())
    assert capsys.readouterr().err == "one  two\n"


def test_complaints_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    say_error("It failed.", "Try this.")
    say_error("It failed.")
    assert capsys.readouterr() == ("", "Error: It failed.\nTry this.\nError: It failed.\n")


def test_long_lines_are_broken_by_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    text = "word " * 200
    print_text(text)
    assert capsys.readouterr().out == f"{text}\n"


def test_a_console_is_kept_for_as_long_as_its_stream_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stdout() is stdout()
    assert stderr() is stderr()
    before = stdout(), stderr()
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert stdout() is not before[0]
    assert stderr() is not before[1]


def test_what_a_stream_cannot_write_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    print_text("naïve")
    sys.stdout.flush()
    assert raw.getvalue() == b"na\\xefve\n"


def test_json_stays_json_on_a_stream_that_cannot_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    stdout()  # from now on, the stream escapes as text does
    print_json(["naïve", "☃ 𝄞"])
    print_json(["naïve"], indent=-1)
    sys.stdout.flush()
    assert raw.getvalue() == '[\n  "na\\u00efve",\n  "\\u2603 \\ud834\\udd1e"\n]\n["naïve"]\n'.encode("latin-1")


def test_nobody_can_be_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_terminal()
    monkeypatch.setattr(sys, "stdin", None)
    assert not is_terminal()


def test_a_terminal_gets_a_table_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    print_table(["A", "B"], [("name", "words that are too long")])
    plain = terminal.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert [line.rstrip() for line in plain.splitlines()] == [
        "A     B",
        "name  words that are",
        "      too long",
    ]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("term", "color", "shown"),
    [
        ("xterm", None, "plain\n\x1b[2ma\x1b[0m\n\x1b[2mb\x1b[0m\n\x1b[33mc\x1b[0m\n"),
        ("xterm", False, "plain\n\x1b[2ma\x1b[0m\n\x1b[2mb\x1b[0m\nc\n"),
        ("dumb", None, "plain\na\nb\nc\n"),
    ],
)
def test_styles_are_for_terminals_that_have_them(
    term: str, color: bool | None, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    set_color(color)
    say("plain")
    say("a\nb", style="dim")
    say("c", style="yellow")
    assert screen.getvalue() == shown


def test_what_is_said_stands_above_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.live import Live

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    with Live("a bar", console=stderr(), auto_refresh=False, redirect_stderr=False, redirect_stdout=False) as live:
        live.refresh()
        say("said")
    # The bar is taken away, and drawn again below.
    assert "\r\x1b[2Ksaid\n" in screen.getvalue()
    assert screen.getvalue().rindex("a bar") > screen.getvalue().index("said")
    before = len(screen.getvalue())
    say("later")
    assert screen.getvalue()[before:] == "later\n"


def test_pairs_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdout", screen := Screen())
    print_pairs([("a", "b")])
    assert screen.getvalue().split() == ["a", "b"]


# --- At a terminal ---

EVIL_SERVER = ["--", PYTHON, str(SERVERS / "evil.py")]


def test_a_server_cannot_drive_the_terminal() -> None:
    for words in (["tools"], ["tools", "--json"], ["tools", "--schema", "evil"], ["probe", "--quick"], ["ping"]):
        shown = on_terminal(*words, "--no-color", *EVIL_SERVER).out
        for code in ("\x1b]0;", "\x1b[2J", "\x9b", "\x07", "\u202e"):
            assert code not in shown, (words, code)
        assert "owned" in shown or words == ["ping"], shown


def test_its_stderr_cannot_either() -> None:
    shown = on_terminal("-v", "ping", *EVIL_SERVER).out
    assert "\\x1b]0;owned\\x07 on stderr" in shown
    assert "\x1b]0;" not in shown


def test_colours_are_for_terminals() -> None:
    words = ["tools", *EVIL_SERVER]
    assert "\x1b[1m" in on_terminal(*words).out
    for done in (on_terminal("--no-color", *words), on_terminal(*words, env={"NO_COLOR": "1"})):
        assert "\x1b[3" not in done.out  # no colours; bold is none
    piped = mcplumb(*words)
    assert "\x1b" not in piped.out + piped.err


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_table_fits_the_terminal(columns: int) -> None:
    done = on_terminal("tools", "--no-color", "-q", *EVIL_SERVER, columns=columns)
    assert done.code == 0
    lines = [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in done.out.splitlines()]
    assert max(map(len, lines)) <= columns
    assert "evil" in lines[1]
