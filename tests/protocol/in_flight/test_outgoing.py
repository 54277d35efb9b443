from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mcplumb.errors import Closed, RequestLost, ServerExited, UsageError
from mcplumb.protocol.in_flight import OUTGOING, Outgoing, OutgoingRequest, check_seconds
from mcplumb.wire.messages import Error, ErrorDetail, Notification, Result
from tests.protocol.walks import rows_taken


def new(max_in_flight: int = 10) -> Outgoing:
    return Outgoing(max_in_flight=max_in_flight)


def opened(
    method: str = "tools/call", timeout: float | None = 10, latest: float | None = None
) -> tuple[Outgoing, OutgoingRequest]:
    calls = new()
    return calls, calls.open(method, 100, timeout=timeout, max_timeout=latest)


@pytest.mark.req("FRM-8")
def test_ids_count_up_and_are_never_used_again() -> None:
    calls = new()
    ids = []
    for _ in range(5):
        call = calls.open("ping", 0, timeout=1)
        ids.append(call.id)
        calls.answer(Result(call.id, {}))
    assert ids == [1, 2, 3, 4, 5]
    assert Outgoing(max_in_flight=1, first_id=calls.next_id).open("ping", 0, timeout=1).id == 6


def test_an_answer_ends_its_call() -> None:
    calls, call = opened()
    assert len(calls) == 1
    assert calls.answer(Error(call.id, ErrorDetail(-1, "no"))) is call
    assert (call.state, len(calls), calls.deadline) == ("answered", 0, None)


@pytest.mark.req("FRM-8")
@pytest.mark.parametrize("other", ["1", True, 2, 0, -1, msgspec.UNSET])
def test_an_answer_with_another_id_ends_nothing(other: Any) -> None:
    calls, call = opened()
    assert calls.answer(Result(other, {})) is None
    assert (call.state, calls.unknown, calls.late) == ("open", 1, 0)


@pytest.mark.req("CAN-4")
def test_a_second_answer_is_late() -> None:
    calls, call = opened()
    calls.answer(Result(call.id, {}))
    assert calls.answer(Result(call.id, {})) is None
    assert calls.break_off(call.id) is None
    assert (calls.late, calls.unknown) == (2, 0)


def test_a_malformed_answer_breaks_its_call() -> None:
    calls, call = opened()
    assert calls.break_off(call.id) is call
    assert call.state == "broken"


@pytest.mark.req("CAN-1")
@pytest.mark.parametrize("reason", [None, "not needed"])
def test_giving_up_tells_the_peer(reason: str | None) -> None:
    calls, call = opened()
    params: dict[str, Any] = {"requestId": call.id} | ({} if reason is None else {"reason": reason})
    assert calls.cancel(call, reason) == Notification("notifications/cancelled", params)
    assert call.state == "cancelled"
    assert calls.answer(Result(call.id, {})) is None
    assert calls.late == 1


@pytest.mark.req("CAN-4")
def test_a_call_that_has_ended_is_not_cancelled() -> None:
    calls, call = opened()
    calls.answer(Result(call.id, {}))
    assert calls.cancel(call) is None
    assert call.state == "answered"


@pytest.mark.req("CAN-7")
def test_initialize_is_never_cancelled_on_the_wire() -> None:
    calls, call = opened("initialize")
    assert calls.cancel(call) is None
    assert call.state == "cancelled"
    calls, call = opened("initialize")
    assert calls.expire(110) == [(call, None)]
    assert call.state == "expired"


@pytest.mark.req("CAN-5")
def test_time_runs_from_the_opening() -> None:
    calls, call = opened(timeout=10)
    assert calls.deadline == 110
    assert calls.expire(109.9) == []
    ((expired, note),) = calls.expire(110)
    assert expired is call
    assert call.state == "expired"
    assert note is not None
    assert note.params["requestId"] == call.id
    assert calls.deadline is None


@pytest.mark.req("CAN-5")
def test_the_first_deadline_is_the_one_to_wait_for() -> None:
    calls = new()
    calls.open("a", 0, timeout=None)
    slow = calls.open("b", 0, timeout=30)
    fast = calls.open("c", 0, timeout=5)
    assert calls.deadline == 5
    assert [call for call, _ in calls.expire(5)] == [fast]
    assert calls.deadline == 30
    assert [call for call, _ in calls.expire(31)] == [slow]
    assert calls.deadline is None
    assert len(calls) == 1


