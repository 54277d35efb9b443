"""The fidelity table of the docs: ``python -m tests.interop.bridge.table [PRODUCT ...]`` measures it and writes it.

The results are kept in a file beside the page, which is generated from it (``make docs`` does that, too). Products that
are not named keep the results that they have.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.interop.bridge.fidelity import BINDINGS, ERAS, FEATURES, PASS, Cell, Era, cells, outcomes, visits
from tests.interop.bridge.products import MCPLUMB, OTHERS, PRODUCTS, Binding, Product
from tests.interop.environments import ROOT, say

FILE = ROOT / "docs" / "topics" / "bridge-fidelity.json"
PAGE = ROOT / "docs" / "topics" / "bridge-fidelity.md"
ALL_BINDINGS: tuple[Binding, ...] = BINDINGS["legacy"]
TITLES = {"stdio": "stdio", "http": "Streamable HTTP", "sse": "HTTP+SSE", "unix": "Unix socket", "tcp": "TCP"}
NO_SSE = "the era has no HTTP+SSE"


class Row(NamedTuple):
    """One cell of the table, with the outcome of each feature: ``PASS``, or what was observed instead."""

    client_era: Era
    server_era: Era
    front: Binding
    back: Binding
    outcomes: dict[str, str]


Table = dict[str, list[Row]]


# --- Measuring ---


def measure(product: Product, workers: int) -> list[Row]:
    """Make all visits of a product."""
    wanted = cells(product)
    made = [visit for cell in wanted for visit in visits(cell)]
    found: dict[Cell, list[dict[str, str]]] = {cell: [] for cell in wanted}
    with ProcessPoolExecutor(workers, initializer=_be_quiet) as pool:
        for number, (visit, seen) in enumerate(zip(made, pool.map(outcomes, made), strict=True), 1):
            crossed = sum(outcome == PASS for outcome in seen.values())
            say(f"{number} of {len(made)}: {visit}: {crossed} of {len(seen)} features cross")
            found[visit.cell].append(seen)
    return [Row(*cell[1:], merged(each)) for cell, each in found.items()]


def _be_quiet() -> None:
    """Drop what servers and clients wrote, which pytest would show."""
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends


def merged(found: Iterable[dict[str, str]]) -> dict[str, str]:
    """Return the outcomes of a cell: a feature crosses if it does in all visits."""
    result: dict[str, str] = {}
    for each in found:
        for feature, outcome in each.items():
            if result.get(feature, PASS) == PASS:
                result[feature] = outcome
    return result


# --- Keeping ---


def load(file: Path = FILE) -> Table:
    kept = json.loads(file.read_text(encoding="utf-8"))
    return {
        product: [
            Row(row["client"], row["server"], row["front"], row["back"], {name: row[name] for name in FEATURES})
            for row in rows
        ]
        for product, rows in kept.items()
    }


def save(table: Table, file: Path = FILE) -> None:
    """Write the table, with one line for each cell."""
    products = []
    for product, rows in table.items():
        lines = ",\n".join(json.dumps(_kept(row), ensure_ascii=False) for row in rows)
        products.append(f"{json.dumps(product)}: [\n{lines}\n]")
    file.write_text("{\n" + ",\n".join(products) + "\n}\n", encoding="utf-8")


def _kept(row: Row) -> dict[str, Any]:
    place = {"client": row.client_era, "server": row.server_era, "front": row.front, "back": row.back}
    return place | row.outcomes


# --- The page ---

INTRODUCTION = """\
# What crosses the bridge

`mcplumb bridge` stands between a client and a server of any era, over any binding. This table says which features
cross it. It is made by tests: in every cell, a client tries every feature on a server, through a bridge that runs as
a process of its own. Both ends are the official SDKs: `mcp` 1.30.0 and TypeScript 1.32.2 for the legacy era, `mcp`
2.3.0 and TypeScript 2.4.0 for the modern one. The Python client meets the TypeScript server, and the other way round;
a feature crosses if it does in both visits. No SDK has Unix sockets and TCP, so mcplumb's own client and server are
used there.

A feature crosses if the client observes exactly what it has to: progress while the call runs, the cancellation in the
tool, the question with its answer, the notification of a change. A server of `mcp` 1.30.0 cannot add methods of
extensions: there, its error has to cross. `make interop` makes all visits and compares them with this page.
`make fidelity` measures the table again. The [file with all cells](bridge-fidelity.json) is for programs.

