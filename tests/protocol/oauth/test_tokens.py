from __future__ import annotations

import msgspec
import pytest

from mcplumb.errors import AuthorizationError
from mcplumb.protocol.oauth.client_identity import ClientIdentity
from mcplumb.protocol.oauth.discovery import ServerMetadata
from mcplumb.protocol.oauth.steps import Answer, Fetch
from mcplumb.protocol.oauth.tokens import Grant, GrantRefused, exchange_token, request_token
from tests.protocol.oauth.world import ENDPOINT, ISSUER, NOW, TOKEN, Handler, Prover, World, answer, issuer, random

METADATA = msgspec.convert(issuer(), ServerMetadata)
CLIENT = ClientIdentity(client_id="me", issuer=ISSUER, auth_method="none")
URL = f"{ISSUER}/token"


def grant(page: Answer | Handler, prover: Prover | None = None, client: ClientIdentity = CLIENT) -> tuple[Grant, World]:
    world = World({URL: page})
    flow = request_token(
        METADATA,
        client,
        {"grant_type": "x"},
        resource=ENDPOINT,
        scopes=("a",),
        now=NOW - 5,
        random=random,
        prover=prover,
    )
    return world.drive(flow), world


def test_a_token() -> None:
    granted, world = grant(answer(TOKEN))
    assert granted == Grant(
        issuer=ISSUER,
        resource=ENDPOINT,
        client=CLIENT,
        access_token="the-token",
        token_endpoint=URL,
        refresh_token="the-refresh",
        scopes=("a",),
        granted_at=NOW,
        expires_at=NOW + 3600,
    )
    assert world.form(URL) == {"grant_type": "x", "resource": ENDPOINT, "client_id": "me"}


@pytest.mark.req("AUT-8")
def test_a_grant_shows_no_token() -> None:
    granted, _ = grant(answer(TOKEN))
    assert "the-token" not in repr(granted)
    assert "the-refresh" not in repr(granted)


@pytest.mark.req("AUT-7")
@pytest.mark.parametrize(
    ("lifetime", "still", "no_more"),
    [(3600, 3539, 3541), (40, 29, 31), (0, None, 0), (-5, None, 0)],
)
def test_a_token_is_fresh_until_shortly_before_its_end(lifetime: float, still: float | None, no_more: float) -> None:
    granted, _ = grant(answer({**TOKEN, "expires_in": lifetime}))
    assert still is None or granted.is_fresh(NOW + still)
    assert not granted.is_fresh(NOW + no_more)


@pytest.mark.req("AUT-7")
@pytest.mark.parametrize(
    ("fields", "is_over"),
    [
        ({"expires_in": 60}, False),
        ({"expires_in": 60, "refresh_token": None}, True),
        ({"expires_in": None, "refresh_token": None}, False),
    ],
)
def test_a_grant_is_over_if_nothing_can_renew_it(fields: dict[str, object], is_over: bool) -> None:
    granted, _ = grant(answer({**TOKEN, **fields}))
    assert not granted.is_over(NOW + 59)
    assert granted.is_over(NOW + 60) == is_over
    assert granted.ends_at == (NOW + 60 if is_over else None)


@pytest.mark.parametrize("lifetime", [None, "nan", "", "60s", "1_000", True, [3600], {"seconds": 60}])
def test_a_token_without_a_usable_end(lifetime: object) -> None:
    granted, _ = grant(answer({**TOKEN, "expires_in": lifetime}))
    assert granted.expires_at is None
    assert granted.is_fresh(NOW + 1e9)


@pytest.mark.parametrize("lifetime", [1e300, "3600", "inf", 10**400])
def test_a_lifetime_may_be_anything(lifetime: object) -> None:
    try:
        granted, _ = grant(answer({**TOKEN, "expires_in": lifetime}))
    except AuthorizationError as error:
        assert error.reason == "document"  # noqa: PT017
    else:
        assert granted.is_fresh(NOW + 60)


@pytest.mark.req("AUT-6")
@pytest.mark.parametrize(
    ("scope", "granted"),
    [("b c b", ("b", "c")), (["b"], ("b",)), (None, ("a",)), ("", ("a",)), (7, ("a",)), ([7, "b", 'c"'], ("b",))],
)
def test_the_scopes_that_were_granted(scope: object, granted: tuple[str, ...]) -> None:
    found, _ = grant(answer({**TOKEN, "scope": scope}))
    assert (found.scopes, found.allows) == (("a",), granted)


@pytest.mark.parametrize(
    "token",
    [
        {},
        {"access_token": 1},
        {**TOKEN, "token_type": "mac"},
        {**TOKEN, "token_type": "DPoP"},
        {**TOKEN, "access_token": ""},
        {**TOKEN, "access_token": "a\r\nX-Evil: 1"},
        {**TOKEN, "access_token": "a b"},
        {**TOKEN, "access_token": "ä"},
        b"no",
    ],
)
def test_a_token_that_cannot_be_used(token: object) -> None:
    with pytest.raises(AuthorizationError) as caught:
        grant(answer(token))
    assert caught.value.reason == "document"


@pytest.mark.req("AUT-8")
def test_a_type_that_cannot_be_used_is_not_quoted() -> None:
    """A broken server may put a token, or what was sent to it, in the place of the type."""
    with pytest.raises(AuthorizationError, match=f"{ISSUER} granted a token of an unknown type, which") as caught:
        grant(answer({"access_token": "s3cret", "token_type": "s3cret"}))
    assert "s3cret" not in str(caught.value)
    world = World({URL: answer({"access_token": "s3cret", "token_type": "N_A", "issued_token_type": "s3cret"})})
    flow = exchange_token(METADATA, CLIENT, {}, issued_token_type="wanted", now=NOW, random=random)
    with pytest.raises(AuthorizationError, match=f"{ISSUER} issued a token of another type than 'wanted'") as caught:
        world.drive(flow)
    assert "s3cret" not in str(caught.value)


