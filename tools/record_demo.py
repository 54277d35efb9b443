"""Record ``mcplumb demo`` on a terminal as the picture in the README, docs/demo.svg.

``python tools/record_demo.py`` replaces that file; ``python tools/record_demo.py FILE`` writes to another file.
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "demo.svg"
COLUMNS = 104
ROWS = 50
PATIENCE = 120.0
# Remote fonts: browsers do not load them inside an image, and every system has its own monospace font.
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def shown(command: list[str]) -> str:
    """Return what a command writes to a terminal on stdout; stderr, which has the progress bar, is discarded."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL, env=environment
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
    text = b"".join(chunks).decode().replace("\r\n", "\n")
    assert code == 0, f"{' '.join(command)} ended with exit code {code}:\n{text}"
    return text


def picture(text: str) -> str:
    """Return an SVG of a terminal that shows this text."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ mcplumb demo", style="bold"))
    console.print(Text.from_ansi(text))
    return FONTS.sub("", console.export_svg(title="mcplumb demo", unique_id="demo"))


def main(arguments: list[str]) -> None:
    """Run the demo and write the picture."""
    path = Path(arguments[0]) if arguments else PICTURE
    svg = picture(shown([sys.executable, "-m", "mcplumb", "demo"]))
    path.write_text(svg, encoding="utf-8")
    print(f"{path}: {len(svg.encode()) / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
