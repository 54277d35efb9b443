"""Record terminals as pictures: ``mcplumb demo`` for the README, and a first look for the first page of the docs.

``python -m tools.record_demo`` replaces docs/demo.svg, and ``python -m tools.record_demo FILE`` writes to another file.
``python -m tools.record_demo first-look`` replaces docs/first-look.svg: commands, run on the first server of that page.
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tools.doc_examples import PYTHON

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "demo.svg"
FIRST_PAGE = ROOT / "docs" / "README.md"
FIRST_LOOK = ROOT / "docs" / "first-look.svg"
#: The commands of the first look, and how they end.
COMMANDS = {
    "mcplumb tools -- python weather.py": 0,
    "mcplumb call forecast city=Oslo days=2 -- python weather.py": 0,
    "mcplumb call forecast city=Oslo days=two -- python weather.py": 2,
}
COLUMNS = 104
FIRST_COLUMNS = 84
ROWS = 50
PATIENCE = 120.0
# Remote fonts: browsers do not load them inside an image, and every system has its own monospace font.
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
# A spinner, which appears if a server takes long to start, and is erased again.
SPINNER = re.compile(r"\x1b\[\?25l.*?\x1b\[\?25h\r\x1b\[1A\x1b\[2K", re.DOTALL)


def shown(command: list[str], *, ends: int = 0, cwd: Path | None = None, with_errors: bool = False) -> str:
    """Return what a command writes to a terminal; without errors, stderr, which has the progress bar, is discarded."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
    folder = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "LC_ALL": "C.UTF-8",
    }
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs if with_errors else subprocess.DEVNULL,
        env=environment,
        cwd=cwd,
    )
    os.close(theirs)
    chunks = []
    try:
        while chunk := os.read(ours, 65536):
            chunks.append(chunk)
    except OSError:  # the terminal has hung up
        pass
    finally:
        os.close(ours)
    code = process.wait(PATIENCE)
    text = SPINNER.sub("", b"".join(chunks).decode().replace("\r\n", "\n"))
    assert code == ends, f"{' '.join(command)} ended with exit code {code}:\n{text}"
    return text


def picture(screens: dict[str, str], *, title: str, name: str, columns: int = COLUMNS) -> str:
    """Return an SVG of a terminal that shows these commands, each with its output."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    for number, (command, text) in enumerate(screens.items()):
        if number:
            console.print()
        console.print(Text(f"$ {command}", style="bold"))
        console.print(Text.from_ansi(text.rstrip("\n")))
    return FONTS.sub("", console.export_svg(title=title, unique_id=name))


def demo() -> str:
    """Run the demo, and return its picture."""
    text = shown([sys.executable, "-m", "mcplumb", "demo"])
    return picture({"mcplumb demo": text}, title="mcplumb demo", name="demo")


def first_look() -> str:
    """Run some commands on the first server of the docs, and return the picture."""
    found = PYTHON.search(FIRST_PAGE.read_text(encoding="utf-8"))
    assert found is not None
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "weather.py").write_text(found[1], encoding="utf-8")
        screens = {each: shown(each.split(), ends=ends, cwd=place, with_errors=True) for each, ends in COMMANDS.items()}
    return picture(screens, title="a first look", name="look", columns=FIRST_COLUMNS)


def main(arguments: list[str]) -> None:
    """Write one of the pictures."""
    if arguments == ["first-look"]:
        path, svg = FIRST_LOOK, first_look()
    else:
        path, svg = Path(arguments[0]) if arguments else PICTURE, demo()
    path.write_text(svg, encoding="utf-8")
    print(f"{path}: {len(svg.encode()) / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
