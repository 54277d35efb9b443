"""``mcplumb demo``: a tour with real servers.

Each step starts its own server, prints what it sees, and fails if that is not as expected.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcplumb.cli.command_group import BaseCommand
from mcplumb.cli.command_runner import DONE, error_text, exit_code_of, global_options, run
from mcplumb.cli.commands.probe_report import Findings
from mcplumb.cli.render.output import clean, clean_line, print_pairs, print_table, print_text, stdout
from mcplumb.errors import McplumbError, RequestTimeout, ServerExited
from mcplumb.revisions import LEGACY

if TYPE_CHECKING:
    from mcplumb.client.client import Client
    from mcplumb.client.connector import Connecting
    from mcplumb.client.input_handlers import Elicitation
    from mcplumb.client.subscriptions import Changes
    from mcplumb.protocol.subscription_state import Change, Missed
    from mcplumb.transports.line_connection import Trace
    from mcplumb.types.base import Number
    from mcplumb.types.tools import CallToolResult

__all__ = [
    "NEXT",
    "PATIENCE",
    "STEPS",
    "Step",
    "StepFailed",
    "Tour",
    "broken",
    "call",
    "check",
    "crash",
    "demo",
    "elicit",
    "has_http",
    "legacy",
    "ms",
    "next_change",
    "probe",
    "round_trip",
    "sockets",
    "text_of",
    "throughput",
    "tools",
]


#: Seconds that one step may take.
PATIENCE = 60.0

_SERVER = [sys.executable, "-m", "mcplumb.cli.commands.demo_server"]
_ITSELF = "-- mcplumb demo --server"
_MENU = "tea://menu"
_NO_SERVER = "exit('The tea is out.')"
#: Requests of which the median time is taken, and requests that are sent at once.
_ROUND_TRIPS = 100
_AT_ONCE = 500
#: Characters of a message, and of the bar.
_WIDTH = 100
_BAR = 32
_MIB = 1024 * 1024


class StepFailed(McplumbError):
    """A step did not see what it expected."""


def check(is_right: bool, what: str) -> None:  # noqa: FBT001 - as in an assert
    """Raise `StepFailed` unless the condition holds."""
    if not is_right:
        raise StepFailed(f"Expected that {what}.")


class Tour:
    """The state that the steps share: the server's command, and their measurements."""

    def __init__(self, command: Sequence[str] = _SERVER, *, trace: Trace | None = None) -> None:
        self.command = list(command)
        self._trace = trace
        #: Seconds until each started server was ready.
        self.starts: list[float] = []
        #: Seconds for one call, by transport.
        self.round_trips: dict[str, float] = {}
        self.calls_per_second = 0.0
        #: Seconds from the last progress of a killed server to the first one of its successor.
        self.restarts: list[float] = []
        self.memory: tuple[int, int] | None = None

    def connect(self, *words: str, trace: Trace | None = None, **options: Any) -> Connecting:
        """Start the server with these arguments and connect to it."""
        from mcplumb.client.connector import connect

        return connect([*self.command, *words], **{"stderr": "capture", "trace": self._both(trace), **options})

    def measured(self) -> list[tuple[str, str]]:
        """Return the measurements as names and texts."""
        found = []
        if self.starts:
            many = f"median of {len(self.starts)} servers, each a new process"
            found.append(("start-up", f"{ms(median(self.starts))} ({many})"))
        found += [(f"a call over {name}", ms(seconds)) for name, seconds in self.round_trips.items()]
        if self.calls_per_second:
            found.append(("calls at once", f"{self.calls_per_second:,.0f} a second, {_AT_ONCE} in flight, over stdio"))
        if self.restarts:
            slowest = ms(max(self.restarts))
            found.append(("restarts", f"{len(self.restarts)}, {slowest} from the kill to the next progress"))
        if self.memory is not None:
            found.append(("memory", f"{self.memory[0] / _MIB:.0f} MiB for the server"))
        return found

    def _both(self, more: Trace | None) -> Trace | None:
        ours = self._trace
        if ours is None or more is None:
            return ours or more

        def trace(direction: Any, line: bytes) -> None:
            ours(direction, line)
            more(direction, line)

        return trace


# --- The steps ---


