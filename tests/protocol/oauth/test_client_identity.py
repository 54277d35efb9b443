from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from mcplumb.errors import AuthorizationError, UsageError
from mcplumb.protocol.oauth.client_identity import (
    AuthMethod,
    ClientIdentity,
    as_number,
    auth_method,
    authenticate,
    check_metadata_url,
    in_words,
    is_expired,
    named_scopes,
    register,
    told_by,
    without_secrets,
)
from mcplumb.protocol.oauth.discovery import ServerMetadata
from tests.protocol.oauth.world import ISSUER, NOW, REDIRECT, World, answer, issuer, random

SECRET = "c0ffee-secret"


def metadata(**fields: Any) -> ServerMetadata:
    return msgspec.convert(issuer(**fields), ServerMetadata)


def sign(claims: Mapping[str, object]) -> str:
    return msgspec.json.encode(claims).decode()


def registered(document: object, status: int = 201, **fields: object) -> tuple[ClientIdentity, dict[str, Any]]:
    world = World({f"{ISSUER}/register": answer(document, status)})
    client = world.drive(register(metadata(**fields), client_name="me", redirect_uri=REDIRECT, scopes=("a", "b")))
    return client, msgspec.json.decode(world.fetched[0].body)


@pytest.mark.req("AUT-3")
def test_a_registration() -> None:
    client, sent = registered({"client_id": "x", "unknown": [1], "scope": "c"})
    assert client == ClientIdentity(
        client_id="x", issuer=ISSUER, auth_method="none", redirect_uri=REDIRECT, scopes=("a", "b", "c")
    )
    assert sent == {
        "client_name": "me",
        "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
        "scope": "a b",
    }


@pytest.mark.parametrize(("status", "reason"), [(400, "registration"), (500, "registration"), (503, "unreachable")])
def test_a_registration_that_fails(status: int, reason: str) -> None:
    with pytest.raises(AuthorizationError, match=f"this client: it answered with status {status}") as caught:
        registered({}, status)
    assert caught.value.reason == reason


def test_a_registration_without_scopes() -> None:
    world = World({f"{ISSUER}/register": answer({"client_id": "x"})})
    world.drive(register(metadata(), client_name="me", redirect_uri=REDIRECT))
    assert "scope" not in msgspec.json.decode(world.fetched[0].body)


@pytest.mark.parametrize(
    ("supported", "asked"),
    [
        (["none"], "none"),
        (["client_secret_post"], "client_secret_post"),
        (None, "client_secret_basic"),
        (["tls"], "none"),
    ],
)
def test_how_a_registered_client_authenticates(supported: list[str] | None, asked: str) -> None:
    _, sent = registered({"client_id": "x"}, token_endpoint_auth_methods_supported=supported)
    assert sent["token_endpoint_auth_method"] == asked


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [("client_secret_basic", "client_secret_basic"), ("client_secret_post", "client_secret_post"), (None, "none")],
)
def test_the_server_may_choose_another_way(chosen: str | None, expected: str) -> None:
    document = {
        "client_id": "x",
        "client_secret": SECRET,
        "client_secret_expires_at": 0,
        "token_endpoint_auth_method": chosen,
    }
    client, _ = registered(document)
    assert client.auth_method == expected
    assert client.client_secret == SECRET


@pytest.mark.req("AUT-3")
def test_a_refused_registration_says_what_to_do() -> None:
    with pytest.raises(AuthorizationError) as caught:
        registered({"error": "invalid_redirect_uri", "error_description": "Only https.\x1b[31m"}, 400)
    assert str(caught.value) == (
        "The authorization server https://auth.example refused to register this client: invalid_redirect_uri "
        "(Only https. [31m). Register one there by hand, and give its client_id."
    )


@pytest.mark.parametrize(
    ("scope", "expires_at", "expected"),
    [(["c", 7], "1000", (("a", "b", "c"), 1000.0)), (7, "never", (("a", "b"), None)), ("", True, (("a", "b"), None))],
)
def test_a_registration_with_odd_members(
    scope: object, expires_at: object, expected: tuple[tuple[str, ...], float | None]
) -> None:
    client, _ = registered({"client_id": "x", "scope": scope, "client_secret_expires_at": expires_at})
    assert (client.scopes, client.secret_expires_at) == expected


@pytest.mark.parametrize(
    ("value", "number"), [(1, 1.0), ("1.5", 1.5), ("nan", None), ("1_0", None), (None, None), ([], None)]
)
def test_numbers_may_be_strings(value: object, number: float | None) -> None:
    assert as_number(value) == number


@pytest.mark.parametrize(("scope", "named"), [("a b a", ("a", "b")), (["a", "b c", 7], ("a",)), (None, ()), (7, ())])
def test_scopes_may_be_a_list(scope: object, named: tuple[str, ...]) -> None:
    assert named_scopes(scope) == named


