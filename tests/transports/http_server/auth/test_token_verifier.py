from __future__ import annotations

import pytest

from mcplumb.errors import UsageError
from mcplumb.transports.http_server.auth.token_verifier import TokenVerifier, audience_set


def test_it_has_what_clients_are_told() -> None:
    verifier = TokenVerifier(issuer="https://login.example/", scopes=["b", "a", "b"])
    assert (verifier.issuers, verifier.scopes) == (("https://login.example/",), ("b", "a"))
    assert TokenVerifier(issuer=None, scopes=()).issuers == ()


@pytest.mark.parametrize("address", ["x", "http://login.example", "https://user@login.example", "https://a b"])
def test_addresses_must_be_safe(address: str) -> None:
    with pytest.raises(UsageError, match="The keys"):
        TokenVerifier(issuer=None, scopes=(), keys=address)
    with pytest.raises(UsageError, match="The issuer"):
        TokenVerifier(issuer=address, scopes=())


async def test_somebody_else_verifies() -> None:
    with pytest.raises(NotImplementedError):
        await TokenVerifier(issuer=None, scopes=())("x")


def test_an_audience_is_needed() -> None:
    assert audience_set("a b") == {"a b"}
    assert audience_set(["a", "b"]) == {"a", "b"}
    for audience in ("", [], ["a", ""]):
        with pytest.raises(UsageError, match="audience"):
            audience_set(audience)
