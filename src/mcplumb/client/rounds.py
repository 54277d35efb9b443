"""Reading results, and answering those that ask for something first."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from mcplumb.client.inputs import Inputs
from mcplumb.errors import DecodeError, ProtocolError
from mcplumb.revisions import Revision
from mcplumb.types.base import COMPLETE, Result
from mcplumb.types.decoders import DECODERS, UNREADABLE
from mcplumb.types.input import InputRequiredResult
from mcplumb.types.methods import METHODS
from mcplumb.types.reading import read, read_result_type

__all__ = ["MAX_ROUNDS", "next_round", "read_result"]

R = TypeVar("R", bound=Result)

#: The type of a result that needs nothing more; a legacy one says none.
_COMPLETE = (None, COMPLETE)

#: How often one call is sent, at the most. Each question that a tool asks takes a round.
MAX_ROUNDS = 32


def read_result(kind: type[R], raw: msgspec.Raw, method: str, revision: Revision) -> R | InputRequiredResult:
    """The result of a request, or what the server wants to know first; ``ProtocolError`` if it is neither."""
    try:
        result: R = DECODERS[kind].decode(raw)  # as `read` does if there is nothing in the way
    except UNREADABLE:
        try:
            result = read(kind, raw, what="result of " + method)
        except DecodeError:
            # One that asks for input lacks what the other kind must have.
            if not revision.has_result_types or read_result_type(raw) == COMPLETE:
                raise
            return _question(raw, method)
    if result.result_type in _COMPLETE or not revision.has_result_types:
        return result
    return _question(raw, method)


def _question(raw: msgspec.Raw, method: str) -> InputRequiredResult:
    read_result_type(raw)  # raises if it is a type that nobody knows
    if not METHODS[method].may_need_input:
        raise ProtocolError(f"The server wants input before it answers {method}, which needs none.")
    return read(InputRequiredResult, raw, what="result of " + method)


async def next_round(
    asked: InputRequiredResult, params: dict[str, Any], inputs: Inputs, revision: Revision
) -> dict[str, Any]:
    """The params of the same request with what the server asked for, and with its state as it came."""
    if asked.input_requests is None and asked.request_state is None:
        raise ProtocolError("The server wants input before it answers, and does not say which.")
    retry = {key: value for key, value in params.items() if key not in _OF_ONE_ROUND}
    if asked.input_requests is not None:
        # One after the other, as a person would want to be asked.
        retry["inputResponses"] = {
            key: await inputs.answer(request, revision) for key, request in asked.input_requests.items()
        }
    if asked.request_state is not None:
        retry["requestState"] = asked.request_state
    return retry


_OF_ONE_ROUND = frozenset(("_meta", "inputResponses", "requestState"))
