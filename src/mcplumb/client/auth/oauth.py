"""The ways to be authorized by a protected server: ``connect(url, auth=OAuth())``, and those without a user.

Each class says which flow gets a grant. `Authorizer` drives the flow.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec

from mcplumb.client.auth.key_signing import assertion_signer
from mcplumb.errors import UsageError
from mcplumb.protocol.oauth.challenge import Challenge
from mcplumb.protocol.oauth.client_identity import ClientIdentity, SignAssertion, check_metadata_url
from mcplumb.protocol.oauth.discovery import ServerMetadata
from mcplumb.protocol.oauth.flow import SignIn, client_credentials, enterprise_grant, jwt_bearer, sign_in
from mcplumb.protocol.oauth.steps import Flow
from mcplumb.protocol.oauth.tokens import DpopProver, Grant, MakeProver
from mcplumb.stores.token_store import TokenStore

__all__ = [
    "Auth",
    "ClientCredentials",
    "EnterpriseManaged",
    "FlowContext",
    "OAuth",
    "OnVisit",
    "TokenSource",
    "WorkloadIdentity",
    "login_command",
]

#: Shows the user the address to sign in at. It may return the address that the browser was redirected to, if it knows
#: it; otherwise the redirect is awaited on loopback. What ``webbrowser.open`` returns says nothing: True or False.
OnVisit: TypeAlias = Callable[[str], Awaitable[str | bool | None] | str | bool | None]

#: A token that another party has issued to the program, or a function that returns a current one.
TokenSource: TypeAlias = str | Callable[[], str | Awaitable[str]]

#: Seconds for the user to sign in.
_SIGN_IN_TIMEOUT = 300.0


class FlowContext(msgspec.Struct, frozen=True, kw_only=True):
    """The circumstances in which a grant is needed."""

    endpoint: str
    challenge: Challenge | None = None
    #: The grant that does not suffice.
    before: Grant | None = None
    #: What is kept of the last sign-in.
    kept: Grant | None = None
    #: Makes DPoP proofs, if tokens are to be bound to a key.
    prover: DpopProver | None = None
    #: Makes a key for a server that takes only tokens that are bound to one.
    make_prover: MakeProver | None = None
    #: The token that the program supplies.
    token: str = ""
    #: Where a sign-in's redirect is awaited.
    redirect_uri: str = ""
    #: The registrations that were used earlier, by issuer.
    registered: Mapping[str, ClientIdentity] = {}


class Auth:
    """The base of all ways to be authorized."""

    #: Whether a user has to consent.
    needs_user = False
    #: The token that each flow needs.
    source: TokenSource = ""

    def __init__(self, *, scopes: Iterable[str] | None = None, dpop: bool = False) -> None:
        if isinstance(scopes, str):
            raise UsageError("scopes is a string: give a list of scopes.")
        self.scopes = None if scopes is None else tuple(scopes)
        #: Whether tokens are bound to a key.
        self.uses_dpop = dpop

    def flow(self, context: FlowContext) -> Flow[Grant]:
        """Return the flow that gets a grant."""
        raise NotImplementedError


class OAuth(Auth):
    """Sign in with a browser.

    * ``client_id``, ``client_secret``, ``issuer``: a client that was registered by hand, and where. Without them, the
      client registers itself as ``client_name``.
    * ``client_metadata_url``: the https address of the client's metadata document, which is its client_id at servers
      that support that. ``private_key``: in PEM, for a client that authenticates with a signed assertion.
    * ``scopes``: the scopes to request; None requests what the server asks for.
    * ``user``: tokens are kept per server and user; any name will do. ``store``: where they are kept.
    * ``port``: of the redirect address, if the registration fixes it. ``on_visit``: shows the address to open;
      None opens a browser. ``timeout``: seconds for the user to sign in.
    * ``sign_in``: False uses only tokens of an earlier sign-in; a function is asked before each sign-in.
    * ``fresh``: True ignores the tokens that are kept; they are replaced when the server has accepted new ones.
    * ``dpop``: bind the tokens to a key, so that a stolen one is of no use. Servers that say that they take only such
      tokens get them in any case.
    """

    needs_user = True

    def __init__(
        self,
        *,
        client_id: str | None = None,
        client_secret: str | None = None,
        issuer: str | None = None,
        client_metadata_url: str | None = None,
        private_key: str | bytes | None = None,
        scopes: Iterable[str] | None = None,
        client_name: str = "mcplumb",
        user: str = "default",
        store: TokenStore | None = None,
        port: int = 0,
        on_visit: OnVisit | None = None,
        timeout: float = _SIGN_IN_TIMEOUT,
        sign_in: bool | Callable[[], bool | Awaitable[bool]] = True,
        fresh: bool = False,
        dpop: bool = False,
    ) -> None:
        super().__init__(scopes=scopes, dpop=dpop)
        if client_id is None and (client_secret is not None or issuer is not None):
            raise UsageError("client_secret and issuer belong to a client_id: give it as well.")
        self.client = None
        if client_id is not None:
            self.client = ClientIdentity(client_id=client_id, client_secret=client_secret, issuer=issuer, is_given=True)
        self.client_metadata_url = None if client_metadata_url is None else check_metadata_url(client_metadata_url)
        self.sign: SignAssertion | None = None if private_key is None else assertion_signer(private_key)
        self.client_name = client_name
        self.user = user
        self.store = store
        self.port = port
        self.on_visit = on_visit
        self.timeout = timeout
        self.sign_in = sign_in
        self.fresh = fresh

    def __repr__(self) -> str:
        return f"OAuth(client={self.client!r}, user={self.user!r})"

    def may_sign_in(self, missing: tuple[str, ...]) -> bool | Awaitable[bool]:
        """Return whether to sign in now. ``missing`` are scopes that the user has not granted yet.

        It is called in a thread, unless it is async.
        """
        del missing
        return self.sign_in if isinstance(self.sign_in, bool) else self.sign_in()

    def advice(self, server: str, missing: tuple[str, ...]) -> str | None:
        """Return what the error says if the user could not be asked; None if the user did not want to sign in.

        ``server`` is the address of the server, and ``missing`` are scopes that the user has not granted yet.
        """
        if self.sign_in is not False:
            return None
        # The command keeps its tokens where programs look by default.
        has_command = self.store is None and self.user == "default"
        command = f", or {login_command(server, missing)}" if has_command else ""
        return (
            "Signing in is switched off here, with OAuth(sign_in=False), and no tokens that are kept suffice. Sign in "
            f"once, with OAuth(sign_in=True){command}."
        )

    def flow(self, context: FlowContext) -> Flow[Grant]:
        """Return the flow of a sign-in."""
        settings = SignIn(
            redirect_uri=context.redirect_uri,
            client_name=self.client_name,
            client=None if self.client is None else _pinned(self.client, context.kept or context.before),
            registered=context.registered,
            client_metadata_url=self.client_metadata_url,
            scopes=self.scopes,
            sign=self.sign,
            prover=context.prover,
            make_prover=context.make_prover,
        )
        return sign_in(
            context.endpoint, context.challenge, settings, now=time.time(), random=os.urandom, before=context.before
        )


class ClientCredentials(Auth):
    """Authorize the program itself, without a user: with a secret, or with a private key in PEM."""

    def __init__(
        self,
        *,
        client_id: str,
        client_secret: str | None = None,
        private_key: str | bytes | None = None,
        algorithm: str | None = None,
        issuer: str | None = None,
        scopes: Iterable[str] | None = None,
        dpop: bool = False,
    ) -> None:
        super().__init__(scopes=scopes, dpop=dpop)
        if (client_secret is None) == (private_key is None):
            raise UsageError("ClientCredentials needs either a client_secret or a private_key.")
        self._client = ClientIdentity(client_id=client_id, client_secret=client_secret, issuer=issuer)
        self._sign = None if private_key is None else assertion_signer(private_key, algorithm)

    def __repr__(self) -> str:
        return f"ClientCredentials(client={self._client!r})"

    def flow(self, context: FlowContext) -> Flow[Grant]:
        """Return the flow of the client credentials grant."""
        return client_credentials(
            context.endpoint,
            context.challenge,
            _pinned(self._client, context.before),
            now=time.time(),
            random=os.urandom,
            scopes=self.scopes,
            before=context.before,
            sign=self._sign,
            prover=context.prover,
            make_prover=context.make_prover,
        )


class WorkloadIdentity(Auth):
    """Authorize a workload with a JWT that its platform issued.

    ``assertion`` is the JWT, or a function that returns a current one. It may be async; otherwise it is called in a
    thread.
    """

    def __init__(
        self,
        *,
        client_id: str,
        assertion: TokenSource,
        issuer: str | None = None,
        scopes: Iterable[str] | None = None,
        dpop: bool = False,
    ) -> None:
        super().__init__(scopes=scopes, dpop=dpop)
        self._client = ClientIdentity(client_id=client_id, issuer=issuer)
        self.source = assertion

    def __repr__(self) -> str:
        return f"WorkloadIdentity(client={self._client!r})"

    def flow(self, context: FlowContext) -> Flow[Grant]:
        """Return the flow of the JWT bearer grant."""
        return jwt_bearer(
            context.endpoint,
            context.challenge,
            _pinned(self._client, context.before),
            context.token,
            now=time.time(),
            random=os.urandom,
            scopes=self.scopes,
            before=context.before,
            prover=context.prover,
            make_prover=context.make_prover,
        )


class EnterpriseManaged(Auth):
    """Authorize a user whom the enterprise's identity provider has signed in: its id token is exchanged for a grant.

    ``id_token`` is the token, or a function that returns a current one. It may be async; otherwise it is called in a
    thread.
    """

    def __init__(
        self,
        *,
        client_id: str,
        client_secret: str | None = None,
        idp_issuer: str,
        idp_token_endpoint: str,
        idp_client_id: str,
        idp_client_secret: str | None = None,
        id_token: TokenSource,
        issuer: str | None = None,
        scopes: Iterable[str] | None = None,
    ) -> None:
        super().__init__(scopes=scopes)
        self._client = ClientIdentity(client_id=client_id, client_secret=client_secret, issuer=issuer)
        self._provider = ServerMetadata(issuer=idp_issuer, token_endpoint=idp_token_endpoint)
        self._identity = ClientIdentity(client_id=idp_client_id, client_secret=idp_client_secret, issuer=idp_issuer)
        self.source = id_token

    def __repr__(self) -> str:
        return f"EnterpriseManaged(client={self._client!r}, idp_issuer={self._provider.issuer!r})"

    def flow(self, context: FlowContext) -> Flow[Grant]:
        """Return the flow of the token exchange and the grant that follows it."""
        return enterprise_grant(
            context.endpoint,
            context.challenge,
            _pinned(self._client, context.before),
            identity_provider=self._provider,
            identity_client=self._identity,
            id_token=context.token,
            now=time.time(),
            random=os.urandom,
            scopes=self.scopes,
            before=context.before,
            prover=context.prover,
            make_prover=context.make_prover,
        )


def login_command(server: str, missing: Iterable[str]) -> str:
    """Return the command that signs in at an address, for these scopes besides those granted, in quotes."""
    words = ["mcplumb", "login", "-s", server, *(word for scope in missing for word in ("--scope", scope))]
    return f"'{ascii(shlex.join(words))[1:-1]}'"


def _pinned(client: ClientIdentity, before: Grant | None) -> ClientIdentity:
    """Return a client's credentials, bound to the issuer that they were used at before, if the user named none.

    A server that names another authorization server later does not get to see them there.
    """
    if before is None or client.issuer is not None or before.client.client_id != client.client_id:
        return client
    return msgspec.structs.replace(client, issuer=before.issuer)
