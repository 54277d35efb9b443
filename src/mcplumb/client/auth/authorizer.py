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
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec

from mcplumb.client.auth.key_signing import DpopKey
from mcplumb.client.auth.loopback_redirect import LoopbackRedirect, is_own_port
from mcplumb.client.auth.oauth import Auth, FlowContext, OAuth, OnVisit, TokenSource
from mcplumb.errors import AuthorizationError, HttpError, UsageError
from mcplumb.protocol.oauth.challenge import Challenge, bearer_challenge
from mcplumb.protocol.oauth.client_identity import ClientIdentity
from mcplumb.protocol.oauth.discovery import canonical_resource, check_address
from mcplumb.protocol.oauth.flow import refresh, revoke
from mcplumb.protocol.oauth.steps import Fetch, Flow, Redirect, Visit
from mcplumb.protocol.oauth.tokens import Grant, GrantRefused
from mcplumb.stores.token_store import EntryLock, FileTokens, KeyringTokens, TokenStore, default_token_store

if TYPE_CHECKING:
    import ssl

__all__ = [
    "Authorizer",
    "Entry",
    "default_folder",
    "entry_name",
    "hold_lock",
    "in_thread",
    "may_have",
    "open_default_store",
    "read_entry",
    "revoke_entry",
    "save_entry",
]

_T = TypeVar("_T")
_logger = logging.getLogger("mcplumb.client")

#: Grants after a refusal that one connection asks for without any success in between.
_MAX_GRANTS = 3
#: Seconds after which a server that refused every grant may accept another. Users are not asked again.
_RECOVERY = 60.0
#: Seconds after which a program that waits for another one says so, and after which it gives up. A refresh takes a
#: second on a busy machine, and a user five minutes to sign in; a program that was stopped is never done.
_NOTICE_AFTER, _MOST_WAITED = 3.0, 300.0
#: Seconds between two looks whether the port of a redirect is free.
_PORT_INTERVAL = 0.05
#: Seconds for a change of the store that was begun before its caller gave up.
_LAST_SECONDS = 30.0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of one sign-in."""

    endpoint: str
    user: str
    grant: Grant
    #: The key that the tokens are bound to, in PEM.
    dpop_key: str | None = None

    def __repr__(self) -> str:
        return f"Entry(endpoint={self.endpoint!r}, user={self.user!r}, grant={self.grant!r})"


def entry_name(endpoint: str, user: str) -> str:
    """Return the name under which the sign-in of a user at a server is stored."""
    return f"{canonical_resource(endpoint)} {user}"


def read_entry(data: bytes | None) -> Entry | None:
    """Return an entry of the store; None if there is none, or a later version has written it."""
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def save_entry(store: TokenStore, name: str, entry: Entry) -> None:
    """Store an entry: in our own stores with its end, which others can then see without reading it."""
    data = msgspec.json.encode(entry)
    if type(store) is FileTokens or type(store) is KeyringTokens:
        store.save(name, data, ends_at=entry.grant.ends_at)
    else:
        store.save(name, data)


def default_folder() -> Path | None:
    """Return the folder in which tokens are stored; None if the user has no home folder."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        try:
            state = Path.home() / ".local" / "state"
        except RuntimeError:
            return None
    return state / "mcplumb" / "tokens"


def may_have(name: str) -> bool:
    """Return whether there may be an entry in the default folder, without reading it."""
    folder = default_folder()
    return folder is not None and FileTokens(folder).has(name)


def open_default_store() -> FileTokens:
    """Return the store that is used by default; raise `UsageError` if the user has no home folder."""
    if (folder := default_folder()) is None:
        raise UsageError("There is no folder for tokens, because you have no home folder. Set XDG_STATE_HOME, or HOME.")
    return default_token_store(folder)


@contextlib.asynccontextmanager
async def hold_lock(store: TokenStore, name: str) -> AsyncIterator[EntryLock]:
    """Hold the lock of an entry, and wait for other programs that have it: until they are done, but not for ever."""
    where = name.partition(" ")[0]

    def say() -> None:
        _logger.warning("Another program signs in to %s, or refreshes its tokens: waiting until it is done.", where)

    notice = asyncio.get_running_loop().call_later(_NOTICE_AFTER, say)
    async with contextlib.AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(_MOST_WAITED):
                lock = await stack.enter_async_context(store.locked(name))
        except TimeoutError:
            raise AuthorizationError(
                "timeout",
                f"Another program has been signing in to {where} for {_MOST_WAITED:g} s, and is not done. Finish that "
                "sign-in, or end the program, and start again.",
            ) from None
        finally:
            notice.cancel()
        yield lock


