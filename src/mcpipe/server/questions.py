"""What a request asks of its client, in both eras.

A legacy client is sent a request, and the function waits for the answer. A modern one is never sent a request: the
call ends with ``input_required``, the client sends it again with the answer, and the function runs again from its
start. The answers it already has come back to it from the sealed request state, in the order of its questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mcpipe.errors import DecodeError, EncodeError
from mcpipe.types.input import InputRequest, InputRequiredResult

if TYPE_CHECKING:
    from mcpipe.protocol.sealing import Params, Sealer  # it loads hashlib, and most servers never ask

__all__ = ["Answers", "InputNeeded", "as_result"]


class InputNeeded(BaseException):
    """Ends a modern call that cannot go on without this answer.

    It is no ``Exception``, so that a function which guards its work against every error does not hold it up.
    """

    def __init__(self, key: str, request: InputRequest) -> None:
        super().__init__(f"The call ends here, and is made again with the answer to its question {key}.")
        self.key = key
        self.request = request


class _Answer(msgspec.Struct, array_like=True):
    #: Which question it was: a function may ask another one when it runs again.
    question: str
    answer: msgspec.Raw


class _State(msgspec.Struct, array_like=True):
    answers: list[_Answer]
    #: The questions that were asked last, under their keys.
    open: dict[str, str]


_read_state = msgspec.json.Decoder(_State).decode
_read_responses = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


class Answers:
    """The answers that a modern call has so far, and what it still asks."""

    def __init__(self) -> None:
        self._known: list[_Answer] = []
        self._asked = 0

    @classmethod
    def reopened(
        cls, sealer: Sealer, token: str, responses: Any, *, method: str, params: Params, now: float
    ) -> Answers:
        """The answers in a request state, together with those that came beside it.

        ``StateRefused`` if the state does not verify; ``DecodeError`` if the responses cannot be read. Responses to
        questions that were not asked are passed over; questions without a response are asked again.
        """
        state = _read_state(sealer.open(token, method=method, params=params, principal=None, now=now))
        try:
            given = _read_responses(responses) if isinstance(responses, msgspec.Raw) else {}
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DecodeError(f"The inputResponses cannot be read: {error}.") from error
        answers = cls()
        answers._known = state.answers
        for key in sorted(state.open, key=int):
            if key in given:
                answers._known.append(_Answer(state.open[key], given[key]))
        return answers

    def next(self, request: InputRequest) -> msgspec.Raw:
        """The answer to the function's next question; ``InputNeeded`` if there is none yet.

        ``EncodeError`` if the question cannot be written: here, where the function can see it.
        """
        place = self._asked
        self._asked += 1
        digest = _digest(request)
        if place < len(self._known):
            if self._known[place].question == digest:
                return self._known[place].answer
            # The function took another way than last time. What it knew there does not count here.
            del self._known[place:]
        raise InputNeeded(str(place + 1), request)

    def seal(self, sealer: Sealer, needed: list[InputNeeded], *, method: str, params: Params, now: float) -> str:
        """The request state: the answers so far, and what is asked now."""
        state = _State(self._known, {each.key: _digest(each.request) for each in needed})
        return sealer.seal(_encode(state), method=method, params=params, principal=None, now=now)


def as_result(needed: list[InputNeeded], state: str) -> InputRequiredResult:
    """The result that asks for all of this."""
    return InputRequiredResult(input_requests={each.key: each.request for each in needed}, request_state=state)


def _digest(request: InputRequest) -> str:
    from hashlib import blake2b  # most servers never ask

    try:
        written = _encode(request)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise EncodeError(f"The question cannot be written as JSON: {error}.") from error
    return blake2b(written, digest_size=12).hexdigest()
