from __future__ import annotations

import pytest

from mcplumb.protocol.in_flight import BatchAnswers, Batches
from mcplumb.wire.messages import Result


@pytest.mark.req("FRM-10")
def test_the_answers_go_back_together() -> None:
    answers = BatchAnswers(2)
    assert answers.answer(Result(2, {})) is None
    assert answers.answer(Result(1, {})) == [Result(2, {}), Result(1, {})]
    assert answers.is_complete


@pytest.mark.req("FRM-10", "CAN-2")
def test_a_cancelled_request_does_not_hold_the_others_back() -> None:
    answers = BatchAnswers(2)
    assert answers.answer(Result(1, {})) is None
    assert answers.skip() == [Result(1, {})]


def test_a_batch_of_cancelled_requests_has_nothing_to_send() -> None:
    assert BatchAnswers(1).skip() == []


def test_a_batch_of_notifications_is_complete_from_the_start() -> None:
    assert BatchAnswers(0).is_complete


def test_an_id_is_in_use_until_its_batch_is_answered() -> None:
    batches, one, other = Batches(), BatchAnswers(2), BatchAnswers(1)
    batches.enter(1, one)
    batches.enter("1", one)
    batches.enter(2, other)
    batches.forget(one)
    assert batches == {2: other}
    batches.enter(1, other)
    batches.forget(one)  # once more: what it had is another's now
    assert batches == {1: other, 2: other}


def test_the_id_of_a_cancelled_request_is_free_again() -> None:
    batches, one, other = Batches(), BatchAnswers(2), BatchAnswers(1)
    batches.enter(1, one)
    batches.enter(2, one)
    assert batches.leave(1) is one
    assert batches.leave(1) is None
    batches.enter(1, other)
    batches.forget(one)
    assert batches == {1: other}


class CountedId(str):
    """An id that counts how often it is looked for."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        CountedId.looks += 1
        return super().__hash__()


def looks_for_ids(count: int) -> float:
    """How often ids are looked for, for each of so many batches that are open together."""
    batches, before = Batches(), CountedId.looks
    opened = [BatchAnswers(2) for _ in range(count)]
    for number, batch in enumerate(opened):
        batches.enter(CountedId(number), batch)
        batches.enter(CountedId(number + count), batch)
    for batch in opened:
        batches.forget(batch)
    assert not batches
    return (CountedId.looks - before) / count


def test_to_forget_a_batch_takes_no_look_at_the_others() -> None:
    assert looks_for_ids(1000) == looks_for_ids(10)
