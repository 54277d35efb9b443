"""Running the programs, and making figures of what they count."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from tests.costs.ceilings import Figures
from tests.costs.counting import METERS, Meter, Report, RestingPoll
from tests.costs.messages import Era

__all__ = [
    "CASES",
    "HELD",
    "PATIENCE",
    "PROGRAMS",
    "Case",
    "Counted",
    "Side",
    "count",
    "environment",
    "hold",
    "in_step",
    "measured",
    "raw_server",
    "run",
    "tell",
    "written",
]

Side: TypeAlias = Literal["server", "client", "bridge", "http", "http_bridge"]
ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
#: A program that takes longer, in seconds, hangs.
PATIENCE = 120.0

#: Which functions do what, as far as they are counted by themselves.
_LOOP = "asyncio.base_events.BaseEventLoop."
_KINDS = {
    "reads": {"posix.read", "posix.readv", "socket.recv", "socket.recv_into"},
    "writes": {"posix.write", "posix.writev", "socket.send", "socket.sendmsg"},
    "turns": {_LOOP + "_run_once"},
    "callbacks": {_LOOP + "call_soon", _LOOP + "call_soon_threadsafe"},
    "timers": {_LOOP + "call_at"},
    "contexts": {"_contextvars.copy_context", "Context.copy"},
    "f-strings": {":FORMAT_VALUE", ":FORMAT_SIMPLE", ":FORMAT_WITH_SPEC"},
    "closures": {":MAKE_FUNCTION"},
    "imports": {":IMPORT_NAME"},
    # A system call, on Python 3.11.
    "loop lookups": {"_asyncio.get_running_loop", "_asyncio._get_running_loop"},
}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What one side does while it is counted."""

    era: Era = "modern"
    #: Calls that are open together. The others follow.
    at_once: int = 1
    #: Tools that the server has, or the client knows, besides.
    tools: int = 0
    #: Other calls that are open all the time.
    waiting: int = 0
    #: Subscriptions that the server has, and of which nothing is heard. A client has none.
    subscriptions: int = 0
    #: What the server's tool does, after which it returns its ``text``.
    body: str = "pass"
    #: After every 16th message, the loop turns: so the numbers come out even.
    calls: int = 64

    def rounds(self, patience: int) -> int:
        """How often so many calls are made at once."""
        return patience * self.calls // self.at_once


#: What is counted, by its name in the table.
CASES: Mapping[str, tuple[Side, Case]] = {
    "server": ("server", Case()),
    "legacy server": ("server", Case(era="legacy")),
    "server, 50 at once": ("server", Case(at_once=50, calls=50)),
    "client": ("client", Case()),
    "legacy client": ("client", Case(era="legacy")),
    "client, 50 at once": ("client", Case(at_once=50, calls=50)),
    "bridge": ("bridge", Case()),
    "bridge, 50 at once": ("bridge", Case(at_once=50, calls=50)),
    "bridge between the eras": ("bridge", Case(era="legacy")),
    "HTTP server": ("http", Case()),
    "HTTP server, 50 at once": ("http", Case(at_once=50, calls=50)),
    "HTTP server, legacy client": ("http", Case(era="legacy")),
    "bridge from HTTP": ("http_bridge", Case()),
    "bridge from HTTP, 50 at once": ("http_bridge", Case(at_once=50, calls=50)),
    "bridge from HTTP, legacy client": ("http_bridge", Case(era="legacy")),
    "bridge from HTTP, legacy client, 50 at once": ("http_bridge", Case(era="legacy", at_once=50, calls=50)),
}
#: What may be open, by its name in the table.
HELD = (
    "open request of a server",
    "open request of a client",
    "idle subscription",
    "idle connection",
    "idle HTTP session",
)


