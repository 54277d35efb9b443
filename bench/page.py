"""The tables of the page about benchmarks, and of the README: all from the figures of one run, kept beside the page.

Between ``<!-- bench NAME -->`` and ``<!-- /bench -->`` stands what `SECTIONS` makes of the figures, or all tables
of the part with that name. The rest is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from bench.environments import ROOT
from bench.figures import FIGURES, as_markdown, cells, rounds, times
from bench.goals import AIMS, GOALS, ONE_CORE, Goal, judged
from bench.lineup import BARE, GO, LOOP, MINIMAL, OURS, PEERS, PLAIN, RUST
from bench.measure import Row
from bench.results import Part, Results, Table, load, save, updated

__all__ = ["FIGURES_FILE", "PAGES", "rendered", "write"]

PAGE = ROOT / "docs" / "topics" / "benchmarks.md"
#: Where figures are shown.
PAGES = (PAGE, ROOT / "README.md", PAGE.with_name("choosing.md"))
FIGURES_FILE = PAGE.with_suffix(".json")
SECTION = re.compile(r"(<!-- bench (\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)
NOTHING = "Not measured in this run."
#: The figures in which mcplumb is compared with each peer.
COMPARED = ("p50", "in_flight", "cpu", "loaded", "small", "large")

#: What is shown first: the part, the table and the figure.
HEADLINE = {
    "server, one at a time, p50": ("server", ONE_CORE, "p50"),
    "server, 64 in flight": ("server", ONE_CORE, "in_flight"),
    "client, one at a time, p50": ("client", ONE_CORE, "p50"),
    "client, 64 in flight": ("client", ONE_CORE, "in_flight"),
    "both, one at a time, p50": ("both", ONE_CORE, "p50"),
    "both, 64 in flight": ("both", ONE_CORE, "in_flight"),
    "cold start of a server": ("server", "starts", "cold"),
    "idle memory of a server": ("server", "starts", "idle"),
    "10 MB echo, server": ("server", ONE_CORE, "large"),
    "10 MB echo, client": ("client", ONE_CORE, "large"),
}

#: What is shown of each library where they are compared as a whole.
BY_LIBRARY = {
    "cold start": ("server", "starts", "cold"),
    "idle memory": ("server", "starts", "idle"),
    "server, calls/s": ("server", ONE_CORE, "in_flight"),
    "client, calls/s": ("client", ONE_CORE, "in_flight"),
    "server, CPU for 10,000 calls": ("server", ONE_CORE, "cpu"),
    "HTTP, calls/s": ("http", ONE_CORE, "in_flight"),
    "10 MB echo, server": ("server", ONE_CORE, "large"),
}


def write(results: Path | None = None) -> None:
    """Write the tables and the pictures anew; with the parts of this file, which replace those that were kept."""
    # It needs a large library, which whoever only compares the page with its figures need not have.
    from bench import plots  # noqa: PLC0415

    if results:
        save(updated(load(FIGURES_FILE), load(results)), FIGURES_FILE)
    kept = load(FIGURES_FILE)
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        if (new := rendered(old, kept)) != old:
            page.write_text(new, encoding="utf-8")
    plots.draw(kept)


def rendered(page: str, results: Results) -> str:
    """The page with these figures."""
    return SECTION.sub(lambda match: f"{match[1]}{section(match[2], results)}\n{match[3]}", page)


def section(name: str, results: Results) -> str:
    if make := SECTIONS.get(name):
        return make(results)
    return shown_part(results.parts.get(name, Part()))


def shown_part(part: Part) -> str:
    blocks = [shown_table(table) for table in part.tables.values()]
    if part.rows:
        blocks.append(as_markdown([["", "measured", "ratio", "aim"], *map(row_cells, part.rows)]))
    return "\n\n".join(blocks) or NOTHING


def shown_table(table: Table) -> str:
    return f"{table.title[0].upper()}{table.title[1:]}, {rounds(table)}:\n\n{as_markdown(cells(table))}"


def row_cells(row: Row) -> list[str]:
    aim = f"{'at most' if row.less_is_better else 'at least'} {row.aim:g}: {row.verdict}" if row.aim else ""
    return [row.name, row.measure, times(row.ratio), aim]


def shown_run(results: Results) -> str:
    versions = [["", "with"], *([name, words] for name, words in results.versions.items())]
    parts = (f"{name} {part.seconds:,.0f} s ({part.foreign:.0%})" for name, part in results.parts.items())
    lines = [
        f"- when and how: {results.date}, `{results.command}`",
        f"- where: {results.machine}; CPython {results.python}, Node.js {results.node or 'none'}",
        f"- time that each part took, and the CPU time of the machine that other processes had: {', '.join(parts)}",
        *(f"- {name} was measured again later: {part.own_run}" for name, part in results.parts.items() if part.own_run),
        *(f"- left out: {name}, which could not be installed" for name in results.absent),
    ]
    return "\n".join(lines) + "\n\n" + as_markdown(versions)


def shown_goals(results: Results) -> str:
    peers = others(results)
    compared = [*plain(results), LOOP]
    lines = [["", "goal", OURS, "", *compared, *(headed(results, peer) for peer in peers)]]
    for goal in GOALS:
        if verdict := judged(results, goal):
            ratios = (goal.ratios(results, other) for other in (*compared, *peers))
            cells = [times(median(each)) if each else "-" for each in ratios]
            lines.append([goal.name, goal.words, times(verdict.ratio), verdict.word, *cells])
    return tabled(lines)


def shown_headline(results: Results) -> str:
    """Return the most important figures of those who speak the modern revision, in absolute numbers."""
    names = [name for name in (BARE, OURS, *plain(results), *others(results)) if headed(results, name) == name]
    return tabled([["", *names], *figures_of(results, names, HEADLINE)])


def shown_libraries(results: Results) -> str:
    """Return a row for each library that speaks the modern revision, in absolute numbers."""
    names = [name for name in (OURS, *others(results)) if headed(results, name) == name]
    columns = [["", *names], *figures_of(results, names, BY_LIBRARY)]
    return tabled(list(zip(*columns, strict=True)))


def shown_beginnings(results: Results) -> str:
    """Return how long servers take to begin, from the least that a Python needs, as times of the Go SDK."""
    starts = results.parts.get("server", Part()).tables.get("starts")
    lines = [["", "cold start", f"times {GO}"]]
    if starts is not None:
        for name in (RUST, GO, MINIMAL, BARE, LOOP, OURS):
            cold, ratios = starts.median(name, "cold"), starts.ratios("cold", name, GO)
            if cold is not None and ratios:
                lines.append([name, FIGURES["cold"].written(cold), times(median(ratios))])
    return tabled(lines)


def shown_profiles(results: Results) -> str:
    """Return what the servers of other SDKs spend their time with."""
    rows = results.parts.get("profiles", Part()).rows
    return tabled([["", "share"], *([row.name, row.measure] for row in rows)])


def figures_of(
    results: Results, names: Sequence[str], shown: Mapping[str, tuple[str, str, str]]
) -> Iterator[list[str]]:
    """For each figure, its title and what each of these contenders has."""
    for title, (part, place, figure) in shown.items():
        if table := results.parts.get(part, Part()).tables.get(place):
            medians = (table.median(name, figure) for name in names)
            written = FIGURES[figure].written
            yield [title, *("-" if value is None else written(value) for value in medians)]


def shown_aims(results: Results) -> str:
    verdicts = filter(None, (judged(results, goal) for goal in AIMS))
    lines = [[each.goal.name, each.goal.words, times(each.ratio), each.word] for each in verdicts]
    return tabled([["", "aim", OURS, ""], *lines])


def shown_peers(results: Results) -> str:
    """By how many times mcplumb is better than each peer, whatever better means."""
    peers = others(results)
    lines = [["", *(headed(results, peer) for peer in peers)]]
    for part in ("server", "client", "both"):
        for figure in COMPARED:
            goal = Goal("", part, ONE_CORE, figure, at_most=0)
            ratios = [goal._replace(them=peer).ratios(results, OURS) for peer in peers]
            better = [1 / median(each) if FIGURES[figure].less_is_better else median(each) for each in ratios if each]
            if len(better) == len(peers):
                lines.append([f"{part}: {FIGURES[figure].heading}", *map(times, better)])
    return tabled(lines)


def shown_growth(results: Results) -> str:
    if part := results.parts.get("growth"):
        return f"![What one costs, by how many there are](growth.png)\n\n{shown_part(part)}"
    return NOTHING


def tabled(lines: Sequence[Sequence[str]]) -> str:
    return as_markdown(lines) if len(lines) > 1 else NOTHING


def headed(results: Results, peer: str) -> str:
    """With a word for those who are compared with what others do in the legacy era, as they know no other."""
    is_modern = any(peer in table.rounds for part in results.parts.values() if (table := part.tables.get(ONE_CORE)))
    return peer if is_modern else f"{peer}, legacy"


def plain(results: Results) -> list[str]:
    """Return the name of mcplumb without its speed tricks, if the run measured that."""
    return [PLAIN] if PLAIN in results.versions else []


def others(results: Results) -> list[str]:
    return [name for name in results.versions if name in PEERS]


SECTIONS: dict[str, Callable[[Results], str]] = {
    "run": shown_run,
    "goals": shown_goals,
    "headline": shown_headline,
    "libraries": shown_libraries,
    "beginnings": shown_beginnings,
    "profiles": shown_profiles,
    "aims": shown_aims,
    "peers": shown_peers,
    "growth": shown_growth,
}
