"""What is written to the terminal: results on stdout, everything else on stderr.

Text that comes from a server passes through `clean` before it is shown, and is never read as markup: it cannot move
the cursor, set a title, hide what stands beside it, or pretend to be ours. Colours are for terminals only.
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
    "complain",
    "is_terminal",
    "print_json",
    "print_pairs",
    "print_table",
    "print_text",
    "say",
    "set_color",
    "stderr",
    "stdout",
]

#: Columns of what is not a terminal: as many as it takes, so that no line is broken.
_ENDLESS = 100_000

# What drives a terminal, or deceives its reader: control characters, marks and overrides of the writing direction,
# separators of lines, annotations, tags that nobody sees, and halves of characters, which cannot even be written.
_RANGES = (
    (0x00, 0x1F), (0x7F, 0x9F), (0x061C, 0x061C), (0x180E, 0x180E), (0x200B, 0x200B), (0x200E, 0x200F),
    (0x2028, 0x202E), (0x2060, 0x2069), (0xD800, 0xDFFF), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB), (0xE0000, 0xE007F),
)  # fmt: skip
_DANGEROUS = [code for low, high in _RANGES for code in range(low, high + 1) if chr(code) not in "\n\t"]
_IN_TEXT = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    for code in _DANGEROUS
}


class _Streams:
    """The two consoles, made when they are first used."""

    color: bool | None = None
    out: Console | None = None
    err: Console | None = None


def set_color(allowed: bool | None) -> None:  # noqa: FBT001 - one choice, with a third way
    """Whether colours may be used; None leaves it to the terminal and ``NO_COLOR``. Call it before all else."""
    _Streams.color = allowed
    _Streams.out = _Streams.err = None


def stdout() -> Console:
    """The console for results. It parses no markup, and does not break lines unless it is a terminal."""
    if _Streams.out is None or _Streams.out.file is not sys.stdout:
        _Streams.out = _console(sys.stdout)
    return _Streams.out


def stderr() -> Console:
    """The console for everything else."""
    if _Streams.err is None or _Streams.err.file is not sys.stderr:
        _Streams.err = _console(sys.stderr)
    return _Streams.err


def is_terminal() -> bool:
    """Whether a person can be asked: stdin and stderr are terminals."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _console(file: Any) -> Console:
    from rich.console import Console

    if hasattr(file, "reconfigure"):
        file.reconfigure(errors="backslashreplace")  # what the terminal cannot write is no reason to fail
    return Console(
        file=file,
        markup=False,
        emoji=False,
        highlight=False,
        no_color=True if _Streams.color is False else None,
        width=None if file.isatty() else _ENDLESS,
        legacy_windows=False,
    )


# --- What a server says ---


def clean(text: str) -> str:
    """The text, with everything in it that could drive a terminal or deceive its reader shown as an escape.

    Newlines and tabs stay. An ESC, for instance, becomes the four characters ``\\x1b``.
    """
    return text.translate(_IN_TEXT)


def clean_line(text: str, longest: int | None = None) -> str:
    """The same in one line: newlines, tabs and runs of blanks become single blanks. Cut, if a length is given."""
    line = " ".join(clean(text).split())
    return line if longest is None or len(line) <= longest else f"{line[: longest - 1]}…"


# --- Results ---


def print_text(text: str = "", style: str | None = None) -> None:
    """Print text to stdout, cleaned; a terminal breaks its long lines as it always does."""
    stdout().print(clean(text), style=style, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print one JSON document to stdout: plain data, or records, written as the protocol writes them."""
    import msgspec

    written = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    # For JSON this is the same text, and a terminal does not obey it.
    sys.stdout.write(written.translate({code: _in_json(code) for code in _DANGEROUS}) + "\n")


def _in_json(code: int) -> str:
    return "".join(f"\\u{pair:04x}" for pair in memoryview(chr(code).encode("utf-16", "surrogatepass")[2:]).cast("H"))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table to stdout that fits the terminal: cells are cleaned, and the last columns are broken first.

    What is not a terminal gets each row as one line, with the columns aligned.
    """
    from rich.table import Table
    from rich.text import Text

    console = stdout()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for number, column in enumerate(columns):
        is_last = number == len(columns) - 1
        # A name that is cut cannot be used: it is folded, and only where there is no other way.
        table.add_column(column, overflow="fold", no_wrap=not console.is_terminal, ratio=None, min_width=8 * is_last)
    for row in rows:
        cells = [Text(clean_line(cell)) for cell in row]
        cells[0].stylize("bold")
        table.add_row(*cells)
    _print_trimmed(table, console)


def print_pairs(pairs: Iterable[tuple[str, str]], console: Console | None = None) -> None:
    """Print names and what they stand for, in two columns, to stdout or to another console. Text keeps its lines."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(clean_line(name), style="dim"), Text(clean(value)))
    _print_trimmed(table, console or stdout())


def _print_trimmed(table: Table, console: Console) -> None:
    """Print without the blanks that fill up lines, which nobody wants in a file."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


# --- Everything else ---


def say(text: str = "", style: str | None = None) -> None:
    """Tell the user something, on stderr; cleaned."""
    stderr().print(clean(text), style=style, soft_wrap=True)


def complain(text: str, hint: str = "") -> None:
    """Tell the user on stderr that something failed and, below that, what to try."""
    from rich.text import Text

    stderr().print(Text.assemble(("Error: ", "bold red"), clean(text)), soft_wrap=True)
    if hint:
        say(hint, style="dim")
