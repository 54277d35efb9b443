"""The figure of growth, for the page of benchmarks: what one costs, by how many there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench.environments import ROOT
from bench.results import Results, Table

__all__ = ["draw"]

FILE = ROOT / "docs" / "topics" / "growth.png"

# Its own light paper under dark ink: so it can be read on a dark page, too.
PAPER, PANEL, INK, QUIET, RULE = "#f6f7f9", "#ffffff", "#1f2630", "#5d6773", "#e6e9ed"
COLOURS, FLOOR, WARNING = ("#1f6feb", "#d9691e"), "#a3acb8", "#d1242f"
FONT: dict[Any, Any] = {"font.family": "DejaVu Sans", "font.size": 8.5, "text.color": INK}

TIMES = {1: "1 ns", 10: "10 ns", 100: "100 ns", 1e3: "1 µs", 1e4: "10 µs", 1e5: "100 µs", 1e6: "1 ms", 1e7: "10 ms"}
BYTES = {1e3: "1 k", 1e4: "10 k", 1e5: "100 k", 1e6: "1 M", 1e7: "10 M", 1e8: "100 M"}
#: Each picture shows at least so many powers of ten, so that a flat curve looks as flat as it is.
DECADES = 3


class Panel(NamedTuple):
    """Two small pictures, of servers and of clients: what there is more and more of, and what one then costs."""

    heading: str
    cost: str
    #: By the words in the colour of each curve, which table it is from.
    curves: dict[str, str]
    sizes: dict[float, str]


def counts(*numbers: int) -> dict[float, str]:
    return {number: f"{number:,}" for number in numbers}


PANELS = [
    Panel("Calls in flight", "CPU for a call", {"": "flight"}, counts(1, 10, 100, 1000, 10_000)),
    Panel(
        "Clients on a socket", "CPU for a call", {"in turns": "turns", "at once": "together"}, counts(1, 3, 10, 30, 100)
    ),
    Panel(
        "Tools",
        "CPU for a call, or a listed tool",
        {"called": "calls", "listed": "lists"},
        counts(10, 100, 1000, 10_000),
    ),
    Panel("Bytes in a message", "CPU for a byte, there and back", {"": "messages"}, BYTES),
]
SIDES = {"server": "Server", "client": "Client"}


def draw(results: Results, file: Path = FILE) -> None:
    """Write the figure as a PNG file, if the results have what it shows."""
    if "growth" not in results.parts:
        return
    tables = results.parts["growth"].tables
    with rc_context(FONT):
        figure = Figure(figsize=(11.5, 6.4), dpi=160, facecolor=PAPER)
        figure.subplots_adjust(left=0.085, right=0.98, top=0.765, bottom=0.065, wspace=0.3, hspace=0.14)
        grid = figure.subplots(len(SIDES), len(PANELS), sharex="col", sharey="col")
        for column, panel in enumerate(PANELS):
            for row, side in enumerate(SIDES):
                plot(grid[row][column], panel, side, tables)
                dress(grid[row][column], panel, *span(panel, tables))
            head(grid[0][column], panel)
        label(figure, [row[0] for row in grid], results)
        figure.savefig(file, metadata={"Software": None})


def plot(axes: Axes, panel: Panel, side: str, tables: dict[str, Table]) -> None:
    """The curves of servers, or of clients: one or two, each with its floor."""
    for number, (words, name) in enumerate(panel.curves.items()):
        colour = COLOURS[number]
        rounds = tables[name].rounds
        sizes = [int(size.replace(",", "")) for size in rounds]
        floor, ours = (nanoseconds(tables[name], figure) for figure in (f"{side}_bare", side))
        each = [[figures[side] * 1e9 for figures in of_size] for of_size in rounds.values()]
        rise = [ours[0] * size / sizes[0] for size in sizes]
        axes.plot(sizes, rise, color=WARNING, linewidth=0.9, linestyle=(0, (1, 2.5)), alpha=0.55)
        axes.fill_between(sizes, [*map(min, each)], [*map(max, each)], color=colour, alpha=0.15, linewidth=0)
        axes.plot(sizes, floor, color=FLOOR, linewidth=1.4, marker="o", markersize=2.6)
        axes.plot(sizes, ours, color=colour, linewidth=2.1, marker="o", markersize=4.2)
        axes.text(0.03, 0.13 - 0.085 * number, words, color=colour, transform=axes.transAxes)


def nanoseconds(table: Table, figure: str) -> list[float]:
    return [(table.median(size, figure) or math.nan) * 1e9 for size in table.rounds]


def span(panel: Panel, tables: dict[str, Table]) -> tuple[float, float]:
    """The powers of ten between which all costs of a column lie."""
    shown = [
        nanoseconds(tables[name], side + of) for name in panel.curves.values() for side in SIDES for of in ("", "_bare")
    ]
    low, high = math.floor(math.log10(min(map(min, shown)))), math.ceil(math.log10(max(map(max, shown))))
    missing = max(0, DECADES - (high - low))
    return 10.0 ** (low - (missing + 1) // 2), 10.0 ** (high + missing // 2)


def dress(axes: Axes, panel: Panel, low: float, high: float) -> None:
    """The scales of a picture."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xticks(list(panel.sizes), list(panel.sizes.values()))
    axes.set_yticks(list(TIMES), list(TIMES.values()))
    axes.set_ylim(low, high)
    axes.set_facecolor(PANEL)
    axes.grid(color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=QUIET, length=0, labelsize=7.8)
    axes.spines[:].set_visible(False)


def head(axes: Axes, panel: Panel) -> None:
    """The words above a column."""
    axes.tick_params(labelbottom=False)
    axes.set_title(panel.heading, loc="left", fontsize=11, fontweight="bold", color=INK, pad=20)
    axes.annotate(panel.cost, (0, 1), (0, 7), xycoords="axes fraction", textcoords="offset points", color=QUIET)


def label(figure: Figure, rows: Sequence[Axes], results: Results) -> None:
    """What the whole is about, and what its lines are."""
    part = results.parts["growth"]
    rounds = max(map(len, part.tables["flight"].rounds.values()))
    figure.text(0.022, 0.945, "What one costs, by how many there are", fontsize=15, fontweight="bold")
    note = f"Python {results.python}, processes on one core, the median of {rounds} rounds and their whole range"
    figure.text(0.022, 0.908, note, color=QUIET, fontsize=9)
    lines = [
        Line2D([], [], color=COLOURS[0], linewidth=2.1, marker="o", markersize=4.2, label="mcplumb"),
        Line2D([], [], color=FLOOR, linewidth=1.4, marker="o", markersize=2.6, label="the floor: by hand on asyncio"),
        Line2D([], [], color=WARNING, linewidth=0.9, linestyle=(0, (1, 2.5)), label="growth in proportion"),
    ]
    figure.legend(handles=lines, loc="upper right", bbox_to_anchor=(0.985, 0.985), frameon=False, labelcolor=QUIET)
    for axes, words in zip(rows, SIDES.values(), strict=True):
        axes.set_ylabel(words, fontsize=11, fontweight="bold", color=INK, labelpad=12)
