from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.errors import UsageError
from mcplumb.protocol.stop_ladder import STOP, Action, Step, StopLadder, Stopper

LADDER = StopLadder(close_wait=1.0, term_wait=2.0, kill_wait=4.0)


def machine_in(state: str) -> Stopper:
    stopper = Stopper(LADDER)
    if state in ("closing", "terminating", "killing", "given_up"):
        stopper.begin(0.0)
    for now, reached in (
        (1.0, ("terminating", "killing", "given_up")),
        (3.0, ("killing", "given_up")),
        (7.0, ("given_up",)),
    ):
        if state in reached:
            stopper.due(now)
    if state == "done":
        stopper.exited(0.0)
    assert stopper.state == state
    return stopper


EVENTS: dict[str, Callable[[Stopper], Action | None]] = {
    "begin": lambda s: s.begin(0.0),
    "gone": lambda s: s.exited(0.0),
    "child_gone": lambda s: s.child_exited(0.0),
    "late": lambda s: s.due(100.0),
}

TRANSITIONS: list[tuple[str, str, str, Action | None]] = [
    ("idle", "begin", "closing", "close_input"),
    ("idle", "gone", "done", None),
    ("idle", "child_gone", "terminating", "terminate"),
    ("closing", "begin", "closing", None),
    ("closing", "gone", "done", None),
    ("closing", "child_gone", "terminating", "terminate"),
    ("closing", "late", "terminating", "terminate"),
    ("terminating", "begin", "terminating", None),
    ("terminating", "gone", "done", None),
    ("terminating", "child_gone", "terminating", None),
    ("terminating", "late", "killing", "kill"),
    ("killing", "begin", "killing", None),
    ("killing", "gone", "done", None),
    ("killing", "child_gone", "killing", None),
    ("killing", "late", "given_up", None),
    ("done", "begin", "done", None),
    ("done", "gone", "done", None),
    ("done", "child_gone", "done", None),
    ("given_up", "begin", "given_up", None),
    ("given_up", "gone", "given_up", None),
    ("given_up", "child_gone", "given_up", None),
]


def test_every_row_of_the_table_has_an_example() -> None:
    assert {(source, event): target for source, event, target, _ in TRANSITIONS} == STOP.rows


@pytest.mark.req("LIF-2")
@pytest.mark.parametrize(("source", "event", "target", "action"), TRANSITIONS)
def test_transition(source: str, event: str, target: str, action: Action | None) -> None:
    stopper = machine_in(source)
    assert EVENTS[event](stopper) == action
    assert stopper.state == target
    assert stopper.finished is (target in ("done", "given_up"))
    assert (stopper.deadline is None) is stopper.finished


@pytest.mark.req("LIF-2")
def test_a_server_that_does_not_listen_gets_every_rung_in_order_and_in_time() -> None:
    stopper = Stopper(LADDER)
    assert (stopper.begin(10.0), stopper.deadline) == ("close_input", 11.0)
    assert (stopper.begin(10.0, has_hung_up=True), stopper.deadline) == (None, 11.0)
    assert (stopper.due(10.9), stopper.deadline) == (None, 11.0)
    assert (stopper.due(11.0), stopper.deadline) == ("terminate", 13.0)
    assert (stopper.due(13.0), stopper.deadline) == ("kill", 17.0)
    assert (stopper.due(17.0), stopper.deadline) == (None, None)
    assert stopper.state == "given_up"
    assert stopper.due(1e9) is None


@pytest.mark.req("LIF-2")
@pytest.mark.parametrize(("close_wait", "deadline"), [(1.0, 10.25), (0.1, 10.1), (0.0, 10.0)])
def test_a_server_that_has_hung_up_gets_less_time(close_wait: float, deadline: float) -> None:
    stopper = Stopper(StopLadder(close_wait=close_wait, term_wait=2.0, kill_wait=4.0))
    assert (stopper.begin(10.0, has_hung_up=True), stopper.deadline) == ("close_input", deadline)
    assert (stopper.due(deadline), stopper.deadline) == ("terminate", deadline + 2.0)


def test_an_owner_that_comes_late_still_grants_the_next_wait() -> None:
    stopper = Stopper(LADDER)
    stopper.begin(0.0)
    assert stopper.due(50.0) == "terminate"
    assert stopper.deadline == 52.0


def test_children_that_are_left_do_not_start_the_wait_again() -> None:
    stopper = machine_in("terminating")
    deadline = stopper.deadline
    assert stopper.child_exited(2.5) is None
    assert stopper.deadline == deadline


def test_a_stop_that_begins_twice_grants_no_new_wait() -> None:
    stopper = Stopper(LADDER)
    stopper.begin(0.0)
    assert stopper.begin(0.9) is None
    assert stopper.deadline == 1.0


def test_nothing_is_due_before_the_stop_begins() -> None:
    assert Stopper(LADDER).due(1e9) is None


@pytest.mark.req("LIF-2")
def test_the_ladder_is_data() -> None:
    assert LADDER.steps() == (Step("close_input", 1.0), Step("terminate", 2.0), Step("kill", 4.0))
    assert LADDER.total == 7.0
    assert StopLadder().total == 5.0


@pytest.mark.parametrize("name", ["close_wait", "term_wait", "kill_wait"])
@pytest.mark.parametrize("wait", [-1.0, math.inf, math.nan])
def test_a_wait_that_is_not_bounded_is_refused(name: str, wait: float) -> None:
    changed: dict[str, Any] = {name: wait}
    with pytest.raises(UsageError) as caught:
        StopLadder(**changed)
    assert str(caught.value) == f"The stop ladder's {name} is {wait}: it must be a number of seconds, 0 or more."


WAITS = st.floats(0, 1000)


@pytest.mark.req("LIF-2")
@given(
    ladder=st.builds(StopLadder, close_wait=WAITS, term_wait=WAITS, kill_wait=WAITS),
    child_exits=st.none() | st.floats(0, 1),
    group_exits=st.none() | st.floats(0, 1),
)
def test_a_stop_always_ends_within_its_total(
    ladder: StopLadder, child_exits: float | None, group_exits: float | None
) -> None:
    """The two exits come at a fraction of the total time, or never."""
    exits = [
        (fraction * ladder.total, event)
        for fraction, event in ((child_exits, "child"), (group_exits, "group"))
        if fraction is not None
    ]
    stopper = Stopper(ladder)
    actions = [stopper.begin(0.0)]
    now = 0.0
    while not stopper.finished:
        assert stopper.deadline is not None
        if exits and min(exits)[0] <= stopper.deadline:
            now, event = exits.pop(exits.index(min(exits)))
            if event == "group":
                stopper.exited(now)
            else:
                actions.append(stopper.child_exited(now))
        else:
            now = stopper.deadline
            actions.append(stopper.due(now))
    assert now <= ladder.total + 1e-9
    taken = [action for action in actions if action is not None]
    assert taken == ["close_input", "terminate", "kill"][: len(taken)]
    assert stopper.state == "done" or taken[-1] == "kill"
