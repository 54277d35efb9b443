"""Access tokens that must not pass, sent to a server whose issuer publishes its keys over real HTTP."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb import Context, Introspection, JwtVerifier, Server
from mcplumb.protocol.oauth.challenge import bearer_challenge
from mcplumb.transports.http_server.auth.bearer import MAX_TOKEN
from tests.kit.loop import run
from tests.kit.results import text_of
from tests.kit.token_issuer import AUDIENCE, Key, TokenIssuer, encoded
from tests.transports.http_server.callers import Caller
from tests.transports.http_server.visits import Site, Visitor, serving

pytestmark = pytest.mark.req("AUT-12")


def make_server() -> Server:
    server = Server("target", version="1")

    @server.tool
    async def who(ctx: Context) -> str:
        return "" if ctx.principal is None else ctx.principal.subject

    return server


class Guarded:
    """A server that takes the tokens of one issuer."""

    def __init__(self, issuer: TokenIssuer, site: Site) -> None:
        self.issuer = issuer
        self.site = site

    async def is_let_in(self, token: str) -> bool:
        """Whether a token passes. If not, the answer is a 401 with a challenge, in every case."""
        answer = await Caller(self.site, Authorization=f"Bearer {token}").call("who")
        if answer.status == 200:
            return text_of(await answer.json()) == "ann"
        challenge = bearer_challenge(answer.headers.get("www-authenticate"))
        assert answer.status == 401, await answer.body()
        assert challenge is not None
        assert challenge.error == "invalid_token"
        assert challenge.resource_metadata is not None
        return False


@asynccontextmanager
async def guarded(kind: str = "EC", **options: Any) -> AsyncIterator[Guarded]:
    async with TokenIssuer().publishing() as issuer:
        issuer.keys = [Key("one", kind)]
        verifier = JwtVerifier(issuer=issuer.issuer, audience=AUDIENCE, **options)
        async with serving(make_server(), auth=verifier) as site:
            target = Guarded(issuer, site)
            assert await target.is_let_in(issuer.token())
            yield target


def parts(token: str) -> list[str]:
    return token.split(".")


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "https://other.example/mcp"},
        {"aud": [AUDIENCE + "/"]},
        {"aud": None},
        {"aud": "*"},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"exp": 1},
        {"exp": None},
        {"exp": "9999999999"},
        {"nbf": 9_999_999_999},
        {"iat": 9_999_999_999},
        {"sub": None},
        {"sub": ""},
        {"cnf": {"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}},
    ],
)
async def test_a_token_with_other_claims(claims: dict[str, Any]) -> None:
    async with guarded() as target:
        assert not await target.is_let_in(target.issuer.token(**claims))


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", None])
async def test_a_token_without_a_signature(algorithm: str | None) -> None:
    async with guarded() as target:
        claims, signature = parts(target.issuer.token())[1:]
        head = encoded({"alg": algorithm, "typ": "at+jwt", "kid": "one"})
        for end in ("", ".", f".{signature}", ".AA"):
            assert not await target.is_let_in(f"{head}.{claims}{end}")


@pytest.mark.parametrize("kind", ["EC", "RSA"])
async def test_a_public_key_is_no_secret_for_a_symmetric_signature(kind: str) -> None:
    async with guarded(kind) as target:
        key = target.issuer.keys[0]
        claims = encoded(target.issuer.claims())
        pem = key.key.as_pem(private=False)
        secrets = [pem, pem.strip(), key.key.as_der(private=False), msgspec.json.encode(key.public), b"", b"one"]
        for algorithm, digest in (("HS256", hashlib.sha256), ("HS384", hashlib.sha384), ("HS512", hashlib.sha512)):
            head = encoded({"alg": algorithm, "typ": "at+jwt", "kid": "one"})
            for secret in secrets:
                signature = hmac.digest(secret, f"{head}.{claims}".encode(), digest)
                assert not await target.is_let_in(f"{head}.{claims}.{encoded(signature)}")


async def test_a_key_of_another_kind() -> None:
    async with guarded("RSA") as target:
        for kind in ("EC", "OKP"):
            assert not await target.is_let_in(target.issuer.token(key=Key("one", kind)))


async def test_a_key_of_somebody_else() -> None:
    async with guarded(new_keys_every=3600) as target:
        for key in (Key("one"), Key("two"), Key(None)):
            assert not await target.is_let_in(target.issuer.token(key=key))


async def test_a_token_that_brings_its_key_along() -> None:
    async with guarded() as target:
        own = Key("one")
        certificate = base64.b64encode(own.key.as_der(private=False)).decode()
        for header in (
            {"jwk": own.public}, {"jku": f"{target.issuer.issuer}/jwks"}, {"jku": "https://evil.example/keys"},
            {"x5u": "https://evil.example/cert"}, {"x5c": [certificate]},
        ):  # fmt: skip
            # The issuer itself would not get through with it either: nobody relies on it.
            for key in (own, target.issuer.keys[0]):
                assert not await target.is_let_in(target.issuer.token(key=key, header=header))
        assert target.issuer.fetches == 1


@pytest.mark.parametrize("header", [{"crit": ["x"], "x": 1}, {"crit": ["b64"], "b64": False}, {"b64": False}])
async def test_a_token_with_an_extension(header: dict[str, Any]) -> None:
    async with guarded() as target:
        usual = {"alg": "ES256", "typ": "at+jwt", "kid": "one"}
        assert await target.is_let_in(target.issuer.keys[0].sign(usual, target.issuer.claims()))
        assert not await target.is_let_in(target.issuer.keys[0].sign({**usual, **header}, target.issuer.claims()))


@pytest.mark.parametrize("kind", ["dpop+jwt", "logout+jwt", "id_token", "JOSE", "at+jwt+x"])
async def test_a_jwt_that_is_no_access_token(kind: str) -> None:
    async with guarded() as target:
        assert not await target.is_let_in(target.issuer.token(header={"typ": kind}))


@pytest.mark.parametrize(
    "key_id",
    [
        "../../../../etc/passwd", "/dev/null", "file:///dev/null", "http://127.0.0.1:1/", "one' OR '1'='1", "one\x00",
        "one ", "ONE", "", "*", "$(id)", "one\r\nX-Injected: 1", "k" * 256, "%6fne", "🔑",
    ],
)  # fmt: skip
async def test_a_key_id_is_only_compared(key_id: str) -> None:
    async with guarded(new_keys_every=3600) as target:
        assert not await target.is_let_in(target.issuer.token(header={"kid": key_id}))
        assert target.issuer.fetches == 1


async def test_signatures_that_are_none() -> None:
    async with guarded() as target:
        head, claims, signature = parts(target.issuer.token())
        other = parts(target.issuer.token(sub="bob"))
        raw = base64.urlsafe_b64decode(signature + "==")
        forged = [
            f"{head}.{claims}.{encoded(bytes(64))}",  # r = s = 0
            f"{head}.{claims}.{encoded(bytes(31) + b'1' + bytes(31) + b'1')}",
            f"{head}.{claims}.{encoded(raw[:-1])}",
            f"{head}.{claims}.{encoded(raw + b'0')}",
            f"{head}.{claims}.{encoded(b'0' + raw)}",
            f"{head}.{claims}.{other[2]}",
            f"{head}.{other[1]}.{signature}",
            f"{head}.{claims}.{signature}.{signature}",
            f"{head}.{claims}.{signature}=",
            f"{head}.{claims}.{signature} x",
            f"{head}.{claims}.{signature}, Bearer {head}.{claims}.{signature}",
        ]
        for token in forged:
            assert not await target.is_let_in(token)
        assert await target.is_let_in(f"{head}.{claims}.{signature}")


async def test_a_huge_token_is_refused_before_it_is_read() -> None:
    async with guarded() as target:
        assert not await target.is_let_in(target.issuer.token(padding="x" * MAX_TOKEN))
        assert not await target.is_let_in("x" * (MAX_TOKEN + 1))
        assert not await target.is_let_in("." * MAX_TOKEN)
        assert await target.is_let_in(target.issuer.token(padding="x" * (MAX_TOKEN // 2)))


async def test_deep_and_odd_json() -> None:
    async with guarded() as target:
        deep = b'{"a":' * 2000 + b"1" + b"}" * 2000
        for text in (
            deep,
            b"[" * 5000,
            b"{}",
            b"null",
            b'"x"',
            b"1e999",
            b'{"alg":"ES256","alg":"none"}',
            b"\xff\xfe{}",
        ):
            head, claims, signature = parts(target.issuer.token())
            assert not await target.is_let_in(f"{encoded(text)}.{claims}.{signature}")
            assert not await target.is_let_in(f"{head}.{encoded(text)}.{signature}")


async def test_a_signed_payload_without_claims() -> None:
    """The issuer has signed it: a nested token, for example."""
    async with guarded() as target:
        [key], inner = target.issuer.keys, target.issuer.token()
        for header in ({}, {"cty": "JWT"}):
            head = {"alg": "ES256", "typ": "at+jwt", "kid": "one", **header}
            assert await target.is_let_in(key.sign(head, target.issuer.claims()))
            for payload in (inner.encode(), b"[" * 5000, b'[{"sub": "ann"}]', b"null", b'"ann"', b"", b"\xff\xfe{}"):
                assert not await target.is_let_in(key.sign(head, payload))


async def test_a_flood_of_keys_and_tokens_costs_the_issuer_one_fetch() -> None:
    async with guarded(new_keys_every=3600) as target:
        for number in range(100):
            assert not await target.is_let_in(target.issuer.token(header={"kid": f"flood-{number}"}))
        assert target.issuer.fetches == 1
        assert await target.is_let_in(target.issuer.token())


#: What a token can be sent as: anything that a header line can carry.
VISIBLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=60)
MEMBERS = ["alg", "kid", "typ", "exp", "aud", "iss", "x"]
PART = st.one_of(
    st.binary(max_size=60).map(encoded),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner),
        max_leaves=6,
    ).map(encoded),
    VISIBLE,
)  # fmt: skip
MALFORMED = st.lists(PART, min_size=1, max_size=5).map(".".join).filter(bool) | VISIBLE


@given(tokens=st.lists(MALFORMED, min_size=1, max_size=5))
def test_nothing_that_is_sent_as_a_token_is_a_fault_of_the_server(tokens: list[str]) -> None:
    async def main() -> None:
        async with guarded() as target:
            for token in tokens:
                assert not await target.is_let_in(token)

    run(main())


@pytest.mark.req("AUT-14")
async def test_no_token_is_in_a_log_or_a_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    static = "static-token-that-nobody-may-read"
    tokens: list[str] = [static]
    async with TokenIssuer().publishing() as issuer:
        verifier = JwtVerifier(issuer=issuer.issuer, audience=AUDIENCE, new_keys_every=3600)
        async with serving(make_server(), auth=verifier, tokens=(static,)) as site:
            tokens += [
                issuer.token(),
                issuer.token(aud="x"),
                issuer.token(exp=1),
                issuer.token(key=Key("two")),
                "x" * 99,
            ]
            for token in tokens:
                answer = await Caller(site, Authorization=f"Bearer {token}").call("who")
                body = await answer.body()
                assert not leaks(token, f"{answer.headers} {body.decode()}")
                visitor = Visitor(site, Authorization=f"Bearer {token}")
                await (await visitor.initialize()).body()
            shown = f"{verifier!r} {site.app.options.auth!r}"
        issuer.status = 500
        fresh = JwtVerifier(issuer=issuer.issuer, audience=AUDIENCE)
        async with serving(make_server(), auth=fresh) as site:
            await (await Caller(site, Authorization=f"Bearer {tokens[1]}").call("who")).body()
    secret = "secret-of-the-introspection"
    asks = Introspection(url=f"{issuer.issuer}/introspect", client_id="a", client_secret=secret, audience=None)
    async with serving(make_server(), auth=asks) as site:
        answer = await Caller(site, Authorization=f"Bearer {tokens[1]}").call("who")
        assert answer.status == 503
        shown += f"{asks!r} {(await answer.body()).decode()}"
    logged = "\n".join([caplog.text, *(str(vars(record)) for record in caplog.records)])
    assert "A token was refused" in logged
    assert logging.getLogger("mcplumb.http.access").name in {record.name for record in caplog.records}
    for hidden in [*tokens, secret]:
        assert not leaks(hidden, f"{logged} {shown}")


def leaks(secret: str, text: str) -> bool:
    """Return whether a text has a part of a secret: its signature, or 24 characters from anywhere in it."""
    pieces = {secret[start : start + 24] for start in range(max(len(secret) - 23, 1))}
    return any(piece in text for piece in pieces)
