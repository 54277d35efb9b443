"""The matrix of the docs: ``python -m tests.interop.matrix.page [PEER ...]`` measures it and writes it.

The results are kept in a file beside the page, which is generated from it (``make docs`` does that, too). Peers that
are not named, and those that cannot be built on this machine, keep the results that they have.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, get_args

from tests.interop.bridge.fidelity import (
    COMPILED,
    FEATURES,
    OWN,
    PASS,
    REFERENCE,
    SDK_SERVERS,
    Visit,
    outcomes,
)
from tests.interop.bridge.products import MCPLUMB
from tests.interop.environments import ROOT, NoToolchain, say
from tests.interop.matrix.known import KNOWN, Known, Verdict, known
from tests.interop.matrix.pairs import PARTS, PEERS, TITLES, VISITS, Peer, peer_of
from tests.interop.wild.software import INSPECTOR

FILE = ROOT / "docs" / "topics" / "interop-matrix.json"
PAGE = ROOT / "docs" / "topics" / "interop-matrix.md"
BINDINGS = {"stdio": "stdio", "http": "HTTP"}

#: The headings of the columns, which have to be short.
COLUMNS = {
    "introduction": "name",
    "calls": "tools",
    "tool_errors": "tool errors",
    "protocol_errors": "errors",
    "structured_content": "structured",
    "metadata": "`_meta`",
    "progress": "progress",
    "cancellation": "cancel",
    "logs": "logs",
    "resources": "resources",
    "templates": "templates",
    "subscriptions": "updates",
    "list_changes": "list changes",
    "prompts": "prompts",
    "completion": "completion",
    "forms": "forms",
    "urls": "web pages",
    "sampling": "sampling",
    "roots": "roots",
    "pagination": "pages",
    "extension_methods": "extensions",
}
#: What a client has to observe in each.
OBSERVED = {
    "introduction": "the name and the instructions of the server",
    "calls": "the result of a tool",
    "tool_errors": "the text of a tool that fails",
    "protocol_errors": "the code of the error for a resource that does not exist",
    "structured_content": "the structured content of a result",
    "metadata": "a value of `_meta` in the request that the tool returns in the `_meta` of the result",
    "progress": "three steps of progress, while the tool still runs",
    "cancellation": "the call is cancelled, and the tool notices",
    "logs": "a log message",
    "resources": "the list of resources, the content of a text and of an image",
    "templates": "the list of templates, the content of a resource that one describes",
    "subscriptions": "the notification that a resource has changed, and its new content",
    "list_changes": "the notification that a list has changed, and the new item in it",
    "prompts": "the messages of a prompt",
    "completion": "the values for an argument of a prompt and of a template",
    "forms": "a question with a form (elicitation), and in the result what the user filled in, or declined",
    "urls": "a question that sends the user to a web page (elicitation), and the result after that",
    "sampling": "a question for the model, and its answer in the result",
    "roots": "the server lists the roots of the client",
    "pagination": "a list of two pages",
    "extension_methods": "the result of a method that the protocol does not have",
}
assert COLUMNS.keys() == OBSERVED.keys() == FEATURES.keys()


class Row(NamedTuple):
    """One pair, with the verdict on each feature, and what was observed where it does not pass."""

    name: str
    verdicts: dict[str, Verdict]
    observed: dict[str, str]


class Matrix(NamedTuple):
    date: str
    #: What each peer is, with its version, when it was measured.
    peers: dict[str, str]
    rows: dict[str, Row]


def row_of(visit: Visit, found: dict[str, str]) -> Row:
    """Return the row of a visit in which these outcomes were found."""
    failed = {feature: outcome for feature, outcome in found.items() if outcome != PASS}
    verdicts: dict[str, Verdict] = {}
    for feature in FEATURES:
        why = known(visit, feature)
        if feature not in failed and not (why is not None and why.is_refused):
            # Also where it is said that there is no such thing: the tests then find that this is not so.
            verdicts[feature] = "pass"
        else:
            verdicts[feature] = "none" if why is not None and why.verdict == "none" else "fail"
    return Row(str(visit), verdicts, failed)


# --- Measuring ---


def measure(peers: Iterable[str], workers: int, kept: Matrix | None) -> Matrix:
    """Make all visits of these peers, and keep the other rows."""
    wanted = [visit for visit in VISITS if peer_of(visit) in peers]
    rows = {} if kept is None else dict(kept.rows)
    with ProcessPoolExecutor(workers, initializer=_be_quiet) as pool:
        for number, (visit, found) in enumerate(zip(wanted, pool.map(_found, map(str, wanted)), strict=True), 1):
            row = rows[str(visit)] = row_of(visit, found)
            passed = sum(verdict == "pass" for verdict in row.verdicts.values())
            say(f"{number} of {len(wanted)}: {visit}: {passed} of {len(FEATURES)} features pass")
    titles = {} if kept is None else kept.peers
    titles = titles | {name: TITLES[name] for name in (OWN, *peers)}
    date = datetime.now(UTC).date().isoformat()
    if kept is not None and len(wanted) < len(VISITS):
        date = kept.date  # The rows of some peers are newer than that.
    return Matrix(date, {name: titles[name] for name in TITLES if name in titles}, rows)


def _found(name: str) -> dict[str, str]:
    """Make the visit of this name, in another process: the products of a visit cannot be sent there."""
    return outcomes(next(visit for visit in VISITS if str(visit) == name))


def _be_quiet() -> None:
    """Drop what servers and clients wrote, which pytest would show."""
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends


def available(peers: Iterable[str]) -> list[str]:
    """Return the peers that can be run on this machine, and make what they need."""
    found = []
    for name in peers:
        try:
            _make(name)
        except NoToolchain as error:
            say(f"{TITLES[name]}: its rows stay as they are. {error}")
        else:
            found.append(name)
    return found


def _make(name: str) -> None:
    if name in COMPILED:
        COMPILED[name].made()
    elif name in SDK_SERVERS:
        SDK_SERVERS[name].environment.made()
    elif name in REFERENCE:
        REFERENCE[name](Path())
    else:
        INSPECTOR.environment.made()


# --- Keeping ---


def load(file: Path = FILE) -> Matrix:
    kept = json.loads(file.read_text(encoding="utf-8"))
    rows = [
        Row(row["row"], {feature: row["cells"][feature] for feature in FEATURES}, row["observed"])
        for row in kept["rows"]
    ]
    return Matrix(kept["date"], kept["peers"], {row.name: row for row in rows})


def save(matrix: Matrix, file: Path = FILE) -> None:
    """Write the matrix, with one line for each row, in the order of the page."""
    lines = ",\n".join(
        json.dumps(_kept(visit, matrix.rows[str(visit)]), ensure_ascii=False)
        for visit in VISITS
        if str(visit) in matrix.rows
    )
    head = json.dumps({"date": matrix.date, "peers": matrix.peers}, ensure_ascii=False)
    file.write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")


def _kept(visit: Visit, row: Row) -> dict[str, Any]:
    cell = visit.cell
    return {
        "row": row.name,
        "client": {"name": visit.client, "era": cell.client_era, "binding": cell.front},
        "bridge": cell.product is MCPLUMB,
        "server": {"name": visit.server, "era": cell.server_era, "binding": cell.back},
        "cells": row.verdicts,
        "observed": row.observed,
    }


# --- The page ---

#: Servers that know both eras, and are tried in the newer one.
_ONCE = [TITLES[name] for name in ("python_v2", "typescript_v2", "fastmcp_4", "mcp-server-time")]

INTRODUCTION = f"""\
# Who works with whom

