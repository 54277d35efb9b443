"""`TokenVerifier`: the base of all verifiers of access tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcplumb.errors import AuthorizationError, UsageError
from mcplumb.protocol.oauth.discovery import check_address
from mcplumb.protocol.principal import Principal, scope_set

if TYPE_CHECKING:
    from mcplumb.stores.shared_store import RecordStore

__all__ = ["TokenVerifier", "audience_set"]


class TokenVerifier:
    """Authenticates the tokens of some issuers, and says which scopes every request needs."""

    def __init__(self, *, issuer: str | None, scopes: Sequence[str], **addresses: str | None) -> None:
        for name, url in {"issuer": issuer, **addresses}.items():
            if url is not None:
                try:
                    check_address(url, f"The {name}", loopback=True)
                except AuthorizationError as error:
                    raise UsageError(str(error)) from None
        scope_set(scopes, f"The {type(self).__name__}")
        #: The authorization servers that the metadata of the resource names.
        self.issuers: tuple[str, ...] = () if issuer is None else (issuer,)
        #: What every request needs.
        self.scopes = tuple(dict.fromkeys(scopes))

    def share(self, store: RecordStore | None) -> None:
        """Use a store that the replicas of the server share, from now on and in this event loop; None ends that.

        By default nothing is shared: what a verifier knows of tokens is better known to few.
        """

    async def close(self) -> None:
        """End what runs in this event loop and no request waits for. The verifier may be used again."""

    async def __call__(self, token: str) -> Principal | None:
        """Return who a token belongs to; None if it is invalid.

        Raises `AuthorizationError`: ``invalid_token`` says in its sentence why, and any other reason that nobody knows
        at present.
        """
        raise NotImplementedError


def audience_set(audience: str | Sequence[str]) -> frozenset[str]:
    """Return the audiences of this server; raise `UsageError` without one."""
    audiences = frozenset((audience,) if isinstance(audience, str) else audience)
    if not audiences or "" in audiences:
        raise UsageError("The audience must be what tokens for this server have in 'aud': a text, or several.")
    return audiences