def test_an_answer_that_is_no_document_is_its_issuers() -> None:
    with pytest.raises(AuthorizationError, match=f"The document with the token of {ISSUER} is not a JSON object"):
        grant(answer(b"<html>"))


@pytest.mark.parametrize(("body", "error"), [({"error": "invalid_grant"}, "invalid_grant"), (b"<html>", ""), ([], "")])
def test_a_refusal(body: object, error: str) -> None:
    with pytest.raises(GrantRefused, match="refused to grant a token") as caught:
        grant(answer(body, 400))
    assert caught.value.error == error
    assert caught.value.issuer == ISSUER


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b""),
        (503, b"<html>"),
        (429, {}),
        (503, {"error": "temporarily_unavailable"}),
        (400, {"error": "server_error", "error_description": "Our database is away."}),
    ],
)
def test_a_failure_is_no_refusal(status: int, body: object) -> None:
    with pytest.raises(AuthorizationError, match="failed to grant a token") as caught:
        grant(answer(body, status))
    assert not isinstance(caught.value, GrantRefused)
    assert (caught.value.reason, caught.value.issuer) == ("unreachable", ISSUER)


def test_a_refusal_with_the_status_of_a_failure() -> None:
    with pytest.raises(GrantRefused, match="refused to grant a token: invalid_grant"):
        grant(answer({"error": "invalid_grant"}, 500))


def test_a_refusal_with_the_status_of_a_success() -> None:
    """Some servers, GitHub's for one, answer every token request with 200."""
    with pytest.raises(GrantRefused, match=r"refused to grant a token: bad_code \(It has expired\)") as caught:
        grant(answer({"error": "bad_code", "error_description": "It has expired."}))
    assert caught.value.error == "bad_code"
    assert grant(answer({**TOKEN, "error": ""}))[0].access_token == TOKEN["access_token"]


@pytest.mark.req("AUT-7")
@pytest.mark.parametrize(
    ("error", "is_of_grant"),
    [
        ("invalid_grant", True),
        ("bad_refresh_token", True),
        ("invalid_client", False),
        ("server_error", False),
        ("", False),
    ],
)
def test_what_only_another_sign_in_changes(error: str, is_of_grant: bool) -> None:
    assert GrantRefused(error, "It refused.", issuer=ISSUER).is_of_grant == is_of_grant


@pytest.mark.req("AUT-8")
def test_a_refusal_that_quotes_the_request() -> None:
    secret = msgspec.structs.replace(CLIENT, client_secret="the-secret", auth_method="client_secret_post")

    def quote(fetch: Fetch) -> Answer:
        return answer({"error": "invalid_client", "error_description": f"Not {fetch.body.decode()}, sorry."}, 400)

    with pytest.raises(GrantRefused, match=r"\(Not .*client_secret=….*, sorry\)") as caught:
        grant(quote, client=secret)
    assert "the-secret" not in str(caught.value)


def test_an_expired_secret_is_not_sent() -> None:
    expired = msgspec.structs.replace(
        CLIENT, client_secret="x", secret_expires_at=1.0, auth_method="client_secret_post"
    )
    with pytest.raises(AuthorizationError, match="has expired"):
        grant(answer(TOKEN), client=expired)


@pytest.mark.req("AUT-9")
def test_dpop() -> None:
    granted, world = grant(answer({**TOKEN, "token_type": "DPoP"}), Prover())
    assert granted.token_type == "DPoP"
    assert world.fetched[0].headers["dpop"] == f"POST {URL} {NOW - 5} None None"


@pytest.mark.req("AUT-9")
def test_dpop_with_a_nonce() -> None:
    def page(fetch: Fetch) -> Answer:
        if " n1 " in fetch.headers["dpop"]:
            return answer({**TOKEN, "token_type": "DPoP"})
        return answer({"error": "use_dpop_nonce"}, 400, dpop_nonce="n1")

    world = World({URL: page})
    flow = request_token(METADATA, CLIENT, {}, resource=ENDPOINT, scopes=(), now=NOW, random=random, prover=Prover())
    assert world.drive(flow).access_token == "the-token"
    assert len(world.fetched) == 2


@pytest.mark.parametrize("headers", [{}, {"dpop_nonce": "n"}])
def test_a_nonce_is_tried_once(headers: dict[str, str]) -> None:
    with pytest.raises(GrantRefused):
        grant(answer({"error": "use_dpop_nonce"}, 400, **headers), Prover())
    with pytest.raises(GrantRefused):
        grant(answer({"error": "use_dpop_nonce"}, 400, **headers))


@pytest.mark.req("AUT-9")
@pytest.mark.parametrize("kind", ["wanted", "another", None])
def test_an_exchange(kind: str | None) -> None:
    world = World({URL: answer({"access_token": "assertion", "token_type": "N_A", "issued_token_type": kind})})
    flow = exchange_token(METADATA, CLIENT, {"a": "b"}, issued_token_type="wanted", now=NOW, random=random)
    if kind == "wanted":
        assert world.drive(flow) == "assertion"
    else:
        with pytest.raises(AuthorizationError, match="another type than 'wanted'"):
            world.drive(flow)


@pytest.mark.req("AUT-9")
def test_who_asks_for_a_bound_token_takes_no_other() -> None:
    with pytest.raises(AuthorizationError, match="'bearer', which cannot be used here"):
        grant(answer(TOKEN), Prover())
