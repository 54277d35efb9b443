"""What anything may cost: the table, and how a figure is held against it.

A figure that has a margin was measured, and may grow by that much before somebody has to look at it. The others are
rules. When something has become leaner, ``python -m tests.costs --write``, with each Python in turn, lowers the table
to what is measured now; when something is worth its price, that raises it.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

__all__ = ["TABLE", "Figures", "ceiling", "check", "too_high", "write"]

#: Numbers by their names.
Figures: TypeAlias = Mapping[str, float]

MARGINS = {"instructions": 1.1, "functions": 1.1, "C functions": 1.1, "bytes": 1.1, "modules": 1.05, "our modules": 1.0}
ADVICE = (
    "`python -m tests.costs server` (or `client`) shows where the work for a call is done, function by function, "
    "and `python -m tests.costs walk` which of our functions it passes, in order. "
    "If something is worth what it costs, `python -m tests.costs --write`, with each Python, allows it."
)
#: What a Python needs that is newer than those in the table, and which nobody has looked at.
NEWER = 1.15

#: For a call, nothing of this kind is done.
_NEVER = {"callbacks": 0, "timers": 0, "f-strings": 0, "closures": 0, "imports": 0, "loop lookups": 0}
#: Tables and caches may grow while they fill. One for each call would be a leak.
_STEADY = {"kept blocks": 0.5, "garbage": 0.1}
_ALONE = {**_NEVER, **_STEADY, "reads": 1, "writes": 1, "turns": 1}
_TOGETHER = {**_NEVER, **_STEADY, "reads": 0.02, "writes": 0.02, "turns": 0.02}

#: One number for every Python, or one for each of 3.11, 3.12 and 3.13.
TABLE: dict[str, dict[str, float | tuple[float, ...]]] = {
    # Per call: all that a process does for it.
    "server": {
        **_ALONE,
        "tasks": 1,
        "contexts": 1,
        "instructions": (915, 778, 793),
        "functions": (21, 19, 19),
        "C functions": (36, 33, 33),
    },
    "legacy server": {
        **_ALONE,
        "tasks": 1,
        "contexts": 1,
        "instructions": (915, 777, 792),
        "functions": (21, 19, 19),
        "C functions": (36, 33, 33),
    },
    "server, 50 at once": {
        **_TOGETHER,
        "tasks": 1,
        "contexts": 1,
        "instructions": (648, 532, 537),
        "functions": (17, 15, 15),
        "C functions": (26, 23, 23),
    },
    "client": {
        **_ALONE,
        "tasks": 0,
        "contexts": 0,
        "instructions": (898, 840, 832),
        "functions": (20, 20, 20),
        "C functions": (28, 28, 28),
    },
    "legacy client": {
        **_ALONE,
        "tasks": 0,
        "contexts": 0,
        "instructions": (915, 854, 847),
        "functions": (21, 21, 21),
        "C functions": (29, 29, 29),
    },
    "client, 50 at once": {
        **_TOGETHER,
        "tasks": 0,
        "contexts": 0,
        "instructions": (612, 576, 557),
        "functions": (15, 15, 15),
        "C functions": (18, 18, 18),
    },
    # Two messages a call, each read and written once.
    "bridge": {
        **_ALONE,
        "reads": 2,
        "writes": 2,
        "tasks": 0,
        "contexts": 0,
        "instructions": (1222, 1144, 1161),
        "functions": (18, 18, 18),
        "C functions": (38, 38, 38),
    },
    "bridge, 50 at once": {
        **_TOGETHER,
        "reads": 0.04,
        "writes": 0.04,
        "turns": 0.04,
        "tasks": 0,
        "contexts": 0,
        "instructions": (779, 725, 731),
        "functions": (14, 14, 14),
        "C functions": (26, 26, 26),
    },
    # Its server is modern, and its client is legacy.
    "bridge between the eras": {
        **_ALONE,
        "reads": 2,
        "writes": 2,
        "tasks": 0,
        "contexts": 0,
        "instructions": (1505, 1399, 1408),
        "functions": (28, 28, 28),
        "C functions": (48, 48, 48),
    },
    # Each in a POST of its own, of a client that is not authenticated.
    "HTTP server": {
        **_ALONE,
        "tasks": 1,
        "contexts": 2,
        "instructions": (2049, 1846, 1899),
        "functions": (72, 70, 69),
        "C functions": (75, 72, 70),
    },
    "HTTP server, 50 at once": {
        **_ALONE,
        "turns": 0.04,
        "tasks": 1,
        "contexts": 2,
        "instructions": (1861, 1678, 1718),
        "functions": (67, 64, 63),
        "C functions": (66, 62, 63),
    },
    "HTTP server, legacy client": {
        **_ALONE,
        "tasks": 1,
        "contexts": 1,
        "instructions": (2107, 1881, 1918),
        "functions": (74, 72, 71),
        "C functions": (80, 76, 74),
    },
    "bridge from HTTP": {
        **_ALONE,
        "reads": 2,
        "writes": 2,
        "turns": 3,
        "callbacks": 1,
        "tasks": 0,
        "contexts": 2,
        "instructions": (3510, 3266, 3350),
        "functions": (120, 120, 118),
        "C functions": (118, 118, 113),
    },
    "bridge from HTTP, 50 at once": {
        **_ALONE,
        "reads": 1.04,
        "writes": 1.04,
        "turns": 0.08,
        "callbacks": 0.02,
        "tasks": 0,
        "contexts": 2,
        "instructions": (2431, 2282, 2331),
        "functions": (91, 91, 90),
        "C functions": (77, 77, 78),
    },
    "bridge from HTTP, legacy client": {
        **_ALONE,
        "reads": 2,
        "writes": 2,
        "turns": 3,
        "callbacks": 1,
        "tasks": 0,
        "contexts": 1,
        "instructions": (3449, 3176, 3231),
        "functions": (107, 107, 105),
        "C functions": (120, 120, 115),
    },
    "bridge from HTTP, legacy client, 50 at once": {
        **_ALONE,
        "reads": 1.04,
        "writes": 1.04,
        "turns": 0.08,
        "callbacks": 0.02,
        "tasks": 0,
        "contexts": 0.02,
        "instructions": (2358, 2178, 2198),
        "functions": (78, 78, 77),
        "C functions": (81, 81, 82),
    },
    # Per call over stdio: functions of the package, where a resumed coroutine counts again, and the files they are in.
    "walk of a server": {"functions": 16, "files": 9},
    "walk of a client": {"functions": 16, "files": 9},
    # Per call of a server or a client that nothing looks into: as the kernel counts, where it does. A process that
    # finds its core taken, or a pipe half filled, goes another way now and then.
    "one at a time, to the kernel": {"reads": 1.05, "writes": 1.05, "switches": 1.5},
    "64 at once, to the kernel": {"reads": 0.25, "writes": 0.25, "switches": 0.5},
    # What is held for as long as something is open.
    "open request of a server": {"bytes": (2327, 2299, 2268)},
    "open request of a client": {"bytes": (2571, 2489, 2463)},
    "idle subscription": {"bytes": (1299, 1291, 1291)},
    "idle connection": {"bytes": (8052, 7917, 7908)},
    "idle HTTP session": {"bytes": (10745, 10577, 10586)},
    # What is loaded, beyond what a Python that does nothing has loaded.
    "import mcplumb": {"modules": (31, 31, 19), "our modules": (3, 3, 3)},
    "server at its first answer": {"modules": (196, 197, 195), "our modules": (67, 67, 67)},
    "client at its first result": {"modules": (210, 212, 208), "our modules": (68, 68, 68)},
    "mcplumb --help": {"modules": (35, 35, 24), "our modules": (6, 6, 6)},
}


def ceiling(subject: str, figure: str) -> float:
    """The most that this figure may be, with this Python."""
    limit = TABLE[subject][figure]
    if not isinstance(limit, tuple):
        return limit
    return limit[_column()] if _column() < len(limit) else limit[-1] * NEWER


def too_high(subject: str, figures: Figures) -> list[str]:
    """The names of the figures that are."""
    return [figure for figure, number in figures.items() if number > ceiling(subject, figure)]


def check(subject: str, figures: Figures) -> None:
    """Fail, and say what to do, if any of the figures is too high."""
    found = [
        f"{subject}: {figures[figure]:.6g} {figure}, and at most {ceiling(subject, figure):g} are allowed."
        for figure in too_high(subject, figures)
    ]
    assert not found, "\n".join([*found, ADVICE])


def write(subject: str, figures: Figures) -> None:
    """Put what was measured, with its margin, into the column of this Python."""
    file = Path(__file__)
    text = file.read_text(encoding="utf-8")
    for figure, number in figures.items():
        limits = TABLE[subject][figure]
        if isinstance(limits, tuple):
            column = math.ceil(round(number * MARGINS[figure], 6))
            limits = (*limits[: _column()], column, *limits[_column() + 1 :])
            place = rf'(^    "{re.escape(subject)}": {{[^}}]*?"{re.escape(figure)}": )\([^)]*\)'
            text = re.sub(place, rf"\g<1>{limits}", text, flags=re.MULTILINE)
    file.write_text(text, encoding="utf-8")


def _column() -> int:
    return sys.version_info.minor - 11
