"""Calling an author's function, and what becomes of what it returns or raises."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeAlias

import msgspec

from mcplumb.errors import DecodeError, RequestError, StateRefused, ToolError, UsageError
from mcplumb.rpc import thread_pool
from mcplumb.rpc.thread_pool import Job, Workers
from mcplumb.server.catalog import Entry, HandlerEntry, ToolEntry
from mcplumb.server.context import Context
from mcplumb.server.dispatch.call import Call
from mcplumb.server.dispatch.client_input import Answers, InputNeeded, as_result
from mcplumb.server.schema.signature import BadArguments
from mcplumb.types.base import Payload
from mcplumb.types.content import TextContent
from mcplumb.types.payload_decoder import read
from mcplumb.types.tools import CallToolResult
from mcplumb.wire.messages import INTERNAL_ERROR, INVALID_PARAMS, ErrorDetail, Notification

__all__ = ["Outcome", "ToResult", "execute", "explained", "fail", "hear"]

_logger = logging.getLogger("mcplumb.server")

#: What a request is answered with: a payload, a result that is written already, or an error.
Outcome: TypeAlias = Payload | msgspec.Raw | dict[str, Any] | ErrorDetail
#: Makes that of what a function returned.
ToResult: TypeAlias = Callable[[Any], Outcome]


def execute(call: Call, entry: Entry, arguments: dict[str, Any], to_result: ToResult) -> None:
    """Call the function: an async one in a task, which begins at once; a plain one in a thread.

    ``to_result`` makes the result of what it returns.
    """
    session = call.session
    signature = entry.signature
    if signature.context_name is not None:
        arguments[signature.context_name] = Context(call)
    if signature.is_async:
        task = session.start_task(_await(call, entry, arguments, to_result), session.fresh_context())
        if not task.done():
            call.task = task
            session.keep(task)
    else:
        function, done = partial(_call_plain, entry, to_result), partial(_hand_over, call, entry)
        call.job = Job(function, arguments, done, session.fresh_context())
        try:
            session.workers.submit(call.job)
        except RuntimeError as error:  # the system has no thread left
            fail(call, entry, error)


async def hear(entry: HandlerEntry, notification: Notification, workers: Workers) -> None:
    """Call the function that hears a notification. Its failure is logged, and harms nobody."""
    try:
        arguments = entry.signature.read({entry.takes: read(dict[str, Any], notification.params, what="params")})
    except (BadArguments, DecodeError) as error:
        _logger.warning("A notification for the %s was passed over. %s", entry.spoken, error)
        return
    try:
        if entry.signature.is_async:
            await entry.function(**arguments)
        else:
            await _in_thread(entry, arguments, workers)
    except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException:
        _logger.exception("The %s failed.", entry.spoken)


def fail(call: Call, entry: Entry | None, error: BaseException) -> None:
    """Answer a call whose function raised this. Without an entry, none was called yet."""
    if call.is_running:
        call.session.finish(call, _outcome(call, entry, error))


def explained(error: BaseException, what: str, *, is_clients: bool = False) -> ErrorDetail:
    """The error to answer with: an author's own words are told, everything else stays here, and is logged.

    ``is_clients``: no function was called yet, so what cannot be read is the client's, which is told.
    """
    if isinstance(error, RequestError) and type(error.code) is int and type(error.message) is str:
        return ErrorDetail(error.code, error.message, msgspec.UNSET if error.data is None else error.data)
    if isinstance(error, ToolError):
        return ErrorDetail(INTERNAL_ERROR, str(error))
    if is_clients and isinstance(error, StateRefused | DecodeError):
        if isinstance(error, StateRefused):
            _logger.warning("Request state of the %s was refused: %s.", what, error.reason)
        return ErrorDetail(INVALID_PARAMS, str(error))
    _logger.error("The %s failed.", what, exc_info=error)
    return ErrorDetail(INTERNAL_ERROR, f"The {what} failed, and the server's log says why.")


async def _await(call: Call, entry: Entry, arguments: dict[str, Any], to_result: ToResult) -> None:
    try:
        # Called in here: a task that is cancelled before it begins must not leave a coroutine behind.
        outcome = to_result(await entry.function(**arguments))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if thread_pool.generation != call.session.generation:
            thread_pool.end_fork()
        if isinstance(error, GeneratorExit) and not call.is_running:
            raise
        fail(call, entry, error)
    else:
        session = call.session
        if thread_pool.generation != session.generation:
            thread_pool.end_fork()
        session.finish(call, outcome)


def _call_plain(entry: Entry, to_result: ToResult, /, **arguments: Any) -> Outcome:
    """Everything that may take its time, such as reading a file that the function returned, in the same thread."""
    return to_result(entry.function(**arguments))


def _hand_over(call: Call, entry: Entry, outcome: Any, error: BaseException | None) -> None:
    try:
        if error is None:
            call.session.loop.call_soon_threadsafe(call.session.finish, call, outcome)
        else:
            call.session.loop.call_soon_threadsafe(fail, call, entry, error)
    except RuntimeError:  # the loop is closed
        _logger.debug("A plain function of %s ended after its server.", call.method)


def _outcome(call: Call, entry: Entry | None, error: BaseException) -> Outcome:
    needed = _inputs_needed(error)
    try:
        if needed:
            return _input_required(call, needed)
    except UsageError as refused:
        error = ToolError(f"The questions of this call, and the answers so far, cannot be kept. {refused}")
    except Exception as another:  # noqa: BLE001 - whatever it is, the client gets an answer
        error = another
    try:
        if isinstance(entry, ToolEntry) and not isinstance(error, RequestError):
            return _tool_failure(entry, error)
    except Exception as another:  # noqa: BLE001 - whatever it is, the client gets an answer
        error = another
    return explained(error, call.method if entry is None else entry.spoken, is_clients=entry is None)


def _tool_failure(entry: ToolEntry, error: BaseException) -> Payload:
    """What a model is told when a tool fails: the author's words, or that there are none."""
    if isinstance(error, ToolError):
        said = str(error)
    else:
        _logger.error("The %s failed.", entry.spoken, exc_info=error)
        said = f"The {entry.spoken} failed, and the server's log says why."
    return CallToolResult([TextContent(said)], is_error=True)


def _inputs_needed(error: BaseException) -> list[InputNeeded]:
    """What the function asked for, whether one thing or several at once."""
    if isinstance(error, InputNeeded):
        return [error]
    if isinstance(error, BaseExceptionGroup):
        found = [_inputs_needed(each) for each in error.exceptions]
        return [needed for each in found for needed in each] if all(found) else []
    return []


def _input_required(call: Call, needed: list[InputNeeded]) -> Payload:
    shared, request = call.session.shared, call.request
    answers = call.answers or Answers()
    # What other tasks have asked meanwhile is asked with it: whoever gathers them hears of the first one only.
    needed = answers.needed or needed
    state = answers.seal(
        shared.sealer,
        needed,
        method=request.method,
        params=request.params,
        principal=call.session.principal,
        now=shared.now(),
    )
    return as_result(needed, state)


async def _in_thread(entry: Entry, arguments: dict[str, Any], workers: Workers) -> None:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[BaseException | None] = loop.create_future()

    def hand_over(_: Any, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, error)

    def settle(error: BaseException | None) -> None:
        if not done.done():
            done.set_result(error)

    job = Job(entry.function, arguments, hand_over, copy_context())
    workers.submit(job)
    try:
        error = await done
    except asyncio.CancelledError:
        workers.abandon(job)
        raise
    if error is not None:
        raise error