The eras are *legacy* (revision 2025-11-25) and *modern* (revision 2026-07-28). [Other bridges](#other-bridges) are
measured in the same way.
"""

OTHER_INTRODUCTION = """\
## Other bridges

The same visits through other bridges, at the versions named, over the bindings that each has. Each entry is the
number of pairs of bindings in which the feature crosses. `make interop-wild` compares them with this page.
`supergateway` has its option `--stateful`, without which each request has a server of its own, and FastMCP's proxy has
`mode="auto"`, without which the server has to be of the client's era, and `identity="upstream"`, without which it shows
its own name.
"""


def page(table: Table) -> str:
    """Return the page of the docs."""
    parts = [INTRODUCTION, _summary(table[MCPLUMB.name])]
    parts += [_eras(table[MCPLUMB.name], client, server) for client in ERAS for server in ERAS]
    parts += [OTHER_INTRODUCTION, _comparison(table)]
    parts += [_other(product, table[product.name]) for product in OTHERS if product.name in table]
    return "\n".join(parts)


def _summary(rows: list[Row]) -> str:
    crossed = sum(outcome == PASS for row in rows for outcome in row.outcomes.values())
    return (
        f"{crossed:,} of {len(rows) * len(FEATURES):,} cells pass: {len(FEATURES)} features in {len(rows)} "
        "combinations of eras and bindings.\n"
    )


def _eras(rows: list[Row], client: Era, server: Era) -> str:
    """Return the table of one pair of eras: a row for each feature, a column for each front."""
    backs = ", ".join(TITLES[back] for back in BINDINGS[server])
    if "sse" not in BINDINGS[server]:
        backs += f" ({NO_SSE})"
    lines = [
        f"## A {client} client with a {server} server",
        "",
        f"Columns are the bindings of the client. Each entry is for all bindings of the server: {backs}.",
        "",
        _line("feature", *(TITLES[front] for front in ALL_BINDINGS)),
        _line(*["---"] * (len(ALL_BINDINGS) + 1)),
    ]
    for feature, title in FEATURES.items():
        entries = [_entry(rows, feature, client, server, front) for front in ALL_BINDINGS]
        lines.append(_line(title, *entries))
    return "\n".join([*lines, ""])


def _entry(rows: list[Row], feature: str, client: Era, server: Era, front: Binding) -> str:
    if front not in BINDINGS[client]:
        return NO_SSE
    found = {row.back: row.outcomes[feature] for row in rows if row[:3] == (client, server, front)}
    failed = [TITLES[back] for back, outcome in found.items() if outcome != PASS]
    return f"not with {', '.join(failed)}" if failed else f"pass, {len(found)} of {len(found)}"


def _comparison(table: Table) -> str:
    """Return how many cells pass, for each bridge and pair of eras."""
    pairs = [(client, server) for client in ERAS for server in ERAS]
    lines = [
        _line("bridge", *(f"{client} client, {server} server" for client, server in pairs)),
        _line(*["---"] * (len(pairs) + 1)),
    ]
    for product in PRODUCTS:
        if product.name in table:
            counts = [_count(row for row in table[product.name] if row[:2] == pair) for pair in pairs]
            lines.append(_line(_name(product), *counts))
    return "\n".join([*lines, ""])


def _count(rows: Iterable[Row]) -> str:
    found = [outcome == PASS for row in rows for outcome in row.outcomes.values()]
    return f"{sum(found)} of {len(found)}"


def _other(product: Product, rows: list[Row]) -> str:
    pairs = [(client, server) for client in ERAS for server in ERAS]
    joined = "; ".join(
        f"{', '.join(TITLES[front] for front in fronts)} in front of {', '.join(TITLES[back] for back in backs)}"
        for fronts, backs in product.bindings
    )
    lines = [
        f"### {_name(product)}",
        "",
        f"Bindings: {joined}.",
        "",
        _line("feature", *(f"{client} client, {server} server" for client, server in pairs)),
        _line(*["---"] * (len(pairs) + 1)),
    ]
    for feature, title in FEATURES.items():
        entries = []
        for pair in pairs:
            found = [row.outcomes[feature] for row in rows if row[:2] == pair]
            crossed = sum(outcome == PASS for outcome in found)
            entries.append("pass" if crossed == len(found) else f"{crossed} of {len(found)}")
        lines.append(_line(title, *entries))
    return "\n".join([*lines, "", "What was observed instead, in the first cell that fails:", "", *_reasons(rows), ""])


def _reasons(rows: list[Row]) -> list[str]:
    """Return why features do not cross: once for those that fail for the same reason."""
    found: dict[str, list[str]] = {}
    for feature, title in FEATURES.items():
        for client in ERAS:
            reasons = [
                row.outcomes[feature] for row in rows if row.client_era == client and row.outcomes[feature] != PASS
            ]
            if reasons:
                found.setdefault(f"{client} client: `{reasons[0].replace('`', '')}`", []).append(title)
    return [f"- {reason} ({', '.join(titles)})" for reason, titles in found.items()]


def _name(product: Product) -> str:
    return "mcplumb" if product is MCPLUMB else f"`{product.name}` {product.version}"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    arguments = argparse.ArgumentParser(prog="python -m tests.interop.bridge.table")
    arguments.add_argument("product", nargs="*", help=f"of {', '.join(map(str, PRODUCTS))}: all if none is named")
    arguments.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = arguments.parse_args()
    table = load() if FILE.exists() else {}
    for product in PRODUCTS:
        if not given.product or product.name in given.product:
            table[product.name] = measure(product, given.workers)
            save({each.name: table[each.name] for each in PRODUCTS if each.name in table})
    PAGE.write_text(page(load()), encoding="utf-8")


if __name__ == "__main__":
    main()
