"""Start a tap directly from the command line, without importing anything that it does not need."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import NoReturn

from mcplumb.tap.pipe_tap import run_pipe_tap
from mcplumb.tap.recorder_link import RecorderLink, RecorderOptions

__all__ = ["start_at_once", "start_tap"]


def start_at_once(words: list[str]) -> None:
    """Run ``mcplumb tap`` with these words and exit, if they need no parser; otherwise return.

    Other options, wrong ones and the help are for the full command line.
    """
    if "--" not in words:
        return
    at = words.index("--")
    given, command = words[:at], words[at + 1 :]
    options: dict[str, str] = {}
    masks = True
    while given:
        name, equals, value = given.pop(0).partition("=")
        if name == "--unmasked" and not equals:
            masks = False
        elif name in ("--record", "--name", "--keep") and (equals or given):
            options[name] = value if equals else given.pop(0)
        else:
            return
    keep = options.get("--keep")
    if not command or (keep is not None and not (keep.isdecimal() and keep.isascii() and int(keep) > 0)):
        return
    start_tap(
        command,
        place=options.get("--record"),
        masks=masks,
        keep=None if keep is None else int(keep),
        name=options.get("--name", ""),
    )


def start_tap(
    command: list[str],
    *,
    place: str | None = None,
    masks: bool = True,
    keep: int | None = None,
    name: str = "",
    env: Mapping[str, str] | None = None,
) -> NoReturn:
    """Run a tap for this command, and exit as its server does. ``env`` replaces the environment of the server."""
    # What a shell left to do for the command line: a recording in the home folder, and one at a relative path.
    place = None if place is None else os.path.abspath(os.path.expanduser(place))  # noqa: PTH100, PTH111
    options = RecorderOptions(command, place=place, masks=masks, keep=keep, name=name)
    code = run_pipe_tap(command, RecorderLink(options), env)
    sys.stderr.flush()
    os._exit(code)
