from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from mcplumb import UsageError
from mcplumb.client.auth.key_signing import DpopKey, assertion_signer


def part(token: str, at: int) -> dict[str, Any]:
    text = token.split(".")[at]
    read: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return read


@pytest.mark.req("AUT-9")
def test_each_request_has_a_proof_of_its_own() -> None:
    key = DpopKey()
    one, other = (
        key.proof("POST", "https://a.example/mcp?x=1#y", now=1000.0, nonce="n", access_token="t") for _ in range(2)
    )
    assert part(one, 1)["jti"] != part(other, 1)["jti"]
    assert (part(one, 0)["typ"], part(one, 1)["htm"], part(one, 1)["htu"]) == (
        "dpop+jwt",
        "POST",
        "https://a.example/mcp",
    )
    assert (part(one, 1)["nonce"], part(one, 1)["iat"]) == ("n", 1000)
    assert "d" not in part(one, 0)["jwk"], "The private part stays here."
    assert jwt.decode(one, ECKey.import_key(part(one, 0)["jwk"]), algorithms=["ES256"]).claims["htm"] == "POST"
    again = DpopKey(key.pem()).proof("GET", "https://a.example", now=1.0, nonce=None, access_token=None)
    assert part(again, 0)["jwk"] == part(one, 0)["jwk"]
    assert key.pem() not in repr(key)


@pytest.mark.parametrize("nonce", ["\udcff", "\x00", "ä", "a\nb"])
def test_a_nonce_that_cannot_be_sent_is_left_out(nonce: str) -> None:
    proof = DpopKey().proof("POST", "https://a.example/token", now=1.0, nonce=nonce, access_token=None)
    assert "nonce" not in part(proof, 1)


@pytest.mark.req("AUT-9")
@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (ECKey.generate_key("P-256"), "ES256"),
        (ECKey.generate_key("P-384"), "ES384"),
        (RSAKey.generate_key(2048), "RS256"),
        (OKPKey.generate_key("Ed25519"), "EdDSA"),
    ],
)
def test_the_key_decides_the_algorithm(key: Any, algorithm: str) -> None:
    assert part(assertion_signer(key.as_pem(private=True))({"iss": "me"}), 0)["alg"] == algorithm


@pytest.mark.req("AUT-9")
@pytest.mark.parametrize(
    ("key", "algorithm", "fitting"),
    [
        (RSAKey.generate_key(2048), "PS256", ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        (ECKey.generate_key("P-256"), "ES256", ("ES256",)),
        (OKPKey.generate_key("Ed25519"), "Ed25519", ("EdDSA", "Ed25519")),
    ],
)
def test_an_algorithm_must_fit_the_key(key: Any, algorithm: str, fitting: tuple[str, ...]) -> None:
    pem = key.as_pem(private=True)
    assert part(assertion_signer(pem, algorithm)({"iss": "me"}), 0)["alg"] == algorithm
    for other in {"none", "HS256", "RS256", "ES384", "EdDSA", "x"} - {*fitting}:
        with pytest.raises(UsageError, match=rf"algorithm is '{other}', .* use {' or '.join(fitting)}\."):
            assertion_signer(pem, other)


def pem_of(key: Any, encryption: KeySerializationEncryption | None = None) -> bytes:
    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())
    return text


NO_KEY = "is not a private key in PEM"


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("", NO_KEY),
        ("no key", NO_KEY),
        ("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----", NO_KEY),
        (ECKey.generate_key("P-256").as_pem(private=False), "is a public key"),
        (pem_of(ec.generate_private_key(ec.SECP256R1()), BestAvailableEncryption(b"x")), "is encrypted"),
        (pem_of(ec.generate_private_key(ec.SECP256K1())), "is of a kind"),
        (pem_of(ec.generate_private_key(ec.BrainpoolP256R1())), "is of a kind"),
        (pem_of(x25519.X25519PrivateKey.generate()), "is of a kind"),
    ],
)
def test_what_is_no_private_key(key: str | bytes, sentence: str) -> None:
    with pytest.raises(UsageError, match=f"private_key {sentence}"):
        assertion_signer(key)
