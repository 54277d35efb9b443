"""What the figures are called, how they are written, and how tables of them are shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.results import Table

__all__ = ["FIGURES", "Figure", "as_markdown", "as_text", "cells", "rounds", "times"]


def seconds(value: float) -> str:
    if value < 0.001:
        return f"{value * 1e6:,.1f} µs" if value < 0.0001 else f"{value * 1e6:,.0f} µs"
    return f"{value * 1000:,.1f} ms" if value < 1 else f"{value:,.2f} s"


def moments(value: float) -> str:
    return seconds(value) if value >= 1e-6 else f"{value * 1e9:,.3g} ns"


def count(value: float) -> str:
    return f"{value:,.0f}"


def megabytes(value: float) -> str:
    return f"{value:,.1f} MB"


class Figure(NamedTuple):
    """Something that is measured."""

    heading: str
    written: Callable[[float], str]
    less_is_better: bool = True


FIGURES = {
    # How a process begins.
    "cold": Figure("first answer", seconds),
    "connect": Figure("from connect to a result", seconds),
    "start_cpu": Figure("CPU until then", seconds),
    "idle": Figure("idle memory", megabytes),
    # How long it takes to reach a server that reads late.
    "after_0": Figure("reads at once", seconds),
    "after_1": Figure("after 1 s", seconds),
    "after_2": Figure("after 2 s", seconds),
    "after_5": Figure("after 5 s", seconds),
    # What calls cost.
    "p50": Figure("one at a time, p50", seconds),
    "p99": Figure("p99", seconds),
    "alone": Figure("calls/s", count, less_is_better=False),
    "in_flight": Figure("64 in flight, calls/s", count, less_is_better=False),
    "cpu": Figure("CPU for 10,000", seconds),
    "cpu_alone": Figure("CPU for 10,000, one at a time", seconds),
    "loaded": Figure("memory after that", megabytes),
    "small": Figure("1 MB echo", lambda value: f"{value:,.0f} MB/s", less_is_better=False),
    "large": Figure("10 MB echo", lambda value: f"{value:,.0f} MB/s", less_is_better=False),
    # What subscriptions cost.
    "stream_memory": Figure("memory for each", lambda value: f"{value:,.1f} kB"),
    "heard": Figure("until all have heard", seconds),
    "crowd": Figure("memory of all processes", megabytes),
    # What one of many costs.
    "server": Figure("server, CPU", moments),
    "server_time": Figure("clock", moments),
    "server_bare": Figure("floor, CPU", moments),
    "server_bare_time": Figure("clock", moments),
    "client": Figure("client, CPU", moments),
    "client_time": Figure("clock", moments),
    "client_bare": Figure("floor, CPU", moments),
    "client_bare_time": Figure("clock", moments),
    # What is loaded.
    "seconds": Figure("from start to end", seconds),
    "modules": Figure("modules", count),
    "importing": Figure("loading them", seconds),
}


#: What the cells of a column of numbers begin with.
NUMBERS = set("-0123456789")


def times(ratio: float) -> str:
    """A ratio, as exactly as it is worth."""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}" if ratio >= 0.1 else f"{ratio:.2g}"


def cells(table: Table) -> list[list[str]]:
    """The headings, and a line for each contender with its medians."""
    figures = table.figures()
    lines = [["", *(FIGURES[figure].heading for figure in figures)]]
    for name in table.rounds:
        medians = ((figure, table.median(name, figure)) for figure in figures)
        lines.append([name, *("-" if value is None else FIGURES[figure].written(value) for figure, value in medians)])
    return lines


def rounds(table: Table) -> str:
    """How often things were measured, in words."""
    counts = sorted({len(each) for each in table.rounds.values()})
    return f"the median of {' to '.join(map(str, counts[:1] + counts[1:][-1:]))}"


def as_text(table: Table) -> str:
    """For a terminal."""
    lines = cells(table)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = [f"==> {table.title}, {rounds(table)}"]
    for name, *values in lines:
        row = [
            f"  {name:<{widths[0]}}",
            *(f"{value:>{width}}" for value, width in zip(values, widths[1:], strict=True)),
        ]
        shown.append("   ".join(row))
    return "\n".join(shown)


def as_markdown(lines: Sequence[Sequence[str]]) -> str:
    """Headings and lines as a table of a page."""
    heading, *rest = lines
    rule = ["---:" if all(cell[:1] in NUMBERS for cell in column) else "---" for column in zip(*rest, strict=True)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heading, rule, *rest))
