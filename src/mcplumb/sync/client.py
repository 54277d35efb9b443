"""The blocking client."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from mcplumb.client import changes as async_changes
from mcplumb.client import client as async_client
from mcplumb.client.settings import ClientStats
from mcplumb.revisions import Revision
from mcplumb.sync.callbacks import carried
from mcplumb.sync.changes import Changes
from mcplumb.sync.leases import Lease
from mcplumb.types.base import Implementation
from mcplumb.types.capabilities import ServerCapabilities

if TYPE_CHECKING:
    from mcplumb.client.process import ServerProcess

__all__ = ["Client"]

P = ParamSpec("P")
R = TypeVar("R")
_Async = async_client.Client


def _blocking(
    method: Callable[Concatenate[_Async, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Client, P], R]:
    """The method without ``await``, with the same parameters."""

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        errand = self._lease.errand()
        on_progress: Any = kwargs.get("on_progress")
        if on_progress is not None:
            kwargs["on_progress"] = carried(on_progress, "on_progress", errand.have_done)
        return errand.run(method(self._client, *args, **kwargs))

    return call


def _listening(
    method: Callable[Concatenate[_Async, P], async_changes.Changes],
) -> Callable[Concatenate[Client, P], Changes]:
    @wraps(method)
    def listen(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Changes:
        return Changes(method(self._client, *args, **kwargs), self._lease)

    listen.__doc__ = """Hear of changes: of the three lists, and of the resources with these addresses.

        ``with client.listen(tools=True) as changes``, and then ``for change in changes``. The block is entered when
        the server has agreed; ``changes.honoured`` says to how much. The timeout is for that.
        """
    return listen


class Client:
    """A connected server, for code without ``await``. Any thread may use it, and several at once.

    The methods and errors are those of ``mcplumb.Client``. A thread that is interrupted while it waits for an answer,
    for instance by Ctrl-C, cancels the request on the server, too.

    ``on_progress`` is called in the thread that waits for the answer. The other functions, those given to ``connect``,
    are called in threads of their own. All of them may block, and may use this client.
    """

    def __init__(self, client: _Async, lease: Lease) -> None:
        self._client = client
        self._lease = lease

    def __repr__(self) -> str:
        return repr(self._client)

    @property
    def revision(self) -> Revision:
        """The protocol revision that both sides speak; ``str`` of it is its date."""
        return self._client.revision

    @property
    def server_info(self) -> Implementation | None:
        """Who the server says it is. A modern one may say nothing."""
        return self._client.server_info

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server says it can do."""
        return self._client.capabilities

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in words for a model."""
        return self._client.instructions

    @property
    def stats(self) -> ClientStats:
        """What this client has seen so far."""
        return self._lease.look(lambda: self._client.stats)

    @property
    def process(self) -> ServerProcess | None:
        """The server's process: its pid, its uptime, how often and why it was started again. None if it is not ours."""
        return self._client.process

    def close(self) -> None:
        """Give up what is open, and leave. From any thread, at any time, as often as you like."""
        self._lease.close()

    list_tools = _blocking(_Async.list_tools)
    tools_page = _blocking(_Async.tools_page)
    call_tool = _blocking(_Async.call_tool)
    list_resources = _blocking(_Async.list_resources)
    resources_page = _blocking(_Async.resources_page)
    list_resource_templates = _blocking(_Async.list_resource_templates)
    resource_templates_page = _blocking(_Async.resource_templates_page)
    read_resource = _blocking(_Async.read_resource)
    list_prompts = _blocking(_Async.list_prompts)
    prompts_page = _blocking(_Async.prompts_page)
    get_prompt = _blocking(_Async.get_prompt)
    complete = _blocking(_Async.complete)
    ping = _blocking(_Async.ping)
    set_log_level = _blocking(_Async.set_log_level)
    roots_changed = _blocking(_Async.roots_changed)
    request = _blocking(_Async.request)
    notify = _blocking(_Async.notify)
    listen = _listening(_Async.listen)
