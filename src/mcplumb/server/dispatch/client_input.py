"""Input from the client while a request is handled, in both eras.

A legacy client gets a request, and the function waits for the answer. A modern client never gets requests: the call
ends with ``input_required``, the client sends the call again with the answer, and the function runs again from its
start. Earlier answers come back in the sealed request state, each under the key of its question.

Most servers never ask, so this module is loaded with the first question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from mcplumb.errors import (
    DecodeError,
    EncodeError,
    NotInRevision,
    ProtocolError,
    RemoteError,
    RequestError,
    StateRefused,
    ToolError,
    UsageError,
)
from mcplumb.protocol.version_negotiation import Need, has_capability, missing_capability
from mcplumb.types.client_features import (
    CreateMessageRequest,
    CreateMessageResult,
    ElicitRequest,
    InputRequest,
    InputRequiredResult,
    Root,
)
from mcplumb.types.content import TextContent
from mcplumb.types.method_table import METHODS
from mcplumb.types.payload_decoder import read
from mcplumb.types.revision_adapter import for_revision
from mcplumb.wire.messages import INVALID_PARAMS

if TYPE_CHECKING:
    from mcplumb.protocol.sealed_request_state import Params, Sealer  # loads hashlib, which most servers never need
    from mcplumb.server.dispatch.running_call import Call

__all__ = ["Answers", "InputNeeded", "Roots", "Sampled", "as_result", "ask", "may_need_input"]


# --- Answers and open questions ---

_STATE_REFUSED = "The request state does not fit this version of the server. Send the request again without it."


class InputNeeded(BaseException):
    """Ends a modern call that needs an answer from the client.

    It is not an ``Exception``, so that a function that catches every error does not catch it.
    """

    def __init__(self, key: str, request: InputRequest) -> None:
        super().__init__(f"The call ends here, and is made again with the answer to its question {key}.")
        self.key = key
        self.request = request


class _Answer(msgspec.Struct, array_like=True, frozen=True):
    #: The digest of the question: a second run may ask another question under the same key.
    question: str
    answer: msgspec.Raw


class _State(msgspec.Struct, array_like=True, frozen=True):
    #: By the keys of their questions, in the order they were asked.
    answers: dict[str, _Answer]
    #: The digests of the open questions by key, in the order they were asked.
    open: dict[str, str]


_read_state = msgspec.json.Decoder(_State).decode
_read_responses = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


class Answers:
    """The answers that a call has so far, and its open questions."""

    def __init__(self) -> None:
        self._known: dict[str, _Answer] = {}
        #: Answers that came without a state, so that their questions are unknown.
        self._offered: dict[str, msgspec.Raw] = {}
        #: The keys that the function has used, and the number of questions without a key.
        self._keys: set[str] = set()
        self._unnamed = 0
        #: The unanswered questions of the function, in order.
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
        """Return the answers from a request state and from the responses that came with it.

        Raises ``StateRefused`` if the state does not verify, ``DecodeError`` if the responses cannot be decoded.
        Responses to questions that were not asked are ignored; questions without a response are asked again. Without
        a state, a response is only used if the author gave its question that key.
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
            raise StateRefused(_STATE_REFUSED, reason="sealed by another version") from error
        answers._known = state.answers
        for key, question in state.open.items():
            if key in given:
                answers._known[key] = _Answer(question, given[key])
        return answers

    def claim(self, key: str | None) -> str:
        """Return the key of the function's next question: the given one, or its number.

        Raises ``UsageError`` if another question has it.
        """
        if key is None:
            self._unnamed += 1
            key = str(self._unnamed)
            self._offered.pop(key, None)
        elif type(key) is not str or not key:
            raise UsageError(f"The key of a question cannot be {key!r}: it must be a string that is not empty.")
        if key in self._keys:
            raise UsageError(f"Two questions of this call have the key {key!r}: give each a key of its own.")
        self._keys.add(key)
        return key

    def get(self, key: str, request: InputRequest) -> msgspec.Raw:
        """Return the answer to a question; raise ``InputNeeded`` if there is none yet.

        Raises ``EncodeError`` if the question cannot be encoded, so that the function sees the error.
        """
        question = _digest(request)
        if key not in self._known and key in self._offered:
            self._known[key] = _Answer(question, self._offered[key])
        if key in self._known:
            if self._known[key].question == question:
                return self._known[key].answer
            # The function asks something else than last time, so the later answers no longer apply.
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
        """Return the sealed request state: the answers so far, and the questions asked now."""
        state = _State(self._known, {each.key: _digest(each.request) for each in needed})
        return sealer.seal(_encode(state), method=method, params=params, principal=principal, now=now)


