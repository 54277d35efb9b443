"""Tokens that are bound to a key (DPoP), because the program wants them or the server takes no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcplumb import AuthorizationError, ClientCredentials, EnterpriseManaged, McplumbError, WorkloadIdentity, connect
from mcplumb.client.auth.oauth import Auth
from mcplumb.stores.token_store import FileTokens
from tests.attacks.hostile import DISCOVERED, Seen, Undiscovered, response, result
from tests.client.auth.authorization_server import AuthorizationServer
from tests.client.auth.proofs import bound_site
from tests.client.auth.site import Site, site
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


@pytest.mark.req("AUT-7")
@pytest.mark.parametrize("statuses", [[401], [400], [403], [503], [400, 401]], ids=str)
async def test_bound_tokens_that_are_refused_leave_the_earlier_sign_in(tmp_path: Path, statuses: list[int]) -> None:
    """However the server says that it knows no such tokens."""

    def answer(seen: Seen) -> list[bytes]:
        if seen.path.startswith("/.well-known/"):
            document = {"resource": server.url, "authorization_servers": [auth.issuer]}
            return [response(body=json.dumps(document).encode(), Content_Type="application/json")]
        scheme, _, token = seen.fields.get("authorization", "").partition(" ")
        if scheme == "DPoP":
            status = statuses[min(len(refused), len(statuses) - 1)]
            refused.append(status)
            return [response(f"{status} No", WWW_Authenticate="Bearer")]
        if token not in auth.tokens:
            return [response("401 Unauthorized", WWW_Authenticate="Bearer")]
        return [result(seen, DISCOVERED)]

    auth, refused = binding(), list[int]()
    async with auth.running(), Undiscovered(answer) as server:
        place = Site(auth, server.url, FileTokens(tmp_path))
        async with connect(place.url, auth=place.oauth()):
            pass
        before = place.entry()
        with pytest.raises(McplumbError) as caught:
            async with connect(place.url, auth=place.oauth(dpop=True, fresh=True)):
                pass
        if 401 in statuses:
            assert "bearer tokens only, sign in again without binding them" in str(caught.value)
        assert place.entry() == before
        async with connect(place.url, auth=place.oauth()):
            pass
        assert place.visits == 2


async def test_tokens_that_nothing_works_with_any_more_are_replaced_at_once(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        place.auth.gives_refresh_tokens = False
        async with connect(place.url, auth=place.oauth()):
            pass
        place.age(3600)
        place.auth.binds = True
        with pytest.raises(AuthorizationError, match="sign out, and sign in again"):
            async with connect(place.url, auth=place.oauth(dpop=True, fresh=True)):
                pass
        assert place.entry().grant.token_type == "DPoP"


async def test_a_new_token_that_needs_more_scopes_is_one_that_the_server_knows(tmp_path: Path) -> None:
    """It replaces the earlier one, and so does the one with these scopes."""

    def answer(seen: Seen) -> list[bytes]:
        if seen.path.startswith("/.well-known/"):
            document = {"resource": server.url, "authorization_servers": [auth.issuer]}
            return [response(body=json.dumps(document).encode(), Content_Type="application/json")]
        token = seen.fields.get("authorization", "").partition(" ")[2]
        if token not in auth.tokens:
            return [response("401 Unauthorized", WWW_Authenticate="Bearer")]
        if needed not in auth.tokens[token]:
            return [response("403 Forbidden", WWW_Authenticate=f'Bearer error="insufficient_scope", scope="{needed}"')]
        return [result(seen, DISCOVERED)]

    auth, needed = AuthorizationServer(), ""
    async with auth.running(), Undiscovered(answer) as server:
        place = Site(auth, server.url, FileTokens(tmp_path))
        async with connect(place.url, auth=place.oauth()):
            pass
        needed = "more"
        async with connect(place.url, auth=place.oauth(fresh=True)):
            pass
        assert (place.visits, place.entry().grant.scopes) == (3, ("more",))
        async with connect(place.url, auth=place.oauth()):
            pass
        assert place.visits == 3
