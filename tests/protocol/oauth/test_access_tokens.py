from __future__ import annotations

import base64
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.errors import AuthorizationError
from mcplumb.protocol.oauth.access_tokens import (
    ALGORITHMS,
    MAX_KEYS,
    TokenHeader,
    TokenRules,
    check_claims,
    choose_key,
    find_keys,
    read_claims,
    read_header,
    usable_keys,
)
from mcplumb.protocol.oauth.steps import Answer, Flow

ISSUER = "https://login.example"
RULES = TokenRules(issuer=ISSUER, audiences=frozenset(["notes", "other"]), leeway=10)
NOW = 1_000_000.0
CLAIMS: dict[str, Any] = {"iss": ISSUER, "aud": "notes", "sub": "ann", "exp": NOW + 60}


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def with_header(**header: Any) -> str:
    fields = {"alg": "ES256", "typ": "at+jwt", "kid": "one", **header}
    return f"{part({name: value for name, value in fields.items() if value is not ...})}.e30.AAAA"


def refusal(**header: Any) -> str:
    with pytest.raises(AuthorizationError) as caught:
        read_header(with_header(**header), RULES)
    assert caught.value.reason == "invalid_token"
    return str(caught.value)


# The header


@pytest.mark.parametrize("kind", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", ...])
def test_the_header_names_algorithm_and_key(kind: Any) -> None:
    assert read_header(with_header(typ=kind), RULES) == TokenHeader("ES256", "one")
    assert read_header(with_header(typ=kind, kid=...), RULES) == TokenHeader("ES256", None)


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize(
    "algorithm", ["none", "None", "HS256", "HS512", "ES256K", "es256", "", 7, None, ["ES256"], ...]
)
def test_no_other_algorithm_passes(algorithm: Any) -> None:
    assert "algorithm" in refusal(alg=algorithm)


@pytest.mark.req("AUT-12")
def test_only_the_chosen_algorithms_pass() -> None:
    rules = msgspec.structs.replace(RULES, algorithms=frozenset(["RS256"]))
    with pytest.raises(AuthorizationError, match="algorithm"):
        read_header(with_header(), rules)
    assert "none" not in ALGORITHMS
    assert not any(name.startswith("HS") for name in ALGORITHMS)


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize("kind", ["dpop+jwt", "logout+jwt", "secevent+jwt", "id+jwt", "application/jwk-set", 1, None])
def test_another_type_of_token_does_not_pass(kind: Any) -> None:
    assert "another type" in refusal(typ=kind)


@pytest.mark.req("AUT-12")
def test_tokens_without_a_type_can_be_refused() -> None:
    strict = msgspec.structs.replace(RULES, types=frozenset(["at+jwt"]))
    for kind in ("JWT", ...):
        with pytest.raises(AuthorizationError, match="another type"):
            read_header(with_header(typ=kind), strict)


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize("extension", [{"crit": ["exp"]}, {"crit": []}, {"b64": False}])
def test_extensions_that_must_be_understood_are_not(extension: dict[str, Any]) -> None:
    assert "extensions" in refusal(**extension)


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "x5c"])
@pytest.mark.parametrize("value", [None, "https://evil.example/keys", {}, []])
def test_a_token_does_not_bring_its_own_key(name: str, value: Any) -> None:
    assert "brings its own key" in refusal(**{name: value})


@pytest.mark.parametrize("key_id", [1, ["one"], {}, "x" * 257])
def test_a_key_id_is_a_short_text(key_id: Any) -> None:
    assert "key id" in refusal(kid=key_id)


@pytest.mark.parametrize(
    "token",
    [
        "", "a", "a.b", "a.b.c", "a.b.c.d", "..", "e30..AAAA", "e30.e30.", "e30.e30.AA=", "e30 .e30.AA", "é.e30.AA",
        "e.e30.AA",
        *(f"{part(header)}.e30.AA" for header in (b"[]", b"null", b"{", b"\xff", b"[" * 5000, b'{"a":' * 5000)),
    ],
)  # fmt: skip
def test_what_is_no_token(token: str) -> None:
    with pytest.raises(AuthorizationError) as caught:
        read_header(token, RULES)
    assert caught.value.reason == "invalid_token"


@given(
    st.text() | st.lists(st.binary(max_size=40), min_size=1, max_size=5).map(lambda parts: ".".join(map(part, parts)))
)
def test_anything_is_read_or_refused(token: str) -> None:
    with suppress(AuthorizationError):
        read_header(token, RULES)


# The claims


def refused_claims(rules: TokenRules = RULES, **claims: Any) -> str:
    given = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not ...}
    with pytest.raises(AuthorizationError) as caught:
        check_claims(given, rules, now=NOW)
    assert caught.value.reason == "invalid_token"
    return str(caught.value)


def test_claims_say_who_it_is() -> None:
    claims = {**CLAIMS, "scope": "a b  a", "scp": ["c", 1], "client_id": "app", "nbf": NOW + 9, "iat": NOW, "azp": "x"}
    principal = check_claims(claims, RULES, now=NOW)
    assert principal.subject == "ann"
    assert principal.scopes == {"a", "b", "c"}
    assert (principal.issuer, principal.client_id, principal.expires_at) == (ISSUER, "app", NOW + 70)
    assert principal.claims == claims


