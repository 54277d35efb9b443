"""Proofs of possession (DPoP) as a server checks them, and a protected server that takes only bound tokens."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from joserfc import jwt
from joserfc.jwk import ECKey

from mcplumb.stores.token_store import FileTokens
from tests.attacks.hostile import DISCOVERED, Seen, Undiscovered, response, result

if TYPE_CHECKING:
    from tests.client.auth.authorization_server import AuthorizationServer
    from tests.client.auth.site import Site


def proven_key(proof: str | None, method: str, url: str, token: str | None = None) -> str | None:
    """Return the thumbprint of the key that a proof for this request was made with; None if there is no such proof."""
    if proof is None:
        return None
    encoded = proof.partition(".")[0]
    header = json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    key = ECKey.import_key(header["jwk"])
    claims = jwt.decode(proof, key, algorithms=["ES256"]).claims
    digest = None if token is None else base64.urlsafe_b64encode(sha256(token.encode()).digest()).rstrip(b"=").decode()
    wanted = ("dpop+jwt", method, url, digest)
    is_good = (header["typ"], claims["htm"], claims["htu"], claims.get("ath")) == wanted
    return key.thumbprint() if is_good and not key.is_private else None


@asynccontextmanager
async def bound_site(folder: Path, auth: AuthorizationServer, *, says_so: bool = True) -> AsyncIterator[Site]:
    """A server that takes only tokens that are bound to a key; its metadata may say so."""
    from tests.client.auth.site import Site

    def answer(seen: Seen) -> list[bytes]:
        if seen.path.startswith("/.well-known/"):
            document = {"resource": server.url, "authorization_servers": [auth.issuer]}
            required = {"dpop_bound_access_tokens_required": True} if says_so else {}
            return [response(body=json.dumps({**document, **required}).encode(), Content_Type="application/json")]
        scheme, _, token = seen.fields.get("authorization", "").partition(" ")
        key = proven_key(seen.fields.get("dpop"), seen.method, server.url, token)
        if scheme != "DPoP" or token not in auth.tokens or key is None or key != auth.bound.get(token):
            return [response("401 Unauthorized", WWW_Authenticate='DPoP algs="ES256"')]
        if seen.asks == "server/discover":
            return [result(seen, DISCOVERED)]
        if seen.asks == "tools/list":
            tools = [{"name": "whoami", "inputSchema": {"type": "object"}}]
            return [result(seen, {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": tools})]
        return [result(seen, {"resultType": "complete", "content": [{"type": "text", "text": "somebody"}]})]

    async with auth.running(), Undiscovered(answer) as server:
        yield Site(auth, server.url, FileTokens(folder))
