"""Write to the terminal: results on stdout, everything else on stderr.

Text from a server passes through `clean` and is never parsed as markup: it cannot move the cursor, set a title, or hide
other text. Colours are for terminals only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "clean",
    "clean_line",
    "is_terminal",
    "json_text",
    "print_json",
    "print_pairs",
    "print_table",
    "print_text",
    "say",
    "say_error",
    "set_color",
    "stderr",
    "stdout",
]

#: The width for output that is not a terminal: large enough that no line is wrapped.
_NO_WRAP_WIDTH = 100_000
#: Characters and lines of one message, and characters of one table cell. Rich takes 0.3 ms for each line.
_MAX_MESSAGE = 100_000
_MAX_LINES = 1000
_MAX_CELL = 10_000
_LAST_ASCII = 0x7F

# Characters that control a terminal or deceive its reader: control characters, direction marks and overrides, line
# separators, annotations, invisible letters, marks and tags, and surrogates, which cannot be encoded. Joiners and emoji
# variation selectors are kept, because some words and emoji need them.
_RANGES = (
    (0x00, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5),
    (0x180B, 0x180F), (0x200B, 0x200B), (0x200E, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164),
    (0xD800, 0xDFFF), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0x1D173, 0x1D17A), (0xE0000, 0xE01EF),
)  # fmt: skip
_DANGEROUS = [code for low, high in _RANGES for code in range(low, high + 1) if chr(code) not in "\n\t"]
_IN_TEXT = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    for code in _DANGEROUS
}


class _Streams:
    """The two consoles, created when they are first used."""

    color: bool | None = None
    out: Console | None = None
    err: Console | None = None


def set_color(allowed: bool | None) -> None:  # noqa: FBT001 - one choice, with a third way
    """Allow or forbid colours; None leaves it to the terminal and ``NO_COLOR``. Must be called before any output."""
    _Streams.color = allowed
    _Streams.out = _Streams.err = None


def stdout() -> Console:
    """Return the console for results. It parses no markup, and wraps lines only on a terminal."""
    if _Streams.out is None or _Streams.out.file is not sys.stdout:
        _Streams.out = _console(sys.stdout)
    return _Streams.out


def stderr() -> Console:
    """Return the console for everything but results."""
    if _Streams.err is None or _Streams.err.file is not sys.stderr:
        _Streams.err = _console(sys.stderr)
    return _Streams.err


def is_terminal() -> bool:
    """Whether the user can be prompted: stdin and stderr are terminals."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _console(file: Any) -> Console:
    from rich.console import Console

    class LiveCountingConsole(Console):
        """Counts the live displays, such as progress bars, that are drawn on it."""

        lives = 0

        def set_live(self, live: Any) -> Any:
            self.lives += 1
            return super().set_live(live)

        def clear_live(self) -> None:
            self.lives -= 1
            super().clear_live()

    if hasattr(file, "reconfigure"):
        file.reconfigure(errors="backslashreplace")  # characters that the encoding lacks must not fail
    return LiveCountingConsole(
        file=file,
        markup=False,
        emoji=False,
        highlight=False,
        no_color=True if _Streams.color is False else None,
        width=None if file.isatty() else _NO_WRAP_WIDTH,
        legacy_windows=False,
    )


# --- Escaping ---


def clean(text: str) -> str:
    """Escape all characters that could control a terminal or deceive its reader.

    Newlines and tabs are kept. An ESC, for instance, becomes the four characters ``\\x1b``.
    """
    return text.translate(_IN_TEXT)


def clean_line(text: str, longest: int | None = None) -> str:
    """Clean the text and join it into one line with single blanks, cut to ``longest`` characters."""
    line = " ".join(clean(text).split())
    return line if longest is None or len(line) <= longest else f"{line[: longest - 1]}…"


# --- Results ---


