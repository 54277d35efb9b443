from __future__ import annotations

import base64
from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.errors import AuthorizationError
from mcplumb.protocol.oauth.challenge import Challenge
from mcplumb.protocol.oauth.client_identity import ClientIdentity
from mcplumb.protocol.oauth.discovery import ServerMetadata, server_metadata_addresses
from mcplumb.protocol.oauth.flow import (
    ISSUER_RULES,
    MAX_SCOPES,
    REFUSALS,
    Authority,
    SignIn,
    choose_scopes,
    client_credentials,
    enterprise_grant,
    find_authority,
    jwt_bearer,
    read_redirect,
    refresh,
    revoke,
    sign_in,
)
from mcplumb.protocol.oauth.steps import Answer, Fetch
from mcplumb.protocol.oauth.tokens import Grant, GrantRefused
from tests.protocol.oauth.world import (
    ENDPOINT,
    ISSUER,
    NOW,
    REDIRECT,
    RESOURCE_METADATA,
    SERVER_METADATA,
    TOKEN,
    Handler,
    Prover,
    World,
    answer,
    honest,
    issuer,
    query_of,
    random,
    resource,
)

TOKEN_URL = f"{ISSUER}/token"
GIVEN = ClientIdentity(client_id="given", client_secret="given-secret", issuer=ISSUER)


def settings(**fields: Any) -> SignIn:
    return SignIn(redirect_uri=REDIRECT, **fields)


def signed_in(world: World, challenge: Challenge | None = None, before: Grant | None = None, **fields: Any) -> Grant:
    return world.drive(sign_in(ENDPOINT, challenge, settings(**fields), now=NOW, random=random, before=before))


def refused(world: World, reason: str, **fields: Any) -> AuthorizationError:
    with pytest.raises(AuthorizationError) as caught:
        signed_in(world, **fields)
    assert caught.value.reason == reason
    assert reason in REFUSALS
    return caught.value


@pytest.mark.req("AUT-4")
def test_a_sign_in() -> None:
    world = World(honest())
    granted = signed_in(world)
    assert granted.access_token == "the-token"
    assert granted.client.client_id == "registered"
    assert granted.expires_at == NOW + 3600
    assert world.urls() == [RESOURCE_METADATA, SERVER_METADATA, f"{ISSUER}/register", TOKEN_URL]
    [visit] = world.visited
    assert visit.url.startswith(f"{ISSUER}/authorize?")
    query = query_of(visit.url)
    form = world.form(TOKEN_URL)
    assert query == {
        "response_type": "code",
        "client_id": "registered",
        "redirect_uri": REDIRECT,
        "state": query["state"],
        "code_challenge": query["code_challenge"],
        "code_challenge_method": "S256",
        "resource": ENDPOINT,
    }
    assert form == {
        "grant_type": "authorization_code",
        "code": "the-code",
        "redirect_uri": REDIRECT,
        "code_verifier": form["code_verifier"],
        "client_id": "registered",
        "resource": ENDPOINT,
    }
    digest = sha256(form["code_verifier"].encode()).digest()
    assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == query["code_challenge"]


def test_an_authorization_endpoint_with_a_query() -> None:
    world = World(honest(authorization_endpoint=f"{ISSUER}/authorize?tenant=1"))
    signed_in(world)
    assert world.visited[0].url.startswith(f"{ISSUER}/authorize?tenant=1&response_type=code&")


@pytest.mark.req("AUT-4")
@pytest.mark.parametrize("methods", [None, [], ["plain"], ["s256"]])
def test_without_pkce_nothing_is_opened(methods: list[str] | None) -> None:
    world = World(honest(code_challenge_methods_supported=methods))
    refused(world, "pkce")
    assert world.visited == []
    assert world.urls() == [RESOURCE_METADATA, SERVER_METADATA]


def test_a_server_without_an_authorization_endpoint() -> None:
    refused(World(honest(authorization_endpoint=None)), "document")


