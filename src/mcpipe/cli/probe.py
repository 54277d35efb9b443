"""``mcpipe probe``: what a server is, and if it cannot be reached, why."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcpipe.cli.findings import Findings
from mcpipe.cli.lists import entries
from mcpipe.cli.output import complain, print_json, print_pairs, print_text, say, stderr
from mcpipe.cli.running import exit_code_of, global_options, sentence_of
from mcpipe.cli.target import Target, server_command
from mcpipe.errors import (
    HttpError,
    McpipeError,
    NoCommonRevision,
    ProtocolError,
    RemoteError,
    RequestTimeout,
    ServerExited,
    UsageError,
)
from mcpipe.revisions import REVISIONS

if TYPE_CHECKING:
    from mcpipe.client.client import Client

__all__ = ["Failure", "Report", "probe"]

_LISTS = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}
_PINGS = 3
#: Seconds for a server that is asked for one more revision.
_PATIENCE = 15.0
#: Lines of stderr and characters of instructions that people are shown.
_LINES = 10
_CHARACTERS = 500
_MIB = 1024 * 1024
#: What stands between an error about a program and the folders in which it was not found.
_IN_PATH = " in the PATH that it gets: "


class Report(msgspec.Struct, kw_only=True):
    """What was found out about a server that answers. It is also what ``--json`` prints."""

    reached: bool = True
    target: str
    #: "stdio", "unix", "tcp", "streamable-http" or "http-sse".
    transport: str
    server: Any
    era: str
    revision: str
    #: How that was found out, in half a sentence.
    found: str
    #: Every revision that the server named or, asked for it alone, agreed to.
    offers: list[str]
    capabilities: Any
    instructions: str | None
    #: How many there are of each; in words, why not, where it would not say.
    counts: dict[str, int | str]
    #: Seconds until there was an agreement and until the first message came, and for one more answer.
    ready_after: float
    first_answer_after: float | None
    answers_in: float
    #: Resident bytes of all its processes, and how many these are; None if they are not ours, or cannot be seen.
    memory: int | None
    processes: int | None
    #: Lines on its stdout that are no messages, and the first of them.
    bad_lines: int
    first_bad_line: str | None
    stderr: list[str]


class Failure(msgspec.Struct, kw_only=True):
    """What was found out about a server that cannot be reached."""

    reached: bool = False
    target: str
    error: str
    phase: str | None
    exit_code: int | None
    signal: str | None
    bad_lines: int
    first_bad_line: str | None
    stderr: list[str]
    #: The program that was started; None if there is none, or for a server at an address.
    program: str | None
    #: The folders in which it was looked for; empty for a server at an address.
    path: list[str]
    advice: list[str]


@server_command()
@click.option("--quick", is_flag=True, help="Do not connect again to find out which other revisions it speaks.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON document.")
async def probe(target: Target, *, quick: bool, as_json: bool) -> int | None:
    """Show what a server is: era, identity, abilities, timings.

    If it cannot be reached, this says why, and what to try. Each revision that the server does not name by itself is
    asked for on a connection of its own, for which a server that is a command is started again.

    \b
    mcpipe probe -- python weather.py
    mcpipe probe --quick --json -s http://127.0.0.1:8000/mcp
    """
    findings = Findings()
    if not global_options().verbose:
        # What is wrong with its lines is told in the report.
        logging.getLogger("mcpipe.client").setLevel(logging.ERROR)
    try:
        report = await _look_at(target, findings, quick=quick)
    except UsageError:
        raise
    except McpipeError as error:
        failure = _explain(error, target, findings)
        if as_json:
            print_json(failure)
        else:
            _show_failure(failure)
        return exit_code_of(error)
    if as_json:
        print_json(report)
    else:
        _show(report)
    return None


async def _look_at(target: Target, findings: Findings, *, quick: bool) -> Report:
    watched: dict[str, Any] = {"stderr": findings.stderr} if target.is_started else {}
    try:
        async with target.connect(trace=_both(target, findings), restart=False, **watched) as client:
            ready = time.monotonic() - findings.began
            findings.settled()
            counts = {key: await _count(client, method, key) for key, method in _LISTS.items()}
            memory = _memory(client)
            times = [await _time(client) for _ in range(_PINGS)]
    finally:
        findings.settled()
    revision = client.revision
    offers = findings.offered or [str(revision)]
    if not quick:
        offers = await _all_offers(target, offers)
    said: Any = next((each.result for each in reversed(findings.questions) if isinstance(each.result, dict)), {})
    return Report(
        target=target.title,
        transport=await _transport(target, client),
        server=client.server_info,
        era=revision.era,
        revision=str(revision),
        found=findings.story(revision),
        offers=offers,
        capabilities=said["capabilities"] if "capabilities" in said else msgspec.to_builtins(client.capabilities),
        instructions=client.instructions,
        counts=counts,
        ready_after=ready,
        first_answer_after=findings.first_answer,
        answers_in=sorted(times)[_PINGS // 2],
        memory=None if memory is None else memory[0],
        processes=None if memory is None else memory[1],
        bad_lines=findings.garbage_count,
        first_bad_line=findings.garbage[0] if findings.garbage else None,
        stderr=list(findings.errors),
    )


def _both(target: Target, findings: Findings) -> Any:
    """Shows each message to us, and to the user who wants to see it."""
    shown = target.options.get("trace")

    def trace(direction: Any, line: bytes) -> None:
        findings.trace(direction, line)
        if shown is not None:
            shown(direction, line)

    return trace


async def _count(client: Client, method: str, key: str) -> int | str:
    try:
        return len(await entries(client, method, key))
    except (RemoteError, HttpError, ProtocolError, RequestTimeout) as error:
        return str(error)


async def _time(client: Client) -> float:
    began = time.monotonic()
    await client.ping()
    return time.monotonic() - began


def _memory(client: Client) -> tuple[int, int] | None:
    from mcpipe.cli.memory import memory_of

    pid = None if client.process is None else client.process.pid
    return None if pid is None else memory_of(pid)


async def _all_offers(target: Target, offers: list[str]) -> list[str]:
    """The revisions that the server named, and of the others those that it agrees to if it is offered nothing else."""
    others = [str(revision) for revision in REVISIONS if str(revision) not in offers]
    answers = await asyncio.gather(*(_agrees(target, name) for name in others))
    found = {*offers, *(name for names in answers for name in names)}
    return sorted(found, reverse=True)


async def _agrees(target: Target, revision: str) -> list[str]:
    from mcpipe.protocol.era import EraWaits

    patience = min(target.options.get("timeout", _PATIENCE), _PATIENCE)
    quiet: dict[str, Any] = {"stderr": "discard"} if target.is_started else {}
    options = {"revisions": [revision], "restart": False, "waits": EraWaits(patience=patience), "trace": None, **quiet}
    try:
        async with target.connect(**options):
            return [revision]
    except NoCommonRevision as error:
        return list(error.theirs)
    except McpipeError:
        return []


async def _transport(target: Target, client: Client) -> str:
    if target.is_started:
        return "stdio"
    scheme = target.place.partition(":")[0].lower()
    if scheme in ("unix", "tcp"):
        return str(scheme)
    if target.options.get("http_sse"):
        return "http-sse"
    if client.revision.is_modern:
        return "streamable-http"
    # Both are possible, and the client has found the one that works: whether it is the newer one is asked.
    try:
        async with target.connect(http_sse=False, restart=False, trace=None):
            return "streamable-http"
    except McpipeError:
        return "http-sse"


# --- What people see ---

_TRANSPORTS = {
    "stdio": "stdio",
    "unix": "Unix socket",
    "tcp": "TCP",
    "streamable-http": "Streamable HTTP",
    "http-sse": "HTTP+SSE",
}


def _show(report: Report) -> None:
    info = report.server
    print_text("A server without a name" if info is None else f"{info.name} {info.version}", style="bold")
    pairs = [
        ("server", report.target),
        ("transport", _TRANSPORTS[report.transport]),
        ("era", f"{report.era}: {report.found}"),
        ("revision", report.revision),
        ("offers", ", ".join(report.offers)),
    ]
    if info is not None and (about := info.title or info.description):
        pairs.insert(0, ("title", about))
    pairs += [("abilities", line) for line in _abilities(report.capabilities) or ["none"]]
    pairs += [("has", _counted(report.counts))]
    if report.instructions:
        cut = "…" if len(report.instructions) > _CHARACTERS else ""
        pairs.append(("instructions", report.instructions[:_CHARACTERS].strip() + cut))
    first = "" if report.first_answer_after is None else f", first message after {_ms(report.first_answer_after)}"
    pairs.append(("start-up", f"ready after {_ms(report.ready_after)}{first}"))
    pairs.append(("answers", f"in {_ms(report.answers_in)}"))
    if report.memory is not None:
        number = "1 process" if report.processes == 1 else f"{report.processes} processes"
        pairs.append(("memory", f"{report.memory / _MIB:.1f} MiB in {number}"))
    if report.bad_lines:
        pairs.append(("stdout", _garbage(report.bad_lines, report.first_bad_line)))
    elif report.transport == "stdio":
        pairs.append(("stdout", "clean: nothing but messages"))
    if report.stderr:
        pairs.append(("stderr", "\n".join(report.stderr[-_LINES:])))
    print_pairs(_once(pairs))


def _show_failure(failure: Failure) -> None:
    short, mark, _ = failure.error.partition(_IN_PATH)
    complain(f"{short} in the PATH." if mark else short)
    say()
    pairs = [("server", failure.target)]
    if failure.program is not None:
        pairs.append(("program", failure.program))
    elif mark:
        pairs += [("PATH", folder) for folder in failure.path]
    if failure.phase is not None:
        pairs.append(("ended", f"{failure.signal or f'exit code {failure.exit_code}'}, in the {failure.phase} phase"))
    if failure.bad_lines:
        pairs.append(("stdout", _garbage(failure.bad_lines, failure.first_bad_line)))
    if failure.stderr:
        pairs.append(("stderr", "\n".join(failure.stderr[-_LINES:])))
    elif failure.program is not None:
        pairs.append(("stderr", "empty"))
    pairs += [("try", hint) for hint in failure.advice]
    print_pairs(_once(pairs), stderr())


def _explain(error: McpipeError, target: Target, findings: Findings) -> Failure:
    import os
    import shutil

    from mcpipe.cli.advice import advice

    exited = error if isinstance(error, ServerExited) else None
    command = [str(part) for part in target.place] if target.is_started else None
    searched = (target.options.get("env") or {}).get("PATH", os.environ.get("PATH", os.defpath))
    return Failure(
        target=target.title,
        error=sentence_of(error),
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


def _once(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The same, with a name that stands several times in a row only at the first."""
    return [
        ("" if number and pairs[number - 1][0] == name else name, value) for number, (name, value) in enumerate(pairs)
    ]


def _abilities(capabilities: Any) -> list[str]:
    lines = []
    for name, value in capabilities.items() if isinstance(capabilities, dict) else ():
        more = [key for key, is_on in value.items() if is_on is not False] if isinstance(value, dict) else []
        lines.append(f"{name} ({', '.join(map(str, more))})" if more else str(name))
    return [", ".join(lines)] if lines else []


def _counted(counts: dict[str, int | str]) -> str:
    words = []
    for key, count in counts.items():
        name = "resource templates" if key == "resourceTemplates" else key
        if isinstance(count, int):
            words.append(f"{count} {name.removesuffix('s') if count == 1 else name}")
        else:
            words.append(f"{name}: {count}")
    return ", ".join(words)


def _garbage(count: int, first: str | None) -> str:
    lines = "1 line that is no message" if count == 1 else f"{count} lines that are no messages, the first"
    return f"{lines}: {(first or '')[:_CHARACTERS]}"


def _ms(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds * 1000:.{0 if seconds > 0.01 else 1}f} ms"