def print_text(text: str = "", style: str | None = None) -> None:
    """Print cleaned text to stdout; long lines are left to the terminal."""
    _write(stdout(), clean(text), style)


def print_json(value: Any, indent: int = 2) -> None:
    """Print plain data or records as one JSON document to stdout, on one line if ``indent`` is negative."""
    text = json_text(value, indent)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # JSON has escapes of its own for what a stream cannot write
        text = text.translate({code: _in_json(code) for code in map(ord, set(text)) if code > _LAST_ASCII})
    sys.stdout.write(f"{text}\n")


def json_text(value: Any, indent: int = -1) -> str:
    """Encode a JSON document, on one line unless indented, with terminal control characters as JSON escapes."""
    import msgspec

    try:
        encoded = msgspec.json.encode(value)
        written = (encoded if indent < 0 else msgspec.json.format(encoded, indent=indent)).decode()
    except UnicodeEncodeError:  # file names may contain surrogates
        import json

        written = json.dumps(msgspec.to_builtins(value), indent=None if indent < 0 else indent)
    return written.translate({code: _in_json(code) for code in _DANGEROUS})


def _in_json(code: int) -> str:
    return "".join(f"\\u{pair:04x}" for pair in memoryview(chr(code).encode("utf-16", "surrogatepass")[2:]).cast("H"))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table with cleaned cells to stdout; on a terminal it is wrapped to fit, the last columns first.

    Otherwise each row is one line, with aligned columns.
    """
    console = stdout()
    cells = [[clean_line(cell, _MAX_CELL) for cell in row] for row in rows]
    if not console.is_terminal:
        _print_aligned([columns, *cells], console)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for number, column in enumerate(columns):
        is_last = number == len(columns) - 1
        # A truncated name would be useless, so it is folded.
        table.add_column(column, overflow="fold", min_width=8 * is_last)
    for first, *others in cells:
        table.add_row(Text(first, style="bold"), *map(Text, others))
    console.print(table)


def _print_aligned(rows: Sequence[Sequence[str]], console: Console) -> None:
    """Print each row as one line of any width, without rich, which is slow for thousands of rows."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        console.file.write(f"{'  '.join(padded).rstrip()}\n")
    console.file.flush()


def print_pairs(pairs: Iterable[tuple[str, str]], console: Console | None = None) -> None:
    """Print names and values in two columns to stdout or another console. Values keep their line breaks."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(clean_line(name, _MAX_CELL), style="dim"), Text(clean(_cut(value))))
    _print_trimmed(table, console or stdout())


def _print_trimmed(table: Table, console: Console) -> None:
    """Print a table; without trailing blanks if the output is not a terminal."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


# --- Messages ---


def say(text: str = "", style: str | None = None) -> None:
    """Print a message to stderr, cleaned and cut to a maximum length."""
    _write(stderr(), clean(_cut(text)), style)


def say_error(text: str, hint: str = "") -> None:
    """Print an error to stderr and, below it, a hint."""
    from rich.text import Text

    stderr().print(Text.assemble(("Error: ", "bold red"), clean(_cut(text))), soft_wrap=True)
    if hint:
        say(hint, style="dim")


def _write(console: Console, text: str, style: str | None) -> None:
    """Write cleaned text directly to the stream: rich takes fifty times as long for a line."""
    if getattr(console, "lives", 0):
        # Rich moves the live display out of the way.
        console.print(text, style=style, soft_wrap=True)
        return
    if style is not None and console.is_terminal and console.color_system is not None:
        on = console.get_style(style)
        drawn = on.without_color if console.no_color else on
        text = "\n".join(drawn.render(line) for line in text.split("\n"))
    console.file.write(f"{text}\n")
    console.file.flush()


def _cut(text: str) -> str:
    shown = "\n".join(text[:_MAX_MESSAGE].split("\n", _MAX_LINES)[:_MAX_LINES])
    more = len(text) - len(shown)
    return f"{shown}… ({more:,} more characters)" if more else text