def test_a_redirect_address_that_others_can_read() -> None:
    flow = sign_in(ENDPOINT, None, SignIn(redirect_uri="http://host.example/x"), now=NOW, random=random)
    with pytest.raises(AuthorizationError, match="The redirect address"):
        World(honest()).drive(flow)


@pytest.mark.req("AUT-3")
def test_given_credentials_come_first() -> None:
    world = World(honest(client_id_metadata_document_supported=True))
    granted = signed_in(world, client=GIVEN, client_metadata_url="https://me.example/client.json")
    assert granted.client == msgspec.structs.replace(GIVEN, auth_method="client_secret_basic")
    assert f"{ISSUER}/register" not in world.urls()
    assert "authorization" in world.fetched[-1].headers


@pytest.mark.req("AUT-3")
def test_a_client_document_comes_before_registration() -> None:
    world = World(honest(client_id_metadata_document_supported=True))
    granted = signed_in(world, client_metadata_url="https://me.example/client.json")
    assert granted.client.client_id == "https://me.example/client.json"
    assert f"{ISSUER}/register" not in world.urls()
    world = World(honest(client_id_metadata_document_supported=True))
    granted = signed_in(world, client_metadata_url="https://me.example/client.json", sign=lambda claims: "signed")
    assert granted.client.auth_method == "private_key_jwt"
    assert world.form(TOKEN_URL)["client_assertion"] == "signed"
    assert signed_in(World(honest()), client_metadata_url="https://me.example/c.json").client.client_id == "registered"


@pytest.mark.req("AUT-3")
@pytest.mark.parametrize("kept", [True, False])
def test_an_earlier_registration_is_used_again_where_it_fits(kept: bool) -> None:
    client = ClientIdentity(client_id="kept", issuer=ISSUER, redirect_uri=REDIRECT, auth_method="none")
    if not kept:
        client = msgspec.structs.replace(client, redirect_uri="http://127.0.0.1:4000/callback")
    granted = signed_in(World(honest()), registered={ISSUER: client})
    assert granted.client.client_id == ("kept" if kept else "registered")


@pytest.mark.req("AUT-6")
@pytest.mark.parametrize(("scopes", "client_id"), [(["a"], "kept"), (["b", "a"], "kept"), (["a", "c"], "registered")])
def test_a_registration_is_good_for_its_scopes(scopes: list[str], client_id: str) -> None:
    client = ClientIdentity(
        client_id="kept", issuer=ISSUER, redirect_uri=REDIRECT, auth_method="none", scopes=("a", "b")
    )
    world = World(honest())
    assert signed_in(world, registered={ISSUER: client}, scopes=tuple(scopes)).client.client_id == client_id
    asked = [msgspec.json.decode(fetch.body)["scope"] for fetch in world.fetched if fetch.url.endswith("/register")]
    assert asked == ([] if client_id == "kept" else ["a c"])


@pytest.mark.parametrize(
    "change", [{"issuer": "https://other.example"}, {"client_secret": "x", "secret_expires_at": NOW - 1}]
)
def test_a_registration_that_does_not_count_any_more(change: dict[str, Any]) -> None:
    client = ClientIdentity(client_id="kept", issuer=ISSUER, redirect_uri=REDIRECT, auth_method="none")
    client = msgspec.structs.replace(client, **change)
    assert signed_in(World(honest()), registered={ISSUER: client}).client.client_id == "registered"


@pytest.mark.req("AUT-3")
def test_a_given_client_that_was_used_before_is_used_again() -> None:
    client = ClientIdentity(client_id="kept", issuer=ISSUER, auth_method="none", is_given=True)
    granted = signed_in(World(honest()), registered={ISSUER: client}, scopes=("a",))
    assert granted.client == client
    document = "https://me.example/client.json"
    world = World(honest(client_id_metadata_document_supported=True))
    granted = signed_in(world, client_metadata_url=document)
    assert granted.client.is_given
    assert signed_in(World(honest()), registered={ISSUER: granted.client}).client.client_id == document


