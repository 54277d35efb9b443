"""The user's handlers for a server's requests for input: elicitation, sampling and roots, in both eras."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from mcplumb.errors import ProtocolError, UsageError
from mcplumb.revisions import Revision
from mcplumb.rpc.thread_pool import ThreadPool
from mcplumb.types.client_features import (
    CreateMessageParams,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitParams,
    ElicitRequest,
    ElicitResult,
    InputRequest,
    InputResponse,
    ListRootsRequest,
    ListRootsResult,
    Root,
)
from mcplumb.types.content import TextContent
from mcplumb.types.lifecycle import ClientCapabilities, ElicitationCapability, RootsCapability, SamplingCapability
from mcplumb.types.revision_adapter import for_revision

__all__ = [
    "Elicitation",
    "InputHandlers",
    "OnElicit",
    "OnSample",
    "RootLike",
    "Roots",
]

_logger = logging.getLogger("mcplumb.client")

#: Plain handlers that run at once; further ones wait. A handler mostly waits for a person.
_MAX_THREADS = 32


class Elicitation(msgspec.Struct, frozen=True):
    """A question to the user: the argument of ``on_elicit``."""

    message: str
    #: ``form``: fill in ``schema``. ``url``: open ``url`` if the user agrees, and accept.
    mode: str
    #: The JSON Schema of the form.
    schema: dict[str, Any] | None
    url: str | None
    #: The params of the request, unchanged.
    params: ElicitParams


_Answer: TypeAlias = dict[str, Any] | ElicitResult | None
#: Returns the form's content to accept, None to decline, or a complete ``ElicitResult``.
OnElicit: TypeAlias = Callable[[Elicitation], _Answer | Awaitable[_Answer]]
#: Returns the model's message, or only its text.
OnSample: TypeAlias = Callable[
    [CreateMessageParams], CreateMessageResult | str | Awaitable[CreateMessageResult] | Awaitable[str]
]
#: A folder: its path, its ``file://`` URI, or a complete ``Root``.
RootLike: TypeAlias = str | os.PathLike[str] | Root
#: The folders that a server may work in, or a function that returns them.
Roots: TypeAlias = Iterable[RootLike] | Callable[[], Iterable[RootLike] | Awaitable[Iterable[RootLike]]]


class InputHandlers:
    """The input handlers of one client, and the ``capabilities`` that it declares.

    A plain handler runs in a thread, so it may block; an async one runs on the event loop.
    """

    def __init__(
        self,
        *,
        on_elicit: OnElicit | None = None,
        on_sample: OnSample | None = None,
        roots: Roots | None = None,
        capabilities: ClientCapabilities | None = None,
    ) -> None:
        declared = capabilities or ClientCapabilities()
        elicitation, sampling, folders = None, None, None
        self._threads = threads = ThreadPool(_MAX_THREADS, name="mcplumb-handler")
        self._handlers: dict[type[InputRequest], Callable[[Any], Awaitable[InputResponse]]] = {}
        if on_elicit is not None:
            self._handlers[ElicitRequest] = partial(_elicit, threads, on_elicit)
            elicitation = declared.elicitation or ElicitationCapability(form={}, url={})
        if on_sample is not None:
            self._handlers[CreateMessageRequest] = partial(_sample, threads, on_sample)
            sampling = declared.sampling or SamplingCapability()
        if roots is not None:
            self._handlers[ListRootsRequest] = partial(
                _list_roots, threads, roots if callable(roots) else _as_roots(roots)
            )
            folders = declared.roots or RootsCapability(list_changed=True)
        # A capability without a handler is not declared, even if the caller names it.
        self.capabilities = replace(declared, elicitation=elicitation, sampling=sampling, roots=folders)

    def can_answer(self, request: InputRequest) -> bool:
        """Return whether there is a handler for this request."""
        return type(request) in self._handlers

    def close(self) -> None:
        """Let the threads of the plain handlers end."""
        self._threads.close()

    async def answer(self, request: InputRequest, revision: Revision) -> InputResponse:
        """Return the handler's answer, in the form of the revision. Exceptions of the handler propagate."""
        handler = self._handlers.get(type(request))
        if handler is None:
            method = request.__struct_config__.tag
            raise ProtocolError(f"The server asked for {method}, which this client did not declare.")
        return for_revision(await handler(request.params), revision)


async def _elicit(threads: ThreadPool, handler: OnElicit, params: ElicitParams) -> ElicitResult:
    mode = params.mode or "form"
    question = Elicitation(params.message, mode, params.requested_schema, params.url, params)
    answer = await _call(threads, handler, question)
    if isinstance(answer, ElicitResult):
        return answer
    if answer is None:
        return ElicitResult("decline")
    if isinstance(answer, dict):
        return ElicitResult("accept", answer if params.is_form else None)
    raise UsageError(
        f"on_elicit returned a {type(answer).__name__}: return the content as a dict, None to decline, or an "
        "ElicitResult."
    )


async def _sample(threads: ThreadPool, handler: OnSample, params: CreateMessageParams) -> CreateMessageResult:
    answer = await _call(threads, handler, params)
    if isinstance(answer, CreateMessageResult):
        return answer
    if isinstance(answer, str):
        return CreateMessageResult("assistant", TextContent(answer), model="unknown")
    raise UsageError(
        f"on_sample returned a {type(answer).__name__}: return the model's text, or a CreateMessageResult."
    )


async def _list_roots(threads: ThreadPool, roots: list[Root] | Callable[[], Any], _: Any) -> ListRootsResult:
    return ListRootsResult(_as_roots(await _call(threads, roots)) if callable(roots) else roots)


async def _call(threads: ThreadPool, handler: Callable[..., Any], *arguments: Any) -> Any:
    is_async = iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)
    answer = handler(*arguments) if is_async else await threads.call(handler, *arguments)
    # A plain function, such as a lambda, may also return an awaitable.
    return await answer if isawaitable(answer) else answer


def _as_roots(roots: Iterable[RootLike]) -> list[Root]:
    if isinstance(roots, str | os.PathLike | Root):
        raise UsageError("roots is a single folder: give a list of them, or a function that returns one.")
    return [_as_root(root) for root in roots]


def _as_root(root: RootLike) -> Root:
    if isinstance(root, Root):
        return root
    path = os.fspath(root)
    if "://" in path:
        return Root(path)
    from pathlib import Path  # imported here: most clients have no roots

    absolute = Path(path).absolute()
    return Root(absolute.as_uri(), name=absolute.name or None)
