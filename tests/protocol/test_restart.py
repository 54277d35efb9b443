from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.errors import UsageError
from mcplumb.protocol.restart import (
    MAX_SENDS,
    RESTART,
    BreakerOpen,
    Decision,
    GiveUp,
    Restarter,
    RestartPolicy,
    StartAgain,
    may_resend,
)

PLAIN = RestartPolicy(jitter=0.0)


def crash(restarter: Restarter, now: float = 0.0, random: float = 0.0) -> Decision:
    """Start a server that exits at once."""
    restarter.started(now)
    return restarter.exited(now, random)


def machine_in(state: str) -> Restarter:
    restarter = Restarter(RestartPolicy(breaker_after=2, jitter=0.0))
    if state in ("running", "waiting"):
        restarter.started(0.0)
    if state == "waiting":
        restarter.exited(1.0, 0.0)
    if state in ("open", "trial"):
        crash(restarter)
        crash(restarter)
    if state == "trial":
        restarter.started(0.0)
    if state == "stopped":
        restarter.stop()
    assert restarter.state == state
    return restarter


def trip(restarter: Restarter) -> None:
    restarter.failures = 1
    restarter.exited(1.0, 0.0)


def give_up_running() -> Restarter:
    restarter = Restarter(RestartPolicy(enabled=False))
    restarter.started(0.0)
    return restarter


def live(restarter: Restarter) -> None:
    restarter.connected(0.0)
    restarter.tick(60.0)


EVENTS: dict[str, Callable[[Restarter], object]] = {
    "start": lambda r: r.started(0.0),
    "connect": lambda r: r.connected(0.0),
    "lived": live,
    "crash": lambda r: r.exited(1.0, 0.0),
    "trip": trip,
    "give_up": lambda r: r.exited(1.0, 0.0),
    "stop": lambda r: r.stop(),
}

TRANSITIONS = [
    ("idle", "start", "running"),
    ("idle", "stop", "stopped"),
    ("running", "connect", "running"),
    ("running", "lived", "running"),
    ("running", "crash", "waiting"),
    ("running", "trip", "open"),
    ("running", "give_up", "stopped"),
    ("running", "stop", "stopped"),
    ("waiting", "start", "running"),
    ("waiting", "stop", "stopped"),
    ("open", "start", "trial"),
    ("open", "stop", "stopped"),
    ("trial", "connect", "running"),
    ("trial", "trip", "open"),
    ("trial", "stop", "stopped"),
    ("stopped", "give_up", "stopped"),
    ("stopped", "stop", "stopped"),
]


def test_every_row_of_the_table_has_an_example() -> None:
    assert {(source, event): target for source, event, target in TRANSITIONS} == RESTART.rows


@pytest.mark.req("LIF-5")
@pytest.mark.parametrize(("source", "event", "target"), TRANSITIONS)
def test_transition(source: str, event: str, target: str) -> None:
    restarter = give_up_running() if (source, event) == ("running", "give_up") else machine_in(source)
    EVENTS[event](restarter)
    assert restarter.state == target


@pytest.mark.parametrize("state", ["running", "trial"])
def test_a_server_that_runs_cannot_be_started(state: str) -> None:
    with pytest.raises(UsageError, match=f"in state '{state}' cannot take the event 'start'"):
        machine_in(state).started(0.0)


def test_a_server_that_was_never_started_cannot_exit() -> None:
    with pytest.raises(UsageError, match="in state 'idle' cannot take the event 'crash'"):
        machine_in("idle").exited(0.0, 0.0)


@pytest.mark.req("LIF-5")
@pytest.mark.parametrize("state", ["waiting", "open"])
def test_the_same_exit_may_be_told_twice(state: str) -> None:
    restarter = machine_in(state)
    before = (restarter.state, restarter.failures, restarter.deadline, restarter.starts)
    assert restarter.deadline is not None
    decision = BreakerOpen(restarter.deadline) if state == "open" else StartAgain(restarter.deadline)
    assert restarter.exited(5.0, 0.0) == decision
    assert (restarter.state, restarter.failures, restarter.deadline, restarter.starts) == before