@pytest.mark.parametrize("has_key", [True, False])
def test_a_given_client_with_a_key_needs_it_again(has_key: bool) -> None:
    client = ClientIdentity(client_id="kept", issuer=ISSUER, auth_method="private_key_jwt", is_given=True)
    sign = (lambda claims: "signed") if has_key else None
    granted = signed_in(World(honest()), registered={ISSUER: client}, sign=sign)
    assert granted.client.client_id == ("kept" if has_key else "registered")


@pytest.mark.req("AUT-3")
def test_an_issuer_that_knows_the_client_comes_first() -> None:
    other = "https://other.example"
    pages = {**honest(), f"{other}/.well-known/oauth-authorization-server": answer(issuer(other))}
    pages[RESOURCE_METADATA] = answer(resource(authorization_servers=[other, ISSUER]))
    client = ClientIdentity(client_id="kept", issuer=ISSUER, auth_method="none", is_given=True)
    world = World(pages)
    assert signed_in(world, registered={ISSUER: client}).client.client_id == "kept"
    assert not any(url.startswith(other) for url in world.urls())


@pytest.mark.req("AUT-3")
@pytest.mark.parametrize("documents", [True, False])
def test_without_a_way_to_register_it_says_what_is_needed(documents: bool) -> None:
    world = World(honest(registration_endpoint=None, client_id_metadata_document_supported=documents))
    error = refused(world, "client")
    assert f"redirect address {REDIRECT}" in str(error)
    assert ("client_metadata_url" in str(error)) is documents


@pytest.mark.req("AUT-3")
def test_credentials_of_another_issuer_are_not_sent_anywhere() -> None:
    world = World(honest())
    error = refused(world, "client", client=msgspec.structs.replace(GIVEN, issuer="https://old.example"))
    assert "belong to https://old.example" in str(error)
    assert world.urls() == [RESOURCE_METADATA]
    liar = {**honest(), RESOURCE_METADATA: answer(resource(authorization_servers=["\x1b[2Jhttps://a.example"]))}
    assert str(refused(World(liar), "client", client=GIVEN)).isprintable()


def test_credentials_without_an_issuer_belong_to_the_first() -> None:
    granted = signed_in(World(honest()), client=msgspec.structs.replace(GIVEN, issuer=None))
    assert granted.client.issuer == ISSUER


def test_several_authorization_servers() -> None:
    other = "https://other.example"
    pages = honest()
    pages[RESOURCE_METADATA] = answer(resource(authorization_servers=[other, ISSUER]))
    world = World(pages)
    assert world.drive(find_authority(ENDPOINT, None)).metadata.issuer == ISSUER
    assert len([url for url in world.urls() if url.startswith(other)]) == 2
    world = World(pages)
    assert world.drive(find_authority(ENDPOINT, None, issuer=ISSUER)).metadata.issuer == ISSUER
    assert not any(url.startswith(other) for url in world.urls())


def test_no_authorization_server_answers() -> None:
    pages = honest()
    del pages[SERVER_METADATA]
    assert "publishes no metadata" in str(refused(World(pages), "discovery"))


OLD = "https://mcp.example"


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize("name", [OLD, OLD + "/"])
def test_the_older_discovery(name: str) -> None:
    pages: dict[str, Answer | Handler] = {
        f"{OLD}/.well-known/oauth-authorization-server": answer({**issuer(OLD), "issuer": name}),
        f"{OLD}/register": answer({"client_id": "registered"}),
        f"{OLD}/token": answer(TOKEN),
    }
    world = World(pages)
    granted = signed_in(world)
    assert (granted.issuer, granted.resource) == (name, ENDPOINT)
    assert world.urls()[:2] == [RESOURCE_METADATA, f"{OLD}/.well-known/oauth-protected-resource"]


def test_the_older_discovery_without_any_metadata() -> None:
    pages: dict[str, Answer | Handler] = {
        f"{OLD}/register": answer({"client_id": "registered"}),
        f"{OLD}/token": answer(TOKEN),
    }
    world = World(pages)
    granted = signed_in(world)
    assert granted.issuer == OLD
    assert world.visited[0].url.startswith(f"{OLD}/authorize?")
    assert world.form(f"{OLD}/token")["code_verifier"]


