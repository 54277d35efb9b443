"""Asking the client for input, the way its era has for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from mcplumb.errors import DecodeError, NotInRevision, ProtocolError, RemoteError, RequestError, ToolError, UsageError
from mcplumb.protocol.admission import Need, has_capability, missing_capability
from mcplumb.server.questions import Answers
from mcplumb.types.input import CreateMessageRequest, ElicitRequest, InputRequest
from mcplumb.types.methods import METHODS
from mcplumb.types.reading import read
from mcplumb.types.writing import for_revision
from mcplumb.wire.messages import INVALID_PARAMS

if TYPE_CHECKING:
    from mcplumb.server.call import Call

__all__ = ["ask", "may_need_input"]

T = TypeVar("T")

_SPOKEN: dict[Need, str] = {
    "roots": "tell its roots",
    "sampling": "ask a model",
    "sampling.tools": "ask a model that may call tools",
    "elicitation.form": "ask its user with a form",
    "elicitation.url": "send its user to a web page",
}


async def ask(call: Call, request: InputRequest, kind: type[T], key: str | None = None) -> T:
    """The client's answer, read as ``kind``. On a modern client this may end the call (``InputNeeded``).

    A modern client sees the question under its ``key``. ``RequestCancelled`` if the request has ended.
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
        raise ToolError(f"This needs a client that can {_SPOKEN[need]}, and this client does not say that it can.")
    if admitted.revision.has_input_required:
        if not may_need_input(call.method):
            raise UsageError(f"{call.method} may not ask the client for anything.")
        # What cannot be asked must fail here, where the function can see it.
        for_revision(request, admitted.revision)
        try:
            return read(kind, call.answers.get(key, request), what="client's answer")
        except DecodeError as error:
            raise RequestError(INVALID_PARAMS, str(error)) from error
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
    """Whether a request of this method may be answered with a question."""
    return method in METHODS and METHODS[method].may_need_input


def _need_of(request: InputRequest) -> Need:
    if isinstance(request, ElicitRequest):
        return "elicitation.url" if request.params.is_url else "elicitation.form"
    if isinstance(request, CreateMessageRequest):
        return "sampling" if request.params.tools is None else "sampling.tools"
    return "roots"


def _with_id(request: InputRequest) -> InputRequest:
    """The same, with the id that one revision wants for a web page."""
    if isinstance(request, ElicitRequest) and request.params.is_url and request.params.elicitation_id is None:
        from secrets import token_urlsafe  # most servers never ask

        return replace(request, params=replace(request.params, elicitation_id=token_urlsafe(12)))
    return request