async def probe(tour: Tour) -> str:
    """Start the server, and see how its era is found."""
    from mcplumb.cli.commands.probe_report import memory_of

    findings, lines = Findings(), list[str]()

    def trace(direction: Any, line: bytes) -> None:
        findings.trace(direction, line)
        lines.append(clean_line(f"{'←' if direction == 'in' else '→'} {line.decode()}", min(stdout().width, _WIDTH)))

    async with tour.connect(trace=trace) as client:
        ready = time.monotonic() - findings.began
        tour.starts.append(ready)
        info, process = client.server_info, client.process
        check(info is not None and process is not None, "the server says who it is")
        assert info is not None and process is not None and process.pid is not None  # noqa: S101, PT018
        tour.memory = memory_of(process.pid)
        print_text("\n".join(lines[:2]), style="dim")
        print_pairs(
            [
                ("server", f"{info.name} {info.version}, process {process.pid}"),
                ("era", f"{client.revision.era}: {findings.era_explanation(client.revision)}"),
                ("revision", str(client.revision)),
                ("says", client.instructions or ""),
            ]
        )
        check(client.revision.is_modern, "the server is a modern one")
    return f"Ready {ms(ready)} after it was started; there is no handshake."


async def tools(tour: Tour) -> str:
    """List the tools."""
    from mcplumb.cli.render.schema_text import signature_of

    async with tour.connect() as client:
        found = await client.list_tools()
        rows = [(signature_of(tool.name, tool.input_schema), tool.description or "") for tool in found]
        print_table(("TOOL", "DESCRIPTION"), [(name, about.partition("\n")[0]) for name, about in rows])
    names = {tool.name for tool in found}
    check({"brew", "order"} <= names, "there are the tools brew and order")
    return f"{len(found)} tools, made from Python functions: names, types and docstrings."


async def call(tour: Tour) -> str:
    """Call a tool that reports its progress."""
    from mcplumb.cli.render.progress_bar import ProgressBar

    reports: list[str] = []
    with ProgressBar("brew", lines=True) as progress_bar:

        def show(progress: Number, total: Number | None, message: str | None) -> None:
            progress_bar.show(progress, total, message)
            reports.append(f"{progress}/{total}")

        async with tour.connect() as client:
            result = await client.call_tool("brew", {"tea": "assam"}, on_progress=show)
    print_text(f"{'━' * _BAR} {reports[-1] if reports else ''}", style="green")
    print_text(text_of(result))
    check(reports == ["1/4", "2/4", "3/4", "4/4"], "each of the four cups was reported")
    return f"{len(reports)} progress reports came while the call was under way."


async def elicit(tour: Tour) -> str:
    """Call a tool that asks the user, and answer."""
    answer = {"tea": "sencha", "sugar": False}

    async def on_elicit(question: Elicitation) -> dict[str, Any]:
        fields = ", ".join((question.schema or {}).get("properties", {}))
        print_text(f"? {question.message} ({fields})")
        print_text(f"> {', '.join(f'{name}={msgspec.json.encode(value).decode()}' for name, value in answer.items())}")
        return answer

    async with tour.connect(on_elicit=on_elicit) as client:
        result = await client.call_tool("order")
    print_text(text_of(result))
    check(text_of(result) == "One sencha, without sugar.", "the answer has reached the tool")
    return "The server asked in the middle of a call; at a terminal, mcplumb call asks you."


async def crash(tour: Tour) -> str:
    """Kill the server during a call, and see it come back with its subscription."""
    async with tour.connect() as client, client.listen(resources=[_MENU]) as changes:
        process = client.process
        check(process is not None and process.pid is not None, "the server is a process of ours")
        assert process is not None and process.pid is not None  # noqa: S101, PT018
        first, reported = process.pid, list[float]()

        def kill(*_: object) -> None:
            reported.append(time.monotonic())
            if len(reported) == 1:
                os.kill(first, signal.SIGKILL)

        result = await client.call_tool("brew", {"tea": "rooibos"}, on_progress=kill)
        check(process.restarts == 1 and len(reported) > 1, "the server was started once more, and went on to report")
        tour.restarts.append(reported[1] - reported[0])
        missed = await next_change(changes)
        await client.call_tool("add_tea", {"tea": "mate", "minutes": 5})
        heard = await next_change(changes)
        print_pairs(
            [
                ("killed", f"process {first}, with {process.exits[0].signal}, after the first cup"),
                ("started", f"process {process.pid}; brew may be called twice, so it was"),
                ("answer", text_of(result)),
                ("heard", f"{missed}: there may have been changes meanwhile"),
                ("", f"{heard}: from the new process"),
            ]
        )
        check(type(missed).__name__ == "Missed", "we are told that changes may have been missed")
        check(getattr(heard, "uri", None) == _MENU, "the subscription holds in the new process")
    return "The caller saw nothing but the answer, and the subscription is open again."