@pytest.mark.parametrize("document", [{}, {"client_id": ""}, {"client_id": 1}, b"no"])
def test_a_registration_that_cannot_be_used(document: object) -> None:
    with pytest.raises(AuthorizationError) as caught:
        registered(document)
    assert caught.value.reason == "document"


@pytest.mark.parametrize(
    ("method", "fields", "headers"),
    [
        ("none", {"client_id": "i d"}, {}),
        ("client_secret_post", {"client_id": "i d", "client_secret": "s:%"}, {}),
        ("client_secret_basic", {}, {"authorization": "Basic " + base64.b64encode(b"i+d:s%3A%25").decode()}),
    ],
)
def test_authentication(method: AuthMethod, fields: dict[str, str], headers: dict[str, str]) -> None:
    client = ClientIdentity(client_id="i d", client_secret="s:%", issuer=ISSUER, auth_method=method)
    assert authenticate(client, metadata(), now=NOW, random=random) == (fields, headers)


def test_authentication_with_a_key() -> None:
    client = ClientIdentity(client_id="me")
    fields, headers = authenticate(client, metadata(), now=NOW, random=random, sign=sign)
    assert headers == {}
    assert fields["client_assertion_type"].endswith("jwt-bearer")
    claims = msgspec.json.decode(fields["client_assertion"])
    assert claims.pop("jti") == random(16).hex()
    assert claims == {"iss": "me", "sub": "me", "aud": ISSUER, "iat": NOW, "exp": NOW + 300}


@pytest.mark.req("AUT-3")
def test_credentials_are_not_shown_to_another_issuer() -> None:
    client = ClientIdentity(client_id="me", client_secret=SECRET, issuer="https://other.example")
    with pytest.raises(AuthorizationError, match=r"registered at https://other\.example") as caught:
        authenticate(client, metadata(), now=NOW, random=random)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "private_key_jwt"])
def test_authentication_without_what_it_needs(method: AuthMethod) -> None:
    with pytest.raises(UsageError, match="give its"):
        authenticate(ClientIdentity(client_id="me", auth_method=method), metadata(), now=NOW, random=random)


@pytest.mark.parametrize(
    ("secret", "supported", "expected"),
    [
        (None, None, "none"),
        (SECRET, None, "client_secret_basic"),
        (SECRET, ["client_secret_post"], "client_secret_post"),
        (SECRET, ["client_secret_post", "client_secret_basic"], "client_secret_basic"),
        (SECRET, ["none"], "client_secret_basic"),
    ],
)
def test_the_way_is_chosen(secret: str | None, supported: list[str] | None, expected: str) -> None:
    client = ClientIdentity(client_id="me", client_secret=secret)
    assert auth_method(client, metadata(token_endpoint_auth_methods_supported=supported), None) == expected


def test_expired_secrets() -> None:
    def client(expires: float | None, secret: str | None = SECRET) -> ClientIdentity:
        return ClientIdentity(client_id="me", client_secret=secret, secret_expires_at=expires)

    assert is_expired(client(10.0), 10.0)
    assert not any(is_expired(one, 10.0) for one in (client(None), client(0), client(11.0), client(1.0, None)))


@pytest.mark.req("AUT-8")
def test_a_secret_is_not_shown() -> None:
    assert SECRET not in repr(ClientIdentity(client_id="me", client_secret=SECRET))


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example/x",
        "https://a.example",
        "https://a.example/",
        "https:///x",
        "https://a.example/x#y",
        "https://u@a.example/x",
    ],
)
def test_an_address_that_no_client_document_has(url: str) -> None:
    with pytest.raises(UsageError, match="client_metadata_url"):
        check_metadata_url(url)


def test_the_address_of_a_client_document() -> None:
    assert check_metadata_url("https://a.example/client.json") == "https://a.example/client.json"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": "x", "error_description": "y."}', "x (y)"),
        (b'{"error": "x"}', "x"),
        (b'{"error_description": "y"}', "it answered with status 500"),
        (b"<html>", "it answered with status 500"),
    ],
)
def test_the_words_of_a_refusal(body: bytes, words: str) -> None:
    assert told_by(answer(body, 500)) == words


@pytest.mark.req("AUT-8")
def test_words_do_not_quote_a_secret() -> None:
    refusal = answer({"error": "no-mine", "error_description": "The secret mine is wrong."}, 400)
    assert told_by(refusal, ["", "mine"]) == "no-… (The secret … is wrong)"


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("spelling", ["a b+c/ä", "a+b%2Bc%2F%C3%A4", "a%20b%2Bc%2F%C3%A4"])
def test_a_secret_is_hidden_as_forms_and_addresses_write_it(spelling: str) -> None:
    assert without_secrets(f"Not {spelling}.", ["", "a b+c/ä"]) == "Not …."


def test_words_are_bounded_and_printable() -> None:
    words = in_words("x" * 1000, "y\n\x00" * 1000)
    assert len(words) < 700
    assert words.isprintable()