@pytest.mark.req("LIF-5")
def test_calls_fail_fast_until_a_trial_has_answered() -> None:
    restarter = machine_in("trial")
    assert restarter.fails_fast
    restarter.connected(0.0)
    assert not restarter.fails_fast
    assert isinstance(restarter.exited(1.0, 0.0), BreakerOpen), "it has not lived long enough to be forgiven"


@pytest.mark.req("LIF-6")
def test_a_request_is_not_sent_for_ever() -> None:
    assert [may_resend("tools/list", sent=sent) for sent in range(1, MAX_SENDS + 1)] == [True, True, False]
    assert not may_resend("tools/call", policy="always", sent=MAX_SENDS)


@pytest.mark.req("LIF-5")
def test_waits_grow_and_then_the_breaker_opens() -> None:
    restarter = Restarter(PLAIN)
    decisions = [crash(restarter, now=100.0) for _ in range(5)]
    assert decisions == [
        StartAgain(100.1),
        StartAgain(100.2),
        StartAgain(100.4),
        StartAgain(100.8),
        BreakerOpen(160.0),
    ]
    assert restarter.failures == 5
    assert restarter.restarts == 4


def test_waits_stop_growing_at_the_maximum() -> None:
    restarter = Restarter(RestartPolicy(jitter=0.0, first_wait=10.0, max_wait=30.0, breaker_after=100))
    assert [crash(restarter) for _ in range(4)] == [
        StartAgain(10.0),
        StartAgain(20.0),
        StartAgain(30.0),
        StartAgain(30.0),
    ]


def test_chance_takes_a_part_of_the_wait_away() -> None:
    policy = RestartPolicy(first_wait=10.0, jitter=0.5)
    assert crash(Restarter(policy), random=0.0) == StartAgain(10.0)
    assert crash(Restarter(policy), random=0.5) == StartAgain(7.5)


def test_even_full_jitter_leaves_a_wait() -> None:
    policy = RestartPolicy(first_wait=0.01, max_wait=0.01, jitter=1.0)
    assert crash(Restarter(policy), random=0.999999) == StartAgain(0.01)


def test_a_start_is_due_at_its_time_and_not_before() -> None:
    restarter = Restarter(PLAIN)
    assert not restarter.due(1e9)
    assert crash(restarter, now=5.0) == StartAgain(5.1)
    assert (restarter.deadline, restarter.due(5.09), restarter.due(5.1)) == (5.1, False, True)
    restarter.started(5.1)
    assert (restarter.deadline, restarter.due(1e9)) == (None, False)


@pytest.mark.req("LIF-5")
def test_a_long_life_forgets_earlier_crashes() -> None:
    restarter = Restarter(PLAIN)
    for _ in range(4):
        crash(restarter)
    restarter.started(5.0)
    restarter.connected(10.0)
    assert restarter.exited(70.0, 0.0) == StartAgain(70.1)
    assert restarter.failures == 1


@pytest.mark.req("LIF-5")
def test_a_start_that_takes_long_and_fails_is_no_long_life() -> None:
    restarter = Restarter(PLAIN)
    for _ in range(4):
        crash(restarter)
    restarter.started(10.0)
    assert isinstance(restarter.exited(1000.0, 0.0), BreakerOpen)


@pytest.mark.parametrize(("now", "failures"), [(69.9, 1), (70.0, 0)])
def test_a_tick_notices_a_long_life_while_it_lasts(now: float, failures: int) -> None:
    restarter = Restarter(PLAIN)
    crash(restarter)
    restarter.started(10.0)
    restarter.connected(10.0)
    restarter.tick(now)
    assert restarter.failures == failures


def test_a_tick_between_lives_means_nothing() -> None:
    restarter = machine_in("waiting")
    restarter.tick(1e9)
    assert (restarter.state, restarter.failures) == ("waiting", 1)


@pytest.mark.req("LIF-5")
def test_calls_fail_at_once_until_a_trial_succeeds_and_after_a_stop() -> None:
    failing = {state for state in RESTART.states() if machine_in(state).fails_fast}
    assert failing == {"open", "trial", "stopped"}


@pytest.mark.req("LIF-5")
def test_a_trial_that_stays_up_closes_the_breaker() -> None:
    restarter = machine_in("trial")
    restarter.connected(0.0)
    restarter.tick(60.0)
    assert restarter.state == "running"
    assert restarter.exited(61.0, 0.0) == StartAgain(61.1)


