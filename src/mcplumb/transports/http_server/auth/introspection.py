"""`Introspection`: asks the authorization server about each access token (RFC 7662)."""

from __future__ import annotations

import asyncio
import logging
import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import msgspec

from mcplumb.errors import AuthorizationError, UsageError
from mcplumb.protocol.oauth.access_tokens import TokenRules, check_claims
from mcplumb.protocol.oauth.discovery import read_document, shown
from mcplumb.protocol.oauth.steps import Answer, Flow, form_post
from mcplumb.protocol.principal import Principal
from mcplumb.transports.http_server.auth.shared_task import SharedTask
from mcplumb.transports.http_server.auth.token_verifier import TokenVerifier, audience_set

if TYPE_CHECKING:
    import ssl

__all__ = ["Introspection"]

_logger = logging.getLogger("mcplumb.http")

#: Seconds for one question.
_ASK_WITHIN = 10.0
#: Questions at once: a flood of invented tokens must not become one at the authorization server.
_MOST_ASKED = 100


class Introspection(TokenVerifier):
    """Accepts the access tokens that an authorization server calls active: ``HttpOptions(auth=Introspection(…))``.

    For opaque tokens, and for JWTs that must end as soon as they are revoked.

    - ``url`` is the introspection endpoint; ``client_id`` and ``client_secret`` are this server's credentials there.
    - ``audience`` is what tokens for this server have in ``aud``: one text, or several of which one must match. None
      accepts every active token, for an authorization server that answers ``active`` for access tokens of this server
      only: many answer it for refresh tokens as well.
    - ``issuer`` is the URL of the authorization server. It is published, and must be the tokens' ``iss`` if they have
      one. None publishes nothing, and compares nothing.
    - ``scopes`` are needed for every request. Tools, resources and prompts may need more.
    - ``scope_claims`` are the members of the answer that have the scopes, as text or as a list.
    - ``leeway`` is how many seconds clocks may differ.
    - ``cache`` is how many seconds an answer is used again, for at most ``max_cached`` tokens; 0 asks every time.
    - ``tls`` is for an authorization server with certificates of its own: see ``client_tls``.

    Without an answer, requests are refused. Tokens that are bound to a key (``cnf``) are refused. A token without a
    ``sub``, as clients have that authorize themselves, belongs to the subject ``client CLIENT-ID``.
    """

    def __init__(
        self,
        *,
        url: str,
        client_id: str,
        client_secret: str,
        audience: str | Sequence[str] | None,
        issuer: str | None = None,
        scopes: Sequence[str] = (),
        scope_claims: Sequence[str] = ("scope", "scp"),
        leeway: float = 0.0,
        cache: float = 60.0,
        max_cached: int = 10_000,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        # Loaded here, so that the class can be had without the extra.
        from mcplumb.transports.http_client.oauth_requests import run_flow

        super().__init__(issuer=issuer, scopes=scopes, url=url)
        if not client_id or not client_secret:
            raise UsageError("An Introspection needs the client_id and client_secret of this server.")
        if not (0 <= leeway < float("inf") and 0 <= cache < float("inf")) or max_cached < 1:
            raise UsageError("leeway and cache must be numbers of seconds, and max_cached an integer of at least 1.")
        self._url = url
        #: The address for logs and errors: its query may have a key.
        self._shown = shown(url)
        self._issuer = issuer
        credentials = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
        self._headers = {"authorization": f"Basic {b64encode(credentials.encode()).decode()}"}
        self._rules = TokenRules(
            issuer=issuer or self._shown,
            audiences=None if audience is None else audience_set(audience),
            scope_claims=tuple(scope_claims),
            leeway=leeway,
            must_end=False,
        )
        self._cache = cache
        self._max_cached = max_cached
        self._tls = tls
        self._run_flow = run_flow
        #: By the digest of a token, the oldest first: when it was asked, and who it belongs to, if anybody.
        self._known: OrderedDict[bytes, tuple[float, Principal | None]] = OrderedDict()
        self._asking: dict[bytes, SharedTask[Principal | None]] = {}

    def __repr__(self) -> str:
        return f"Introspection(url={self._shown!r})"

    async def __call__(self, token: str) -> Principal | None:
        """Return who a token belongs to; None if it is not active.

        Raises `AuthorizationError` if there is no answer.
        """
        digest = sha256(token.encode()).digest()
        asked_at, principal = self._known.get(digest, (float("-inf"), None))
        if time.monotonic() - asked_at < self._cache:
            return principal
        question = self._asking.get(digest)
        if question is None or question.is_over:
            self._asking = {key: each for key, each in self._asking.items() if not each.is_over}
            if len(self._asking) >= _MOST_ASKED:
                raise AuthorizationError("unreachable", f"Too many tokens wait for an answer of {self._shown}.")
            question = self._asking[digest] = SharedTask(self._ask(token, digest))
        return await question.result()

    async def _ask(self, token: str, digest: bytes) -> Principal | None:
        """Ask about a token, and keep the answer."""
        try:
            async with asyncio.timeout(_ASK_WITHIN):
                answer = await self._run_flow(self._flow(token), tls=self._tls)
        except TimeoutError:
            sentence = f"{self._shown} did not say within {_ASK_WITHIN:g} s whether a token is active."
            raise AuthorizationError("unreachable", sentence) from None
        principal = self._principal(answer)
        self._known[digest] = time.monotonic(), principal
        self._known.move_to_end(digest)
        if len(self._known) > self._max_cached:
            self._known.popitem(last=False)
        return principal

    def _flow(self, token: str) -> Flow[Answer]:
        fields = {"token": token, "token_type_hint": "access_token"}
        answer: Answer = yield form_post(self._url, "the state of a token", fields, self._headers)
        return answer

    def _principal(self, answer: Answer) -> Principal | None:
        if answer.status != 200:
            # 401 and 403 mean that the credentials of this server are wrong, which is no fault of the client.
            raise AuthorizationError("unreachable", f"{self._shown} answered with status {answer.status}.")
        document = read_document(answer, "the state of a token")
        if document.get("active") is not True:
            return None
        # null stands for "not given" in answers of several providers.
        given = {name: value for name, value in document.items() if value is not None}
        claims, rules = {"iss": self._rules.issuer, **given}, self._rules
        if self._issuer is None and isinstance(claims["iss"], str):
            rules = msgspec.structs.replace(rules, issuer=claims["iss"])
        client = claims.get("client_id")
        if claims.get("sub") is None and isinstance(client, str) and client:
            # With a mark, because a user may have the name of a client.
            claims["sub"] = f"client {client}"
        try:
            return check_claims(claims, rules, now=time.time())
        except AuthorizationError as error:
            _logger.info("A token that %s calls active was refused. %s", self._shown, error)
            return None