async def revoke_entry(entry: Entry, *, proxy: str | None = None, tls: ssl.SSLContext | None = None) -> bool:
    """Revoke a sign-in at the authorization server. Return False if that has no revocation endpoint."""
    flow = revoke(entry.grant, now=time.time(), random=os.urandom)
    return await _drive(flow, None, proxy=proxy, tls=tls)


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
        #: Grants that were asked for since a request was accepted, and when the last one was counted.
        self._attempts = 0
        self._counted_at = 0.0
        #: The grant that a refresh after a 401 gave, and the one that a user gave, until a request was accepted.
        self._untried: Grant | None = None
        self._agreed: Grant | None = None
        #: The stored sign-in that the current grant replaces as soon as the server has accepted that.
        self._replaces: Entry | None = None
        #: How often no grant was got, and why not the last time; None if the user did not want to sign in.
        self._failures = 0
        self._failure: AuthorizationError | None = None

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
        """Get another token after a 401, without a user. Return whether to send the request again.

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
            return self._may_grant() and await self._acquire(grant, challenge)
        if grant is None or sent is None or grant is self._agreed:
            return False
        if grant is self._untried and not self._has_recovered():
            return False  # a refresh has not helped
        self._untried = await self._refresh(grant, is_refused=True)
        self._counted_at = asyncio.get_running_loop().time()
        return self._untried is not None

    async def authorize(self, refusal: HttpError) -> bool:
        """Ask the user for what a refused request needs. Return whether to send the request again.

        Concurrent requests share one consent. Raises `HttpError`, the refusal with other advice, if the user could not
        be asked.
        """
        challenge = bearer_challenge(refusal.www_authenticate)
        if refusal.status == 403 and (challenge is None or challenge.error != "insufficient_scope"):
            return False
        from mcplumb.transports.http_client.response import token_id

        grant = self._grant
        known: set[str | None] = {None if grant is None else token_id(grant.access_token)}
        if grant is not None and grant.is_over(time.time()):
            known.add(None)  # the request was sent without a token
        if refusal.token_id not in known:
            return True  # another request has got a grant meanwhile
        self._check_use(grant, challenge, refusal)
        if await self._acquire(grant, challenge):
            return True
        if isinstance(self._auth, OAuth):
            advice = self._auth.advice(canonical_resource(self._endpoint), _missing(grant, challenge))
            if advice is not None:
                raise _advised(refusal, advice) from refusal
        return False

    @property
    def grant(self) -> Grant | None:
        """The current grant."""
        return self._grant

    def accepted(self, nonce: str | None) -> None:
        """Record that a request was accepted, and the nonce of the response: later grants are counted anew."""
        self._attempts = 0
        self._untried = None
        if self._replaces is None:  # otherwise only a request that succeeds shows it
            self._agreed = None
        if nonce is not None:
            self._nonce = nonce

    @property
    def is_unproven(self) -> bool:
        """Whether the current grant is not stored until the server has accepted it: an earlier one may work."""
        return self._replaces is not None

    async def prove(self, sent: str | None) -> None:
        """Store the current grant if a successful request had it. ``sent`` is the request's Authorization header."""
        grant, store = self._grant, await self._opened_store()
        if grant is None or store is None or sent is None or not sent.endswith(f" {grant.access_token}"):
            return
        try:
            async with hold_lock(store, self._name):
                await self._save_unproven()
        except (AuthorizationError, OSError) as error:
            self._warn_not_kept(error)

    # Getting tokens

    @functools.cached_property
    def _store(self) -> TokenStore | None:
        auth = self._auth
        return (auth.store or open_default_store()) if isinstance(auth, OAuth) else None

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
        try:
            if self._auth.needs_user:
                return await self._refresh(grant)
            await self._acquire(grant, None, is_refused=False)
        except AuthorizationError as error:
            if error.reason != "unreachable" or _has_expired(grant, time.time()):
                raise
            _logger.info("The token is used until it ends, because there is no other yet. %s", error)
        return self._grant

    async def _load(self) -> None:
        auth = self._auth
        if not isinstance(auth, OAuth) or (auth.store is None and not may_have(self._name)):
            return
        if (entry := await self._kept()) is not None:
            self._take(entry)

    async def _kept(self) -> Entry | None:
        """Return the stored state of the sign-in."""
        store = await self._opened_store()
        return None if store is None else read_entry(await in_thread(store.load, self._name))

    def _take(self, entry: Entry) -> None:
        self._grant = entry.grant
        if entry.dpop_key is not None:
            self._key = DpopKey(entry.dpop_key)

    async def _acquire(self, stale: Grant | None, challenge: Challenge | None, *, is_refused: bool = True) -> bool:
        """Get a new grant, unless another request has got one since. Return whether there is a new one.

        ``is_refused``: the server wants another one; otherwise the stale one has only expired.
        """
        failures = self._failures
        async with self._changing:
            if self._grant is not stale:
                return self._grant is not None
            if self._failures != failures:
                return self._share_failure()
            try:
                has_asked = await self._ask_for_grant(stale, challenge, counts=is_refused)
            except AuthorizationError as error:
                self._failures, self._failure = self._failures + 1, error
                raise
            if not has_asked:
                self._failures, self._failure = self._failures + 1, None
            return has_asked

    async def _ask_for_grant(self, stale: Grant | None, challenge: Challenge | None, *, counts: bool) -> bool:
        """Run the flow, or use the grant that another process got. Return False if the user declines to sign in."""
        auth = self._auth
        if not isinstance(auth, OAuth):
            context = msgspec.structs.replace(self._context(challenge), token=await _token(auth.source))
            self._grant = await self._run(auth.flow(context), None)
            if counts:
                self._count()
            return True
        if not await in_thread(auth.may_sign_in, _missing(stale, challenge)):
            return False
        if (store := await self._opened_store()) is None:
            raise RuntimeError("A sign-in has a store.")
        async with hold_lock(store, self._name):
            await self._save_unproven()
            entry = await self._kept()
            is_wanted = stale is not None or not auth.fresh
            if entry is not None and is_wanted and not _is_same(entry.grant, stale):
                self._take(entry)  # another process has signed in
                return True
            self._grant = self._agreed = await self._sign_in(auth, challenge, entry)
            if entry is not None and not is_wanted and not entry.grant.is_over(time.time()):
                self._replaces = entry  # it may work, which the new tokens have yet to show
            else:
                await self._save_sign_in(self._grant)
        return True

    def _share_failure(self) -> bool:
        """Raise the error of the request that asked for a grant in those that waited for it; do not ask the user again.

        Return False if the user did not want to sign in.
        """
        error = self._failure
        if error is None:
            return False
        raise AuthorizationError(error.reason, str(error), issuer=error.issuer, resource=error.resource)

    def _count(self) -> None:
        self._attempts += 1
        self._counted_at = asyncio.get_running_loop().time()

    def _has_recovered(self) -> bool:
        """Return whether enough time has passed that a server which refused may accept now."""
        return asyncio.get_running_loop().time() - self._counted_at > _RECOVERY

    def _may_grant(self) -> bool:
        """Return whether another grant may help: the server has not refused too many."""
        if not self._auth.needs_user and self._has_recovered():
            self._attempts = 0
        return self._attempts < _MAX_GRANTS

    def _check_use(self, grant: Grant | None, challenge: Challenge | None, refusal: HttpError) -> None:
        """Raise `AuthorizationError` if another grant would be of no use."""
        where = canonical_resource(self._endpoint)
        issuer = "its authorization server" if grant is None else grant.issuer
        if (
            grant is not None
            and grant is self._agreed
            and (challenge is None or {*challenge.scopes} <= {*grant.scopes})
        ):
            sentence = f"{where} refuses what {issuer} has just granted, and signing in again would not change that."
            if grant.token_type == "DPoP":  # noqa: S105
                is_way_open = self._replaces is not None and self._replaces.dpop_key is None
                sentence = (
                    f"{where} refuses the token that {issuer} has just bound to a key (DPoP). If the server takes "
                    f"bearer tokens only, {'' if is_way_open else 'sign out, and '}sign in again without binding them."
                )
        elif self._may_grant():
            return
        elif self._auth.needs_user:
            sentence = f"{self._attempts} sign-ins did not give access to {where}. Connect again to start over."
        else:
            sentence = f"{where} still refuses, after {self._attempts} grants by {issuer}."
        raise AuthorizationError("denied", f"{sentence} {refusal.answered}", resource=where)

    async def _refresh(self, stale: Grant, *, is_refused: bool = False) -> Grant | None:
        """Refresh a grant, unless another process has. Return the new one; None if a sign-in is needed.

        ``is_refused``: the server has refused its access token.
        """
        failures = self._failures
        async with self._changing:
            store = await self._opened_store()
            if self._grant is not stale or store is None:
                return self._grant
            if self._failures != failures and self._failure is not None:
                self._share_failure()
            async with hold_lock(store, self._name) as lock:
                await self._save_unproven()
                entry = await self._kept()
                if entry is None:
                    self._grant = None  # signed out
                    return None
                if not _is_same(entry.grant, stale):
                    self._take(entry)
                    return self._grant
                if entry.grant.refresh_token is None:
                    self._grant = stale = entry.grant  # another process knows that it is over
                    return None if stale.is_over(time.time()) else stale
                try:
                    self._grant = await self._refreshed(await self._with_given_secret(entry), lock)
                except GrantRefused as refused:
                    if not self._ends_sign_in(refused, stale):
                        self._failures, self._failure = self._failures + 1, refused
                        raise
                    # The refresh token is dead. Removing it prevents further attempts before the next sign-in.
                    ends_at = time.time() if is_refused else stale.expires_at
                    ended = msgspec.structs.replace(stale, refresh_token=None, expires_at=ends_at)
                    self._grant = ended if refused.is_of_grant else _with_client(ended, _unusable(ended.client))
                    await self._save(self._grant)
                    return None
                except AuthorizationError as error:
                    self._failures, self._failure = self._failures + 1, error
                    raise
                return self._grant

    def _ends_sign_in(self, refused: GrantRefused, grant: Grant) -> bool:
        """Return whether only another sign-in helps: the refresh token is dead, or the client is not known any more."""
        if refused.is_of_grant:
            return True
        given = self._auth.client if isinstance(self._auth, OAuth) else None
        # A user who is asked to consent cannot correct credentials that the program gives.
        is_given = given is not None and given.client_id == grant.client.client_id
        return refused.error in ("invalid_client", "unauthorized_client") and not is_given

    async def _with_given_secret(self, entry: Entry) -> Entry:
        """Return an entry with the client secret that the program gives now, and store it."""
        given, kept = self._auth.client if isinstance(self._auth, OAuth) else None, entry.grant.client
        if (
            given is None
            or given.client_secret in (None, kept.client_secret)
            or given.client_id != kept.client_id
            or given.issuer not in (None, entry.grant.issuer)
        ):
            return entry
        method = None if kept.client_secret is None else kept.auth_method
        client = msgspec.structs.replace(kept, client_secret=given.client_secret, auth_method=method)
        renewed = msgspec.structs.replace(entry, grant=_with_client(entry.grant, client))
        await self._keep(renewed)
        return renewed

    async def _refreshed(self, entry: Entry, lock: EntryLock) -> Grant:
        """Refresh an entry, in a process of its own if possible; the result is saved when this returns."""
        from mcplumb.client.auth import refresh_process

        auth, store = self._auth, self._store
        sign = auth.sign if isinstance(auth, OAuth) else None
        # Another process can open the user's files and the system's keyring, but not a store of the program's own.
        is_shared = type(store) is FileTokens or (type(store) is KeyringTokens and store.is_default)
        # In a frozen program, sys.executable is the program itself.
        can_run = bool(sys.executable) and not getattr(sys, "frozen", False)
        # The process uses the standard library, which knows only such proxies.
        can_run &= self._proxy is None or self._proxy.startswith("http://")
        if isinstance(store, FileTokens) and is_shared and can_run and sign is None and self._tls is None:
            try:
                return await refresh_process.run(store, self._name, lock, proxy=self._proxy)
            except refresh_process.NotStarted as error:
                _logger.debug(
                    "Tokens are refreshed in this process, because %s cannot do it. %s", sys.executable, error
                )

        async def here() -> Grant:
            prover = self._key if entry.grant.token_type == "DPoP" else None  # noqa: S105
            flow = refresh(entry.grant, now=time.time(), random=os.urandom, sign=sign, prover=prover)
            grant = await self._run(flow, None)
            await self._save(grant)
            return grant

        return await _to_its_end(here())  # and not stopped between the answer and the saving

    async def _save(self, grant: Grant) -> None:
        if not isinstance(self._auth, OAuth):
            return
        key = self._key.pem() if self._key is not None and grant.token_type == "DPoP" else None  # noqa: S105
        await self._keep(
            Entry(endpoint=canonical_resource(self._endpoint), user=self._auth.user, grant=grant, dpop_key=key)
        )

    async def _save_sign_in(self, grant: Grant) -> None:
        try:
            await self._save(grant)
        except (AuthorizationError, OSError) as error:
            self._warn_not_kept(error)

    async def _save_unproven(self) -> None:
        """Store a grant that the server has not accepted yet, if there is one. The caller has the lock of the entry."""
        if self._replaces is not None and self._grant is not None:
            self._replaces = None
            await self._save_sign_in(self._grant)

    def _warn_not_kept(self, error: Exception) -> None:
        self._replaces = None
        _logger.warning("The sign-in holds for this connection only: its tokens are not kept. %s", error)

    async def _keep(self, entry: Entry) -> None:
        if (store := await self._opened_store()) is not None:
            # The lock of the entry is held for as long as the thread writes.
            await _to_its_end(in_thread(save_entry, store, self._name, entry))

    # Driving flows

    def _context(self, challenge: Challenge | None) -> FlowContext:
        return FlowContext(
            endpoint=self._endpoint,
            challenge=challenge,
            before=self._grant,
            prover=self._key,
            make_prover=self._make_key,
        )

    def _make_key(self) -> DpopKey:
        self._key = DpopKey()
        return self._key

    async def _sign_in(self, auth: OAuth, challenge: Challenge | None, entry: Entry | None) -> Grant:
        """Run a sign-in. ``entry`` is what is kept of the last one, in which the client may have registered itself."""
        kept = None if entry is None else entry.grant
        client = None if kept is None or not _is_usable(kept.client) else kept.client
        port, is_fixed = auth.port, bool(auth.port)
        if client is not None and client.redirect_uri is not None and not port:
            port = urlsplit(client.redirect_uri).port or 0
            is_fixed = client.is_given and (auth.client is None or auth.client.client_id == client.client_id)
        if self._key is None and entry is not None and entry.dpop_key is not None:
            self._make_key()  # tokens that replace bound ones are bound, too
        has_visited = False

        async def visit(step: Visit) -> Redirect:
            nonlocal has_visited
            has_visited = True
            self._count()
            return await _visit(auth, redirect, step)

        async with await _listen(port, is_fixed=is_fixed) as redirect:
            context = msgspec.structs.replace(
                self._context(challenge),
                kept=kept,
                redirect_uri=redirect.address,
                registered={} if client is None or client.issuer is None else {client.issuer: client},
            )
            try:
                grant = await self._run(auth.flow(context), visit)
            except BaseException as error:
                is_denied = isinstance(error, AuthorizationError) and error.reason == "denied"
                if entry is not None and client is not None and not client.is_given and has_visited and not is_denied:
                    # An authorization server that does not know the client any more shows an error page, and never
                    # redirects: the next sign-in registers anew.
                    ended = _with_client(entry.grant, _unusable(client))
                    await self._keep(msgspec.structs.replace(entry, grant=ended))
                raise
        if grant.client.is_given and is_fixed:
            return _with_client(grant, msgspec.structs.replace(grant.client, redirect_uri=redirect.address))
        return grant

    async def _run(self, flow: Flow[_T], visit: Callable[[Visit], Awaitable[Redirect]] | None) -> _T:
        return await _drive(flow, visit, proxy=self._proxy, tls=self._tls)


