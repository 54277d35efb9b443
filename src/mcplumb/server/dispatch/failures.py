"""Failed requests: the error or tool result that the client gets, and what is only logged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from mcplumb.errors import DecodeError, RequestError, StateRefused, StoreUnavailable, ToolError, UsageError
from mcplumb.rpc.handler import Outcome
from mcplumb.rpc.thread_pool import PoolExhausted
from mcplumb.server.catalog import Entry, ToolEntry
from mcplumb.server.dispatch.running_call import Call
from mcplumb.types.base import Payload
from mcplumb.types.content import TextContent
from mcplumb.types.tools import CallToolResult
from mcplumb.wire.messages import INTERNAL_ERROR, INVALID_PARAMS, ErrorDetail

if TYPE_CHECKING:
    from mcplumb.server.dispatch.client_input import InputNeeded

__all__ = ["error_of", "outcome_of"]

_logger = logging.getLogger("mcplumb.server")


def outcome_of(call: Call, entry: Entry | None, error: BaseException) -> Outcome:
    """Return the outcome of a call that raised this error. Without an entry, no function was called yet."""
    needed = _inputs_needed(error)
    try:
        if needed:
            return call.encoded(_input_required(call, needed))
    except UsageError as refused:
        error = ToolError(f"The questions of this call, and the answers so far, cannot be kept. {refused}")
    except Exception as another:  # noqa: BLE001 - whatever it is, the client gets a response
        error = another
    try:
        if isinstance(entry, ToolEntry) and not isinstance(error, RequestError | PoolExhausted | StoreUnavailable):
            return call.encoded(_tool_failure(entry, error))
    except Exception as another:  # noqa: BLE001 - whatever it is, the client gets a response
        error = another
    return error_of(error, call.method if entry is None else entry.label, is_clients=entry is None)


def error_of(error: BaseException, what: str, *, is_clients: bool = False) -> ErrorDetail:
    """Return the error to respond with: texts by the author are sent, everything else is only logged.

    ``is_clients``: no function was called yet, so a decode error is the client's and is reported to it.
    """
    if isinstance(error, RequestError) and type(error.code) is int and type(error.message) is str:
        return ErrorDetail(error.code, error.message, msgspec.UNSET if error.data is None else error.data)
    if isinstance(error, ToolError | StoreUnavailable):
        return ErrorDetail(INTERNAL_ERROR, str(error))
    if isinstance(error, PoolExhausted):
        _logger.error("The %s was not called. %s", what, error)
        return ErrorDetail(INTERNAL_ERROR, str(error))
    if is_clients and isinstance(error, StateRefused | DecodeError):
        if isinstance(error, StateRefused):
            _logger.warning("Request state of the %s was refused: %s.", what, error.reason)
        return ErrorDetail(INVALID_PARAMS, str(error))
    _logger.error("The %s failed.", what, exc_info=error)
    return ErrorDetail(INTERNAL_ERROR, f"The {what} failed, and the server's log says why.")


def _tool_failure(entry: ToolEntry, error: BaseException) -> Payload:
    """Return the result for a model when a tool fails: the author's text, or a reference to the log."""
    if isinstance(error, ToolError):
        text = str(error)
    else:
        _logger.error("The %s failed.", entry.label, exc_info=error)
        text = f"The {entry.label} failed, and the server's log says why."
    return CallToolResult([TextContent(text)], is_error=True)


def _inputs_needed(error: BaseException) -> list[InputNeeded]:
    """Return the open questions in an exception, or in a group of them."""
    from mcplumb.server.dispatch.client_input import InputNeeded

    if isinstance(error, InputNeeded):
        return [error]
    if isinstance(error, BaseExceptionGroup):
        found = [_inputs_needed(each) for each in error.exceptions]
        return [needed for each in found for needed in each] if all(found) else []
    return []


def _input_required(call: Call, needed: list[InputNeeded]) -> Payload:
    from mcplumb.server.dispatch.client_input import Answers, as_result

    shared, request = call.session.shared, call.request
    answers = call.answers or Answers()
    # Questions that other tasks of the function asked meanwhile are asked in the same round.
    needed = answers.needed or needed
    state = answers.seal(
        shared.sealer,
        needed,
        method=request.method,
        params=request.params,
        principal=None if call.principal is None else call.principal.identity,
        now=shared.now(),
    )
    return as_result(needed, state)
