"""Sealed request state: a server's state that the client keeps between two rounds of the same request.

The client could change the state, keep it for too long, or send it with another request. So it is sealed: authenticated
with HMAC-SHA256, with an expiry time, and bound to the method, the parameters and the principal of the request. It is
not encrypted, because everything in it came from that client or was sent to it. Therefore the standard library is
enough, and no cryptography package is needed.

A token is, in base64url without padding: one version byte, the name of the key (4 bytes), the expiry time in
milliseconds (8 bytes), the state, and a MAC of 32 bytes. The MAC also covers the binding, which is not part of the
token. By the name of the key, a state of another process that has another key can be told from a forged one. Tokens of
version 1, which have no such name, are opened as well.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from mcplumb.errors import StateRefused, UsageError
from mcplumb.limits import MAX_STATE

__all__ = ["Params", "Sealer"]

#: A request's parameters: as values, or as JSON.
Params: TypeAlias = Mapping[str, Any] | msgspec.Struct | msgspec.Raw | bytes

_VERSION, _UNNAMED_VERSION = b"\x02", b"\x01"
_PURPOSE = b"mcplumb: sealed request state, version 1"
_NAME_PURPOSE = b"mcplumb: name of a key"
_NAME_END = 5
_HEAD, _UNNAMED_HEAD = 13, 9
_TIME = 8
_MAC = 32
_MIN_KEY = 32
_MAX_TIME = 2**63

# The parameters that differ between the rounds of one request.
_NOT_BOUND = ("_meta", "inputResponses", "requestState")

# The client learns that its state was refused, but not why, unless the server has to be set up in another way.
_UNVERIFIED = (
    "The request state does not verify: it was changed, or it belongs to another request, caller or server. "
    "Send the request again without it."
)
_OTHER_KEY = (
    "The request state was sealed by another process, with a key that this one does not have: processes that share "
    "their clients need the same Server(state_keys=…). Send the request again without it."
)
_EXPIRED = "The request state has expired. Send the request again without it."


class Sealer:
    """Seals and opens request state with one or more keys.

    A key has at least 32 random bytes. A server that runs as one process creates one with ``secrets.token_bytes(32)``
    at its start; servers that share their clients must share a key. The first key seals, and all keys open: to rotate
    keys, put the new one first and remove the old one after ``ttl``.

    ``now`` is in seconds, on a clock that all servers with the same key share (``time.time()``). A token that expires
    later than ``ttl`` (plus ``skew`` for clock differences) from now is refused: its clock was wrong.
    """

    __slots__ = ("_keys", "_max_state", "_max_token", "_names", "_skew", "_ttl")

    def __init__(
        self,
        keys: bytes | Sequence[bytes],
        *,
        ttl: float = 600.0,
        skew: float = 60.0,
        max_state: int = MAX_STATE,
    ) -> None:
        several = [keys] if isinstance(keys, bytes) else list(keys)
        if not several:
            raise UsageError("Sealing request state needs a key, and none was given. Make one of 32 random bytes.")
        for key in several:
            if type(key) is not bytes or len(key) < _MIN_KEY:
                raise UsageError(f"A key for request state must be bytes, at least {_MIN_KEY} of them, and random.")
        if not (0 < ttl < float("inf") and 0 <= skew < float("inf") and max_state >= 0):
            raise UsageError(
                f"Sealed state cannot have ttl={ttl}, skew={skew}, max_state={max_state}: "
                "the first must be finite and more than 0, the others finite and at least 0."
            )
        # Derive a key for this purpose only, because the caller may use the same bytes elsewhere.
        self._keys = tuple(hmac.digest(key, _PURPOSE, "sha256") for key in several)
        self._names = tuple(hmac.digest(key, _NAME_PURPOSE, "sha256")[: _NAME_END - 1] for key in self._keys)
        self._ttl = ttl
        self._skew = skew
        self._max_state = max_state
        self._max_token = -(-(_HEAD + max_state + _MAC) * 4 // 3)

    def seal(self, state: bytes, *, method: str, params: Params, principal: str | None, now: float) -> str:
        """Return a token with ``state`` that opens for the same method, parameters and principal only."""
        if len(state) > self._max_state:
            raise UsageError(
                f"The request state has {len(state)} bytes, and at most {self._max_state} are allowed. "
                "Keep less in it, or keep it on the server under a short name."
            )
        expires = (now + self._ttl) * 1000
        if not 0 <= expires < _MAX_TIME:
            raise UsageError(f"Request state cannot be sealed at the time {now}, which is out of range.")
        try:
            binding = _binding(method, params, principal)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            raise UsageError(f"Request state cannot be bound to these parameters of {method}: {error}.") from error
        body = _VERSION + self._names[0] + int(expires).to_bytes(8) + state
        return _base64url(body + hmac.digest(self._keys[0], binding + body, "sha256"))

    def open(self, token: str, *, method: str, params: Params, principal: str | None, now: float) -> bytes:
        """Return the state in ``token``; raise ``StateRefused`` if it does not verify for this request and time."""
        if len(token) > self._max_token:
            raise StateRefused(_UNVERIFIED, reason="too long")
        try:
            raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except ValueError:
            raise StateRefused(_UNVERIFIED, reason="not base64url") from None
        # The decoder ignores foreign characters and stray bits: accept only the canonical encoding.
        if _base64url(raw) != token:
            raise StateRefused(_UNVERIFIED, reason="not base64url")
        head = {_VERSION: _HEAD, _UNNAMED_VERSION: _UNNAMED_HEAD}.get(raw[:1])
        if head is None or len(raw) < head + _MAC:
            raise StateRefused(_UNVERIFIED, reason="not a token of this version")
        if head == _HEAD and raw[1:_NAME_END] not in self._names:
            raise StateRefused(_OTHER_KEY, reason="sealed with a key that this process does not have (see state_keys)")
        try:
            binding = _binding(method, params, principal)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
            raise StateRefused(_UNVERIFIED, reason="unreadable parameters") from None
        body, mac = raw[:-_MAC], raw[-_MAC:]
        signed = binding + body
        if not any(hmac.compare_digest(mac, hmac.digest(key, signed, "sha256")) for key in self._keys):
            raise StateRefused(_UNVERIFIED, reason="forged, or of another request, principal or key")
        expires = int.from_bytes(body[head - _TIME : head]) / 1000
        if not now < expires:
            raise StateRefused(_EXPIRED, reason="expired")
        if expires > now + self._ttl + self._skew:
            raise StateRefused(_UNVERIFIED, reason="ends too far in the future")
        return body[head:]


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _binding(method: str, params: Params, principal: str | None) -> bytes:
    """Return what a token is bound to, as bytes that are different for any two different requests."""
    data = bytes(params) if isinstance(params, (bytes, msgspec.Raw)) else msgspec.json.encode(params)
    values = msgspec.json.decode(data)
    if not isinstance(values, dict):
        raise TypeError("parameters are a JSON object")
    hasher = hashlib.sha256()
    _write_canonical(hasher.update, {key: value for key, value in values.items() if key not in _NOT_BOUND})
    digest = hasher.digest()
    bound = bytearray()
    _write_canonical(bound.extend, [method, principal])
    return bytes(bound) + digest


def _write_canonical(write: Callable[[bytes], object], value: Any) -> None:
    """Write a JSON value in a canonical form: two values give the same bytes if and only if they are equal.

    Each part is prefixed with its type and length. The order of keys does not matter, and neither does the notation of
    a number: one JSON library writes ``1.0``, another writes ``1``.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    match value:
        case dict():
            write(b"o%d:" % len(value))
            for key in sorted(value):
                _write_canonical(write, key)
                _write_canonical(write, value[key])
        case list():
            write(b"a%d:" % len(value))
            for item in value:
                _write_canonical(write, item)
        case str():
            text = value.encode("utf-8")
            write(b"s%d:" % len(text))
            write(text)
        case bool() | None:
            write(b"t" if value else b"n" if value is None else b"f")
        case int():
            # In hexadecimal, because Python refuses to format very long integers in decimal.
            write(b"i%x;" % value)
        case _:
            write(b"d%s;" % value.hex().encode("ascii"))