def test_a_server_with_tokens_of_its_own_is_no_authorization_server() -> None:
    """All that it says is 401, and 404 for everything else."""
    error = refused(World({}), "discovery")
    assert str(error).startswith(f"{ENDPOINT} asks for a token, but names no authorization server")
    refused(World(honest() | {f"{ISSUER}/register": answer(b"", 404)}), "registration")


def test_the_older_discovery_does_not_get_other_credentials() -> None:
    world = World({})
    refused(world, "client", client=GIVEN)
    assert not any("/token" in url for url in world.urls())


@pytest.mark.req("AUT-5")
@pytest.mark.parametrize("supported", [True, False])
@pytest.mark.parametrize(
    ("named", "is_right"),
    [
        (None, None),
        (ISSUER, True),
        ("https://evil.example", False),
        (ISSUER + "/", False),
        (ISSUER.upper(), False),
        ("", False),
    ],
)
@pytest.mark.parametrize("is_error", [False, True])
def test_the_issuer_of_a_redirect(supported: bool, named: str | None, is_right: bool | None, is_error: bool) -> None:
    extra: dict[str, str | None] = {"error": "temporarily_unavailable", "error_description": "shown", "code": None}
    world = World(
        honest(authorization_response_iss_parameter_supported=supported),
        redirect={"iss": named, **(extra if is_error else {})},
    )
    rule = ISSUER_RULES[supported, named is not None]
    if rule == "refuse" or (rule == "compare" and not is_right):
        error = refused(world, "redirect")
        assert "shown" not in str(error)
        assert TOKEN_URL not in world.urls()
    elif is_error:
        assert "temporarily_unavailable (shown)" in str(refused(world, "refused"))
    else:
        assert signed_in(world).access_token == "the-token"


@pytest.mark.req("AUT-4")
@pytest.mark.parametrize("state", [None, "", "another"])
def test_a_redirect_with_another_state(state: str | None) -> None:
    world = World(honest(), redirect={"state": state, "error": "shown"})
    assert "shown" not in str(refused(world, "state"))
    assert TOKEN_URL not in world.urls()


def test_a_denied_sign_in() -> None:
    refused(World(honest(), redirect={"error": "access_denied", "code": None}), "denied")
    assert "gave no reason" in str(refused(World(honest(), redirect={"error": "", "code": None}), "refused"))


@pytest.mark.parametrize("code", [None, ""])
def test_a_redirect_without_a_code(code: str | None) -> None:
    refused(World(honest(), redirect={"code": code}), "redirect")


METADATA = msgspec.convert(issuer(), ServerMetadata)


@pytest.mark.parametrize("query", ["code=a&code=b&state=s", "state=s&state=s&code=a", "&".join(["x=1"] * 100)])
def test_a_redirect_that_is_ambiguous(query: str) -> None:
    with pytest.raises(AuthorizationError) as caught:
        read_redirect(f"{REDIRECT}?{query}", state="s", metadata=METADATA)
    assert caught.value.reason == "redirect"


@pytest.mark.parametrize("query", ["state=\udc80&code=a", "state=s&code=\udc80", "state=s&error=\udc80"])
def test_a_pasted_redirect_that_is_no_text(query: str) -> None:
    with pytest.raises(AuthorizationError, match=r"The redirect cannot be read\."):
        read_redirect(f"{REDIRECT}?{query}", state="s", metadata=METADATA)


AUTHORITY = Authority(resource=ENDPOINT, metadata=METADATA, scopes_supported=("r1", "r2"))


def before(*scopes: str, resource: str = ENDPOINT) -> Grant:
    return Grant(
        issuer=ISSUER, resource=resource, client=GIVEN, access_token="old", token_endpoint=TOKEN_URL, scopes=scopes
    )


