"""What a request asks of its client, in both eras.

A legacy client is sent a request, and the function waits for the answer. A modern one is never sent a request: the
call ends with ``input_required``, the client sends it again with the answer, and the function runs again from its
start. The answers it already has come back to it from the sealed request state, each under the key of its question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.errors import DecodeError, EncodeError, StateRefused, UsageError
from mcplumb.types.input import InputRequest, InputRequiredResult

if TYPE_CHECKING:
    from mcplumb.protocol.sealing import Params, Sealer  # it loads hashlib, and most servers never ask

__all__ = ["Answers", "InputNeeded", "as_result"]


class InputNeeded(BaseException):
    """Ends a modern call that cannot go on without this answer.

    It is no ``Exception``, so that a function which guards its work against every error does not hold it up.
    """

    def __init__(self, key: str, request: InputRequest) -> None:
        super().__init__(f"The call ends here, and is made again with the answer to its question {key}.")
        self.key = key
        self.request = request


class _Answer(msgspec.Struct, array_like=True, frozen=True):
    #: Which question it was: a function may ask another one under the same key when it runs again.
    question: str
    answer: msgspec.Raw


class _State(msgspec.Struct, array_like=True, frozen=True):
    #: Under the keys of their questions, in the order of these.
    answers: dict[str, _Answer]
    #: The questions that were asked last, under their keys, and in their order.
    open: dict[str, str]


_read_state = msgspec.json.Decoder(_State).decode
_read_responses = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


class Answers:
    """The answers that a call has so far, and what it still asks."""

    def __init__(self) -> None:
        self._known: dict[str, _Answer] = {}
        #: Those that came without a state, so that nobody knows what they were asked for.
        self._offered: dict[str, msgspec.Raw] = {}
        #: The keys that the function has used, and how many it left to us.
        self._keys: set[str] = set()
        self._unnamed = 0
        #: What the function asked and has no answer to, in that order.
        self.needed: list[InputNeeded] = []

    @classmethod
    def reopened(
        cls,
        sealer: Sealer,
        token: str | None,
        responses: Any,
        *,
        method: str,
        params: Params,
        principal: str | None,
        now: float,
    ) -> Answers:
        """The answers in a request state, together with those that came beside it.

        ``StateRefused`` if the state does not verify; ``DecodeError`` if the responses cannot be read. Responses to
        questions that were not asked are passed over; questions without a response are asked again. Without a state,
        nobody knows what was asked: a response is taken if its key is one that the author has given to a question.
        """
        try:
            given = _read_responses(responses) if isinstance(responses, msgspec.Raw) else {}
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DecodeError(f"The inputResponses cannot be read: {error}.") from error
        answers = cls()
        if token is None:
            answers._offered = given
            return answers
        sealed = sealer.open(token, method=method, params=params, principal=principal, now=now)
        try:
            state = _read_state(sealed)
        except msgspec.DecodeError as error:
            raise StateRefused(_NOT_OURS, reason="sealed by another version") from error
        answers._known = state.answers
        for key, question in state.open.items():
            if key in given:
                answers._known[key] = _Answer(question, given[key])
        return answers

    def claim(self, key: str | None) -> str:
        """The key of the function's next question: this one or, without any, one that follows from its place.

        ``UsageError`` if another question has it.
        """
        if key is None:
            self._unnamed += 1
            key = str(self._unnamed)
            self._offered.pop(key, None)
        elif type(key) is not str or not key:
            raise UsageError(f"The key of a question cannot be {key!r}: it is a text that is not empty.")
        if key in self._keys:
            raise UsageError(f"Two questions of this call have the key {key!r}: give each a key of its own.")
        self._keys.add(key)
        return key

    def get(self, key: str, request: InputRequest) -> msgspec.Raw:
        """The answer to the question with this key; ``InputNeeded`` if there is none yet.

        ``EncodeError`` if the question cannot be written: here, where the function can see it.
        """
        question = _digest(request)
        if key not in self._known and key in self._offered:
            self._known[key] = _Answer(question, self._offered[key])
        if key in self._known:
            if self._known[key].question == question:
                return self._known[key].answer
            # The function took another way than last time. What it learned there since does not count here.
            learned = list(self._known)
            for later in learned[learned.index(key) :]:
                del self._known[later]
        needed = InputNeeded(key, request)
        self.needed.append(needed)
        raise needed

    def seal(
        self,
        sealer: Sealer,
        needed: list[InputNeeded],
        *,
        method: str,
        params: Params,
        principal: str | None,
        now: float,
    ) -> str:
        """The request state: the answers so far, and what is asked now."""
        state = _State(self._known, {each.key: _digest(each.request) for each in needed})
        return sealer.seal(_encode(state), method=method, params=params, principal=principal, now=now)


_NOT_OURS = "The request state is none of this server's as it is now. Send the request again without it."


def as_result(needed: list[InputNeeded], state: str) -> InputRequiredResult:
    """The result that asks for all of this."""
    return InputRequiredResult(input_requests={each.key: each.request for each in needed}, request_state=state)


def _digest(request: InputRequest) -> str:
    from hashlib import blake2b  # most servers never ask

    try:
        written = _encode_sorted(request)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise EncodeError(f"The question cannot be written as JSON: {error}.") from error
    return blake2b(written, digest_size=12).hexdigest()
