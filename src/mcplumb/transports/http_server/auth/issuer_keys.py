"""`IssuerKeys`: the keys with which an authorization server signs its tokens.

They are fetched with the first token, and kept. The replicas of a server share what one of them has fetched.
"""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.errors import AuthorizationError, StoreUnavailable
from mcplumb.protocol.oauth.access_tokens import TokenHeader, choose_key, find_keys, refused
from mcplumb.transports.http_server.auth.shared_task import SharedTask

if TYPE_CHECKING:
    import ssl

    from mcplumb.stores.shared_store import RecordStore

__all__ = ["IssuerKeys"]

_logger = logging.getLogger("mcplumb.http")

#: Seconds for fetching the keys. Requests wait meanwhile.
_FETCH_WITHIN = 10.0
#: Seconds after which a failed fetch is tried again.
_RETRY_AFTER = 5.0
#: Seconds for reading or writing the keys that replicas share. After that, there are none.
_STORE_WITHIN = 2.0
#: Bits of an RSA key, at least. Shorter ones can be factored.
_LEAST_BITS = 2048


class _SharedKeys(msgspec.Struct, array_like=True):
    """The keys that one replica has fetched, and the wall-clock time."""

    fetched_at: float
    published: list[dict[str, Any]]


class IssuerKeys:
    """The keys of one issuer. Concurrent requests share one fetch, and there is at most one per interval.

    A fetch goes on when the clients that wait for it hang up: otherwise they could keep the keys from all others.
    """

    def __init__(
        self,
        issuer: str,
        url: str | None,
        *,
        keys_for: float,
        new_keys_every: float,
        tls: ssl.SSLContext | None,
    ) -> None:
        # Loaded here, so that a `JwtVerifier` can be imported without the extra.
        from mcplumb.transports.http_client.oauth_requests import run_flow

        self._issuer = issuer
        self._url = url
        self._keys_for = keys_for
        self._interval = new_keys_every
        self._tls = tls
        self._run_flow = run_flow
        #: The published keys, and the same as joserfc has them, by their position.
        self._published: list[dict[str, Any]] | None = None
        self._imported: dict[int, Any] = {}
        #: When keys were fetched the last time, and when that was tried, by the monotonic clock.
        self._fetched_at = self._tried_at = float("-inf")
        self._failure: AuthorizationError | None = None
        self._fetching: SharedTask[None] | None = None
        #: Where replicas share the keys, and the event loop to which that belongs.
        self._shared: tuple[RecordStore, asyncio.AbstractEventLoop] | None = None
        self._shared_as = f"issuer-keys/{sha256(msgspec.json.encode((issuer, url))).hexdigest()[:32]}"
        #: When the present keys were fetched, by the clock of the day, and whether another replica did it.
        self._dated = 0.0
        self._are_anothers = False

    def share(self, store: RecordStore | None) -> None:
        """Share the keys with other replicas through a store of the running event loop; None ends that."""
        self._shared = None if store is None else (store, asyncio.get_running_loop())

    async def close(self) -> None:
        """End a fetch that nobody waits for. The next request fetches the keys, if there are none."""
        if self._fetching is not None:
            await self._fetching.release()

    async def find(self, header: TokenHeader) -> Any:
        """Return the key that a token names; raise `AuthorizationError` if there is none, or none can be fetched."""
        if self._published is None:
            await self._refresh()
        elif time.monotonic() - self._fetched_at >= self._keys_for and self._may_try() and not self._is_fetching:
            try:
                await self._refresh()
            except AuthorizationError as error:
                _logger.warning("The keys of %s are kept, because new ones cannot be had. %s", self._issuer, error)
        key = self._choose(header)
        if key is None:
            await self._refresh()
            key = self._choose(header)
        if key is None and self._are_anothers:
            # The other replica may have fetched them before this key was published.
            await self._refresh()
            key = self._choose(header)
        if key is None:
            raise refused("The access token is signed with a key that its issuer does not publish.")
        return key

    @property
    def _is_fetching(self) -> bool:
        return self._fetching is not None and not self._fetching.is_over

    def _may_try(self) -> bool:
        interval = self._interval if self._failure is None else min(self._interval, _RETRY_AFTER)
        return time.monotonic() - self._tried_at >= interval

    async def _refresh(self) -> None:
        """Fetch the keys, or wait for the fetch that is under way. Raises what failed, now or in this interval."""
        fetching = self._fetching
        if fetching is None or fetching.is_over:
            if not self._may_try():
                if self._failure is not None:
                    raise AuthorizationError(self._failure.reason, str(self._failure), issuer=self._issuer)
                return
            fetching = self._fetching = SharedTask(self._fetch(), is_kept=True)
        await fetching.result()

    async def _fetch(self) -> None:
        store, loop = self._shared or (None, None)
        if loop is not asyncio.get_running_loop():
            store = None
        version, shared = (0, None) if store is None else await self._read_shared(store)
        if shared is not None and shared.fetched_at > self._dated:
            # A clock that is wrong makes keys older, never younger.
            age = abs(time.time() - shared.fetched_at)
            if age < self._keys_for:
                self._take(shared, time.monotonic() - age)
                self._are_anothers = True
                return
        try:
            async with asyncio.timeout(_FETCH_WITHIN):
                published = await self._run_flow(find_keys(self._issuer, self._url), tls=self._tls)
        except TimeoutError:
            sentence = f"{self._issuer} did not send its keys within {_FETCH_WITHIN:g} s."
            raise self._failed(AuthorizationError("unreachable", sentence, issuer=self._issuer)) from None
        except AuthorizationError as error:
            self._failed(error)
            raise
        except Exception:
            self._failed(AuthorizationError("unreachable", f"The keys of {self._issuer} could not be fetched."))
            raise
        _logger.info("Fetched the keys of %s: %d.", self._issuer, len(published))
        fetched = _SharedKeys(time.time(), published)
        self._take(fetched, time.monotonic())
        self._are_anothers = False
        if store is not None:
            await self._write_shared(store, fetched, version)

    def _failed(self, error: AuthorizationError) -> AuthorizationError:
        """Keep why there are no keys, for the requests of this interval."""
        self._failure, self._tried_at = error, time.monotonic()
        return error

    def _take(self, keys: _SharedKeys, fetched_at: float) -> None:
        self._published, self._imported = keys.published, {}
        self._dated = keys.fetched_at
        self._fetched_at = self._tried_at = fetched_at
        self._failure = None

    async def _read_shared(self, store: RecordStore) -> tuple[int, _SharedKeys | None]:
        """Return the shared keys and their version. Unreadable ones are treated as missing."""
        version = 0
        try:
            async with asyncio.timeout(_STORE_WITHIN):
                record = await store.get(self._shared_as)
            if record is not None:
                version = record.version
                return version, msgspec.msgpack.decode(record.value, type=_SharedKeys)
        except (StoreUnavailable, TimeoutError, msgspec.MsgspecError) as error:
            _logger.info("The keys of %s that replicas share cannot be read. %s", self._issuer, error)
        return version, None

    async def _write_shared(self, store: RecordStore, keys: _SharedKeys, version: int) -> None:
        """Share keys, unless another replica has just done so."""
        try:
            async with asyncio.timeout(_STORE_WITHIN):
                value = msgspec.msgpack.encode(keys)
                await store.put(self._shared_as, value, version=version, ttl=self._keys_for)
        except (StoreUnavailable, TimeoutError) as error:
            _logger.info("The keys of %s cannot be shared with other replicas. %s", self._issuer, error)

    def _choose(self, header: TokenHeader) -> Any:
        published = self._published or []
        chosen = choose_key(published, header)
        if chosen is None:
            return None
        at = published.index(chosen)
        key = self._imported.get(at)
        if key is None:
            key = self._imported[at] = _imported(chosen)
        return key


def _imported(published: dict[str, Any]) -> Any:
    """Return a published key as joserfc has it; raise `AuthorizationError` if it is unusable."""
    from joserfc.errors import JoseError, SecurityWarning
    from joserfc.jwk import import_key

    # Without the members that a provider adds, so that only the key itself must be valid.
    members: dict[str, Any] = {
        name: published[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in published
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)  # short keys are refused here
        try:
            key: Any = import_key(members)
            raw = key.public_key
        except (JoseError, ValueError, TypeError, KeyError):
            raise refused("The access token is signed with a key that cannot be read.") from None
    if members["kty"] == "RSA" and raw.key_size < _LEAST_BITS:
        raise refused(f"The access token is signed with an RSA key of less than {_LEAST_BITS} bits.")
    return key
