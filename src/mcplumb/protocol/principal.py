"""`Principal`: the sender of a request, and what the access token allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mcplumb.errors import UsageError

__all__ = ["Principal", "identity_of", "is_scope", "scope_set"]

_NOT_IN_SCOPES = frozenset(' "\\')


def is_scope(value: object) -> bool:
    """Return whether a value is a scope (RFC 6749, section 3.3): visible ASCII characters, no quote or backslash."""
    return (
        isinstance(value, str)
        and value != ""
        and value.isascii()
        and value.isprintable()
        and not set(value) & _NOT_IN_SCOPES
    )


def scope_set(scopes: Iterable[str], what: str) -> frozenset[str]:
    """Return scopes as a set; raise `UsageError` if one of them is invalid."""
    if isinstance(scopes, str):
        raise UsageError(f"{what} must have a list of scopes, not the text {scopes!r}.")
    found = frozenset(scopes)
    for scope in found:
        if not is_scope(scope):
            raise UsageError(f"{what} has the scope {scope!r}: a scope is a word of visible ASCII characters.")
    return found


class Principal(msgspec.Struct, frozen=True):
    """The authenticated sender of a request, as its access token describes it."""

    #: Who it is. Unique for its issuer only: use ``identity`` as a key.
    subject: str
    #: What the token allows.
    scopes: frozenset[str] = frozenset()
    #: All claims of the token, or all that the issuer said about it.
    claims: Mapping[str, Any] = {}
    #: When the token ends, in seconds since the epoch; None if it has no end. Streams that use it end then.
    expires_at: float | None = None
    #: Who says so: the URL of the authorization server.
    issuer: str | None = None
    #: The client that acts for the subject, if the token names one.
    client_id: str | None = None

    def __post_init__(self) -> None:
        if not self.subject:
            raise UsageError("A Principal needs a subject: a text that names the owner of the token.")
        msgspec.structs.force_setattr(self, "scopes", scope_set(self.scopes, "A Principal"))

    @property
    def identity(self) -> str:
        """A text that differs for any two pairs of issuer and subject: the key of all that belongs to one principal."""
        return msgspec.json.encode([self.issuer, self.subject]).decode()

    def __hash__(self) -> int:
        return hash(self.identity)

    def __repr__(self) -> str:
        # Claims are personal data.
        return f"Principal({self.subject!r}, scopes={sorted(self.scopes)!r}, issuer={self.issuer!r})"


def identity_of(principal: Principal | None) -> str | None:
    """Return the identity of a principal; None for a client that is not authenticated."""
    return None if principal is None else principal.identity