class Moment(float):
    """A point in time that counts how often it, or one after it, is compared with another."""

    looks = 0

    def __add__(self, seconds: float) -> Moment:
        return Moment(float(self) + seconds)

    def __lt__(self, other: float) -> bool:
        Moment.looks += 1
        return float(self) < other

    def __le__(self, other: float) -> bool:
        Moment.looks += 1
        return float(self) <= other

    def __gt__(self, other: float) -> bool:
        Moment.looks += 1
        return float(self) > other

    def __ge__(self, other: float) -> bool:
        Moment.looks += 1
        return float(self) >= other


def looks_at_deadlines(count: int, step: int, *, is_extended: bool) -> float:
    """How often deadlines are looked at for each of so many calls, while one after the other runs out of time."""
    calls = new(count)
    begun = [calls.open("ping", Moment(0), timeout=1 + number * step % count) for number in range(count)]
    calls.expire(Moment(0))
    if is_extended:
        for call in begun:
            calls.extend(call, Moment(count))
    before = Moment.looks
    over = []
    while calls.deadline is not None:
        over += [call.deadline for call, _ in calls.expire(Moment(calls.deadline))]
    assert len(over) == count
    looks = Moment.looks - before
    assert over == sorted(over, key=lambda deadline: float(deadline or 0))
    return looks / count


@pytest.mark.parametrize("is_extended", [False, True])
@pytest.mark.parametrize("step", [1, -1, 37], ids=["in order", "in reverse", "anyhow"])
def test_how_often_deadlines_are_looked_at_hardly_grows_with_the_calls(step: int, is_extended: bool) -> None:
    few, many = (looks_at_deadlines(count, step, is_extended=is_extended) for count in (100, 1600))
    assert many < 2.5 * few


@pytest.mark.parametrize("waits", [0, 1], ids=["alone", "behind one that waits"])
def test_calls_that_have_ended_do_not_pile_up(waits: int) -> None:
    calls = new(10 + waits)
    for _ in range(waits):
        calls.open("waits", 0, timeout=9_000)
    for now in range(1000):
        for _ in range(9):
            calls.open("slow", now, timeout=10_000)
        short = calls.open("short", now, timeout=1)
        assert [call for call, _ in calls.expire(now + 1)] == [short]
        assert len(calls._due) < 40
        for number in range(short.id - 9, short.id):
            assert calls.answer(Result(number, {})) is not None


@pytest.mark.req("CAN-5")
def test_progress_extends_the_time_up_to_the_maximum() -> None:
    calls, call = opened(timeout=10, latest=25)
    assert calls.advance(call.id, 1, 105) is call
    assert call.deadline == 115
    assert calls.expire(110) == []
    assert calls.deadline == 115
    assert calls.advance(call.id, 2, 114) is call
    assert calls.advance(call.id, 3, 120) is call
    assert call.deadline == 125
    assert [ended for ended, _ in calls.expire(125)] == [call]


@pytest.mark.req("CAN-5")
def test_another_sign_of_work_extends_the_time_as_well() -> None:
    calls, call = opened(timeout=10, latest=15)
    calls.extend(call, 102)
    assert (call.deadline, call.progress) == (112, None)
    calls.extend(call, 109)
    assert call.deadline == 115
    calls, endless = opened(timeout=None)
    calls.extend(endless, 102)
    assert endless.deadline is None


def test_a_maximum_below_the_timeout_holds() -> None:
    _, call = opened(timeout=10, latest=3)
    assert call.deadline == 103


@pytest.mark.req("PRG-1")
def test_progress_that_does_not_grow_is_dropped() -> None:
    calls, call = opened()
    assert calls.advance(call.id, 0.5, 101) is call
    assert calls.advance(call.id, 0.5, 102) is None
    assert calls.advance(call.id, 0.4, 102) is None
    assert (call.progress, call.deadline) == (0.5, 111)


@pytest.mark.req("PRG-1", "CAN-4")
@pytest.mark.parametrize("token", ["1", True, 7, None, [], 1.0])
def test_progress_of_no_call_is_dropped(token: Any) -> None:
    calls, _ = opened()
    assert calls.advance(token, 1, 101) is None
    assert calls.unknown == 1


