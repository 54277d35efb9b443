"""``mcplumb probe``: connect to a server and report what it is, or why it cannot be reached.

``mcplumb ping``, which only measures how fast a server answers, is here too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcplumb.cli.command_runner import error_text, exit_code_of, global_options
from mcplumb.cli.commands.list_features import broken_definitions, entries
from mcplumb.cli.commands.probe_report import STATUS, Failure, Findings, Report, show_failure, show_report
from mcplumb.cli.render.output import print_json, print_text
from mcplumb.cli.server_target import Target, seconds, server_command
from mcplumb.errors import (
    HttpError,
    McplumbError,
    NoCommonRevision,
    ProtocolError,
    RemoteError,
    ServerExited,
    UsageError,
)
from mcplumb.revisions import REVISIONS, Revision

if TYPE_CHECKING:
    from mcplumb.client.client import Client

__all__ = ["ping", "probe"]

_LISTS = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}
_PINGS = 3
#: Seconds for each further connection, unless the first one took long or ``--timeout`` says otherwise.
_REVISION_TIMEOUT = 15.0
#: HTTP statuses with which a server may refuse a revision. Others, such as 429 and 500, say nothing about it.
_REFUSALS = ("400", "404", "405", "406", "415", "422", "501")


@server_command()
@click.option("--quick", is_flag=True, help="Do not connect again to find out which other revisions it speaks.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON document.")
async def probe(target: Target, *, quick: bool, as_json: bool) -> int | None:
    """Report on a server: its era, identity, capabilities and timings.

    If it cannot be reached, this says why, and what to try. Each revision that the server does not name by itself is
    asked for on a connection of its own, one after the other; a server that is a command is started again for each.
    A revision without an answer is reported as unknown. The era is remembered for the next command.

    \b
    mcplumb probe -- python weather.py
    mcplumb probe --quick --json -s http://127.0.0.1:8000/mcp
    """
    _prepare(target)
    findings = Findings()
    if not global_options().verbose:
        # The report covers malformed lines.
        logging.getLogger("mcplumb.client").setLevel(logging.ERROR)
    try:
        report, incomplete = await _inspect(target, findings, quick=quick)
    except UsageError:
        raise
    except McplumbError as error:
        failure = _explain(error, target, findings)
        if as_json:
            print_json(failure)
        else:
            show_failure(failure)
        return exit_code_of(error)
    if as_json:
        print_json(report)
    else:
        show_report(report)
    return None if incomplete is None else exit_code_of(incomplete)


def _prepare(target: Target) -> None:
    """Import what the connection needs, so that the import time does not count as the server's."""
    from importlib import import_module

    if target.is_started:
        modules = ["client.process_link", "transports.process.command", "transports.process.stderr"]
    elif target.place.lower().startswith("http"):
        modules = [
            "client.http_link",
            "transports.http_client.http_connection",
            "transports.http_client.connection_pool",
        ]
    else:
        modules = ["client.link", "transports.socket_connection"]
    for name in ("client.connector", *modules):
        import_module(f"mcplumb.{name}")


