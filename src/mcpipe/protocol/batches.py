"""The answers to one batch, which go back together (2025-03-26)."""

from __future__ import annotations

from mcpipe.wire.messages import Error, Result

__all__ = ["BatchAnswers"]


class BatchAnswers:
    """Collects the answers to a batch of ``expected`` requests. It is complete once each was answered or skipped."""

    def __init__(self, expected: int) -> None:
        self._missing = expected
        self._answers: list[Result | Error] = []

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
