"""The answers to one batch, which go back together (2025-03-26)."""

from __future__ import annotations

from mcplumb.wire.messages import Error, RequestId, Result

__all__ = ["BatchAnswers", "Batches"]


class BatchAnswers:
    """Collects the answers to a batch of ``expected`` requests. It is complete once each was answered or skipped."""

    def __init__(self, expected: int) -> None:
        self._missing = expected
        self._answers: list[Result | Error] = []
        #: Those under which it is found in ``Batches``.
        self.ids: set[RequestId] = set()

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing any more."""
        return self._missing == 0

    def answer(self, response: Result | Error) -> list[Result | Error] | None:
        """Take one answer; returns all of them if it was the last one."""
        self._answers.append(response)
        return self.skip()

    def skip(self) -> list[Result | Error] | None:
        """One request stays without an answer, because it was cancelled; as for ``answer``.

        If none is left to send, the list is empty: then nothing is sent at all.
        """
        self._missing -= 1
        return self._answers if self.is_complete else None


class Batches(dict[RequestId, BatchAnswers]):
    """The batches that are not complete, by the ids of their requests: until its answer is sent, an id is in use."""

    __slots__ = ()

    def enter(self, request_id: RequestId, batch: BatchAnswers) -> None:
        """This request of a batch has been taken in."""
        self[request_id] = batch
        batch.ids.add(request_id)

    def leave(self, request_id: RequestId) -> BatchAnswers | None:
        """This request gets no answer: returns its batch, if it was part of one."""
        batch = self.pop(request_id, None)
        if batch is not None:
            batch.ids.remove(request_id)
        return batch

    def forget(self, batch: BatchAnswers) -> None:
        """All answers to this batch have been sent."""
        while batch.ids:
            del self[batch.ids.pop()]