Each row of this matrix is a client with a server, each column is a feature. The rows are made by tests: a client that
is written with one SDK tries every feature on a server that is written with another, each in a process of its own. The
reference servers are tried with their own tools, and MCP Inspector with its command line, `mcp-inspector --cli`.

- **pass**: the client observed [what it has to](#columns).
- **fail**: it did not; the note says why.
- **none**: one of the two has no such thing; the note says which.

The eras are *legacy* (revision 2025-11-25) and *modern* (revision 2026-07-28). Clients and servers that know both are
tried in both, except these servers, which are tried in the modern one:
{", ".join(_ONCE)}.
Through the [bridge](bridge.md), the client and the server use different bindings, and all pairs of eras are tried.

`make interop-matrix` measures the matrix again, and `make interop` compares every row with this page. SDKs whose
toolchain is not on the machine are left out. The [file with all cells](interop-matrix.json) is for programs.
"""


def page(matrix: Matrix) -> str:
    """Return the page of the docs."""
    parts = [INTRODUCTION, _summary(matrix), _columns()]
    parts += [_part(title, matrix) for title in PARTS]
    return "\n".join([*parts, _notes()])


def _summary(matrix: Matrix) -> str:
    """Return a table with a row for each peer: how many cells pass, and what does not."""
    own = matrix.peers[OWN]
    lines = [
        "## At a glance",
        "",
        f"Measured on {matrix.date}: {len(matrix.rows)} rows with {_counted(matrix, VISITS)}.",
        "The reference servers are only servers, and MCP Inspector is only a client.",
        "",
        _line(
            "", f"its server, {own}'s client", f"its client, {own}'s server", "through the bridge", "what does not pass"
        ),
        _line(*["---"] * 5),
    ]
    server, client, *bridged = PARTS.values()
    for peer in PEERS:
        through = [visit for each in bridged for visit in each(peer)]
        counts = [_counted(matrix, visits) for visits in (server(peer), client(peer), through)]
        lines.append(_line(peer.title, *counts, _exceptions(peer)))
    return "\n".join([*lines, ""])


def _counted(matrix: Matrix, visits: Iterable[Visit]) -> str:
    """Return how many cells of these rows have which verdict."""
    rows = [matrix.rows[str(visit)] for visit in visits if str(visit) in matrix.rows]
    verdicts = [verdict for row in rows for verdict in row.verdicts.values()]
    counts = {verdict: verdicts.count(verdict) for verdict in get_args(Verdict)}
    if counts["pass"] == len(verdicts):
        return f"all {len(verdicts)} pass" if verdicts else "-"
    return ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items() if count)


def _exceptions(peer: Peer) -> str:
    """Return the columns that do not pass in all rows of a peer, with their notes."""
    found = []
    for each in KNOWN:
        if each.peer == peer.name:
            ends = {end for visit in VISITS for end in ("server", "client") if _is_about(each, visit, end)}
            which = f"{'/'.join(sorted(ends))}: " if peer.server_eras and peer.client_eras else ""
            rest = [COLUMNS[feature] for feature in COLUMNS if feature not in each.features]
            if len(rest) < len(each.features):
                columns = f"all but {', '.join(rest)}"
            else:
                columns = ", ".join(COLUMNS[feature] for feature in each.features)
            found.append(f"{which}{columns}: {each.verdict} {_link(each)}")
    return "; ".join(found)


def _is_about(each: Known, visit: Visit, end: str) -> bool:
    """Return whether this is known about this end of a visit."""
    return getattr(visit, end) == each.peer and any(known(visit, feature) is each for feature in each.features)


def _columns() -> str:
    lines = ["## Columns", "", _line("column", "what the client has to observe"), _line("---", "---")]
    lines += [_line(COLUMNS[feature], OBSERVED[feature]) for feature in COLUMNS]
    return "\n".join([*lines, ""])


def _part(title: str, matrix: Matrix) -> str:
    visits = [visit for peer in PEERS for visit in PARTS[title](peer) if str(visit) in matrix.rows]
    heads = _heads(visits[0])
    lines = [f"## {title}", ""]
    if visits[0].cell.product is MCPLUMB:
        lines += [
            "*front* is how the client speaks with the bridge, and *back* is how the bridge speaks with the server.",
            "",
        ]
    lines += [_line(*heads, *COLUMNS.values()), _line(*["---"] * (len(heads) + len(COLUMNS)))]
    for visit in visits:
        row = matrix.rows[str(visit)]
        entries = [_entry(visit, row, feature) for feature in COLUMNS]
        lines.append(_line(matrix.peers[peer_of(visit)], *_ends(visit), *entries))
    return "\n".join([*lines, ""])


def _heads(visit: Visit) -> tuple[str, ...]:
    peer = "client" if visit.server == OWN else "server"
    return (peer, "era", "binding") if visit.cell.product is not MCPLUMB else (peer, "front", "back")


def _ends(visit: Visit) -> tuple[str, ...]:
    cell = visit.cell
    if cell.product is not MCPLUMB:
        return cell.client_era, BINDINGS[cell.front]
    return f"{cell.client_era}, {BINDINGS[cell.front]}", f"{cell.server_era}, {BINDINGS[cell.back]}"


def _entry(visit: Visit, row: Row, feature: str) -> str:
    verdict = row.verdicts[feature]
    why = None if verdict == "pass" else known(visit, feature)
    return verdict if why is None else f"{verdict} {_link(why)}"


def _link(why: Known) -> str:
    return f"[{_number(why)}](#note-{_number(why)})"


def _number(why: Known) -> int:
    return KNOWN.index(why) + 1


def _notes() -> str:
    lines = ["## Notes", ""]
    for number, each in enumerate(KNOWN, 1):
        features = ", ".join(FEATURES[feature] for feature in each.features)
        lines += [f"### Note {number}", "", f"{TITLES[each.peer]}, {features}: {each.why}", ""]
        if each.evidence is not None:
            lines += ["```text", *each.messages.strip().splitlines(), "```", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    names = [peer.name for peer in PEERS]
    arguments = argparse.ArgumentParser(prog="python -m tests.interop.matrix.page")
    arguments.add_argument("peer", nargs="*", help=f"of {', '.join(names)}: all if none is named")
    arguments.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = arguments.parse_args()
    if unknown := ", ".join(sorted(set(given.peer) - set(names))):
        arguments.error(f"there is no peer {unknown}: the peers are {', '.join(names)}")
    kept = load() if FILE.exists() else None
    save(measure(available(given.peer or names), given.workers, kept))
    PAGE.write_text(page(load()), encoding="utf-8")


if __name__ == "__main__":
    main()