async def legacy(tour: Tour) -> str:
    """Talk to the server as each legacy revision."""
    rows = []
    for revision in LEGACY:
        began = time.monotonic()
        async with tour.connect(revisions=[str(revision)]) as client:
            tour.starts.append(time.monotonic() - began)
            result = await client.call_tool("minutes", {"tea": "sencha"})
            trip = await round_trip(client)
            check(client.revision == revision, f"the server speaks {revision}")
            check(text_of(result) == "2", f"the answer is the same under {revision}")
            rows.append((str(revision), client.revision.era, "initialize", ms(tour.starts[-1]), ms(trip)))
    print_table(("REVISION", "ERA", "OPENED WITH", "READY AFTER", "A CALL"), rows)
    return f"The same server, unchanged, for clients of {len(rows)} older revisions."


async def sockets(tour: Tour) -> str:
    """Talk to one process over stdio, a Unix socket and, if that is installed, HTTP."""
    from mcplumb.client.connector import connect

    served: asyncio.Queue[str] = asyncio.Queue()

    def note(line: str) -> None:
        if "Serving at " in line:
            served.put_nowait(line.partition("Serving at ")[2])

    with TemporaryDirectory(prefix="mcplumb-") as folder:
        wanted = [f"unix:{folder}/tea.sock", *(["http://127.0.0.1:0/mcp"] if has_http() else [])]
        async with tour.connect("stdio", *wanted, stderr=note) as client, client.listen(resources=[_MENU]) as changes:
            tour.round_trips["stdio"] = await round_trip(client)
            tour.calls_per_second = await throughput(client)
            rows = [("stdio", "its standard input and output", ms(tour.round_trips["stdio"]))]
            for name in ("a Unix socket", "HTTP")[: len(wanted)]:
                address = await served.get()
                async with connect(address) as other:
                    await other.call_tool("add_tea", {"tea": "chai", "minutes": 5})
                    tour.round_trips[name] = await round_trip(other)
                where = "a file that only you can open" if address.startswith("unix:") else address
                rows.append((name.removeprefix("a "), where, ms(tour.round_trips[name])))
                heard = await next_change(changes)
                check(getattr(heard, "uri", None) == _MENU, f"stdio hears what was changed over {name}")
    if not has_http():
        rows.append(("HTTP", "not installed: pip install 'mcplumb[http]'", "-"))
    print_table(("OVER", "ADDRESS", "A CALL"), rows)
    return "One process, several doors: what was changed over one was heard over the other."


async def broken(tour: Tour) -> str:
    """Start a server that cannot start, and read why."""
    from mcplumb.client.connector import connect

    try:
        async with connect([sys.executable, "-c", _NO_SERVER], stderr="capture"):
            raise StepFailed("A server that ends at once could be used.")
    except ServerExited as error:
        print_pairs(
            [
                ("ended", f"with exit code {error.exit_code}, {error.WHEN[error.phase]}"),
                ("stderr", error.stderr_tail.strip()),
            ]
        )
        check("The tea is out." in error.stderr_tail, "its stderr is in the error")
    return "No waiting for a timeout, and no guessing: the error has what the server said."


class Step(msgspec.Struct, frozen=True):
    """One step of the tour. ``command`` does it for any server; ``take`` does it here and returns a summary."""

    title: str
    command: str
    take: Callable[[Tour], Coroutine[Any, Any, str]]


STEPS = (
    Step("Start a server, and find out what it is", f"mcplumb probe {_ITSELF}", probe),
    Step("List its tools", f"mcplumb tools {_ITSELF}", tools),
    Step("Call one, and see its progress", f"mcplumb call brew tea=assam {_ITSELF}", call),
    Step("Answer what it asks", f"mcplumb call order --answer tea=sencha --answer sugar=false {_ITSELF}", elicit),
    Step("Kill it in the middle of a call", f"mcplumb listen {_MENU} {_ITSELF}", crash),
    Step("Talk to it as older clients do", f"mcplumb tools --revision {LEGACY[-1]} {_ITSELF}", legacy),
    Step("Reach it in other ways", "mcplumb serve teahouse.py --unix tea.sock --http :8000", sockets),
    Step("See why a server does not start", f'mcplumb probe -- python -c "{_NO_SERVER}"', broken),
)


