"""The authorizer of one connection: puts tokens on its requests, refreshes them, and gets new ones.

Tokens are refreshed before they expire and after a 401, by one process at a time: whoever has the lock of the entry
refreshes, and all others take what it has saved. A refresh runs in a process of its own, which inherits the lock: a
refresh token that the server has rotated is saved even if this program is killed in the middle.

The store is used in threads: a keyring may ask the user to unlock it, and the event loop goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec

from mcplumb.client.auth.key_signing import DpopKey
from mcplumb.client.auth.loopback_redirect import LoopbackRedirect
from mcplumb.client.auth.oauth import Auth, FlowContext, OAuth, OnVisit
from mcplumb.errors import AuthorizationError, HttpError
from mcplumb.protocol.oauth.challenge import Challenge, bearer_challenge
from mcplumb.protocol.oauth.client_identity import ClientIdentity
from mcplumb.protocol.oauth.discovery import canonical_resource, check_address
from mcplumb.protocol.oauth.flow import refresh, revoke
from mcplumb.protocol.oauth.steps import Fetch, Flow, Redirect, Visit
from mcplumb.protocol.oauth.tokens import Grant, GrantRefused
from mcplumb.stores.token_store import EntryLock, FileTokens, KeyringTokens, TokenStore, default_token_store

if TYPE_CHECKING:
    import ssl

__all__ = ["Authorizer", "Entry", "default_folder", "entry_name", "in_thread", "read_entry", "revoke_entry"]

_T = TypeVar("_T")
_logger = logging.getLogger("mcplumb.client")

#: Consents that one connection asks for without any success in between.
_MAX_CONSENTS = 3
#: Seconds for a change of the store that was begun before its caller gave up.
_LAST_SECONDS = 30.0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of one sign-in."""

    endpoint: str
    user: str
    grant: Grant
    #: The key that the tokens are bound to, in PEM.
    dpop_key: str | None = None

    def __repr__(self) -> str:
        return f"Entry(endpoint={self.endpoint!r}, user={self.user!r}, grant={self.grant!r})"


def entry_name(endpoint: str, user: str) -> str:
    """Return the name of the entry of a user at a server."""
    return f"{canonical_resource(endpoint)} {user}"