async def _token(source: TokenSource) -> str:
    """Return the token that the program supplies."""
    if isinstance(source, str):
        return source
    try:
        token = await in_thread(source)
    except Exception as error:
        raise AuthorizationError(
            "assertion", f"The program's own function for a token failed with {type(error).__name__}."
        ) from error
    if not isinstance(token, str):
        raise AuthorizationError(
            "assertion", f"The program's own function for a token must return a string, not {type(token).__name__}."
        )
    return token


async def _visit(auth: OAuth, redirect: LoopbackRedirect, visit: Visit) -> Redirect:
    redirect.expect(dict(parse_qsl(urlsplit(visit.url).query)).get("state", ""))
    show: OnVisit = auth.on_visit or _open_browser
    shown = asyncio.ensure_future(in_thread(show, visit.url))
    waiting = asyncio.ensure_future(redirect.wait(auth.timeout))
    try:
        await asyncio.wait([shown, waiting], return_when=asyncio.FIRST_COMPLETED)
        if shown.done() and not isinstance(url := shown.result(), bool | None):
            if not isinstance(url, str):
                raise AuthorizationError(
                    "redirect",
                    "The program's own function on_visit must return the address of the redirect as a string, or None, "
                    f"not {type(url).__name__}.",
                )
            if not url.startswith(f"{redirect.address}?"):
                raise AuthorizationError(
                    "redirect",
                    f"That is not where the browser is sent after the sign-in, which begins with {redirect.address}? "
                    "Nothing of it was used; start again.",
                )
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
    """Perform the steps of a flow, and return its result."""
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
    """Await a change of the store. It is completed even if the caller is cancelled."""
    task = asyncio.ensure_future(change)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=_LAST_SECONDS)
        raise


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function; a plain one in a thread of its own, because it may wait, for example for input.

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
        value: Any = None
        failure: BaseException | None = None
        try:
            value = function(*arguments)
        except StopIteration as error:  # for example of next(): a future cannot hold it
            failure = RuntimeError("The function raised StopIteration.")
            failure.__cause__ = error
        except BaseException as error:  # noqa: BLE001 - raised from the sign-in
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
            loop.call_soon_threadsafe(settle, value, failure)

    threading.Thread(target=work, name="mcplumb sign-in", daemon=True).start()
    given = await future
    return await given if inspect.isawaitable(given) else given


