from __future__ import annotations

import pytest

from mcpipe.protocol.batches import BatchAnswers
from mcpipe.wire.messages import Result


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
