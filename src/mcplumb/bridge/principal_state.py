"""The request state of a modern server, bound to the principal of the client.

A client's token ends at the bridge, so the server cannot see whose state comes back to it. For clients with a
principal, the bridge therefore puts a seal before each state: a token of its own, bound to the principal, over a hash
of what the server wrote. A state without that seal, or with that of another principal, is refused.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.bridge.forwarded_methods import may_need_input
from mcplumb.errors import DecodeError, ProtocolError, StateRefused
from mcplumb.protocol.principal import identity_of
from mcplumb.protocol.translation import is_input_required, members_of
from mcplumb.types.payload_decoder import read

if TYPE_CHECKING:
    from mcplumb.server.dispatch.running_call import Call

__all__ = ["may_have_bound_state", "open_state", "seal_state"]

_SEPARATOR = "."  # the seal is base64url, which does not have it


def may_have_bound_state(call: Call) -> bool:
    """Return whether the request, or its result, may have a state that is bound to a principal."""
    return call.principal is not None and call.admitted.revision.has_input_required and may_need_input(call.method)


def open_state(call: Call, server: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the params of a request with the state as the server wrote it.

    Raises `StateRefused` if the state was not given to the principal of the request.
    """
    if "requestState" not in params:
        return params
    seal, _, state = read(str, params["requestState"], what="requestState").partition(_SEPARATOR)
    shared = call.session.shared
    if shared.sealer.open(seal, now=shared.now(), **_binding(call, server)) != _hash(state):
        raise StateRefused("The request state was changed. Send the request again without it.", reason="changed")
    return params | {"requestState": state}


def seal_state(call: Call, server: str, result: msgspec.Raw) -> msgspec.Raw:
    """Return a result of a modern server with its request state, if it has one, bound to the principal."""
    if not is_input_required(result, call.admitted.revision):
        return result
    members = members_of(result)
    if "requestState" not in members:
        return result
    try:
        state = read(str, members["requestState"], what="requestState")
    except DecodeError as error:
        raise ProtocolError(f"It asked for input that cannot be read. {error}") from error
    shared = call.session.shared
    seal = shared.sealer.seal(_hash(state), now=shared.now(), **_binding(call, server))
    return msgspec.Raw(msgspec.json.encode(members | {"requestState": f"{seal}{_SEPARATOR}{state}"}))


def _binding(call: Call, server: str) -> dict[str, Any]:
    # Only what the server cannot see: it checks itself which request a state belongs to.
    return {"method": call.method, "params": {"server": server}, "principal": identity_of(call.principal)}


def _hash(state: str) -> bytes:
    return hashlib.sha256(state.encode()).digest()