@pytest.mark.req("PRG-1")
def test_progress_is_a_number() -> None:
    calls, call = opened()
    assert calls.advance(call.id, float("nan"), 101) is None
    assert calls.advance(call.id, int("9" * 400), 101) is call


def test_progress_does_not_give_a_deadline_to_a_call_without() -> None:
    calls, call = opened(timeout=None)
    assert calls.advance(call.id, 1, 101) is call
    assert (call.deadline, calls.deadline) == (None, None)


@pytest.mark.req("CAN-5")
def test_a_maximum_holds_without_a_timeout_too() -> None:
    calls, call = opened(timeout=None, latest=5)
    assert calls.advance(call.id, 1, 104) is call
    assert (call.deadline, calls.deadline) == (105, 105)


def test_the_deadline_of_a_call_that_has_ended_does_not_count() -> None:
    calls = new()
    first = calls.open("a", 0, timeout=5)
    assert calls.deadline == 5
    calls.answer(Result(first.id, {}))
    calls.open("b", 0, timeout=10)
    assert calls.deadline == 10


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), "1", b"", [1]])
def test_a_timeout_is_a_time(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"max_timeout is .*: give it a number of seconds, or None for no limit"):
        check_seconds("max_timeout", wrong)


@pytest.mark.parametrize("right", [None, 0, 0.5, 10**9])
def test_or_no_time_at_all(right: float | None) -> None:
    check_seconds("timeout", right)


@pytest.mark.req("CAN-6")
def test_a_server_may_cancel_a_subscription_and_nothing_else() -> None:
    calls, call = opened("subscriptions/listen", timeout=None)
    assert calls.end(call.id) is call
    assert (call.state, len(calls)) == ("ended", 0)
    calls, call = opened("tools/call")
    for named in (call.id, "1", None, 7):
        assert calls.end(named) is None
    assert (call.state, calls.unknown) == ("open", 4)


def test_after_a_restart_an_answer_of_the_old_server_is_unknown() -> None:
    calls = Outgoing(max_in_flight=1, first_id=10)
    calls.answer(Result(9, {}))
    assert (calls.late, calls.unknown) == (0, 1)


def test_closing_loses_every_call() -> None:
    calls = new()
    first, second = calls.open("a", 0, timeout=1), calls.open("b", 0, timeout=1)
    gone = ServerExited("weather", phase="call", exit_code=3)
    assert calls.close(gone) == [first, second]
    assert (first.state, second.state, len(calls)) == ("lost", "lost", 0)
    assert first.cause is second.cause is gone
    assert calls.close(Closed("Closed.")) == []
    with pytest.raises(Closed, match="tools/list was not sent: the connection is closed") as caught:
        calls.open("tools/list", 1, timeout=1)
    assert caught.value.__cause__ is gone
    assert str(gone) in str(caught.value)


def test_the_number_of_open_calls_is_bounded() -> None:
    calls = new(max_in_flight=1)
    assert not calls.is_full
    calls.open("a", 0, timeout=1)
    assert calls.is_full
    with pytest.raises(UsageError, match="1 requests are open already"):
        calls.open("b", 0, timeout=1)


def test_one_call_can_fail_alone() -> None:
    outgoing = Outgoing(max_in_flight=10)
    one, other = outgoing.open("ping", 0, None), outgoing.open("ping", 0, None)
    cause = RequestLost("It broke off.")
    assert outgoing.fail(one.id, cause) is one
    assert (one.state, one.cause) == ("failed", cause)
    assert other.state == "open"
    assert outgoing.fail(one.id, cause) is None
    assert outgoing.late == 1


def test_every_row_of_the_table_has_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    test_an_answer_ends_its_call()  # by the one row that is looked up when the module is loaded
    examples = [
        test_a_malformed_answer_breaks_its_call,
        lambda: test_giving_up_tells_the_peer(None),
        test_time_runs_from_the_opening,
        test_progress_extends_the_time_up_to_the_maximum,
        test_closing_loses_every_call,
        test_one_call_can_fail_alone,
        test_a_server_may_cancel_a_subscription_and_nothing_else,
    ]
    assert rows_taken(OUTGOING, examples, monkeypatch) == set(OUTGOING.rows) - {("open", "answer")}