def test_claims_that_may_be_missing() -> None:
    principal = check_claims(CLAIMS, RULES, now=NOW)
    assert (principal.scopes, principal.client_id) == (frozenset(), None)
    assert check_claims({**CLAIMS, "azp": "app", "aud": ["x", "other"]}, RULES, now=NOW).client_id == "app"
    assert check_claims({**CLAIMS, "client_id": 1}, RULES, now=NOW).client_id is None
    endless = msgspec.structs.replace(RULES, must_end=False, audiences=None)
    assert check_claims({"iss": ISSUER, "sub": "ann"}, endless, now=NOW).expires_at is None


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize("issuer", [ISSUER + "/", ISSUER.upper(), "", None, [ISSUER], ...])
def test_another_issuer(issuer: Any) -> None:
    assert "another issuer" in refused_claims(iss=issuer)


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize(
    "audience", ["note", "notes ", "Notes", "", [], ["x"], [["notes"]], None, {"notes": 1}, 1, ...]
)
def test_another_audience(audience: Any) -> None:
    assert "another audience" in refused_claims(aud=audience)


@pytest.mark.req("AUT-12")
def test_times() -> None:
    assert "expired" in refused_claims(exp=NOW - 10)
    check_claims({**CLAIMS, "exp": NOW - 9}, RULES, now=NOW)
    assert "not valid yet" in refused_claims(nbf=NOW + 11)
    assert "not valid yet" in refused_claims(iat=NOW + 11)
    assert "no end" in refused_claims(exp=...)


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("value", ["1", True, [], {}, 1e300, -1e300, float("nan"), float("inf")])
def test_what_is_no_time(name: str, value: Any) -> None:
    assert f"claim {name}" in refused_claims(**{name: value})


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize(
    "mark",
    [
        {"typ": "ID"},
        {"typ": "Refresh"},
        {"token_use": "id"},
        {"token_use": "refresh_token"},
        {"token_type": "refresh_token"},
        {"token_type": "Refresh"},
        {"at_hash": "x"},
    ],
)
def test_an_id_token_for_the_same_audience_is_no_access_token(mark: dict[str, Any]) -> None:
    assert "such as an ID token" in refused_claims(**mark)
    usual = {"typ": "Bearer", "token_use": "access_token", "token_type": "Bearer", "nonce": "x"}
    check_claims({**CLAIMS, **usual}, RULES, now=NOW)
    check_claims({**CLAIMS, "typ": ["ID"], "token_use": 1, "token_type": "access_token"}, RULES, now=NOW)


@pytest.mark.req("AUT-12")
def test_a_bound_token_is_no_bearer_token() -> None:
    assert "bound to a key" in refused_claims(cnf={"jkt": "x"})
    assert "bound to a key" in refused_claims(cnf={})
    assert "bound to a key" in refused_claims(token_type="DPoP")


@pytest.mark.parametrize("subject", ["", None, 1, ["ann"], ...])
def test_somebody_must_be_named(subject: Any) -> None:
    assert "names no subject" in refused_claims(sub=subject)


def test_scopes_that_no_challenge_could_name_are_none() -> None:
    claims = {**CLAIMS, "scope": 'a "b" c\\d ä', "scp": ["x y", "z"]}
    assert check_claims(claims, RULES, now=NOW).scopes == {"a", "z"}
    assert "too many" in refused_claims(scope=" ".join(map(str, range(2000))))


@pytest.mark.parametrize("payload", [b"", b"[]", b"{", b"\xff", b'{"exp": NaN}'])
def test_a_payload_that_cannot_be_read(payload: bytes) -> None:
    with pytest.raises(AuthorizationError, match="payload"):
        read_claims(payload)
    assert read_claims(b'{"a": 1}') == {"a": 1}


# Keys

EC = {"kty": "EC", "crv": "P-256", "x": "x", "y": "y", "kid": "one"}
RSA = {"kty": "RSA", "n": "n", "e": "AQAB", "kid": "two"}


def test_only_public_keys_for_signatures_are_used() -> None:
    good = [EC, RSA, {**EC, "use": "sig"}, {**EC, "key_ops": ["verify"]}]
    bad: list[Any] = [
        {**EC, "use": "enc"}, {**EC, "key_ops": ["encrypt"]}, {**EC, "key_ops": "verify"}, {**EC, "d": "private"},
        {"kty": "oct", "k": "c2VjcmV0"}, {"kty": "new"}, {}, "text", None,
    ]  # fmt: skip
    assert usable_keys({"keys": [*bad, *good]}) == good
    assert len(usable_keys({"keys": [EC] * 1000})) == MAX_KEYS
    documents: list[dict[str, object]] = [{}, {"keys": {}}, {"keys": None}]
    for document in documents:
        with pytest.raises(AuthorizationError, match="no list of keys"):
            usable_keys(document)


