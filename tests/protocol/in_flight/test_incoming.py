from __future__ import annotations

from typing import Any

import pytest

from mcplumb.protocol.in_flight import INCOMING, Incoming, IncomingRequest
from mcplumb.wire.messages import Notification, Request, RequestId
from tests.protocol.walks import rows_taken

NOTE = Notification("notifications/message", {})


def work_on(request_id: RequestId, method: str = "tools/call") -> IncomingRequest:
    return IncomingRequest(request_id, Request(request_id, method))


def accepted(
    request_id: RequestId = 1, method: str = "tools/call"
) -> tuple[Incoming[IncomingRequest], IncomingRequest]:
    works: Incoming[IncomingRequest] = Incoming(max_in_flight=10)
    work = work_on(request_id, method)
    assert works.accept(work)
    return works, work


def test_an_answer_is_sent_once() -> None:
    works, work = accepted()
    assert len(works) == 1
    assert works.answer(work)
    assert not works.answer(work)
    assert (work.state, len(works)) == ("answered", 0)


@pytest.mark.req("FRM-8")
def test_an_id_that_is_in_flight_is_refused() -> None:
    works, work = accepted("x")
    assert not works.accept(work_on("x", "tools/list"))
    assert work.is_running
    works.answer(work)
    assert works.accept(work_on("x", "tools/list"))


@pytest.mark.req("FRM-8")
def test_one_and_the_string_one_are_different_ids() -> None:
    works, number = accepted(1)
    text = work_on("1")
    assert works.accept(text)
    assert works.cancel("1") is text
    assert number.is_running


@pytest.mark.req("CAN-2")
def test_nothing_is_sent_after_a_cancellation() -> None:
    works, work = accepted()
    assert works.notify(work, NOTE) is NOTE
    assert works.cancel(1) is work
    assert works.notify(work, NOTE) is None
    assert not works.answer(work)
    assert work.state == "cancelled"


@pytest.mark.req("PRG-1")
def test_nothing_is_sent_after_the_answer() -> None:
    works, work = accepted()
    works.answer(work)
    assert works.notify(work, NOTE) is None


@pytest.mark.req("CAN-4")
@pytest.mark.parametrize("named", ["1", 2, None, True, 1.0, [], {}, "x" * 1000])
def test_a_cancellation_that_names_nothing_is_harmless(named: Any) -> None:
    works, work = accepted()
    assert works.cancel(named) is None
    assert work.is_running


@pytest.mark.req("CAN-4")
def test_a_late_and_a_repeated_cancellation_are_harmless() -> None:
    works, work = accepted()
    works.cancel(1)
    assert works.cancel(1) is None
    works, work = accepted()
    works.answer(work)
    assert works.cancel(1) is None
    assert work.state == "answered"


@pytest.mark.req("CAN-2", "FRM-8")
def test_the_old_work_stays_silent_when_its_id_is_used_again() -> None:
    works, old = accepted()
    works.cancel(1)
    new = work_on(1)
    assert works.accept(new)
    assert not works.answer(old)
    assert works.find(1) is new
    assert works.answer(new)


@pytest.mark.req("CAN-7")
def test_initialize_cannot_be_cancelled() -> None:
    works, work = accepted(1, "initialize")
    assert works.cancel(1) is None
    assert work.is_running


def test_closing_drops_every_work() -> None:
    works, work = accepted()
    assert list(works.requests.values()) == [work]
    assert works.close() == [work]
    assert works.requests == {}
    assert (work.state, len(works)) == ("dropped", 0)
    assert not works.answer(work)


def test_the_number_of_open_requests_is_bounded() -> None:
    works: Incoming[IncomingRequest] = Incoming(max_in_flight=1)
    assert not works.is_full
    subscription = work_on("s", "subscriptions/listen")
    works.accept(subscription)
    works.exempt(subscription.id)
    assert not works.is_full, "a subscription does no work"
    works.accept(work_on(1))
    assert works.is_full
    works.cancel("s")
    assert works.is_full
    works.cancel(1)
    assert not works.is_full


def test_every_row_of_the_table_has_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    test_an_answer_is_sent_once()  # by the one row that is looked up when the module is loaded
    examples = [
        test_nothing_is_sent_after_a_cancellation,
        test_closing_drops_every_work,
    ]
    assert rows_taken(INCOMING, examples, monkeypatch) == set(INCOMING.rows) - {("running", "answer")}


def test_a_request_that_does_not_count_leaves_no_place_behind() -> None:
    works: Incoming[IncomingRequest] = Incoming(max_in_flight=1)
    subscription = work_on("s", "subscriptions/listen")
    for _ in range(3):
        assert works.accept(subscription)
        works.exempt(subscription.id)
        assert works.answer(subscription)
        subscription = work_on("s", "subscriptions/listen")
    works.accept(work_on(1))
    assert works.is_full