@pytest.mark.req("AUT-6")
@pytest.mark.parametrize(
    ("challenge", "wanted", "earlier", "offered", "expected"),
    [
        (None, None, None, None, "r1 r2"),
        ("c1", None, None, None, "c1"),
        ("c1", ("w",), None, None, "w c1"),
        (None, (), None, None, ""),
        ("c1", None, ("b1", "c1"), None, "b1 c1"),
        ("c1", None, None, ["offline_access"], "c1 offline_access"),
        (None, (), None, ["offline_access"], ""),
        ("c1 offline_access", None, None, None, "c1"),
    ],
)
def test_scopes(
    challenge: str | None,
    wanted: tuple[str, ...] | None,
    earlier: tuple[str, ...] | None,
    offered: list[str] | None,
    expected: str,
) -> None:
    authority = msgspec.structs.replace(AUTHORITY, metadata=msgspec.structs.replace(METADATA, scopes_supported=offered))
    scopes = choose_scopes(
        None if challenge is None else Challenge("bearer", {"scope": challenge}),
        authority,
        wanted=wanted,
        before=None if earlier is None else before(*earlier),
    )
    assert " ".join(scopes) == expected


@pytest.mark.req("AUT-6")
def test_more_scopes_are_added_to_those_before() -> None:
    world = World(honest(scopes_supported=["offline_access"]))
    granted = signed_in(world, Challenge("bearer", {"scope": "write"}), before("read"))
    query = query_of(world.visited[0].url)
    assert query["scope"] == "read write offline_access"
    assert query["prompt"] == "consent"
    assert granted.scopes == ("read", "write", "offline_access")


def test_more_scopes_than_an_address_can_carry() -> None:
    many = [f"scope-{number}" for number in range(MAX_SCOPES)]
    pages = {**honest(), RESOURCE_METADATA: answer(resource(scopes_supported=many))}
    world = World(pages)
    with pytest.raises(AuthorizationError, match="Name those that you need") as caught:
        signed_in(world)
    assert (caught.value.reason, world.visited) == ("document", [])
    assert signed_in(World(pages), scopes=("scope-1",)).scopes == ("scope-1",)


@pytest.mark.req("AUT-1")
@pytest.mark.parametrize("challenge", [None, Challenge("bearer", {"scope": "write"})])
def test_the_metadata_is_where_an_earlier_challenge_said(challenge: Challenge | None) -> None:
    place = "https://mcp.example/unusual"
    pages = {place if url == RESOURCE_METADATA else url: page for url, page in honest().items()}
    client = ClientIdentity(client_id="me", client_secret="mine")
    first = Challenge("bearer", {"resource_metadata": place})
    granted = World(pages).drive(client_credentials(ENDPOINT, first, client, now=NOW, random=random))
    assert granted.resource_metadata == place
    world = World(pages)
    again = world.drive(client_credentials(ENDPOINT, challenge, client, now=NOW, random=random, before=granted))
    assert (world.fetched[0].url, again.resource_metadata) == (place, place)


def test_scopes_of_another_resource_are_not_asked_for() -> None:
    world = World(honest())
    signed_in(world, before=before("secret", resource="https://other.example"))
    assert "scope" not in query_of(world.visited[0].url)


@pytest.mark.req("AUT-7")
@pytest.mark.parametrize("rotated", [True, False])
def test_a_refresh(rotated: bool) -> None:
    token = {"access_token": "new", "token_type": "bearer"}
    world = World({TOKEN_URL: answer({**token, "refresh_token": "r2"} if rotated else token)})
    old = msgspec.structs.replace(before("a"), refresh_token="r1")
    fresh = world.drive(refresh(old, now=NOW, random=random))
    assert (fresh.access_token, fresh.refresh_token, fresh.scopes) == ("new", "r2" if rotated else "r1", ("a",))
    assert world.form(TOKEN_URL) == {"grant_type": "refresh_token", "refresh_token": "r1", "resource": ENDPOINT}