def test_a_trial_that_stayed_up_unnoticed_closes_the_breaker_as_well() -> None:
    restarter = machine_in("trial")
    restarter.connected(0.0)
    assert restarter.exited(60.0, 0.0) == StartAgain(60.1)


@pytest.mark.req("LIF-5")
def test_each_trial_that_crashes_keeps_the_breaker_open_for_longer_up_to_a_bound() -> None:
    restarter = machine_in("open")
    assert [crash(restarter) for _ in range(5)] == [
        BreakerOpen(120.0),
        BreakerOpen(240.0),
        BreakerOpen(480.0),
        BreakerOpen(600.0),
        BreakerOpen(600.0),
    ]


def test_a_long_life_forgets_how_long_the_breaker_was_open() -> None:
    restarter = machine_in("open")
    crash(restarter)
    restarter.started(0.0)
    restarter.connected(0.0)
    restarter.exited(60.0, 0.0)
    assert crash(restarter) == BreakerOpen(60.0)


def test_a_policy_that_is_switched_off_gives_up() -> None:
    assert crash(Restarter(RestartPolicy(enabled=False))) == GiveUp("disabled")


def test_an_exit_after_a_stop_starts_nothing() -> None:
    restarter = machine_in("waiting")
    restarter.stop()
    restarter.stop()
    assert restarter.exited(1.0, 0.0) == GiveUp("stopped")
    assert restarter.deadline is None


def test_restarts_are_counted_without_the_first_start() -> None:
    restarter = Restarter(PLAIN)
    assert restarter.restarts == 0
    restarter.started(0.0)
    assert restarter.restarts == 0
    restarter.exited(0.0, 0.0)
    restarter.started(1.0)
    assert (restarter.starts, restarter.restarts) == (2, 1)