def test_a_token_names_its_key() -> None:
    assert choose_key([RSA, EC], TokenHeader("ES256", "one")) is EC
    assert choose_key([RSA, EC], TokenHeader("PS256", "two")) is RSA
    assert choose_key([RSA, EC], TokenHeader("ES256", "three")) is None


def test_keys_of_different_kinds_may_share_an_id() -> None:
    ours = {**EC, "kid": RSA["kid"]}
    for keys in ([RSA, ours], [ours, RSA]):
        assert choose_key(keys, TokenHeader("ES256", RSA["kid"])) is ours
        assert choose_key(keys, TokenHeader("RS256", RSA["kid"])) is RSA


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize(
    ("key", "algorithm"),
    [(RSA, "ES256"), (EC, "RS256"), (EC, "ES384"), (EC, "Ed25519"), ({**RSA, "alg": "RS256"}, "PS256")],
)
def test_a_key_of_another_kind_never_passes(key: dict[str, Any], algorithm: str) -> None:
    with pytest.raises(AuthorizationError, match="not made for"):
        choose_key([key], TokenHeader(algorithm, key["kid"]))
    assert choose_key([key], TokenHeader(algorithm, None)) is None


def test_without_an_id_the_only_key_that_fits_is_taken() -> None:
    assert choose_key([RSA, EC], TokenHeader("ES256", None)) is EC
    with pytest.raises(AuthorizationError, match="has several"):
        choose_key([EC, {**EC, "kid": "other"}], TokenHeader("ES256", None))


# Where the keys are


def drive(flow: Flow[Any], pages: dict[str, Any]) -> tuple[Any, list[str]]:
    """Answer the requests of a flow with these pages, by their addresses, and return what it asked for."""
    asked: list[str] = []
    answer: Any = None
    while True:
        try:
            step: Any = flow.send(answer)
        except StopIteration as end:
            return end.value, asked
        asked.append(step.url)
        page = pages.get(step.url, 404)
        status, body = (page, b"") if isinstance(page, int) else (200, page)
        answer = Answer(status, body if isinstance(body, bytes) else msgspec.json.encode(body), NOW)


def metadata(issuer: str = ISSUER, **members: Any) -> dict[str, Any]:
    return {"issuer": issuer, "jwks_uri": f"{issuer}/keys", **members}


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize(
    ("issuer", "address"),
    [
        (ISSUER, f"{ISSUER}/.well-known/oauth-authorization-server"),
        (ISSUER, f"{ISSUER}/.well-known/openid-configuration"),
        (f"{ISSUER}/realms/a", f"{ISSUER}/.well-known/oauth-authorization-server/realms/a"),
        (f"{ISSUER}/realms/a", f"{ISSUER}/realms/a/.well-known/openid-configuration"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/.well-known/openid-configuration"),
    ],
)
def test_the_metadata_of_the_issuer_says_where_its_keys_are(issuer: str, address: str) -> None:
    keys = f"{issuer}/keys"
    found, asked = drive(find_keys(issuer, None), {address: metadata(issuer), keys: {"keys": [EC]}})
    assert found == [EC]
    assert asked[-2:] == [address, keys]


def test_the_address_of_the_keys_can_be_given() -> None:
    keys = "https://elsewhere.example/keys"
    assert drive(find_keys(ISSUER, keys), {keys: {"keys": [EC]}}) == ([EC], [keys])


@pytest.mark.req("AUT-8")
def test_a_key_in_the_address_of_the_keys_is_in_no_error() -> None:
    with pytest.raises(AuthorizationError, match=r"elsewhere\.example/keys answered") as caught:
        drive(find_keys(ISSUER, "https://elsewhere.example/keys?key=hush"), {})
    assert "hush" not in str(caught.value)


def test_keys_at_an_address_on_this_machine_can_be_given() -> None:
    keys = "http://127.0.0.1:8080/keys"
    assert drive(find_keys(ISSUER, keys), {keys: {"keys": [EC]}}) == ([EC], [keys])


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ({}, "discovery"),
        ({"": b"<html>"}, "discovery"),
        ({"": metadata(f"{ISSUER}/")}, "issuer"),
        ({"": metadata("https://evil.example")}, "issuer"),
        ({"": {"issuer": ISSUER}}, "document"),
        ({"": metadata(jwks_uri="http://login.example/keys")}, "https"),
        ({"": metadata(jwks_uri="http://127.0.0.1:1/keys")}, "loopback"),
        ({"": metadata(jwks_uri="file:///etc/passwd")}, "address"),
        ({"": metadata(), "keys": 500}, "unreachable"),
        ({"": metadata(), "keys": b"[]"}, "document"),
        ({"": metadata(), "keys": {}}, "document"),
    ],
)
def test_an_issuer_without_usable_keys(pages: dict[str, Any], reason: str) -> None:
    addresses = {"": f"{ISSUER}/.well-known/oauth-authorization-server", "keys": f"{ISSUER}/keys"}
    with pytest.raises(AuthorizationError) as caught:
        drive(find_keys(ISSUER, None), {addresses[name]: page for name, page in pages.items()})
    assert caught.value.reason == reason
