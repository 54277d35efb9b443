"""``mcplumb probe``: connect to a server and report what it is, or why it cannot be reached."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcplumb.cli.command_runner import error_text, exit_code_of, global_options
from mcplumb.cli.commands.list_features import entries
from mcplumb.cli.commands.probe_report import Failure, Findings, Report, show_failure, show_report
from mcplumb.cli.render.output import print_json
from mcplumb.cli.server_target import Target, server_command
from mcplumb.errors import (
    HttpError,
    McplumbError,
    NoCommonRevision,
    ProtocolError,
    RemoteError,
    RequestTimeout,
    ServerExited,
    UsageError,
)
from mcplumb.revisions import REVISIONS

if TYPE_CHECKING:
    from mcplumb.client.client import Client

__all__ = ["probe"]

_LISTS = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}
_PINGS = 3
#: Seconds for each additional connection that tries one revision.
_REVISION_TIMEOUT = 15.0


@server_command()
@click.option("--quick", is_flag=True, help="Do not connect again to find out which other revisions it speaks.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON document.")
async def probe(target: Target, *, quick: bool, as_json: bool) -> int | None:
    """Show what a server is: era, identity, abilities, timings.

    If it cannot be reached, this says why, and what to try. Each revision that the server does not name by itself is
    asked for on a connection of its own, for which a server that is a command is started again.

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
        report = await _inspect(target, findings, quick=quick)
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
    return None


def _prepare(target: Target) -> None:
    """Import what the connection needs, so that the import time does not count as the server's."""
    from importlib import import_module

    if target.is_started:
        modules = ["client.links.process_link", "transports.process.command", "transports.process.stderr"]
    elif target.place.lower().startswith("http"):
        modules = [
            "client.links.http_link",
            "transports.http_client.http_connection",
            "transports.http_client.connection_pool",
        ]
    else:
        modules = ["client.links.socket_link", "transports.socket_connection"]
    for name in ("client.connector", *modules):
        import_module(f"mcplumb.{name}")


async def _inspect(target: Target, findings: Findings, *, quick: bool) -> Report:
    watched: dict[str, Any] = {"stderr": findings.stderr} if target.is_started else {}
    try:
        async with target.connect(trace=_both(target, findings), restart=False, era_memory=None, **watched) as client:
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
    result: Any = next((each.result for each in reversed(findings.era_requests) if isinstance(each.result, dict)), {})
    return Report(
        target=target.title,
        transport=await _transport(target, client),
        server=client.server_info,
        era=revision.era,
        revision=str(revision),
        found=findings.era_explanation(revision),
        offers=offers,
        capabilities=result["capabilities"] if "capabilities" in result else msgspec.to_builtins(client.capabilities),
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
    """Return a trace callback for the findings and, with ``--trace``, for the user."""
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
        return error_text(error)


async def _time(client: Client) -> float:
    began = time.monotonic()
    await client.ping()
    return time.monotonic() - began


def _memory(client: Client) -> tuple[int, int] | None:
    from mcplumb.cli.commands.probe_report import memory_of

    pid = None if client.process is None else client.process.pid
    return None if pid is None else memory_of(pid)


async def _all_offers(target: Target, offers: list[str]) -> list[str]:
    """Return the revisions that the server named, and those that it accepts when offered alone."""
    others = [str(revision) for revision in REVISIONS if str(revision) not in offers]
    answers = await asyncio.gather(*(_agrees(target, name) for name in others))
    found = {*offers, *(name for names in answers for name in names)}
    return sorted(found, reverse=True)


async def _agrees(target: Target, revision: str) -> list[str]:
    from mcplumb.protocol.era import EraWaits

    patience = min(target.options.get("timeout", _REVISION_TIMEOUT), _REVISION_TIMEOUT)
    quiet: dict[str, Any] = {"stderr": "discard"} if target.is_started else {}
    options = {
        "revisions": [revision],
        "restart": False,
        "waits": EraWaits(patience=patience),
        "trace": None,
        "era_memory": None,
        **quiet,
    }
    try:
        async with target.connect(**options):
            return [revision]
    except NoCommonRevision as error:
        return list(error.theirs)
    except McplumbError:
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
    # The client found the HTTP transport that works, but does not say which: try the newer one.
    try:
        async with target.connect(http_sse=False, restart=False, trace=None):
            return "streamable-http"
    except McplumbError:
        return "http-sse"


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
