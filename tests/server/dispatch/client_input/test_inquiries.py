"""Questions to a legacy client: each gets its own answer, or ends with a reason."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from mcplumb.errors import Closed, EncodeError, McplumbError, ProtocolError, RemoteError, UsageError
from mcplumb.server.dispatch.client_input import Inquiries
from mcplumb.server.outbox import Outbox
from mcplumb.transports.memory import memory_pair
from mcplumb.types.base import PageParams
from mcplumb.wire.decode import BadMessage
from mcplumb.wire.messages import Error, ErrorDetail, Message, Notification, Request, RequestId, Result
from tests.kit.loop import run, turns
from tests.transports.ends import Recorder


class Ends:
    """A server's questions on one end of a connection, and what the client gets of them."""

    def __init__(self, max_in_flight: int = 10) -> None:
        self.client, self.server = memory_pair()
        self.came = Recorder()
        self.client.start(self.came)
        self.server.start(self)
        loop = asyncio.get_running_loop()
        self.inquiries = Inquiries(Outbox(self.server, loop), loop, max_in_flight=max_in_flight)

    def received(self, item: Any) -> None:
        if isinstance(item, BadMessage):
            self.inquiries.break_off(item)
        else:
            self.inquiries.answer(item)

    def ended(self, *, clean: bool) -> None:
        self.inquiries.close()

    def hung_up(self) -> None:
        """Nothing to do."""

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        raise AssertionError(f"{request_id!r} failed: {error}")

    def broke(self, error: OSError) -> None:
        raise AssertionError(error)

    def ask(self, method: str = "roots/list", params: Any = None) -> asyncio.Task[Any]:
        return asyncio.create_task(self.inquiries.ask(method, params))

    async def next(self) -> Message:
        await self.came.until_count(1)
        item = self.came.items.pop(0)
        assert isinstance(item, Request | Notification)
        return item

    async def question(self) -> Request:
        item = await self.next()
        assert isinstance(item, Request)
        return item

    def close(self) -> None:
        self.client.abort()
        self.server.abort()


async def test_a_question_gets_its_answer() -> None:
    ends = Ends()
    asking = ends.ask("roots/list", PageParams(cursor="c"))
    question = await ends.question()
    assert (question.method, bytes(question.params)) == ("roots/list", b'{"cursor":"c"}')
    assert len(ends.inquiries) == 1
    ends.client.send(Result(question.id, {"roots": []}))
    assert bytes(await asking) == b'{"roots":[]}'
    assert len(ends.inquiries) == 0
    ends.close()


async def test_a_question_without_params_has_none() -> None:
    ends = Ends()
    asking = ends.ask()
    question = await ends.question()
    assert question.params is msgspec.UNSET
    ends.client.send(Result(question.id, {}))
    await asking
    ends.close()


async def test_answers_may_come_in_any_order() -> None:
    ends = Ends()
    asking = [ends.ask() for _ in range(5)]
    questions = [await ends.question() for _ in range(5)]
    assert len({question.id for question in questions}) == 5
    for question in reversed(questions):
        ends.client.send(Result(question.id, question.id))
    answers = await asyncio.gather(*asking)
    assert [msgspec.json.decode(answer) for answer in answers] == [question.id for question in questions]
    ends.close()


@pytest.mark.parametrize(
    ("data", "read"),
    [(msgspec.UNSET, None), ({"a": 1}, {"a": 1}), (None, None), (msgspec.Raw(b"1" * 5000), None)],
    ids=["none", "some", "null", "more digits than Python takes"],
)
async def test_a_client_may_refuse(data: Any, read: Any) -> None:
    ends = Ends()
    asking = ends.ask()
    question = await ends.question()
    ends.client.send(Error(question.id, ErrorDetail(-1, "Not today", data)))
    with pytest.raises(RemoteError) as caught:
        await asking
    assert (caught.value.code, caught.value.message, caught.value.data) == (-1, "Not today", read)
    assert len(ends.inquiries) == 0
    ends.close()


async def test_an_answer_that_is_none_ends_the_question() -> None:
    ends = Ends()
    asking = ends.ask()
    question = await ends.question()
    bad: Any = msgspec.Raw(b'{"jsonrpc":"2.0","id":%d,"result":1,"error":2}' % int(question.id))
    ends.client.send(bad)
    with pytest.raises(ProtocolError, match="answered with what is no answer"):
        await asking
    ends.close()


@pytest.mark.req("CAN-4")
def test_answers_that_nobody_waits_for_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mcplumb")

    async def main() -> None:
        ends = Ends()
        asking = ends.ask()
        question = await ends.question()
        ends.client.send(Result(99, {}))
        ends.client.send(Result("1", {}))
        ends.client.send(Error(msgspec.UNSET, ErrorDetail(-1, "What?")))
        ends.client.send(Result(question.id, "first"))
        ends.client.send(Result(question.id, "second"))
        assert bytes(await asking) == b'"first"'
        await turns()
        ends.close()

    run(main())
    assert caplog.text.count("A response that nobody waits for was passed over.") == 4


@pytest.mark.parametrize("answered", [False, True])
async def test_a_question_that_is_given_up_is_cancelled(answered: bool) -> None:
    ends = Ends()
    asking = ends.ask()
    question = await ends.question()
    asking.cancel()
    if answered:  # in the same moment: what is left of the question is harmless
        ends.client.send(Result(question.id, {}))
    with pytest.raises(asyncio.CancelledError):
        await asking
    cancellation = await ends.next()
    assert isinstance(cancellation, Notification)
    assert cancellation.method == "notifications/cancelled"
    assert msgspec.json.decode(cancellation.params) == {"requestId": question.id}
    assert len(ends.inquiries) == 0
    await turns()
    ends.close()


async def test_an_answer_to_a_question_that_was_just_given_up() -> None:
    """The answer is there when the task is cancelled, and nobody takes it."""

    ends = Ends()
    asking = ends.ask()
    question = await ends.question()
    ends.inquiries.answer(Result(question.id, msgspec.Raw(b"{}")))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await turns()
    assert ends.came.items == []  # it was answered, so there is nothing to cancel
    ends.close()


async def test_the_end_of_the_client_ends_all_questions() -> None:
    ends = Ends()
    asking = [ends.ask() for _ in range(3)]
    for _ in asking:
        await ends.question()
    await ends.client.close()
    for each in asking:
        with pytest.raises(Closed, match="so it cannot answer"):
            await each
    with pytest.raises(Closed):
        await ends.inquiries.ask("roots/list", None)
    ends.inquiries.close()
    ends.close()


async def test_a_question_that_cannot_be_written_is_not_asked() -> None:
    ends = Ends()
    bad: Any = {"bad": object()}
    with pytest.raises(EncodeError):
        await ends.inquiries.ask("sampling/createMessage", bad)
    assert len(ends.inquiries) == 0
    asking = ends.ask()
    question = await ends.question()  # and nothing was cancelled that was never asked
    ends.client.send(Result(question.id, {}))
    await asking
    ends.close()


async def test_no_more_questions_than_the_limit_are_open() -> None:
    ends = Ends(max_in_flight=2)
    asking = [ends.ask() for _ in range(3)]
    questions = [await ends.question() for _ in range(2)]
    with pytest.raises(UsageError, match="2 requests are open already"):
        await asking[2]
    for question in questions:
        ends.client.send(Result(question.id, {}))
    await asyncio.gather(*asking[:2])
    ends.close()
