"""Counters, gauges and histograms, as Prometheus's own parser reads them."""

from __future__ import annotations

import math

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mcplumb.limits import MAX_SERIES
from mcplumb.telemetry.metric_families import (
    DURATION_BUCKETS,
    OTHER,
    Family,
    Histogram,
    Registry,
    Snapshot,
    counters_of,
    merged,
    text_of,
)


def parsed(snapshot: Snapshot) -> dict[tuple[str, ...], float]:
    """The samples by their names and labels."""
    found = {}
    for family in text_string_to_metric_families(text_of(snapshot).decode()):
        for sample in family.samples:
            found[(sample.name, *(value for _, value in sorted(sample.labels.items())))] = sample.value
    return found


def test_a_counter() -> None:
    family = Family("calls_total", "counter", "Calls.", ("tool",))
    family.add(("a",))
    family.add(("a",), 2.5)
    family.add(("b",))
    assert parsed([family]) == {("calls_total", "a"): 3.5, ("calls_total", "b"): 1}


def test_a_gauge_without_labels() -> None:
    family = Family("open", "gauge", "Open.")
    family.set((), 7)
    family.set((), 3)
    assert text_of([family]) == b"# HELP open Open.\n# TYPE open gauge\nopen 3\n"


def test_a_histogram_is_cumulative() -> None:
    family = Histogram("seconds", "Times.", ("tool",))
    for seconds in (0.0004, 0.001, 0.0011, 1000.0):
        family.observe(("a",), seconds)
    found = parsed([family])
    assert found["seconds_bucket", "0.001", "a"] == 2  # a bound belongs to its bucket
    assert found["seconds_bucket", "0.002", "a"] == 3
    assert found["seconds_bucket", "300", "a"] == 3
    assert found["seconds_bucket", "+Inf", "a"] == found["seconds_count", "a"] == 4
    assert math.isclose(found["seconds_sum", "a"], 1000.0025)
    assert sorted(DURATION_BUCKETS) == list(DURATION_BUCKETS)


@pytest.mark.parametrize("name", ['quote"', "back\\slash", "new\nline", "ünï", '}, evil{a="1'])
def test_labels_of_clients_cannot_break_the_text(name: str) -> None:
    family = Family("calls_total", "counter", 'Calls \\ of\n"tools".', ("tool",))
    family.add((name,))
    assert parsed([family]) == {("calls_total", name): 1}


@pytest.mark.req("SCL-5")
def test_the_number_of_series_is_bounded() -> None:
    family = Family("calls_total", "counter", "Calls.", ("method", "tool"))
    for number in range(MAX_SERIES + 500):
        family.add(("m", str(number)))
    family.add(("m", "0"))  # one that is known
    assert len(family.series) == MAX_SERIES + 1
    assert family.series[OTHER, OTHER] == [500]
    assert family.series["m", "0"] == [2]


def test_processes_add_up() -> None:
    one, other = Histogram("s", "S.", ("tool",)), Histogram("s", "S.", ("tool",))
    one.observe(("a",), 0.5)
    other.observe(("a",), 0.5)
    other.observe(("b",), 9.0)
    (total,) = merged([[one], [other]])
    found = parsed([total])
    assert (found["s_count", "a"], found["s_sum", "a"], found["s_count", "b"]) == (2, 1.0, 1)
    assert one.series["a",][-1] == 0.5, "the parts stay as they are"
    # As another process sends it.
    assert msgspec.json.decode(msgspec.json.encode([[list(total.series.items())]]))


def test_series_of_another_version_are_left_out() -> None:
    one = Family("s", "histogram", "S.", ("tool",), (1.0,), {("a",): [1.0, 0.0, 0.5]})
    other = Family("s", "histogram", "S.", ("tool",), (1.0, 2.0), {("a",): [1.0, 0.0, 0.0, 0.5]})
    (total,) = merged([[one], [other]])
    assert total.series["a",] == [1.0, 0.0, 0.5]


def test_counters_outlive_their_process_and_gauges_do_not() -> None:
    counter, gauge = Family("c_total", "counter", "C."), Family("g", "gauge", "G.")
    counter.add()
    gauge.set((), 1)
    assert counters_of([counter, gauge]) == [counter]


def test_gauges_are_read_when_somebody_asks() -> None:
    registry, owner, number = Registry([Family("c_total", "counter", "C.")]), object(), [1.0]
    registry.read_gauges(owner, lambda: [Family("g", "gauge", "G.", series={(): list(number)})])
    registry.read_gauges(registry, lambda: [Family("g", "gauge", "G.", series={(): [10.0]})])
    number[0] = 5
    assert parsed(registry.snapshot()) == {("g",): 15}
    registry.forget_gauges(owner)
    assert parsed(registry.snapshot()) == {("g",): 10}
