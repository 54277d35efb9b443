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

#: The algorithms for RSA keys, and those for each curve, as cryptography names it; the first is the default.
_RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_EC_ALGORITHMS = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}
_ED_ALGORITHMS = ("EdDSA", "Ed25519")


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
    """Return a function that signs claims with a private key in PEM; raise `UsageError` if that cannot be done."""
    joserfc = _joserfc()
    data = private_key.encode() if isinstance(private_key, str) else private_key
    kind, fitting = _kind_and_algorithms(data)
    if algorithm is not None and algorithm not in fitting:
        raise UsageError(f"algorithm is {algorithm!r}, which does not fit private_key: use {' or '.join(fitting)}.")
    key, chosen = joserfc.jwk.import_key(data, kind), algorithm or fitting[0]

    def sign(claims: Mapping[str, object]) -> str:
        with warnings.catch_warnings():
            # The name EdDSA is deprecated, but not the algorithm, and servers know no other name yet.
            warnings.simplefilter("ignore", joserfc.errors.SecurityWarning)
            text: str = joserfc.jwt.encode({"alg": chosen, "typ": "JWT"}, dict(claims), key, algorithms=[chosen])
        return text

    return sign


def _kind_and_algorithms(data: bytes) -> tuple[str, tuple[str, ...]]:
    """Return the type of a private key in PEM, as JOSE names it, and the algorithms that it is for."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if b"PUBLIC" in data[:64]:
        raise UsageError("private_key is a public key: give the private one, in PEM format.")
    try:
        key = load_pem_private_key(data, password=None)
    except TypeError:
        raise UsageError("private_key is encrypted: give it without a passphrase.") from None
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError("private_key is not a private key in PEM format.") from None
    if isinstance(key, rsa.RSAPrivateKey):
        return "RSA", _RSA_ALGORITHMS
    if isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _EC_ALGORITHMS:
        return "EC", _EC_ALGORITHMS[key.curve.name]
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return "OKP", _ED_ALGORITHMS
    raise UsageError("private_key is of a kind that cannot be used: give an RSA, P-256, P-384, P-521 or Ed25519 key.")


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