@pytest.mark.req("AUT-6")
@pytest.mark.parametrize(("scope", "granted"), [(None, ("a",)), ("b", ("b",))])
def test_a_refresh_keeps_the_granted_scopes_unless_it_names_others(scope: str | None, granted: tuple[str, ...]) -> None:
    token = {"access_token": "new", "token_type": "bearer", "scope": scope}
    old = msgspec.structs.replace(before("a", "b"), refresh_token="r1", granted_scopes=("a",))
    fresh = World({TOKEN_URL: answer(token)}).drive(refresh(old, now=NOW, random=random))
    assert (fresh.scopes, fresh.allows) == (("a", "b"), granted)


@pytest.mark.req("AUT-7")
def test_a_dead_refresh_token() -> None:
    old = msgspec.structs.replace(before(), refresh_token="r1")
    with pytest.raises(GrantRefused) as caught:
        World({TOKEN_URL: answer({"error": "invalid_grant"}, 400)}).drive(refresh(old, now=NOW, random=random))
    assert caught.value.error == "invalid_grant"
    with pytest.raises(AuthorizationError, match="sign in again"):
        World({}).drive(refresh(before(), now=NOW, random=random))


@pytest.mark.req("AUT-9")
def test_client_credentials() -> None:
    world = World(honest())
    challenge = Challenge("bearer", {"scope": "a b"})
    granted = world.drive(client_credentials(ENDPOINT, challenge, GIVEN, now=NOW, random=random))
    assert granted.scopes == ("a", "b")
    assert world.form(TOKEN_URL) == {"grant_type": "client_credentials", "scope": "a b", "resource": ENDPOINT}


@pytest.mark.req("AUT-9")
def test_a_jwt_of_another_issuer() -> None:
    world = World(honest())
    client = ClientIdentity(client_id="workload")
    world.drive(jwt_bearer(ENDPOINT, None, client, "the-jwt", now=NOW, random=random))
    assert world.form(TOKEN_URL) == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": "the-jwt",
        "resource": ENDPOINT,
        "client_id": "workload",
    }


@pytest.mark.req("AUT-9")
@pytest.mark.parametrize("needs", [True, False])
@pytest.mark.parametrize("algorithms", [None, ["RS256"], ["RS256", "ES256"]])
@pytest.mark.parametrize("is_given", [True, False])
def test_a_resource_that_takes_only_tokens_bound_to_a_key(
    needs: bool, algorithms: list[str] | None, is_given: bool
) -> None:
    """Where the authorization server can bind them, the client need not be told."""
    is_bound = is_given or (needs and algorithms == ["RS256", "ES256"])
    pages = honest(dpop_signing_alg_values_supported=algorithms)
    pages[RESOURCE_METADATA] = answer(resource(dpop_bound_access_tokens_required=needs))
    pages[TOKEN_URL] = answer({**TOKEN, "token_type": "DPoP" if is_bound else "Bearer"})
    keys: list[Prover] = []

    def make() -> Prover:
        keys.append(Prover())
        return keys[-1]

    world = World(pages)
    granted = signed_in(world, prover=Prover() if is_given else None, make_prover=make)
    assert granted.token_type == ("DPoP" if is_bound else "Bearer")
    assert ("dpop" in world.fetched[-1].headers, len(keys)) == (is_bound, int(is_bound and not is_given))


@pytest.mark.req("AUT-9")
@pytest.mark.parametrize("scope", ["", "a"])
def test_an_enterprise_grant(scope: str) -> None:
    kind = "urn:ietf:params:oauth:token-type:id-jag"
    idp = ServerMetadata(issuer="https://idp.example", token_endpoint="https://idp.example/token")
    pages = honest()
    pages[idp.token_endpoint] = answer({"access_token": "jag", "token_type": "N_A", "issued_token_type": kind})
    world = World(pages)
    flow = enterprise_grant(
        ENDPOINT,
        Challenge("bearer", {"scope": scope}),
        GIVEN,
        identity_provider=idp,
        identity_client=ClientIdentity(client_id="at-idp", issuer=idp.issuer),
        id_token="identity",
        now=NOW,
        random=random,
    )
    assert world.drive(flow).access_token == "the-token"
    exchange = world.form(idp.token_endpoint)
    assert exchange.pop("scope", "") == scope
    assert exchange == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": kind,
        "audience": ISSUER,
        "resource": ENDPOINT,
        "subject_token": "identity",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "client_id": "at-idp",
    }
    assert world.form(TOKEN_URL)["assertion"] == "jag"