def _open_browser(url: str) -> None:
    """Open an address in the user's browser, and write it to stderr in case none opens."""
    import webbrowser

    print(f"Sign in at this address, if no browser opens: {url}", file=sys.stderr)
    webbrowser.open(url)


async def _listen(port: int, *, is_fixed: bool) -> LoopbackRedirect:
    while True:
        # Another server's sign-in may have it, with the same client. That is bounded in time.
        if not (is_fixed and is_own_port(port)):
            try:
                return LoopbackRedirect(port)
            except AuthorizationError:
                if is_fixed:
                    raise
                return LoopbackRedirect()  # the client registers again, with another address
        await asyncio.sleep(_PORT_INTERVAL)


def _with_client(grant: Grant, client: ClientIdentity) -> Grant:
    return msgspec.structs.replace(grant, client=client)


def _unusable(client: ClientIdentity) -> ClientIdentity:
    """Return a registration that no sign-in uses any more."""
    return msgspec.structs.replace(client, redirect_uri=None, is_given=False)


def _is_usable(client: ClientIdentity) -> bool:
    """Return whether a registration may be used for another sign-in."""
    return client.issuer is not None and (client.is_given or client.redirect_uri is not None)


def _advised(refusal: HttpError, advice: str) -> HttpError:
    """Return a refusal with other advice after what the server has answered."""
    begin, answered, _ = str(refusal).partition(refusal.answered)
    return HttpError(
        refusal.status,
        f"{begin}{answered} {advice}",
        www_authenticate=refusal.www_authenticate,
        token_id=refusal.token_id,
        answered=refusal.answered,
    )


def _missing(grant: Grant | None, challenge: Challenge | None) -> tuple[str, ...]:
    """Return the scopes that a request needs besides those of its token; empty if it needs a token."""
    if challenge is None or challenge.error != "insufficient_scope":
        return ()
    has = () if grant is None else grant.allows
    return tuple(scope for scope in challenge.scopes if scope not in has) or challenge.scopes


def _has_expired(grant: Grant, now: float) -> bool:
    return grant.expires_at is not None and now >= grant.expires_at


def _is_same(one: Grant, other: Grant | None) -> bool:
    return other is not None and one.access_token == other.access_token
