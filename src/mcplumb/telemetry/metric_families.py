"""Counters, gauges and histograms with labels, summed over several processes and written as text for Prometheus.

Not `prometheus-client`: its numbers of several processes are in memory-mapped files, which outlive them, and its
registry is global. What a server needs of it are these few lines.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from mcplumb.limits import MAX_SERIES

__all__ = [
    "DURATION_BUCKETS",
    "OTHER",
    "Family",
    "Histogram",
    "Kind",
    "Registry",
    "Snapshot",
    "counters_of",
    "merged",
    "text_of",
]

#: The label of everything beyond the limit.
OTHER = "other"
#: Upper bounds in seconds: those of OpenTelemetry's conventions for MCP, and three below, for what takes no time.
DURATION_BUCKETS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
_Labels: TypeAlias = tuple[str, ...]


class Family(msgspec.Struct):
    """All series of one name: a number for each combination of labels.

    At most `MAX_SERIES` combinations are kept; what is beyond has the label `OTHER` everywhere.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    #: The upper bounds of a histogram.
    buckets: tuple[float, ...] = ()
    #: By labels: one number or, for a histogram, how many are in each bucket and beyond, and their sum.
    series: dict[_Labels, list[float]] = msgspec.field(default_factory=dict)

    def add(self, labels: _Labels = (), number: float = 1) -> None:
        """Add to a counter."""
        self._of(labels)[0] += number

    def set(self, labels: _Labels, number: float) -> None:
        """Set a gauge."""
        self._of(labels)[0] = number

    def observe(self, labels: _Labels, number: float) -> None:
        """Add a value to a histogram."""
        numbers = self._of(labels)
        numbers[bisect_left(self.buckets, number)] += 1
        numbers[-1] += number

    def _of(self, labels: _Labels) -> list[float]:
        found = self.series.get(labels)
        if found is None:
            if len(self.series) >= MAX_SERIES:
                labels = (OTHER,) * len(labels)
            size = len(self.buckets) + 2 if self.kind == "histogram" else 1
            found = self.series.setdefault(labels, [0.0] * size)
        return found


def Histogram(name: str, help: str, labels: tuple[str, ...]) -> Family:  # noqa: N802, A002 - it is a kind of family
    """Return a family of histograms of durations."""
    return Family(name, "histogram", help, labels, DURATION_BUCKETS)


#: What a process counts at one moment, as it can be sent to another one.
Snapshot: TypeAlias = list[Family]


class Registry:
    """The families of a process. Gauges are read on demand."""

    def __init__(self, families: Iterable[Family] = ()) -> None:
        self._families = list(families)
        self._gauges: dict[object, Callable[[], Iterable[Family]]] = {}

    def read_gauges(self, owner: object, gauges: Callable[[], Iterable[Family]]) -> None:
        """Register a function that returns gauges, called for each snapshot; an owner has at most one."""
        self._gauges[owner] = gauges

    def forget_gauges(self, owner: object) -> None:
        """Undo ``read_gauges``."""
        self._gauges.pop(owner, None)

    def snapshot(self) -> Snapshot:
        """Return all families; those with the same name are summed."""
        return merged([self._families, *(list(gauges()) for gauges in self._gauges.values())])


def merged(snapshots: Sequence[Snapshot]) -> Snapshot:
    """Return the families of several sources, summed."""
    families: dict[str, Family] = {}
    for family in (family for snapshot in snapshots for family in snapshot):
        total = families.get(family.name)
        if total is None:
            series = {labels: list(numbers) for labels, numbers in family.series.items()}
            families[family.name] = msgspec.structs.replace(family, series=series)
            continue
        if family.name.endswith("_info"):
            continue  # its labels say something, and its number is always 1
        for labels, numbers in family.series.items():
            known = total.series.setdefault(labels, [0.0] * len(numbers))
            if len(known) == len(numbers):  # otherwise from another version of this program
                known[:] = [one + other for one, other in zip(known, numbers, strict=True)]
    return list(families.values())


def counters_of(snapshot: Snapshot) -> Snapshot:
    """Return the families that remain valid after their process has ended: all except gauges."""
    return [family for family in snapshot if family.kind != "gauge"]


def text_of(snapshot: Snapshot) -> bytes:
    """Return the families in the text format of Prometheus."""
    lines: list[str] = []
    for family in snapshot:
        lines += (f"# HELP {family.name} {_escaped(family.help)}", f"# TYPE {family.name} {family.kind}")
        for labels, numbers in sorted(family.series.items()):
            pairs = dict(zip(family.labels, labels, strict=True))
            if family.kind == "histogram":
                lines += _histogram_lines(family, pairs, numbers)
            else:
                lines.append(_line(family.name, pairs, numbers[0]))
    return ("\n".join(lines) + "\n").encode()


def _histogram_lines(family: Family, labels: Mapping[str, str], numbers: Sequence[float]) -> list[str]:
    lines, count = [], 0.0
    for bound, number in zip((*map(_number, family.buckets), "+Inf"), numbers[:-1], strict=True):
        count += number
        lines.append(_line(f"{family.name}_bucket", {**labels, "le": bound}, count))
    return [*lines, _line(f"{family.name}_sum", labels, numbers[-1]), _line(f"{family.name}_count", labels, count)]


def _line(name: str, labels: Mapping[str, str], number: float) -> str:
    quoted = ",".join(f'{label}="{_escaped(value, is_quoted=True)}"' for label, value in labels.items())
    return f"{name}{{{quoted}}} {_number(number)}" if quoted else f"{name} {_number(number)}"


def _number(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)


def _escaped(text: str, *, is_quoted: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if is_quoted else text
