"""What to try when a server cannot be reached: from what it left behind, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mcplumb.errors import McplumbError, ServerExited

__all__ = ["advice"]

#: Programs that are often missing, and what brings them.
_BRINGS = {
    "npx": "Install Node.js, which brings it.",
    "node": "Install Node.js.",
    "uv": "Install uv.",
    "uvx": "Install uv, which brings it.",
    "bunx": "Install Bun, which brings it.",
    "docker": "Install Docker.",
    "python": "Try python3.",
    "pip": "Try python3 -m pip.",
}
_ADDRESS = re.compile(r"https?://[\w.:\[\]-]+(?:/[\w./-]*)?")
_STATUS = re.compile(r"\bHTTP (\d{3})\b")
_NO_MODULE = re.compile(r"No module named '?([\w.]+)|Cannot find (?:module|package) '([^']+)'")
_VARIABLE = re.compile(r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b")
_ABOUT_VARIABLES = re.compile(r"(?i)environment|env var|not set|missing|required|undefined|KeyError")


def advice(
    error: McplumbError, *, command: Sequence[str] | None, garbage: Sequence[str], stderr: Sequence[str]
) -> list[str]:
    """What to try, the likeliest first. ``command`` is None for a server at an address."""
    hints = _of_command(error, command, garbage, stderr) if command else _of_address(error, garbage)
    return list(dict.fromkeys(hints))


def _of_command(
    error: McplumbError, command: Sequence[str], garbage: Sequence[str], stderr: Sequence[str]
) -> Iterator[str]:
    said = "\n".join((*garbage, *stderr))
    program = command[0].rpartition("/")[2]
    if "could not be started" in str(error):
        if program.endswith(".py"):
            yield f"A Python file is started with its interpreter: python {command[0]}"
        elif f"there is no {command[0]!r} in the PATH" in str(error):
            yield _BRINGS.get(program, "Is it installed? Give its whole path, or add its folder to PATH.")
        return
    if missing := _NO_MODULE.search(said):
        yield f"Install {missing[1] or missing[2]} where {command[0]} looks for it."
    if address := _ADDRESS.search(said):
        yield f"It names an address, and may not speak over stdio. Try: mcplumb probe -s {address[0]}"
    if garbage:
        yield "Stdout is for messages only: let the server write everything else to stderr."
    about = [line for line in stderr if _ABOUT_VARIABLES.search(line)]
    if names := [name for line in about for name in _VARIABLE.findall(line)]:
        yield f"A server gets few of your variables. Pass this one on: --inherit-env {names[0]}"
    if isinstance(error, ServerExited):
        if error.exit_code == 0:
            yield "It ended by itself: it may need an argument, such as stdio, to stay and listen."
        elif not stderr:
            yield "It said nothing: run the command by itself to see what happens."
    else:
        yield "Does it need longer? Allow more with --timeout SECONDS."
    if isinstance(error, ServerExited) and error.exit_code and not names and (about or not stderr):
        yield "A server gets few of your variables: pass more on with --inherit-env NAME or -e NAME=VALUE."


def _of_address(error: McplumbError, garbage: Sequence[str]) -> Iterator[str]:
    said = str(error)
    status = _STATUS.search(said)
    if garbage and garbage[0].startswith("HTTP/"):
        yield "It speaks HTTP: give its address as http://…"
    elif status is None:
        yield (
            "Trust its certificate with --ca-file FILE."
            if "certificate" in said
            else "Start it, or correct the address."
        )
    elif status[1] in ("401", "403"):
        yield "Show a token, with --token-file FILE, or another header, with --header NAME:VALUE."
    elif status[1] in ("404", "405"):
        yield "Correct the path: most servers answer at /mcp, and old ones at /sse."
