"""Input from the client within a request: what a result asks for, and what the retry brings.

Legacy revisions ask for the same with requests of the server's own; the params and results are the same types.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from mcplumb.types.base import Params, Payload, Result
from mcplumb.types.elicitation import ElicitParams, ElicitResult
from mcplumb.types.reading import read
from mcplumb.types.roots import ListRootsResult
from mcplumb.types.sampling import CreateMessageParams, CreateMessageResult

__all__ = [
    "CreateMessageRequest",
    "ElicitRequest",
    "InputRequest",
    "InputRequiredResult",
    "InputResponse",
    "ListRootsRequest",
    "read_input_response",
]


class CreateMessageRequest(Payload, frozen=True, tag_field="method", tag="sampling/createMessage"):
    """Asks for a message from the client's model."""

    params: CreateMessageParams


class ElicitRequest(Payload, frozen=True, tag_field="method", tag="elicitation/create"):
    """Asks the client's user."""

    params: ElicitParams


class ListRootsRequest(Payload, frozen=True, tag_field="method", tag="roots/list"):
    """Asks for the client's roots."""

    params: Params | None = None


InputRequest: TypeAlias = CreateMessageRequest | ElicitRequest | ListRootsRequest
InputResponse: TypeAlias = CreateMessageResult | ElicitResult | ListRootsResult


class InputRequiredResult(Result, frozen=True, kw_only=True):
    """The request cannot be answered yet: it has to be sent again with what is asked for here."""

    #: Under keys of the server's choice, which the answers in ``input_responses`` share.
    input_requests: dict[str, InputRequest] | None = None
    #: To be sent back as it is.
    request_state: str | None = None


def read_input_response(request: InputRequest, response: Any) -> InputResponse:
    """One value of ``input_responses``, typed: what it is follows from the request that it answers."""
    kind: type[InputResponse]
    match request:
        case CreateMessageRequest():
            kind = CreateMessageResult
        case ElicitRequest():
            kind = ElicitResult
        case _:
            kind = ListRootsResult
    return response if isinstance(response, kind) else read(kind, response)