# --- Helpers of the steps ---


def has_http() -> bool:
    """Whether the packages for HTTP are installed."""
    from importlib.util import find_spec

    return all(find_spec(package) is not None for package in ("uvicorn", "httptools", "aiohttp"))


async def next_change(changes: Changes) -> Change | Missed:
    """Return the next change; fail the step if the subscription ends."""
    async for change in changes:
        return change
    raise StepFailed("The server ended the subscription.")


async def round_trip(client: Client) -> float:
    """Return the median seconds of one tool call."""
    times = []
    for _ in range(_ROUND_TRIPS):
        began = time.perf_counter()
        await client.call_tool("minutes", {"tea": "assam"})
        times.append(time.perf_counter() - began)
    return median(times)


async def throughput(client: Client) -> float:
    """Return the calls per second when many are sent at once."""
    began = time.perf_counter()
    await asyncio.gather(*(client.call_tool("minutes", {"tea": "assam"}) for _ in range(_AT_ONCE)))
    return _AT_ONCE / (time.perf_counter() - began)


def text_of(result: CallToolResult) -> str:
    """Return the text of a result; fail the step if it is an error."""
    check(not result.is_error, f"the tool does not fail ({result.text})")
    return result.text


def ms(seconds: float) -> str:
    """Format a time in milliseconds."""
    return f"{seconds * 1000:.{0 if seconds > 0.01 else 2}f} ms"


# --- mcplumb demo ---

#: Commands to try after the tour, and what they do.
NEXT = (
    ("mcplumb shell -- mcplumb demo --server", "use this server interactively"),
    ("mcplumb demo --source > teahouse.py", "have its source, as a file to start from"),
    ("mcplumb serve teahouse.py --http :8000 --reload", "serve that over HTTP, while you change it"),
    ("mcplumb tools -s http://127.0.0.1:8000/mcp", "and use it there"),
    ("mcplumb servers", "see which servers your other programs know"),
)


@click.command(cls=BaseCommand)
@click.option("--server", is_flag=True, help="Run the demo server on standard input and output instead.")
@click.option("--source", is_flag=True, help="Print the source of the demo server instead.")
def demo(*, server: bool, source: bool) -> int:
    """Take a tour, with the built-in demo server.

    It takes a few seconds and needs nothing but this package. Each step starts the server as a process of its own, does
    one thing with it, checks that it went well, and shows the command that does the same for any server. The exit code
    is that of the first step that failed. Nothing is left behind.

    \b
    mcplumb demo
    mcplumb demo --trace
    mcplumb demo --source > teahouse.py
    mcplumb tools -- mcplumb demo --server
    """
    from mcplumb.cli.commands import demo_server

    if source:
        from pathlib import Path

        click.echo(Path(demo_server.__file__).read_text(encoding="utf-8"), nl=False)
        return DONE
    if server:
        demo_server.server.run(trace=global_options().trace or None)
        return DONE
    return run(_take_tour())


async def _take_tour() -> int:
    began = time.monotonic()
    tour = Tour(trace=global_options().tracer)
    _show("mcplumb demo: a tour with a real server, a tea house", style="bold")
    codes = [await _take(tour, number, step) for number, step in enumerate(STEPS, 1)]
    _show("\nWhat was measured, here and now", style="bold cyan")
    print_pairs([*tour.measured(), ("this tour", f"{time.monotonic() - began:.1f} s")])
    _show("\nWhat to try next", style="bold cyan")
    print_pairs([(what, command) for command, what in NEXT])
    failed = [code for code in codes if code]
    if failed:
        _show(f"\n{len(failed)} of {len(codes)} steps failed.", style="bold red")
    return failed[0] if failed else DONE


async def _take(tour: Tour, number: int, step: Step) -> int:
    _show(f"\n{number}. {step.title}", style="bold cyan")
    _show(f"$ {step.command}", style="dim")
    try:
        async with asyncio.timeout(PATIENCE):
            learnt = await step.take(tour)
    except McplumbError as caught:
        error = caught
    except TimeoutError:
        error = RequestTimeout(f"This took longer than {PATIENCE:.0f} seconds.")
    else:
        _show(f"✓ {learnt}", style="green")
        return DONE
    _show(f"✗ {error_text(error)}", style="bold red")
    return exit_code_of(error)


def _show(text: str, style: str) -> None:
    stdout().print(clean(text), style=style)