@pytest.mark.parametrize("random", [-0.1, 1.0, math.nan])
def test_a_number_that_is_not_random_is_refused(random: float) -> None:
    restarter = machine_in("running")
    with pytest.raises(UsageError, match="not in the range"):
        restarter.exited(0.0, random)
    assert restarter.state == "running"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"first_wait": 0.0}, "first_wait is 0.0: it must be a number, at least 0.01."),
        ({"first_wait": math.nan}, "first_wait is nan: it must be a number, at least 0.01."),
        ({"factor": 0.5}, "factor is 0.5: it must be a number, at least 1.0."),
        ({"factor": math.inf}, "factor is inf: it must be a number, at least 1.0."),
        ({"max_wait": 0.05}, "max_wait is 0.05: it must be a number, at least 0.1, as first_wait is."),
        ({"jitter": 1.5}, "jitter is 1.5: it must be a number, at least 0.0 and at most 1.0."),
        ({"healthy_after": -1.0}, "healthy_after is -1.0: it must be a number, at least 0.0."),
        ({"breaker_after": 0}, "breaker_after is 0: it must be a number, at least 1."),
        ({"breaker_wait": 0.0}, "breaker_wait is 0.0: it must be a number, at least 0.01."),
        ({"breaker_max_wait": 1.0}, "breaker_max_wait is 1.0: it must be a number, at least 60.0, as breaker_wait is."),
    ],
)
def test_a_policy_that_cannot_work_is_refused(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        RestartPolicy(**changed)
    assert str(caught.value) == f"The restart policy's {sentence}"


POLICIES = st.builds(
    lambda first, longer, factor, jitter, healthy, after, breaker, breaker_longer: RestartPolicy(
        first_wait=first,
        max_wait=first + longer,
        factor=factor,
        jitter=jitter,
        healthy_after=healthy,
        breaker_after=after,
        breaker_wait=breaker,
        breaker_max_wait=breaker + breaker_longer,
    ),
    st.floats(0.01, 100),
    st.floats(0, 1000),
    st.floats(1, 1e308),
    st.floats(0, 1),
    st.floats(0, 100),
    st.integers(1, 8),
    st.floats(0.01, 100),
    st.floats(0, 1000),
)
EVENT_NAMES = ["start", "connect", "exit", "tick", "stop"]
LIVES = st.lists(st.tuples(st.floats(0, 200), st.floats(0, 1, exclude_max=True)), max_size=40)


@pytest.mark.req("LIF-5")
@given(policy=POLICIES, lives=LIVES)
def test_for_any_lives_the_waits_are_bounded_and_the_breaker_is_right(
    policy: RestartPolicy, lives: list[tuple[float, float]]
) -> None:
    restarter = Restarter(policy)
    now, early, open_before = 0.0, 0, False
    for life, random in lives:
        restarter.started(now)
        restarter.connected(now)
        started, now = now, now + life
        decision = restarter.exited(now, random)
        healthy = now - started >= policy.healthy_after
        early = 1 if healthy else early + 1
        # Open after too many early exits in a row, and after each trial that exits early.
        expected_open = early >= policy.breaker_after or (open_before and not healthy)
        open_before = expected_open
        assert restarter.fails_fast is expected_open
        if expected_open:
            assert isinstance(decision, BreakerOpen)
            at, longest = decision.until, policy.breaker_max_wait
        else:
            assert isinstance(decision, StartAgain)
            at, longest = decision.at, policy.max_wait
            if early == 1:
                longest = policy.first_wait
        wait = at - now
        assert 0.0099 <= wait <= longest + 1e-9
        assert not restarter.due(now)
        assert restarter.due(at)
        now = at
    assert restarter.starts == len(lives)


@given(
    policy=POLICIES,
    events=st.lists(
        st.tuples(st.sampled_from(["start", "connect", "exit", "tick", "stop"]), st.floats(0, 100)), max_size=40
    ),
)
def test_any_order_of_events_is_taken_by_the_table_or_refused(
    policy: RestartPolicy, events: list[tuple[str, float]]
) -> None:
    restarter = Restarter(policy)
    now = 0.0
    for event, passed in events:
        now += passed
        state = restarter.state
        try:
            match event:
                case "start":
                    restarter.started(now)
                case "connect":
                    restarter.connected(now)
                case "exit":
                    restarter.exited(now, 0.5)
                case "tick":
                    restarter.tick(now)
                case _:
                    restarter.stop()
        except UsageError:
            assert restarter.state == state
        assert (restarter.deadline is not None) is (restarter.state in ("waiting", "open"))
        if state == "stopped":
            assert restarter.state == "stopped"


SAFE = [
    "completion/complete",
    "logging/setLevel",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "tools/list",
]


@pytest.mark.req("LIF-6")
@pytest.mark.parametrize("method", SAFE)
def test_reading_may_be_repeated_unless_nothing_may(method: str) -> None:
    assert may_resend(method)
    assert may_resend(method, policy="always")
    assert not may_resend(method, policy="never")


@pytest.mark.req("LIF-6")
@pytest.mark.parametrize("read_only", [True, False, None])
@pytest.mark.parametrize("idempotent", [True, False, None])
def test_a_tool_may_be_called_again_when_it_is_marked(read_only: bool | None, idempotent: bool | None) -> None:
    marked = read_only is True or idempotent is True
    assert may_resend("tools/call", policy="safe", read_only=read_only, idempotent=idempotent) is marked
    assert may_resend("tools/call", policy="always", read_only=read_only, idempotent=idempotent)
    assert not may_resend("tools/call", policy="never", read_only=read_only, idempotent=idempotent)


@pytest.mark.req("LIF-6")
@pytest.mark.parametrize("method", ["initialize", "subscriptions/listen"])
def test_what_begins_anew_by_itself_is_never_repeated(method: str) -> None:
    assert not may_resend(method, policy="safe", read_only=True, idempotent=True)
    assert not may_resend(method, policy="always", read_only=True, idempotent=True)


def test_an_unknown_method_is_repeated_only_when_everything_is() -> None:
    assert not may_resend("acme/launch", read_only=True, idempotent=True)
    assert may_resend("acme/launch", policy="always")


def test_an_unknown_resend_policy_is_refused() -> None:
    wrong: Any = "sometimes"
    with pytest.raises(UsageError, match=r"no resend policy 'sometimes'\. Use 'safe', 'always' or 'never'\."):
        may_resend("ping", policy=wrong)
