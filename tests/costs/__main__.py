"""``python -m tests.costs``: all that is measured, beside what is allowed. With ``--write``, the table follows.

``python -m tests.costs server`` (or ``client``, ``bridge``) shows what one call takes function by function, and further
words say in which case: ``at_once=50 era=legacy tools=1000 waiting=100 subscriptions=10``.
``python -m tests.costs walk`` lists the functions that one call passes at each end. To measure a copy of the package,
put the folder that it is in into ``PYTHONPATH``.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from typing import get_args

import msgspec

from tests.costs.ceilings import Figures, ceiling, too_high, write
from tests.costs.kernel import BUSY, client_seen, server_seen
from tests.costs.loading import LOADED, figures_of
from tests.costs.measuring import CASES, HELD, Case, Side, count, hold
from tests.costs.walk import WALKS, walk


def main(words: list[str]) -> None:
    sides: dict[str, Side] = {side: side for side in get_args(Side)}
    match words:
        case []:
            show_all(and_write=False)
        case ["--write"]:
            show_all(and_write=True)
        case ["walk"]:
            show_walks()
        case [side, *fields] if side in sides and all("=" in field for field in fields):
            show(sides[side], msgspec.convert(dict(field.split("=") for field in fields), Case, strict=False))
        case _:
            sys.exit(__doc__)


def show_all(*, and_write: bool) -> None:
    print(f"==> with Python {platform.python_version()}: what is measured, and what is allowed")
    for subject, figures in measured():
        for figure, number in figures.items():
            mark = "  TOO HIGH" if figure in too_high(subject, {figure: number}) else ""
            print(f"{subject:<32} {figure:<14} {number:>10.2f} {ceiling(subject, figure):>10g}{mark}", flush=True)
        if and_write:
            write(subject, figures)


def measured() -> Iterator[tuple[str, Figures]]:
    for subject, (side, case) in CASES.items():
        yield subject, count(side, case).figures()
    for subject, (rounds, at_once) in BUSY.items():
        yield subject, server_seen(rounds, at_once)
        yield subject, client_seen(rounds, at_once)
    for subject in HELD:
        yield subject, hold(subject)
    for subject, side in WALKS.items():
        yield subject, walk(side).figures()
    for subject, load in LOADED.items():
        yield subject, figures_of(load())


def show(side: Side, case: Case) -> None:
    counted = count(side, case)
    print(f"==> what one call takes of a {side}: {case}\n\n  calls  instructions  function")
    functions = {name: numbers for name, numbers in counted.per_call("Steps").items() if not name.startswith(":")}
    for name, (calls, instructions) in sorted(functions.items(), key=lambda each: -each[1][1]):
        print(f"{calls:>7.2f} {instructions:>13.2f}  {name}")
    print("\n  calls  function in C")
    for name, (calls,) in sorted(counted.per_call("Natives").items(), key=lambda each: -each[1][0]):
        print(f"{calls:>7.2f}  {name}")
    print()
    for figure, number in counted.figures().items():
        print(f"{number:>10.2f}  {figure}")


def show_walks() -> None:
    for subject, side in WALKS.items():
        found = walk(side)
        print(f"==> {subject}: {found.functions:g} functions in {found.files} files\n\n  entered  function")
        for step in found.steps:
            print(f"{', '.join(map(str, step.places)):>9}  {step.function:<40} {step.file}")
        print()


main(sys.argv[1:])
