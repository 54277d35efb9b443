"""The functions of the package that one warm ``tools/call`` over stdio passes at each end, in order.

Each end runs in a process of its own and speaks with a real process over pipes. A profile function notes every
function of the package that is entered; a coroutine that is resumed is entered once more.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec

import mcplumb
from tests.costs.ceilings import Figures
from tests.costs.driving import driven
from tests.costs.measuring import PROGRAMS, Side, run
from tests.costs.messages import call

__all__ = [
    "CALLS",
    "WALKS",
    "WARM_UP",
    "Recorder",
    "Step",
    "Walk",
    "calls_of_a_client",
    "calls_of_a_server",
    "walk",
    "walk_of",
]

#: Which end walks, by the name in the table.
WALKS: Mapping[str, Side] = {"walk of a server": "server", "walk of a client": "client"}
#: Calls before the walk is recorded, and calls that are recorded.
WARM_UP, CALLS = 40, 20
#: An interrupted wait adds functions and never removes any: of several attempts, the shortest walk counts.
ATTEMPTS = 3
PACKAGE: Final = str(Path(mcplumb.__file__).parent) + "/"
#: Event names that are no function's: the event loop begins to wait; the next call begins.
_WAIT, _CALL = "wait", "call"


class Step(msgspec.Struct, frozen=True):
    """One function of a walk."""

    #: The file, below the package.
    file: str
    #: The function's qualified name.
    function: str
    #: When it is entered, counted from 1.
    places: tuple[int, ...]


class Walk(msgspec.Struct, frozen=True):
    """What one call passes at one end."""

    #: In the order in which they are first entered.
    steps: tuple[Step, ...]
    #: Functions entered per call, on average, of those that at least half of the calls enter.
    functions: float
    #: The files that these are in.
    files: int

    def figures(self) -> Figures:
        return {"functions": self.functions, "files": self.files}


class Recorder:
    """Notes the functions of the package that are entered while it is on."""

    def __init__(self) -> None:
        self._events: list[str] = []

    def on(self) -> None:
        sys.setprofile(self._profile)

    def off(self) -> None:
        sys.setprofile(None)

    def next_call(self) -> None:
        """Note that the next call begins, or has come to the author's function."""
        self._events.append(_CALL)

    def write(self, file: Path) -> None:
        file.write_bytes(msgspec.json.encode(self._events))

    def _profile(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_filename.startswith(PACKAGE):
                self._events.append(f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_qualname}")
        elif event == "c_call" and function.__name__ == "poll":
            self._events.append(_WAIT)


def walk(side: Side) -> Walk:
    """Measure the walk of one end."""
    return min((_measured(side) for _ in range(ATTEMPTS)), key=lambda walk: (walk.functions, len(walk.steps)))


def _measured(side: Side) -> Walk:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "events")
        if side == "server":
            with driven(PROGRAMS / "walked_server.py", str(file)) as server:
                for number in range(WARM_UP + CALLS):
                    server.ask(call("modern", number + 1))
        else:
            run(["-m", "tests.costs.programs.walked_client", str(file), sys.executable, str(PROGRAMS / "ten_lines.py")])
        events = msgspec.json.decode(file.read_bytes(), type=list[str])
    return walk_of(calls_of_a_server(events) if side == "server" else calls_of_a_client(events))


def calls_of_a_client(events: Sequence[str]) -> list[list[str]]:
    """Split the events at the beginning of each call, without what comes before the first."""
    calls: list[list[str]] = []
    for event in events:
        if event == _CALL:
            calls.append([])
        elif calls and event != _WAIT:
            calls[-1].append(event)
    return calls


def calls_of_a_server(events: Sequence[str]) -> list[list[str]]:
    """Split the events of a server, where `Recorder.next_call` is noted in the middle of a call, at its waits.

    What follows the first mark and what precedes the last are two parts of different calls, and make one together.
    """
    ordered: list[str] = []
    start = 0
    for index, event in enumerate(events):
        if event != _CALL:
            continue
        part = list(events[start:index])
        if start:
            waits = [place for place, event in enumerate(part) if event == _WAIT]
            part.insert(waits[-1] + 1 if waits else len(part), _CALL)
        ordered += part
        start = index + 1
    calls = calls_of_a_client([_CALL, *ordered])
    first, *others = calls
    return [*others[:-1], others[-1] + first]


def _step(name: str, places: Sequence[int]) -> Step:
    file, _, function = name.partition(":")
    return Step(file, function, tuple(places))


def walk_of(calls: Sequence[Sequence[str]]) -> Walk:
    entered = Counter(event for call in calls for event in call)
    counted = {name: number for name, number in entered.items() if number >= len(calls) / 2}
    usual = Counter(tuple(name for name in call if name in counted) for call in calls).most_common(1)[0][0]
    places: dict[str, list[int]] = {}
    for place, name in enumerate(usual, 1):
        places.setdefault(name, []).append(place)
    steps = tuple(_step(name, at) for name, at in places.items())
    files = {name.partition(":")[0] for name in counted}
    return Walk(steps, round(sum(counted.values()) / len(calls), 1), len(files))