class Counted(msgspec.Struct):
    """What was counted."""

    #: By the names of the meters, and of what they count.
    reports: dict[str, Report] = {}
    #: In how many calls that was.
    calls: dict[str, int] = {}

    def add(self, meter: Meter, calls: int) -> None:
        name = type(meter).__name__
        self.reports[name] = meter.report()
        self.calls[name] = calls

    def figures(self) -> Figures:
        """What one call takes."""
        steps, natives = self.per_call("Steps"), self.per_call("Natives")
        functions = [numbers for name, numbers in steps.items() if not name.startswith(":")]
        leftovers = self.per_call("Leftovers")
        found = {
            "instructions": sum(instructions for _, instructions in functions),
            "functions": sum(calls for calls, _ in functions),
            "C functions": sum(calls for (calls,) in natives.values()),
            "tasks": self.per_call("Tasks")["made"][0],
            "kept blocks": leftovers["kept"][0],
            "garbage": leftovers["garbage"][0],
        }
        for kind, names in _KINDS.items():
            found[kind] = sum(numbers[0] for name, numbers in (steps | natives).items() if name in names)
        return found

    def per_call(self, meter: str) -> dict[str, list[float]]:
        """What a meter counted, divided by its calls."""
        calls = self.calls[meter]
        return {name: [number / calls for number in numbers] for name, numbers in self.reports[meter].items()}


def measured(case: Case, rest: RestingPoll, counted: Counted) -> Iterator[None]:
    """All rounds of calls that it takes: with each meter some to warm up, and then those that count.

    To be gone on with at a rest, at which all calls have been answered.
    """
    gc.disable()  # or it would run now and then, and what it frees would be counted
    for kind in METERS:
        meter = kind()
        rounds = case.rounds(meter.patience)
        yield from repeat(None, rounds)
        rest.meter = meter
        yield from repeat(None, rounds)
        rest.meter = None
        counted.add(meter, rounds * case.at_once)


def count(side: Side, case: Case) -> Counted:
    """Count what that side does in this case, in a process of its own."""
    told = run(["-m", f"tests.costs.programs.counted_{side}", msgspec.json.encode(case).decode()])
    return msgspec.json.decode(told, type=Counted)


def hold(subject: str) -> Figures:
    """What a process holds for one more of this."""
    return {"bytes": float(run(["-m", "tests.costs.programs.holding", subject]))}


def run(words: Sequence[str]) -> bytes:
    """What a Python writes that is started with these words; it must end well."""
    command = [sys.executable, *words]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=PATIENCE, env=environment()).stdout


def environment() -> dict[str, str]:
    """Return the environment of a measured process: without settings such as asyncio's debug mode or ``MCPLUMB_PLAIN``.

    If a copy of the package is put before it, by ``PYTHONPATH``, then that is measured.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MCPLUMB_PLAIN"))}
    return kept | {"PYTHONPATH": os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)])}


def raw_server(tools: int = 0) -> list[str]:
    """The command of a server that has nothing of the package, and lists so many tools."""
    return [sys.executable, "-S", str(PROGRAMS / "resting_server.py"), str(tools)]


def written(body: str) -> Callable[..., Any]:
    """A function that is counted, because it stands in no file of this folder."""
    names: dict[str, Any] = {"__name__": "author"}
    exec(f"async def echo(text: str) -> str:\n    {body}\n    return text\n", names)  # noqa: S102 - the tests wrote it
    echo: Callable[..., Any] = names["echo"]
    return echo


@contextmanager
def in_step(rest: RestingPoll, listener: socket.socket) -> Iterator[None]:
    """The raw server behind a bridge works only while the bridge rests."""
    with listener.accept()[0] as rests:
        go_on = rest.at_rest

        def at_rest() -> None:
            rests.send(b".")
            assert rests.recv(1)
            go_on()

        rest.at_rest = at_rest
        yield
        rest.at_rest = go_on


def tell(value: object) -> None:
    """Write what a program has found."""
    print(msgspec.json.encode(value).decode(), flush=True)