# A lying world: each document may name any of these hosts, and each server answers what it likes. Every secret has the
# name of the party that it belongs to in it, so that a look at what was sent shows whether it went astray.

HOSTS = [
    "https://mcp.example",
    "https://auth.example",
    "https://evil.example",
    "http://auth.example",
    "http://127.0.0.1:1",
]
PATHS = ["", "/", "/mcp", "/token", "/register", "/authorize", "/tenant"]
addresses = st.builds(lambda host, path: host + path, st.sampled_from(HOSTS), st.sampled_from(PATHS))
texts = st.one_of(addresses, st.sampled_from(["", "x", "S256", "none"]), st.none())


class LyingWorld(World):
    """Answers every request with what Hypothesis draws; registrations and tokens name who gave them."""

    def __init__(self, data: st.DataObject) -> None:
        super().__init__({})
        self.data = data
        #: The token endpoints that an issuer's own metadata names, by the addresses where that metadata belongs.
        self.endpoints: dict[str, set[str]] = {}

    def _fetch(self, fetch: Fetch) -> Answer:
        self.fetched.append(fetch)
        host = "https://" + (urlsplit(fetch.url).hostname or "")
        draw = self.data.draw
        if fetch.method == "POST":
            if fetch.url.endswith("/register"):
                return answer(
                    {"client_id": f"id of {host}", "client_secret": f"secret of {host}"},
                    draw(st.sampled_from([201, 400])),
                )
            token = {"access_token": f"token-of-{host}", "token_type": draw(st.sampled_from(["Bearer", "DPoP", "x"]))}
            return answer(
                draw(st.sampled_from([token, {}, {"error": "invalid_grant"}])), draw(st.sampled_from([200, 400, 302]))
            )
        document = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "resource": st.one_of(st.just(ENDPOINT), texts),
                    "authorization_servers": st.lists(st.one_of(st.just(ISSUER), texts), max_size=3),
                    "issuer": st.one_of(st.just(host), texts),
                    "authorization_endpoint": texts,
                    "token_endpoint": texts,
                    "registration_endpoint": texts,
                    "code_challenge_methods_supported": st.just(["S256"]),
                    "dpop_bound_access_tokens_required": st.booleans(),
                    "dpop_signing_alg_values_supported": st.lists(st.sampled_from(["ES256", "none"])),
                    "client_id_metadata_document_supported": st.booleans(),
                    "authorization_response_iss_parameter_supported": st.booleans(),
                    "token_endpoint_auth_methods_supported": st.lists(st.sampled_from(["none", "client_secret_post"])),
                },
            )
        )
        named, endpoint = document.get("issuer"), document.get("token_endpoint")
        if named and endpoint and fetch.url in server_metadata_addresses(named):
            self.endpoints.setdefault(endpoint, set()).add(named)
        return answer(document, draw(st.sampled_from([200, 200, 200, 404])))


def _sent_secrets(world: World) -> Iterator[tuple[str, str]]:
    for fetch in world.fetched:
        yield fetch.url, fetch.body.decode() + str(fetch.headers)


