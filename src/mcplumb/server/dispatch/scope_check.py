"""Scopes: what a request needs, and whether its principal may make it.

Loaded for clients over the network only: on stdio, a server belongs to the client that started it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.errors import DecodeError
from mcplumb.protocol.principal import Principal
from mcplumb.rpc.handler import Reply
from mcplumb.server.catalog import Catalog, Entry
from mcplumb.server.dispatch.running_call import Call
from mcplumb.types.notification_params import ListenParams
from mcplumb.types.payload_decoder import read
from mcplumb.wire.messages import INVALID_REQUEST, ErrorDetail, Request

if TYPE_CHECKING:
    from mcplumb.server.server_session import ServerSession

__all__ = ["ScopeCheck", "may_use", "needed_scopes"]


class _Named(msgspec.Struct):
    name: str


class _Located(msgspec.Struct):
    uri: str


@cache
def _referring() -> Any:
    """Return a type of params that reads only the reference."""
    from mcplumb.types.prompts import Reference

    return msgspec.defstruct("_Referring", [("ref", Reference)])


def needed_scopes(catalog: Catalog, request: Request) -> list[str]:
    """Return the scopes that a request needs, in a fixed order; none for a request that refers to nothing."""
    if not catalog.has_scopes:
        return []
    params: Any = request.params
    try:
        if request.method in catalog.request_handlers:
            # A handler in place of the method takes any object, so it is read as the handler gets it.
            params = read(dict[str, Any], params)
        found = _entries(catalog, request.method, params)
    except DecodeError:
        # Decoded by the same function as the real params, to the same types: this request cannot be served.
        return []
    return sorted({scope for entry in found if entry is not None for scope in entry.scopes})


def _entries(catalog: Catalog, method: str, params: Any) -> list[Entry | None]:
    """Return the entries that a request refers to, whatever else is in its params."""
    if method == "tools/call":
        return [catalog.tools.get(read(_Named, params).name)]
    if method == "prompts/get":
        return [catalog.prompts.get(read(_Named, params).name)]
    if method in ("resources/read", "resources/subscribe"):
        return [_resource(catalog, read(_Located, params).uri)]
    if method == "completion/complete":
        from mcplumb.types.prompts import PromptReference

        ref = read(_referring(), params).ref
        return [catalog.prompts.get(ref.name) if isinstance(ref, PromptReference) else catalog.templates.get(ref.uri)]
    if method == "subscriptions/listen":
        wanted = read(ListenParams, params).notifications
        return [_resource(catalog, uri) for uri in wanted.resource_subscriptions or ()]
    return []


def _resource(catalog: Catalog, uri: str) -> Entry | None:
    found = catalog.find_resource(uri)
    return None if found is None else found[0]


def may_use(principal: Principal | None, entry: Entry) -> bool:
    """Return whether the scopes of a principal suffice for an entry."""
    return not entry.scopes or (principal is not None and entry.scopes <= principal.scopes)


class ScopeCheck:
    """Admits the requests of one client over the network whose tokens have the scopes that they need.

    What a request may do depends on its own token: over HTTP, a session may see many.
    """

    def __init__(self, session: ServerSession, admit: Callable[[Request], Call | Reply]) -> None:
        self._session = session
        self._admit = admit

    def admit(self, request: Request) -> Call | Reply:
        """Return the call for a request with its principal; the reply if it is refused."""
        session = self._session
        principal_of = getattr(session.connection, "principal_of", None)
        principal = (None if principal_of is None else principal_of(request.id)) or session.principal
        needed = needed_scopes(session.shared.catalog, request)
        if needed and (principal is None or not principal.scopes.issuperset(needed)):
            return Reply(_refusal(needed))
        call = self._admit(request)
        if isinstance(call, Call):
            call.principal = principal
        return call


def _refusal(needed: list[str]) -> ErrorDetail:
    scope = " ".join(needed)
    sentence = f"The client is not allowed to do this: it needs an access token with the scopes {scope}."
    return ErrorDetail(INVALID_REQUEST, sentence, {"error": "insufficient_scope", "scope": scope})