async def _inspect(target: Target, findings: Findings, *, quick: bool) -> tuple[Report, McplumbError | None]:
    """Return the report, and the error that made it incomplete."""
    watched: dict[str, Any] = {"stderr": findings.stderr} if target.is_started else {}
    # The era is found anew, and not recalled: that is part of the report.
    watched |= {"trace": _both(target, findings), "restart": False, "era_memory": None}
    try:
        async with target.connect(**watched) as client:
            ready = time.monotonic() - findings.began
            findings.settled()
            _remember(target, client)
            lists = await _Lists.read(client)
            memory = _memory(client)
            times = await _times(client, lists)
            handshake, link = client._supervisor.handshake_result, client._supervisor.link
            transport = _transport(target, is_sse=getattr(link, "is_sse", False))
    finally:
        findings.settled()
    revision = handshake.revision
    asked = _Revisions(findings.offered or [str(revision)])
    if not quick and lists.failure is None:
        await asked.ask_all(target, revision, ready=ready, tools=lists.counts["tools"])
    result = findings.answer
    report = Report(
        target=target.title,
        transport=transport,
        server=handshake.server_info,
        era=revision.era,
        revision=str(revision),
        found=findings.era_explanation(revision, handshake.refusal),
        offers=asked.offers,
        unknown=asked.unknown,
        capabilities=result["capabilities"] if "capabilities" in result else msgspec.to_builtins(client.capabilities),
        instructions=handshake.instructions,
        counts=lists.counts,
        findings=[*lists.broken, *asked.findings, *findings.broken_rules],
        error=None if lists.failure is None else error_text(lists.failure),
        ready_after=ready,
        first_answer_after=findings.first_answer,
        answers_in=sorted(times)[_PINGS // 2] if times else None,
        memory=None if memory is None else memory[0],
        processes=None if memory is None else memory[1],
        bad_lines=findings.garbage_count,
        first_bad_line=findings.garbage[0] if findings.garbage else None,
        stderr=list(findings.errors),
    )
    return report, lists.failure


def _remember(target: Target, client: Client) -> None:
    """Store the era for the next command, unless the user allowed only some revisions."""
    from mcplumb.client.handshake import EraMemory

    file, key = target.options.get("era_memory"), client._supervisor.link.key
    if file is not None and key is not None and "revisions" not in target.options:
        EraMemory(file).learn(key, client.revision.era)


def _both(target: Target, findings: Findings) -> Any:
    """Return a trace callback for the findings and, with ``--trace``, for the user."""
    shown = target.options.get("trace")

    def trace(direction: Any, line: bytes) -> None:
        findings.trace(direction, line)
        if shown is not None:
            shown(direction, line)

    return trace


class _Lists:
    """The lists of a server: their lengths, what is wrong with their entries, and the error that ended the reading."""

    def __init__(self) -> None:
        self.counts: dict[str, int | str] = {}
        self.broken: list[str] = []
        self.failure: McplumbError | None = None

    @classmethod
    async def read(cls, client: Client) -> _Lists:
        """Read one list after the other. After a timeout or the loss of the server, the rest is not asked for."""
        lists = cls()
        for key, method in _LISTS.items():
            if lists.failure is not None:
                lists.counts[key] = "not asked"
                continue
            try:
                found = await entries(client, method, key)
            except (RemoteError, HttpError, ProtocolError) as error:
                lists.counts[key] = error_text(error)
            except McplumbError as error:
                lists.counts[key] = "no answer"
                lists.failure = error
            else:
                lists.counts[key] = len(found)
                lists.broken += broken_definitions(found, key)
        return lists


async def _times(client: Client, lists: _Lists) -> list[float]:
    """Return the times of some pings; empty if the server does not answer."""
    times: list[float] = []
    try:
        while lists.failure is None and len(times) < _PINGS:
            began = time.monotonic()
            with suppress(RemoteError, HttpError):  # these are answers, too
                await client.ping()
            times.append(time.monotonic() - began)
    except McplumbError as error:
        lists.failure = error
        return []
    return times


def _memory(client: Client) -> tuple[int, int] | None:
    from mcplumb.cli.commands.probe_report import memory_of

    pid = None if client.process is None else client.process.pid
    return None if pid is None else memory_of(pid)


class _Revisions:
    """The revisions that a server offers: those it named, and those it accepts when offered alone.

    Each is asked for on a connection of its own, one after the other: some servers can serve only one at a time.
    """

    def __init__(self, named: list[str]) -> None:
        self.offers = named
        #: The revisions about which the server gave no answer, and why.
        self.unknown: dict[str, str] = {}
        self.findings: list[str] = []

    async def ask_all(self, target: Target, spoken: Revision, *, ready: float, tools: int | str) -> None:
        """Ask for all allowed revisions that the server has not named. ``ready`` is how long its start took."""
        from mcplumb.protocol.era import DEFAULT_WAITS, EraWaits

        patience = min(max(_REVISION_TIMEOUT, 3 * ready), DEFAULT_WAITS.patience)
        options: dict[str, Any] = {
            "restart": False,
            "waits": EraWaits(patience=target.options.get("timeout", patience)),
            "trace": None,
            "era_memory": None,
            **({"stderr": "capture"} if target.is_started else {}),
        }
        # A modern server may list something else to legacy clients, so the first legacy connection counts the tools.
        compared = not (spoken.is_modern and isinstance(tools, int))
        allowed = target.options.get("revisions", list(map(str, REVISIONS)))
        for revision in [each for each in REVISIONS if str(each) in allowed]:
            wants_count = not compared and not revision.is_modern
            # If the server named it, one connection is only worth while if there are no tools.
            if str(revision) in self.offers and not (wants_count and tools == 0):
                continue
            count = await self._ask(target, options, revision, wants_count=wants_count)
            if count is not None:
                compared = True
                if count != tools:
                    self.findings.append(
                        f"It lists {_number(tools)} to a modern client, and {count} to a legacy one ({revision})."
                    )
        self.offers = sorted(set(self.offers), reverse=True)

    async def _ask(
        self, target: Target, options: dict[str, Any], revision: Revision, *, wants_count: bool
    ) -> int | None:
        """Ask for one revision; return the number of tools if it is wanted and known."""
        try:
            async with target.connect(**options, revisions=[str(revision)]) as client:
                self.offers.append(str(revision))
                return len(await entries(client, "tools/list", "tools")) if wants_count else None
        except NoCommonRevision as error:
            self.offers += error.theirs
            status = STATUS.search(str(error))
            if status is not None and status[1] not in _REFUSALS:
                self.unknown[str(revision)] = error_text(error)
        except McplumbError as error:
            if str(revision) not in self.offers:
                self.unknown[str(revision)] = error_text(error)
        return None


def _number(tools: int | str) -> str:
    return "1 tool" if tools == 1 else f"{tools} tools"


def _transport(target: Target, *, is_sse: bool) -> str:
    if target.is_started:
        return "stdio"
    scheme = target.place.partition(":")[0].lower()
    if scheme in ("unix", "tcp"):
        return str(scheme)
    return "http-sse" if is_sse else "streamable-http"


def _explain(error: McplumbError, target: Target, findings: Findings) -> Failure:
    import os
    import shutil

    from mcplumb.cli.commands.probe_report import advice

    exited = error if isinstance(error, ServerExited) else None
    command = [str(part) for part in target.place] if target.is_started else None
    searched = (target.options.get("env") or {}).get("PATH", os.environ.get("PATH", os.defpath))
    return Failure(
        target=target.title,
        error=error_text(error),
        server=findings.server,
        capabilities=findings.answer.get("capabilities"),
        phase=None if exited is None else exited.phase,
        exit_code=None if exited is None else exited.exit_code,
        signal=None if exited is None else exited.signal,
        bad_lines=findings.garbage_count,
        first_bad_line=findings.garbage[0] if findings.garbage else None,
        stderr=list(findings.errors),
        program=None if command is None else shutil.which(command[0], path=searched),
        path=[] if command is None else list(dict.fromkeys(filter(None, searched.split(os.pathsep)))),
        advice=advice(error, command=command, garbage=findings.garbage, stderr=list(findings.errors)),
    )


_MS_PER_SECOND = 1000.0


@server_command()
@click.option(
    "-n", "--count", type=click.IntRange(1), metavar="NUMBER", default=1, help="Number of pings; 1 by default."
)
@click.option("--interval", type=seconds, default=1.0, metavar="SECONDS", help="Time between two pings; 1 by default.")
@click.option("--json", "as_json", is_flag=True, help="Print the times, in seconds, as one JSON document at the end.")
async def ping(target: Target, *, count: int, interval: float, as_json: bool) -> None:
    """Find out whether a server answers, and how fast.

    A legacy server is sent a ping; a modern server, which has no ping, is sent server/discover.

    \b
    mcplumb ping -- python weather.py
    mcplumb ping -n 5 --interval 0.2 -s http://127.0.0.1:8000/mcp
    """
    times = []
    async with target.connect() as client:
        for number in range(1, count + 1):
            began = time.perf_counter()
            await client.ping()
            times.append(time.perf_counter() - began)
            if not as_json:
                print_text(f"{number}: answered in {times[-1] * _MS_PER_SECOND:.1f} ms")
            if number < count:
                await asyncio.sleep(interval)
    if as_json:
        print_json({"revision": str(client.revision), "seconds": times})
    elif count > 1:
        ordered = sorted(times)
        low, middle, high = ordered[0], (ordered[(count - 1) // 2] + ordered[count // 2]) / 2, ordered[-1]
        print_text(
            f"{count} answers: {low * _MS_PER_SECOND:.1f} ms at best, {middle * _MS_PER_SECOND:.1f} ms median, "
            f"{high * _MS_PER_SECOND:.1f} ms at worst"
        )
