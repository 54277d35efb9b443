"""Counting what a process does for a message, exactly: the same in every run and on every machine.

Time says how busy a machine was; counts say what a program does. What makes them exact is *rest*. An event loop that
has nothing left to do asks its selector to wait, and only then is the peer let act. So it makes no difference how fast
the peer is, and between two rests lies all the work for what it sent: the package's, asyncio's and everybody else's.

`take_over` has to be called before the package is imported.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
import dis
import gc
import selectors
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Protocol, TypeAlias

__all__ = ["METERS", "Leftovers", "Meter", "Natives", "Report", "RestingPoll", "Steps", "Tasks", "take_over"]

#: What was counted, by name.
Report: TypeAlias = dict[str, list[int]]
_Trace: TypeAlias = Callable[[FrameType, str, Any], Any]

_HERE = str(Path(__file__).parent)


class Meter(Protocol):
    """Counts while it is on. It is put on and off as often as the loop rests."""

    #: How many times as many calls as usual it takes to tell.
    patience: int

    def on(self) -> None:
        """Count from now on."""

    def off(self) -> None:
        """Count no more."""

    def report(self) -> Report:
        """What was counted."""


class Steps:
    """The calls of each function that is written in Python, and the bytecode instructions that were run in it."""

    patience = 1

    def __init__(self) -> None:
        # By their identities, which are found at once: to compare two codes is to compare all that is in them.
        self._codes: dict[int, CodeType] = {}
        self._names: dict[int, str] = {}
        self._calls: Counter[int] = Counter()
        self._steps: Counter[tuple[int, int]] = Counter()

    def on(self) -> None:
        # The functions that run already are looked at here, and the others when they are called.
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            self._look_at(frame)
            frame = frame.f_back
        sys.settrace(self._called)

    def off(self) -> None:
        sys.settrace(None)

    def report(self) -> Report:
        """For each function its calls, each return to it after a wait being one, and its instructions.

        For each kind of instruction, beginning with a colon, how many there were.
        """
        found: Report = {}
        names = self._names
        operations = {key: _operations(code) for key, code in self._codes.items()}
        for key, count in self._calls.items():
            found.setdefault(names[key], [0, 0])[0] += count
        for (key, offset), count in self._steps.items():
            found.setdefault(names[key], [0, 0])[1] += count
            found.setdefault(operations[key][offset], [0])[0] += count
        return found

    def _called(self, frame: FrameType, _event: str, _value: Any) -> _Trace | None:
        if not _is_here(frame):
            self._calls[id(frame.f_code)] += 1
        return self._look_at(frame)

    def _look_at(self, frame: FrameType) -> _Trace | None:
        if _is_here(frame):
            return None
        code = frame.f_code
        if id(code) not in self._codes:
            self._codes[id(code)] = code
            self._names[id(code)] = f"{frame.f_globals['__name__']}.{code.co_qualname}"
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        frame.f_trace = self._stepped
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, _value: Any) -> _Trace:
        if event == "opcode":
            self._steps[id(frame.f_code), frame.f_lasti] += 1
        return self._stepped


class Natives:
    """The calls that Python code makes of each function that is written in C, system calls among them."""

    patience = 1

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()

    def on(self) -> None:
        sys.setprofile(self._called)

    def off(self) -> None:
        sys.setprofile(None)

    def report(self) -> Report:
        return {name: [count] for name, count in self._calls.items()}

    def _called(self, frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and not _is_here(frame):
            self._calls[f"{function.__module__ or type(function.__self__).__name__}.{function.__name__}"] += 1


class Tasks:
    """The tasks that are made."""

    patience = 1

    def __init__(self) -> None:
        self._made = 0

    def on(self) -> None:
        self._made -= _CountedTask.made

    def off(self) -> None:
        self._made += _CountedTask.made

    def report(self) -> Report:
        return {"made": [self._made]}


class Leftovers:
    """The blocks of memory that are not given back, and how many objects only the garbage collector finds to be so."""

    #: Tables have to grow to their size first.
    patience = 10

    def __init__(self) -> None:
        #: Blocks in use, at the first rest and the last.
        self._first = self._last = 0
        gc.collect()

    def on(self) -> None:
        pass

    def off(self) -> None:
        self._last = sys.getallocatedblocks()
        self._first = self._first or self._last

    def report(self) -> Report:
        return {"kept": [self._last - self._first], "garbage": [gc.collect()]}


#: The first calls load and build what the others use, which is no business of the second meter.
METERS: Sequence[Callable[[], Meter]] = (Tasks, Leftovers, Natives, Steps)


class RestingPoll:
    """What the selector of an event loop waits in, which knows when the loop rests, and whoever waits in its place."""

    def __init__(self, selector: selectors.EpollSelector) -> None:
        self._epoll = vars(selector)["_selector"]
        vars(selector)["_selector"] = self
        #: Is called at each rest, before the wait: what the peer does meanwhile.
        self.at_rest: Callable[[], object] = lambda: None
        #: Is on between two rests.
        self.meter: Meter | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)

    def poll(self, timeout: float | None, most: int) -> list[tuple[int, int]]:
        ready: list[tuple[int, int]] = self._epoll.poll(0, most)
        if ready or (timeout is not None and timeout == 0):
            return ready
        if self.meter is not None:
            self.meter.off()
        self.at_rest()
        ready = self._epoll.poll(timeout, most)
        if self.meter is not None:
            self.meter.on()
        return ready


class _CountedTask(asyncio.Task[Any]):
    __slots__ = ()

    made = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        _CountedTask.made += 1
        super().__init__(*args, **options)


def take_over() -> RestingPoll:
    """Where the event loop waits that this process makes next, in which also the tasks are counted."""
    selector = selectors.EpollSelector()
    vars(selectors)["DefaultSelector"] = lambda: selector
    vars(asyncio)["Task"] = vars(asyncio.tasks)["Task"] = _CountedTask
    return RestingPoll(selector)


def _is_here(frame: FrameType) -> bool:
    """Whether this is part of the measurement, or one of its programs."""
    return frame.f_code.co_filename.startswith(_HERE)


def _operations(code: CodeType) -> dict[int, str]:
    return {each.offset: f":{each.opname}" for each in dis.get_instructions(code)}
