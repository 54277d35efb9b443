from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.errors import UsageError
from mcplumb.protocol.progress import ProgressMeter
from mcplumb.types.notification_params import ProgressParams


def at(progress: float) -> ProgressParams:
    return ProgressParams("token", progress)


def test_a_burst_passes_at_once() -> None:
    meter = ProgressMeter(burst=3, rate=10)
    assert [meter.offer(at(n), 0) for n in (1, 2, 3)] == [at(1), at(2), at(3)]
    assert meter.deadline is None


@pytest.mark.req("PRG-2")
def test_a_flood_is_thinned_out_and_the_newest_value_kept() -> None:
    meter = ProgressMeter(burst=1, rate=10)
    assert meter.offer(at(1), 0) == at(1)
    assert meter.offer(at(2), 0.01) is None
    assert meter.offer(at(3), 0.02) is None
    assert meter.deadline == pytest.approx(0.1)
    assert meter.due(0.05) is None
    assert meter.due(0.1) == at(3)
    assert meter.deadline is None
    assert meter.due(10) is None


@pytest.mark.req("PRG-2")
def test_the_last_value_goes_out_before_the_answer() -> None:
    meter = ProgressMeter(burst=1, rate=10)
    meter.offer(at(1), 0)
    meter.offer(at(2), 0)
    assert meter.last() == at(2)
    assert meter.last() is None


@pytest.mark.req("PRG-1")
@pytest.mark.parametrize("next_", [5, 4.9, -1, math.nan, math.inf, -math.inf])
def test_progress_grows_or_is_dropped(next_: float) -> None:
    meter = ProgressMeter()
    meter.offer(at(5), 0)
    assert meter.offer(at(next_), 1) is None
    assert meter.last() is None


@pytest.mark.req("PRG-1")
def test_a_number_may_have_any_length() -> None:
    meter = ProgressMeter()
    huge = int("9" * 400)
    assert meter.offer(ProgressParams(1, huge, total=huge), 0) == ProgressParams(1, huge, total=huge)
    assert meter.offer(at(1.7e308), 0) is None
    assert meter.offer(ProgressParams(1, huge + 1, total=math.inf), 0) == ProgressParams(1, huge + 1)


@pytest.mark.req("PRG-2")
def test_a_long_silence_saves_up_no_more_than_one_burst() -> None:
    meter = ProgressMeter(burst=2, rate=10)
    assert [meter.offer(at(n), 0) for n in (1, 2, 3)] == [at(1), at(2), None]
    assert [meter.offer(at(n), 1000) for n in (4, 5, 6)] == [at(4), at(5), None]


def test_time_that_goes_backwards_is_taken_as_standing_still() -> None:
    meter = ProgressMeter(burst=1, rate=1)
    meter.offer(at(1), 100)
    assert meter.offer(at(2), 50) is None
    assert meter.deadline == pytest.approx(51)


@pytest.mark.parametrize(("burst", "rate"), [(0, 1), (1, 0), (1, -1), (1, math.nan)])
def test_a_meter_that_lets_nothing_pass_is_refused(burst: int, rate: float) -> None:
    with pytest.raises(UsageError, match="would let no progress pass"):
        ProgressMeter(burst=burst, rate=rate)


@pytest.mark.req("PRG-1", "PRG-2")
@given(
    steps=st.lists(st.tuples(st.floats(0, 1), st.floats(-10, 1000)), max_size=200),
    burst=st.integers(1, 5),
    rate=st.floats(0.5, 50),
)
def test_what_passes_grows_is_bounded_and_ends_with_the_newest(
    steps: list[tuple[float, float]], burst: int, rate: float
) -> None:
    meter = ProgressMeter(burst=burst, rate=rate)
    now = 0.0
    passed: list[float] = []
    for pause, value in steps:
        until = now + pause
        while meter.deadline is not None and meter.deadline <= until:
            now = max(now, meter.deadline)
            held = meter.due(now)
            assert held is not None, "waiting until the deadline is enough"
            passed.append(held.progress)
        now = until
        if (sent := meter.offer(at(value), now)) is not None:
            passed.append(sent.progress)
    assert len(passed) <= burst + now * rate + 1e-3 * (len(steps) + 1)
    if (held := meter.last()) is not None:
        passed.append(held.progress)
    assert passed == sorted(set(passed))
    if steps:
        assert passed[-1] == max(value for _, value in steps)
