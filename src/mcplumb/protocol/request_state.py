"""Sealed request state: what a server gives a client to keep between two rounds of the same request.

The state goes to a client that may change it, keep it for too long, or bring it with another request. So it is
sealed: authenticated with HMAC-SHA256, with the time of its end inside, and bound to the method, the parameters and
the principal of the request. It is not encrypted: all that it holds came from that client or was going to it. That
is why the standard library is enough, and no cryptography package is needed.

A token is, in base64url without padding: one byte of version, the end of its life in milliseconds (8 bytes), the
state, and 32 bytes of authentication. What it is bound to is authenticated but not carried.
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

#: A request's parameters: values, or the JSON that they came as.
Params: TypeAlias = Mapping[str, Any] | msgspec.Struct | msgspec.Raw | bytes

_VERSION = b"\x01"
_PURPOSE = b"mcplumb: sealed request state, version 1"
_HEAD = 9
_MAC = 32
_MIN_KEY = 32
_LAST_MOMENT = 2**63

# The parts of the parameters that differ between the rounds of one request.
_UNBOUND = ("_meta", "inputResponses", "requestState")

# A client learns that its state was refused, not what was wrong with it.
_NOT_OURS = (
    "The request state does not verify: it was changed, or it belongs to another request, caller or server. "
    "Send the request again without it."
)
_TOO_OLD = "The request state has expired. Send the request again without it."


class Sealer:
    """Seals and opens request state with one or more keys.

    A key is at least 32 random bytes, from the caller: a server that runs as one process makes one with
    ``secrets.token_bytes(32)`` at its start, servers that share their clients share a key. The first key seals, all
    of them open, so a key is changed by putting the new one in front and dropping the old one after ``ttl``.

    ``now`` is in seconds, on a clock that all who share the key share too (``time.time()``). A token that would live
    longer than ``ttl`` (and ``skew`` for clocks that differ) is refused, as one from a clock that was set back.
    """

    __slots__ = ("_keys", "_longest", "_max_state", "_skew", "_ttl")

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
        # A key of its own for this purpose: the caller may use the same bytes elsewhere.
        self._keys = tuple(hmac.digest(key, _PURPOSE, "sha256") for key in several)
        self._ttl = ttl
        self._skew = skew
        self._max_state = max_state
        self._longest = -(-(_HEAD + max_state + _MAC) * 4 // 3)

    def seal(self, state: bytes, *, method: str, params: Params, principal: str | None, now: float) -> str:
        """A token that holds ``state`` and opens for the same method, parameters and principal only."""
        if len(state) > self._max_state:
            raise UsageError(
                f"The request state has {len(state)} bytes, and at most {self._max_state} are allowed. "
                "Keep less in it, or keep it on the server under a short name."
            )
        ends = (now + self._ttl) * 1000
        if not 0 <= ends < _LAST_MOMENT:
            raise UsageError(f"The time {now} is no time that request state can be sealed at.")
        try:
            binding = _binding(method, params, principal)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            raise UsageError(f"Request state cannot be bound to these parameters of {method}: {error}.") from error
        body = _VERSION + int(ends).to_bytes(8) + state
        return _to_text(body + hmac.digest(self._keys[0], binding + body, "sha256"))

    def open(self, token: str, *, method: str, params: Params, principal: str | None, now: float) -> bytes:
        """The state in ``token``; ``StateRefused`` if it does not verify here and now."""
        if len(token) > self._longest:
            raise StateRefused(_NOT_OURS, reason="too long")
        try:
            raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except ValueError:
            raise StateRefused(_NOT_OURS, reason="not base64url") from None
        # The decoder passes over foreign characters and stray bits: only the one right spelling counts.
        if _to_text(raw) != token:
            raise StateRefused(_NOT_OURS, reason="not base64url")
        if len(raw) < _HEAD + _MAC or raw[:1] != _VERSION:
            raise StateRefused(_NOT_OURS, reason="not a token of this version")
        try:
            binding = _binding(method, params, principal)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
            raise StateRefused(_NOT_OURS, reason="unreadable parameters") from None
        body, mac = raw[:-_MAC], raw[-_MAC:]
        signed = binding + body
        if not any(hmac.compare_digest(mac, hmac.digest(key, signed, "sha256")) for key in self._keys):
            raise StateRefused(_NOT_OURS, reason="forged, or of another request, principal or key")
        ends = int.from_bytes(body[1:_HEAD]) / 1000
        if not now < ends:
            raise StateRefused(_TOO_OLD, reason="expired")
        if ends > now + self._ttl + self._skew:
            raise StateRefused(_NOT_OURS, reason="ends too far in the future")
        return body[_HEAD:]


def _to_text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _binding(method: str, params: Params, principal: str | None) -> bytes:
    """What a token is bound to, as bytes of which no two different requests share any."""
    data = bytes(params) if isinstance(params, (bytes, msgspec.Raw)) else msgspec.json.encode(params)
    values = msgspec.json.decode(data)
    if not isinstance(values, dict):
        raise TypeError("parameters are a JSON object")
    hasher = hashlib.sha256()
    _feed(hasher.update, {key: value for key, value in values.items() if key not in _UNBOUND})
    digest = hasher.digest()
    bound = bytearray()
    _feed(bound.extend, [method, principal])
    return bytes(bound) + digest


def _feed(write: Callable[[bytes], object], value: Any) -> None:
    """Write a JSON value so that equal values, and only those, give the same bytes.

    Each piece names its kind and its length. The order of keys does not count, and neither does the spelling of a
    number: what one JSON library writes as ``1.0``, another writes as ``1``.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    match value:
        case dict():
            write(b"o%d:" % len(value))
            for key in sorted(value):
                _feed(write, key)
                _feed(write, value[key])
        case list():
            write(b"a%d:" % len(value))
            for item in value:
                _feed(write, item)
        case str():
            text = value.encode("utf-8")
            write(b"s%d:" % len(text))
            write(text)
        case bool() | None:
            write(b"t" if value else b"n" if value is None else b"f")
        case int():
            # In hexadecimal, because Python refuses to write very long integers in decimal.
            write(b"i%x;" % value)
        case _:
            write(b"d%s;" % value.hex().encode("ascii"))
