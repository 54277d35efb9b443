"""A JwtVerifier and an issuer that publishes its keys over real HTTP."""

from __future__ import annotations

import time
from typing import Any

import pytest
from joserfc.errors import SecurityWarning

from mcplumb import JwtVerifier, UsageError
from tests.kit.token_issuer import Key, TokenIssuer, verifier_of


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize("kind", ["EC", "RSA", "OKP"])
async def test_a_token_of_the_issuer_for_this_server_passes(kind: str) -> None:
    async with TokenIssuer().publishing() as issuer:
        issuer.keys = [Key("a", kind)]
        verifier = verifier_of(issuer)
        principal = await verifier(issuer.token(scope="notes:read notes:write", email="ann@example.com"))
        assert principal.subject == "ann"
        assert principal.scopes == {"notes:read", "notes:write"}
        assert (principal.issuer, principal.client_id) == (issuer.issuer, "tests")
        assert principal.claims["email"] == "ann@example.com"
        assert principal.expires_at is not None
        assert principal.expires_at > time.time()


async def test_an_older_name_of_an_algorithm_passes_without_a_warning() -> None:
    async with TokenIssuer().publishing() as issuer:
        issuer.keys = [Key("a", "OKP")]
        with pytest.warns(SecurityWarning):
            token = issuer.token(header={"alg": "EdDSA"})
        assert (await verifier_of(issuer)(token)).subject == "ann"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"issuer": "login.example"}, "issuer"),
        ({"issuer": "http://login.example"}, "https"),
        ({"jwks_url": "ftp://login.example"}, "jwks_url"),
        ({"audience": ""}, "audience"),
        ({"audience": []}, "audience"),
        ({"algorithms": ["none"]}, "none"),
        ({"algorithms": ["RS256", "HS256"]}, "HS256"),
        ({"algorithms": []}, "algorithms"),
        ({"algorithms": "RS256"}, "algorithms"),
        ({"scopes": ["a b"]}, "scope"),
        ({"scopes": "a"}, "scopes"),
        ({"leeway": -1}, "leeway"),
        ({"leeway": 3600}, "leeway"),
        ({"keys_for": 0}, "keys_for"),
        ({"new_keys_every": float("nan")}, "new_keys_every"),
    ],
)
def test_what_cannot_be_verified_is_said_at_once(options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        JwtVerifier(**{"issuer": "https://login.example", "audience": "notes", **options})


def test_joserfc_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "joserfc", None)
    with pytest.raises(UsageError, match=r"pip install 'mcplumb\[auth\]'"):
        JwtVerifier(issuer="https://login.example", audience="notes")


def test_it_shows_what_it_accepts() -> None:
    shown = repr(JwtVerifier(issuer="https://login.example", audience=["b", "a"]))
    assert shown == "JwtVerifier(issuer='https://login.example', audience=['a', 'b'])"