@pytest.mark.req("AUT-3")
@given(data=st.data())
def test_in_a_world_of_liars_no_secret_goes_astray(data: st.DataObject) -> None:
    world = LyingWorld(data)
    given_client = data.draw(st.sampled_from([None, GIVEN]))
    world.redirect = {"iss": data.draw(st.sampled_from([None, ISSUER, "https://evil.example"]))}
    granted, error = None, None
    try:
        granted = signed_in(world, client=given_client, make_prover=Prover)
    except AuthorizationError as refusal:
        error = refusal
    assert granted is not None or (error is not None and error.reason in REFUSALS and str(error).endswith("."))
    # Who was told that it is the authorization server: the issuer whose metadata was accepted.
    chosen = urlsplit(world.visited[0].url) if world.visited else None
    for url, text in _sent_secrets(world):
        assert url.startswith(("https://", "http://127.0.0.1")), "A secret travels only where nobody can read it."
        assert not url.startswith("http://"), "A server on the network cannot name this machine."
        if "the-code" in text or "code_verifier" in text:
            assert chosen is not None
            assert url == "https://mcp.example/token" or url in world.endpoints
        if "Basic" in text or "given-secret" in text:
            assert given_client is not None
            assert ISSUER in world.endpoints[url]
        for host in ("mcp.example", "auth.example", "evil.example"):
            if f"secret+of+https%3A%2F%2F{host}" in text:
                assert url in world.endpoints or host in url
    if given_client is not None and granted is not None:
        assert granted.issuer == ISSUER
    if granted is not None:
        assert granted.client.issuer == granted.issuer
        assert urlsplit(granted.resource).hostname == "mcp.example"
        assert (granted.token_type == "DPoP") == ("dpop" in world.fetched[-1].headers)
        iss = world.redirect["iss"]
        assert iss is None or iss == granted.issuer


@pytest.mark.req("AUT-5")
@given(redirect_issuer=st.sampled_from([None, ISSUER, "https://evil.example"]), advertised=st.booleans())
def test_a_mixed_up_redirect_never_gets_the_code_to_a_token_endpoint(
    redirect_issuer: str | None, advertised: bool
) -> None:
    world = World(honest(authorization_response_iss_parameter_supported=advertised), redirect={"iss": redirect_issuer})
    try:
        signed_in(world)
    except AuthorizationError:
        assert TOKEN_URL not in world.urls()
    else:
        assert redirect_issuer == ISSUER or (redirect_issuer is None and not advertised)


@pytest.mark.parametrize("refresh_token", [None, "r1"])
def test_the_end_of_a_grant_is_told(refresh_token: str | None) -> None:
    url = f"{ISSUER}/revoke"
    old = msgspec.structs.replace(before(), refresh_token=refresh_token, revocation_endpoint=url)
    world = World({url: answer(b"")})
    assert world.drive(revoke(old, now=NOW, random=random))
    token = ("r1", "refresh_token") if refresh_token else ("old", "access_token")
    assert (world.form(url)["token"], world.form(url)["token_type_hint"]) == token


@pytest.mark.req("AUT-8")
def test_the_end_of_a_grant_that_is_refused() -> None:
    url = f"{ISSUER}/revoke"
    old = msgspec.structs.replace(before(), refresh_token="r1-secret", revocation_endpoint=url)
    refusal = answer({"error": "unsupported_token_type", "error_description": "Not r1-secret."}, 400)
    with pytest.raises(AuthorizationError, match=r"refused: unsupported_token_type \(Not …\)"):
        World({url: refusal}).drive(revoke(old, now=NOW, random=random))
    with pytest.raises(AuthorizationError, match="status 503"):
        World({url: answer(b"", 503)}).drive(revoke(old, now=NOW, random=random))


def test_the_end_of_a_grant_for_a_client_with_a_key() -> None:
    url = f"{ISSUER}/revoke"
    client = ClientIdentity(client_id="me", issuer=ISSUER, auth_method="private_key_jwt")
    old = msgspec.structs.replace(before(), client=client, revocation_endpoint=url)
    world = World({url: answer(b"")})
    with pytest.raises(AuthorizationError, match="private key"):
        world.drive(revoke(old, now=NOW, random=random))
    assert world.fetched == []
    assert world.drive(revoke(old, now=NOW, random=random, sign=lambda claims: "signed"))
    assert world.form(url)["client_assertion"] == "signed"


def test_without_a_place_to_tell_it_nothing_is_sent() -> None:
    world = World({})
    assert not world.drive(revoke(before(), now=NOW, random=random))
    assert world.fetched == []
