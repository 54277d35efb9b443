"""Tokens that are bound to a key (DPoP), because the program wants them or the server takes no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcplumb import AuthorizationError, ClientCredentials, EnterpriseManaged, WorkloadIdentity, connect
from mcplumb.client.auth.oauth import Auth
from tests.client.auth.authorization_server import AuthorizationServer
from tests.client.auth.proofs import bound_site
from tests.client.auth.site import site
from tests.kit.results import text_of


def binding() -> AuthorizationServer:
    auth = AuthorizationServer()
    auth.binds = True
    return auth


@pytest.mark.parametrize("says_so", [True, False])
async def test_a_server_that_takes_only_bound_tokens(tmp_path: Path, says_so: bool) -> None:
    """Where its metadata says so, the program need not."""
    async with bound_site(tmp_path, binding(), says_so=says_so) as place:
        async with connect(place.url, auth=place.oauth(dpop=not says_so)) as client:
            assert text_of(await client.call_tool("whoami")) == "somebody"
        assert place.entry().grant.token_type == "DPoP"
        place.age(3600)
        async with connect(place.url, auth=place.oauth()) as client:
            await client.call_tool("whoami")
        assert (place.visits, place.auth.refreshes) == (1, 1)
        assert len(set(place.auth.bound.values())) == 1, "The key is kept with the tokens."


async def test_a_new_sign_in_stays_bound_with_another_key(tmp_path: Path) -> None:
    async with bound_site(tmp_path, binding(), says_so=False) as place:
        async with connect(place.url, auth=place.oauth(dpop=True)):
            pass
        async with connect(place.url, auth=place.oauth(fresh=True)) as client:
            await client.call_tool("whoami")
        place.auth.refresh_tokens.clear()
        place.age(3600)
        async with connect(place.url, auth=place.oauth()) as client:
            await client.call_tool("whoami")
        assert place.visits == 3
        assert len(set(place.auth.bound.values())) == 2, "The third sign-in took the place of an ended one."


@pytest.mark.parametrize("kind", [ClientCredentials, WorkloadIdentity, EnterpriseManaged])
async def test_without_a_user(tmp_path: Path, kind: type[Auth]) -> None:
    auth = binding()
    auth.assertions = auth.subject_tokens = {"the-token"}
    async with bound_site(tmp_path, auth) as place:
        how: Auth = ClientCredentials(client_id="me", client_secret="mine")
        if kind is WorkloadIdentity:
            how = WorkloadIdentity(client_id="me", assertion="the-token")
        elif kind is EnterpriseManaged:
            how = EnterpriseManaged(
                client_id="me", client_secret="mine", idp_issuer=auth.issuer, idp_client_id="me",
                idp_token_endpoint=f"{auth.issuer}/token", id_token="the-token",
            )  # fmt: skip
        async with connect(place.url, auth=how) as client:
            await client.call_tool("whoami")
            auth.tokens.clear()
            await client.call_tool("whoami")
        assert len(set(auth.bound.values())) == 1


@pytest.mark.parametrize("algorithms", [None, [], ["RS256"]])
async def test_an_authorization_server_that_cannot_bind_tokens(tmp_path: Path, algorithms: list[str] | None) -> None:
    """What the server's metadata says may be wrong, so an ordinary token is tried."""
    auth = AuthorizationServer()
    if algorithms is not None:
        auth.metadata = {"dpop_signing_alg_values_supported": algorithms}
    async with bound_site(tmp_path, auth) as place:
        with pytest.raises(AuthorizationError, match="has just granted"):
            async with connect(place.url, auth=place.oauth()):
                pass
        assert len(auth.tokens) == 1


async def test_a_server_that_takes_no_bound_tokens(tmp_path: Path) -> None:
    """A later sign-in would be bound, too: the error has to say how to get out of that."""
    async with site(tmp_path) as place:
        place.auth.binds = True
        with pytest.raises(
            AuthorizationError, match=r"just bound to a key \(DPoP\).* sign out, and sign in again"
        ) as one:
            async with connect(place.url, auth=place.oauth(dpop=True)):
                pass
        assert (one.value.reason, place.visits) == ("denied", 1)


async def test_a_program_that_wants_bound_tokens_takes_no_others(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        with pytest.raises(AuthorizationError, match=r"'bearer', which .* bound to a key \(DPoP\)") as caught:
            async with connect(place.url, auth=place.oauth(dpop=True)):
                pass
        assert caught.value.reason == "document"
