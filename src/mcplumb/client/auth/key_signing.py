"""Signatures with a client's private key: assertions that authenticate the client, and DPoP proofs of possession.

All cryptography is joserfc's, which rests on the ``cryptography`` package.
"""

from __future__ import annotations

import base64
import os
import warnings
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from mcplumb.errors import UsageError
from mcplumb.protocol.oauth.client_identity import SignAssertion
from mcplumb.protocol.oauth.tokens import DPOP_ALGORITHM

__all__ = ["DpopKey", "assertion_signer"]

#: The default algorithm for each type of key.
_ALGORITHMS = {"EC": "ES256", "RSA": "RS256", "OKP": "EdDSA"}
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


def _joserfc() -> Any:
    try:
        import joserfc.errors
        import joserfc.jwk
        import joserfc.jwt
    except ModuleNotFoundError as error:
        if error.name not in ("joserfc", "cryptography"):
            raise
        raise UsageError("Signing needs joserfc: pip install 'mcplumb[auth]'") from error
    return joserfc


def assertion_signer(private_key: str | bytes, algorithm: str | None = None) -> SignAssertion:
    """Return a function that signs claims with a private key in PEM; raise `UsageError` if the key is invalid."""
    joserfc = _joserfc()
    try:
        key = joserfc.jwk.import_key(private_key, "EC" if _is_ec(private_key) else _kind(private_key))
    except ValueError:
        raise UsageError("private_key is not a private key in PEM format.") from None
    if not key.is_private:
        raise UsageError("private_key is a public key: give the private one, in PEM format.")
    chosen = algorithm or _CURVES.get(getattr(key, "curve_name", ""), _ALGORITHMS.get(key.key_type, ""))

    def sign(claims: Mapping[str, object]) -> str:
        with warnings.catch_warnings():
            # The name EdDSA is deprecated, but not the algorithm, and servers know no other name yet.
            warnings.simplefilter("ignore", joserfc.errors.SecurityWarning)
            text: str = joserfc.jwt.encode({"alg": chosen, "typ": "JWT"}, dict(claims), key, algorithms=[chosen])
        return text

    return sign


def _is_ec(private_key: str | bytes) -> bool:
    return _kind(private_key) == "EC"


def _kind(private_key: str | bytes) -> str:
    """Return the type of a key in PEM, as JOSE names it."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

    data = private_key.encode() if isinstance(private_key, str) else private_key
    key: Any = load_pem_public_key(data) if b"PUBLIC" in data[:64] else load_pem_private_key(data, password=None)
    if isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey):
        return "EC"
    return "RSA" if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey) else "OKP"


class DpopKey:
    """A key that tokens are bound to (DPoP, RFC 9449): each request carries a fresh proof made with it."""

    def __init__(self, pem: str | None = None) -> None:
        joserfc = _joserfc()
        kind = joserfc.jwk.ECKey
        self._key = kind.generate_key("P-256") if pem is None else kind.import_key(pem)
        self._public = self._key.as_dict(private=False)

    def __repr__(self) -> str:
        return "DpopKey()"

    def pem(self) -> str:
        """Return the private key, to be stored with the grant."""
        text: bytes = self._key.as_pem(private=True)
        return text.decode()

    def proof(self, method: str, url: str, *, now: float, nonce: str | None, access_token: str | None) -> str:
        """Return a fresh proof for one request."""
        claims: dict[str, object] = {
            "jti": os.urandom(16).hex(),
            "htm": method,
            "htu": url.partition("?")[0].partition("#")[0],
            "iat": int(now),
        }
        if nonce is not None and nonce.isascii() and nonce.isprintable():  # others cannot be sent
            claims["nonce"] = nonce
        if access_token is not None:
            digest = sha256(access_token.encode()).digest()
            claims["ath"] = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        header = {"typ": "dpop+jwt", "alg": DPOP_ALGORITHM, "jwk": self._public}
        text: str = _joserfc().jwt.encode(header, claims, self._key, algorithms=[DPOP_ALGORITHM])
        return text