def read_entry(data: bytes | None) -> Entry | None:
    """Return an entry of the store; None if there is none, or a later version has written it."""
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def default_folder() -> Path:
    """Return the folder where tokens are kept."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    base = state if state.is_absolute() else Path.home() / ".local" / "state"
    return base / "mcplumb" / "tokens"


async def revoke_entry(entry: Entry) -> bool:
    """Tell the authorization server that a sign-in has ended. Return whether it knows now."""
    flow = revoke(entry.grant, now=time.time(), random=os.urandom)
    return await _drive(flow, None, proxy=None, tls=None)


class Authorizer:
    """Authorizes the requests of one connection to the server at ``endpoint``, and to no other."""

    def __init__(
        self, auth: Auth, endpoint: str, *, proxy: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        check_address(endpoint, "The server's address", loopback=True)
        self._auth = auth
        self._endpoint = endpoint
        self._proxy = proxy
        self._tls = tls
        self._name = entry_name(endpoint, auth.user) if isinstance(auth, OAuth) else ""
        #: Whether the tokens that are kept were looked for, or are not wanted.
        self._has_loaded = not isinstance(auth, OAuth) or auth.fresh
        self._grant: Grant | None = None
        self._key: DpopKey | None = DpopKey() if auth.uses_dpop else None
        #: The last nonce of the server for DPoP proofs.
        self._nonce: str | None = None
        self._changing = asyncio.Lock()
        self._consents = 0

    def __repr__(self) -> str:
        return f"Authorizer({self._endpoint!r})"

    async def headers(self, method: str, url: str) -> dict[str, str]:
        """Return the headers that authorize one request; none as long as nothing was granted."""
        grant = await self._current()
        if grant is None:
            return {}
        if grant.token_type != "DPoP" or self._key is None:  # noqa: S105
            return {"Authorization": f"Bearer {grant.access_token}"}
        proof = self._key.proof(method, url, now=time.time(), nonce=self._nonce, access_token=grant.access_token)
        return {"Authorization": f"DPoP {grant.access_token}", "DPoP": proof}

    async def renew(self, sent: str | None, www_authenticate: str | None, nonce: str | None) -> bool:
        """After a 401: get another token without a user. Return whether to send the request again.

        ``sent`` is the Authorization header of the refused request, ``nonce`` the DPoP nonce of the response.
        """
        challenge = bearer_challenge(www_authenticate)
        if nonce is not None and nonce != self._nonce:
            self._nonce = nonce
            if challenge is not None and challenge.error == "use_dpop_nonce":
                return True
        grant = self._grant
        if grant is not None and sent is not None and not sent.endswith(f" {grant.access_token}"):
            return True  # another request has renewed it meanwhile
        if not self._auth.needs_user:
            return await self._acquire(grant, challenge)
        return grant is not None and sent is not None and await self._refresh(grant) is not None

    async def authorize(self, refusal: HttpError) -> bool:
        """Ask the user for what a refused request needs. Return whether to send the request again.

        Concurrent requests share one consent.
        """
        challenge = bearer_challenge(refusal.www_authenticate)
        if refusal.status == 403 and (challenge is None or challenge.error != "insufficient_scope"):
            return False
        from mcplumb.transports.http_client.response import token_id

        grant = self._grant
        known: set[str | None] = {None if grant is None else token_id(grant.access_token)}
        if grant is not None and _is_spent(grant, time.time()):
            known.add(None)  # the request was sent without a token
        if refusal.token_id not in known:
            return True  # another request has got a grant meanwhile
        if isinstance(self._auth, OAuth) and not await _may_sign_in(self._auth):
            return False
        return await self._acquire(grant, challenge)

    @property
    def grant(self) -> Grant | None:
        """What is granted now."""
        return self._grant

    def accepted(self, nonce: str | None) -> None:
        """Note that a request was accepted, and the nonce of the response: later consents are counted anew."""
        self._consents = 0
        if nonce is not None:
            self._nonce = nonce

    # Getting tokens

    @functools.cached_property
    def _store(self) -> TokenStore | None:
        auth = self._auth
        return (auth.store or default_token_store(default_folder())) if isinstance(auth, OAuth) else None

    async def _opened_store(self) -> TokenStore | None:
        # Looking for a keyring takes a tenth of a second, so it is done when there is something to read or to keep.
        return self._store if "_store" in vars(self) else await in_thread(lambda: self._store)

    async def _current(self) -> Grant | None:
        if not self._has_loaded:
            async with self._changing:  # requests that are sent meanwhile wait for the token, too
                if not self._has_loaded:
                    await self._load()
                    self._has_loaded = True
        grant = self._grant
        if grant is None or grant.is_fresh(time.time()):
            return grant
        if not self._auth.needs_user:
            await self._acquire(grant, None)
            return self._grant
        return await self._refresh(grant)

    async def _load(self) -> None:
        auth = self._auth
        if not isinstance(auth, OAuth) or (auth.store is None and not FileTokens(default_folder()).has(self._name)):
            return
        if (entry := await self._kept()) is not None:
            self._take(entry)

    async def _kept(self) -> Entry | None:
        """Return what is kept of the sign-in now."""
        store = await self._opened_store()
        return None if store is None else read_entry(await in_thread(store.load, self._name))

    def _take(self, entry: Entry) -> None:
        self._grant = entry.grant
        if entry.dpop_key is not None:
            self._key = DpopKey(entry.dpop_key)

    async def _acquire(self, stale: Grant | None, challenge: Challenge | None) -> bool:
        """Get a new grant, unless another request has got one since. Return whether there is a new one."""
        async with self._changing:
            if self._grant is not stale:
                return self._grant is not None
            if self._consents >= _MAX_CONSENTS:
                raise AuthorizationError(
                    "denied",
                    f"{self._endpoint} still refuses, after {self._consents} grants by "
                    f"{self._grant.issuer if self._grant is not None else 'its authorization server'}.",
                    resource=self._endpoint,
                )
            self._consents += 1
            auth, store = self._auth, await self._opened_store()
            if not isinstance(auth, OAuth) or store is None:
                self._grant = await self._run(auth.flow(self._context(challenge)), None)
                return True
            async with store.locked(self._name):
                entry = await self._kept()
                is_wanted = stale is not None or not auth.fresh
                if entry is not None and is_wanted and not _is_same(entry.grant, stale):
                    self._take(entry)  # another process has signed in
                    return True
                self._grant = await self._sign_in(auth, challenge, None if entry is None else entry.grant.client)
                try:
                    await self._save(self._grant)
                except (AuthorizationError, OSError) as error:
                    _logger.warning("The sign-in holds for this connection only: its tokens are not kept. %s", error)
            return True

    async def _refresh(self, stale: Grant) -> Grant | None:
        """Refresh a grant, unless somebody else has. Return the new one; None if a sign-in is needed."""
        async with self._changing:
            store = await self._opened_store()
            if self._grant is not stale or store is None:
                return self._grant
            async with store.locked(self._name) as lock:
                entry = await self._kept()
                if entry is None:
                    self._grant = None  # signed out
                    return None
                if not _is_same(entry.grant, stale):
                    self._take(entry)
                    return self._grant
                if stale.refresh_token is None:
                    return None if _is_spent(stale, time.time()) else stale
                try:
                    self._grant = await self._refreshed(entry, lock)
                except GrantRefused as refused:
                    if refused.error != "invalid_grant":
                        raise
                    # The refresh token is dead. Without it nobody tries again before the next sign-in.
                    self._grant = msgspec.structs.replace(stale, refresh_token=None)
                    await self._save(self._grant)
                    return None
                return self._grant

    async def _refreshed(self, entry: Entry, lock: EntryLock) -> Grant:
        """Refresh an entry in a process of its own where that is possible, else here; it is saved when this returns."""
        from mcplumb.client.auth import refresh_process

        auth, store = self._auth, self._store
        sign = auth.sign if isinstance(auth, OAuth) else None
        # Another process can open the user's files and the system's keyring, but not a store of the program's own.
        is_shared = type(store) is FileTokens or (type(store) is KeyringTokens and store.is_default)
        # In a frozen program, sys.executable is the program itself.
        can_run = bool(sys.executable) and not getattr(sys, "frozen", False)
        if isinstance(store, FileTokens) and is_shared and can_run and sign is None and self._tls is None:
            return await refresh_process.run(store, self._name, lock, proxy=self._proxy)

        async def here() -> Grant:
            flow = refresh(entry.grant, now=time.time(), random=os.urandom, sign=sign, prover=self._key)
            grant = await self._run(flow, None)
            await self._save(grant)
            return grant

        return await _to_its_end(here())  # and not stopped between the answer and the saving

    async def _save(self, grant: Grant) -> None:
        store = await self._opened_store()
        if store is None or not isinstance(self._auth, OAuth):
            return
        key = self._key.pem() if self._key is not None and grant.token_type == "DPoP" else None  # noqa: S105
        entry = Entry(endpoint=canonical_resource(self._endpoint), user=self._auth.user, grant=grant, dpop_key=key)
        # The lock of the entry is held for as long as the thread writes.
        await _to_its_end(in_thread(store.save, self._name, msgspec.json.encode(entry)))

    # Driving flows

    def _context(self, challenge: Challenge | None) -> FlowContext:
        return FlowContext(endpoint=self._endpoint, challenge=challenge, before=self._grant, prover=self._key)

    async def _sign_in(self, auth: OAuth, challenge: Challenge | None, kept: ClientIdentity | None) -> Grant:
        """Run a sign-in. ``kept`` is the client of the last one, which may have registered itself."""
        port, registered = auth.port, {}
        if kept is not None and kept.redirect_uri is not None and kept.issuer is not None:
            port = port or urlsplit(kept.redirect_uri).port or 0
            registered = {kept.issuer: kept}
        async with _listen(port, is_fixed=bool(auth.port)) as redirect:
            context = msgspec.structs.replace(
                self._context(challenge), redirect_uri=redirect.address, registered=registered
            )
            return await self._run(auth.flow(context), functools.partial(_visit, auth, redirect))

    async def _run(self, flow: Flow[_T], visit: Callable[[Visit], Awaitable[Redirect]] | None) -> _T:
        return await _drive(flow, visit, proxy=self._proxy, tls=self._tls)


async def _visit(auth: OAuth, redirect: LoopbackRedirect, visit: Visit) -> Redirect:
    redirect.expect(dict(parse_qsl(urlsplit(visit.url).query)).get("state", ""))
    show: OnVisit = auth.on_visit or _open_browser
    shown = asyncio.ensure_future(in_thread(show, visit.url))
    waiting = asyncio.ensure_future(redirect.wait(auth.timeout))
    try:
        await asyncio.wait([shown, waiting], return_when=asyncio.FIRST_COMPLETED)
        if shown.done() and (url := shown.result()) is not None:
            return Redirect(url, time.time())
        return await waiting
    finally:
        for task in (shown, waiting):
            task.cancel()
        await asyncio.wait([shown, waiting])


async def _drive(
    flow: Flow[_T],
    visit: Callable[[Visit], Awaitable[Redirect]] | None,
    *,
    proxy: str | None,
    tls: ssl.SSLContext | None,
) -> _T:
    """Do what a flow asks for, and return its result."""
    from mcplumb.transports.http_client.oauth_requests import open_fetcher

    given: Any = None
    async with open_fetcher(proxy=proxy, tls=tls) as fetcher:
        while True:
            try:
                step = flow.send(given)
            except StopIteration as end:
                result: _T = end.value
                return result
            if isinstance(step, Fetch):
                given = await fetcher.fetch(step)
            elif visit is not None:
                given = await visit(step)
            else:
                raise AuthorizationError("client", "This way of authorization does not open a browser.")


async def _to_its_end(change: Coroutine[Any, Any, _T]) -> _T:
    """Await a change of the store, which goes on to its end even if the caller gives up."""
    task = asyncio.ensure_future(change)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=_LAST_SECONDS)
        raise


async def _may_sign_in(auth: OAuth) -> bool:
    return auth.sign_in if isinstance(auth.sign_in, bool) else bool(await in_thread(auth.sign_in))


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function: a plain one in a thread of its own, because it may wait, for example for a user's input.

    The thread is a daemon: the program can end while it waits.
    """
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def work() -> None:
        value, failure = None, None
        try:
            value = function(*arguments)
        except BaseException as error:  # noqa: BLE001 - raised from the sign-in
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=work, name="mcplumb sign-in", daemon=True).start()
    given = await future
    return await given if inspect.isawaitable(given) else given


def _open_browser(url: str) -> None:
    """Open an address in the user's browser, and write it to stderr for the case that none opens."""
    import webbrowser

    print(f"Sign in at this address, if no browser opens: {url}", file=sys.stderr)
    webbrowser.open(url)


def _listen(port: int, *, is_fixed: bool) -> LoopbackRedirect:
    try:
        return LoopbackRedirect(port)
    except AuthorizationError:
        if is_fixed:
            raise
        return LoopbackRedirect()  # the client registers again, with another address


def _is_spent(grant: Grant, now: float) -> bool:
    """Return whether the access token has expired, and nothing can renew it."""
    return grant.refresh_token is None and grant.expires_at is not None and now >= grant.expires_at


def _is_same(one: Grant, other: Grant | None) -> bool:
    return other is not None and one.access_token == other.access_token
