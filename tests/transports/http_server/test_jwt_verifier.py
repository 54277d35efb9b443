"""A JwtVerifier and an issuer that publishes its keys over real HTTP."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from joserfc.errors import SecurityWarning

from mcplumb import AuthorizationError, JwtVerifier, UsageError
from mcplumb.transports.http_server import jwt_verifier
from tests.kit.loop import turns, until
from tests.kit.token_issuer import AUDIENCE, Key, TokenIssuer


def verifier_of(issuer: TokenIssuer, **options: Any) -> JwtVerifier:
    return JwtVerifier(**{"issuer": issuer.issuer, "audience": AUDIENCE, **options})


async def refusal(verifier: JwtVerifier, token: str) -> AuthorizationError:
    with pytest.raises(AuthorizationError) as caught:
        await verifier(token)
    return caught.value


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


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize("is_openid", [False, True])
async def test_keys_are_found_once_and_kept(is_openid: bool) -> None:
    async with TokenIssuer().publishing() as issuer:
        issuer.is_openid = is_openid
        verifier = verifier_of(issuer)
        for _ in range(5):
            await verifier(issuer.token())
        assert issuer.fetches == 1
        assert len(issuer.visits) == 1 + is_openid


async def test_the_address_of_the_keys_can_be_given() -> None:
    async with TokenIssuer().publishing() as issuer:
        await verifier_of(issuer, jwks_url=f"{issuer.issuer}/jwks")(issuer.token())
        assert (issuer.fetches, issuer.visits) == (1, [])


@pytest.mark.req("AUT-12")
async def test_concurrent_requests_share_one_fetch() -> None:
    async with TokenIssuer().publishing() as issuer:
        verifier = verifier_of(issuer)
        tokens = [issuer.token(sub=str(number)) for number in range(20)]
        found = await asyncio.gather(*(verifier(token) for token in tokens))
        assert [principal.subject for principal in found] == [str(number) for number in range(20)]
        assert issuer.fetches == 1


@pytest.mark.req("AUT-12")
async def test_a_new_key_is_fetched() -> None:
    async with TokenIssuer().publishing() as issuer:
        verifier = verifier_of(issuer, new_keys_every=1e-9)
        await verifier(issuer.token())
        issuer.keys.insert(0, Key("two"))
        await verifier(issuer.token())
        await verifier(issuer.token(key=issuer.keys[1]))
        assert issuer.fetches == 2


@pytest.mark.req("AUT-12")
async def test_a_flood_of_unknown_keys_causes_no_flood_of_fetches() -> None:
    async with TokenIssuer().publishing() as issuer:
        verifier = verifier_of(issuer, new_keys_every=3600)
        await verifier(issuer.token())
        for number in range(50):
            error = await refusal(verifier, issuer.token(header={"kid": f"invented-{number}"}))
            assert (error.reason, "does not publish" in str(error)) == ("invalid_token", True)
        await asyncio.gather(
            *(refusal(verifier, issuer.token(header={"kid": f"at-once-{number}"})) for number in range(50))
        )
        assert issuer.fetches == 1
        await verifier(issuer.token())


@pytest.mark.req("AUT-12")
async def test_an_unknown_key_is_looked_for_once_the_interval_is_over() -> None:
    async with TokenIssuer().publishing() as issuer:
        verifier = verifier_of(issuer, new_keys_every=1e-9)
        await verifier(issuer.token())
        await refusal(verifier, issuer.token(key=Key("stranger")))
        assert issuer.fetches == 2


@pytest.mark.req("AUT-12")
async def test_keys_that_were_taken_back_do_not_pass_for_ever() -> None:
    async with TokenIssuer().publishing() as issuer:
        verifier = verifier_of(issuer, keys_for=1e-9, new_keys_every=1e-9)
        old = issuer.token()
        await verifier(old)
        issuer.keys = [Key("two")]
        assert "does not publish" in str(await refusal(verifier, old))


async def test_old_keys_are_kept_while_the_issuer_is_away(caplog: pytest.LogCaptureFixture) -> None:
    async with TokenIssuer().publishing() as issuer:
        verifier = verifier_of(issuer, keys_for=1e-9, new_keys_every=1e-9)
        await verifier(issuer.token())
        issuer.status = 500
        await verifier(issuer.token())
    assert "are kept" in caplog.text


@pytest.mark.req("AUT-12")
async def test_an_issuer_that_cannot_be_reached_is_no_fault_of_the_token() -> None:
    async with TokenIssuer().publishing() as issuer:
        pass
    verifier = verifier_of(issuer)
    for _ in range(2):
        assert (await refusal(verifier, issuer.token())).reason == "unreachable"


@pytest.mark.req("AUT-12")
async def test_a_failed_fetch_is_not_repeated_at_once() -> None:
    async with TokenIssuer().publishing() as issuer:
        issuer.status = 500
        verifier = verifier_of(issuer)
        for _ in range(20):
            assert (await refusal(verifier, issuer.token())).reason == "unreachable"
        assert issuer.fetches == 1


async def test_an_issuer_that_does_not_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt_verifier, "_FETCH_WITHIN", 1e-6)
    async with TokenIssuer().publishing() as issuer:
        error = await refusal(verifier_of(issuer), issuer.token())
        assert (error.reason, "did not send its keys" in str(error)) == ("unreachable", True)


async def test_the_keys_of_another_issuer_are_not_used() -> None:
    async with TokenIssuer().publishing() as issuer:
        issuer.metadata["issuer"] = "https://evil.example"
        assert (await refusal(verifier_of(issuer), issuer.token())).reason == "issuer"
        assert issuer.fetches == 0


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize(
    "key",
    [
        {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA", "kid": "one"},
        {"kty": "EC", "crv": "P-256", "kid": "one"},
        {"kty": "EC", "crv": "P-256", "x": 1, "y": [], "kid": "one"},
    ],
)
async def test_a_broken_key_does_not_hide_the_others(key: dict[str, Any]) -> None:
    async with TokenIssuer().publishing() as issuer:
        good = Key("two")
        issuer.keys_document = {"keys": [key, good.public]}
        verifier = verifier_of(issuer)
        await verifier(issuer.token(key=good))
        assert "cannot be read" in str(await refusal(verifier, issuer.token()))


@pytest.mark.req("AUT-12")
async def test_a_short_rsa_key_does_not_pass() -> None:
    async with TokenIssuer().publishing() as issuer:
        with pytest.warns(SecurityWarning):
            issuer.keys = [Key("short", "RSA", 1024)]
        assert "less than 2048 bits" in str(await refusal(verifier_of(issuer), issuer.token()))


async def test_an_older_name_of_an_algorithm_passes_without_a_warning() -> None:
    async with TokenIssuer().publishing() as issuer:
        issuer.keys = [Key("a", "OKP")]
        with pytest.warns(SecurityWarning):
            token = issuer.token(header={"alg": "EdDSA"})
        assert (await verifier_of(issuer)(token)).subject == "ann"


async def test_a_request_that_is_gone_takes_no_fetch_from_others() -> None:
    async with TokenIssuer().publishing() as issuer:
        gate = asyncio.Event()
        issuer.before_keys = gate.wait
        verifier = verifier_of(issuer)
        leaving = asyncio.ensure_future(verifier(issuer.token()))
        staying = asyncio.ensure_future(verifier(issuer.token()))
        await until(lambda: issuer.fetches)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        gate.set()
        assert (await staying).subject == "ann"
        assert issuer.fetches == 1


async def test_a_fetch_that_nobody_waits_for_ends() -> None:
    async with TokenIssuer().publishing() as issuer:
        gate = asyncio.Event()
        issuer.before_keys = gate.wait
        verifier = verifier_of(issuer)
        leaving = asyncio.ensure_future(verifier(issuer.token()))
        await until(lambda: issuer.fetches)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await turns()
        # Until the interval is over, nobody knows.
        assert (await refusal(verifier, issuer.token())).reason == "unreachable"
        assert issuer.fetches == 1
        gate.set()


def test_one_verifier_serves_in_several_event_loops() -> None:
    issuer = TokenIssuer()

    async def begin() -> JwtVerifier:
        async with issuer.publishing():
            verifier = verifier_of(issuer)
            await verifier(issuer.token())
            return verifier

    async def go_on(verifier: JwtVerifier) -> str:
        return (await verifier(issuer.token())).subject

    assert asyncio.run(go_on(asyncio.run(begin()))) == "ann"


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