def as_result(needed: list[InputNeeded], state: str) -> InputRequiredResult:
    """Return the result that asks the client for this input."""
    return InputRequiredResult(input_requests={each.key: each.request for each in needed}, request_state=state)


def _digest(request: InputRequest) -> str:
    from hashlib import blake2b  # most servers never ask

    try:
        written = _encode_sorted(request)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise EncodeError(f"The question cannot be written as JSON: {error}.") from error
    return blake2b(written, digest_size=12).hexdigest()


# --- Asking ---

T = TypeVar("T")


class Sampled(CreateMessageResult, frozen=True, kw_only=True):
    """The message that the client's model generated."""

    @property
    def text(self) -> str:
        """All text blocks of the message, joined."""
        return "".join(block.text for block in self.blocks if isinstance(block, TextContent))

    def __await__(self) -> Generator[Any, Any, Sampled]:
        yield from ()
        return self


class Roots(list[Root]):
    """The client's roots."""

    def __await__(self) -> Generator[Any, Any, Roots]:
        yield from ()
        return self


#: What a client with a capability can do, for an error message.
_CAPABILITY_TEXT: dict[Need, str] = {
    "roots": "tell its roots",
    "sampling": "ask a model",
    "sampling.tools": "ask a model that may call tools",
    "elicitation.form": "ask its user with a form",
    "elicitation.url": "send its user to a web page",
}


async def ask(call: Call, request: InputRequest, kind: type[T], key: str | None = None) -> T:
    """Return the client's answer, decoded as ``kind``. In the modern era this may end the call (``InputNeeded``).

    A modern client gets the question under its ``key``. Raises ``RequestCancelled`` if the request has ended.
    """
    call.check_running()
    admitted = call.admitted
    if call.answers is None:
        call.answers = Answers()
    key = call.answers.claim(key)
    need = _need_of(request)
    if not has_capability(admitted.capabilities, need):
        if admitted.revision.has_input_required:
            missing = missing_capability(need)
            raise RequestError(missing.code, missing.message, missing.data)
        raise ToolError(f"This needs a client that can {_CAPABILITY_TEXT[need]}, and this client did not declare that.")
    if admitted.revision.has_input_required:
        if not may_need_input(call.method):
            raise UsageError(f"{call.method} may not ask the client for anything.")
        # A question that the revision does not have fails here, so that the function sees the error.
        for_revision(request, admitted.revision)
        try:
            return read(kind, call.answers.get(key, request), what="client's answer")
        except DecodeError as error:
            raise RequestError(INVALID_PARAMS, str(error)) from error
        except InputNeeded:
            if call.session.loop.get_task_factory() is not None:
                # It may start tasks at once: this one must not end a group whose other tasks have not asked yet.
                await asyncio.sleep(0)
            raise
    try:
        params = for_revision(_with_id(request), admitted.revision).params
    except NotInRevision as error:
        raise ToolError(f"This needs a newer client. {error}") from error
    try:
        answer = await call.session.ask(str(request.__struct_config__.tag), params, call.id)
        return read(kind, answer, what="client's answer")
    except RemoteError as error:
        raise ToolError(f"The client could not be asked: it answered with error {error.code}.") from error
    except ProtocolError as error:
        raise ToolError(str(error)) from error


def may_need_input(method: str) -> bool:
    """Return whether a request of this method may be answered with a request for input."""
    return method in METHODS and METHODS[method].may_need_input


def _need_of(request: InputRequest) -> Need:
    if isinstance(request, ElicitRequest):
        return "elicitation.url" if request.params.is_url else "elicitation.form"
    if isinstance(request, CreateMessageRequest):
        return "sampling" if request.params.tools is None else "sampling.tools"
    return "roots"


def _with_id(request: InputRequest) -> InputRequest:
    """Return the request with an elicitation id, which one revision requires for URLs."""
    if isinstance(request, ElicitRequest) and request.params.is_url and request.params.elicitation_id is None:
        from secrets import token_urlsafe  # most servers never ask

        return replace(request, params=replace(request.params, elicitation_id=token_urlsafe(12)))
    return request
