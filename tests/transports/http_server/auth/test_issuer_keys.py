"""The keys of an issuer, fetched over real HTTP, kept, and shared by replicas."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from joserfc.errors import SecurityWarning

from mcplumb import HttpOptions, JwtVerifier, Server, StoreUnavailable, connect
from mcplumb.protocol.oauth.access_tokens import read_header
from mcplumb.stores.memory_store import MemoryStore
from mcplumb.stores.shared_store import Record, SharedStore
from mcplumb.transports.http_server.auth import issuer_keys
from tests.kit.loop import turns, until
from tests.kit.servers import serving
from tests.kit.token_issuer import Key, TokenIssuer, refusal, verifier_of


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
    monkeypatch.setattr(issuer_keys, "_FETCH_WITHIN", 1e-6)
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


async def hang_up(verifier: JwtVerifier, issuer: TokenIssuer) -> None:
    """Be a client that is gone before the keys are there."""
    leaving = asyncio.ensure_future(verifier(issuer.token()))
    await until(lambda: issuer.fetches)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await turns()


@pytest.mark.req("AUT-12")
async def test_a_client_that_hangs_up_takes_no_keys_from_those_after_it() -> None:
    async with TokenIssuer().publishing() as issuer:
        gate = asyncio.Event()
        issuer.before_keys = gate.wait
        verifier = verifier_of(issuer)
        await hang_up(verifier, issuer)
        next_one = asyncio.ensure_future(verifier(issuer.token()))
        await turns()
        gate.set()
        assert (await next_one).subject == "ann"
        assert issuer.fetches == 1


async def test_a_fetch_that_nobody_waits_for_ends_by_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcplumb.transports.http_server.auth.issuer_keys._FETCH_WITHIN", 0.05)
    async with TokenIssuer().publishing() as issuer:
        gate = asyncio.Event()
        issuer.before_keys = gate.wait
        verifier = verifier_of(issuer)
        before = asyncio.all_tasks()
        await hang_up(verifier, issuer)
        gate.set()
        await until(lambda: asyncio.all_tasks() <= before, "the fetch to end")


async def test_nothing_is_left_of_a_fetch_at_close() -> None:
    """And the next request is no worse off."""
    async with TokenIssuer().publishing() as issuer:
        gate = asyncio.Event()
        issuer.before_keys = gate.wait
        verifier = verifier_of(issuer)
        await verifier.close()
        before = asyncio.all_tasks()
        await hang_up(verifier, issuer)
        await asyncio.gather(verifier.close(), verifier.close())
        assert not [task for task in asyncio.all_tasks() - before if "IssuerKeys" in repr(task)]
        gate.set()
        assert (await verifier(issuer.token())).subject == "ann"


async def test_a_server_that_stops_leaves_no_fetch_behind() -> None:
    async with TokenIssuer().publishing() as issuer:
        gate = asyncio.Event()
        issuer.before_keys = gate.wait
        http = HttpOptions(auth=verifier_of(issuer))
        async with serving(Server("protected"), "http://127.0.0.1:0", http=http) as [url]:
            host, _, port = url.split("/")[2].partition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            head = f"GET /mcp HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {issuer.token()}\r\n\r\n"
            writer.write(head.encode())
            await until(lambda: issuer.fetches)
            writer.close()
        assert not [task for task in asyncio.all_tasks() if "IssuerKeys" in repr(task)]
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


# Replicas


def replicas(issuer: TokenIssuer, store: SharedStore, **options: Any) -> list[JwtVerifier]:
    """Return the verifiers of three processes with one store."""
    made = [verifier_of(issuer, **options) for _ in range(3)]
    for verifier in made:
        verifier.share(store)
    return made


@pytest.mark.req("AUT-12", "SCL-1")
async def test_replicas_share_one_fetch() -> None:
    async with TokenIssuer().publishing() as issuer:
        for verifier in replicas(issuer, MemoryStore(), new_keys_every=3600):
            await verifier(issuer.token())
            await refusal(verifier, issuer.token(key=Key("stranger")))
        assert issuer.fetches == 1


@pytest.mark.req("AUT-12", "SCL-1")
async def test_replicas_share_a_new_key() -> None:
    async with TokenIssuer().publishing() as issuer:
        first, second, third = replicas(issuer, MemoryStore(), new_keys_every=1e-9)
        await first(issuer.token())
        await second(issuer.token())
        issuer.keys.insert(0, Key("two"))
        await first(issuer.token())
        await second(issuer.token())
        await third(issuer.token())
        assert issuer.fetches == 2


@pytest.mark.req("AUT-12", "SCL-1")
async def test_a_key_newer_than_what_another_replica_fetched_is_found_at_once() -> None:
    async with TokenIssuer().publishing() as issuer:
        first, second, third = replicas(issuer, MemoryStore(), new_keys_every=1e-9)
        await first(issuer.token())
        await second(issuer.token())
        issuer.keys.insert(0, Key("two"))
        await first(issuer.token())
        issuer.keys.insert(0, Key("three"))
        await second(issuer.token())  # what the first has fetched does not have it
        await third(issuer.token())
        assert issuer.fetches == 3


@pytest.mark.req("AUT-12")
async def test_shared_keys_that_were_taken_back_do_not_pass_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async with TokenIssuer().publishing() as issuer:
        store = MemoryStore()
        first, second, _ = replicas(issuer, store, keys_for=3600, new_keys_every=1e-9)
        old = issuer.token()
        await first(old)
        await second(old)
        issuer.keys = [Key("two")]
        await second(old)
        later = time.time() + 3600
        monkeypatch.setattr(time, "time", lambda: later)
        assert "does not publish" in str(await refusal(replicas(issuer, store)[0], old))
        assert issuer.fetches == 2


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize("seconds", [-7200, 7200])
async def test_a_clock_that_is_wrong_makes_shared_keys_older(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    async with TokenIssuer().publishing() as issuer:
        store = MemoryStore()
        right = time.time
        monkeypatch.setattr(time, "time", lambda: right() + seconds)
        first, second, _ = replicas(issuer, store, keys_for=3600)
        await first._keys.find(read_header(issuer.token(), first._rules))
        monkeypatch.undo()
        await second(issuer.token())
        assert issuer.fetches == 2


@pytest.mark.req("SCL-4")
async def test_keys_are_fetched_while_the_store_is_away() -> None:
    class Away(MemoryStore):
        async def get(self, key: str) -> Record | None:
            raise StoreUnavailable("The store cannot be reached.")

        async def put(self, key: str, value: bytes, *, version: int, ttl: float) -> int | None:
            raise StoreUnavailable("The store cannot be reached.")

    async with TokenIssuer().publishing() as issuer:
        for verifier in replicas(issuer, Away()):
            await verifier(issuer.token())
        assert issuer.fetches == 3


@pytest.mark.req("SCL-4")
async def test_keys_are_fetched_while_the_store_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(MemoryStore):
        async def get(self, key: str) -> Record | None:
            await asyncio.Event().wait()
            return None

        async def put(self, key: str, value: bytes, *, version: int, ttl: float) -> int | None:
            await asyncio.Event().wait()
            return None

    monkeypatch.setattr(issuer_keys, "_STORE_WITHIN", 0.01)
    async with TokenIssuer().publishing() as issuer:
        await replicas(issuer, Hanging())[0](issuer.token())
        assert issuer.fetches == 1


async def test_what_cannot_be_read_is_replaced() -> None:
    async with TokenIssuer().publishing() as issuer:
        store = MemoryStore()
        first, second, third = replicas(issuer, store)
        name = first._keys._shared_as
        await store.put(name, b"\xc1 not a record", version=0, ttl=60)
        await first(issuer.token())
        await second(issuer.token())
        await third(issuer.token())
        assert issuer.fetches == 1


@pytest.mark.req("AUT-12")
async def test_different_issuers_share_nothing() -> None:
    async with TokenIssuer().publishing() as one, TokenIssuer().publishing() as other:
        store = MemoryStore()
        await replicas(one, store)[0](one.token())
        verifier = replicas(other, store)[0]
        await verifier(other.token())
        assert "does not publish" in str(await refusal(verifier, other.token(key=Key("stranger"))))
        assert (one.fetches, other.fetches) == (1, 1)


async def test_sharing_ends() -> None:
    async with TokenIssuer().publishing() as issuer:
        first, second, _ = replicas(issuer, MemoryStore())
        await first(issuer.token())
        second.share(None)
        await second(issuer.token())
        assert issuer.fetches == 2


async def test_a_store_is_only_used_in_its_event_loop() -> None:
    async with TokenIssuer().publishing() as issuer:
        store = MemoryStore()
        verifier = verifier_of(issuer)

        async def share() -> None:
            verifier.share(store)

        await asyncio.to_thread(asyncio.run, share())
        await verifier(issuer.token())
        await replicas(issuer, store)[0](issuer.token())
        assert issuer.fetches == 2


@pytest.mark.req("SCL-1")
async def test_servers_with_one_store_make_one_fetch() -> None:
    async with TokenIssuer().publishing() as issuer:
        store = MemoryStore()
        for _ in range(3):
            http = HttpOptions(auth=verifier_of(issuer), shared=store)
            headers = {"Authorization": f"Bearer {issuer.token()}"}
            async with (
                serving(Server("notes"), "http://127.0.0.1:0/mcp", http=http) as [url],
                connect(url, headers=headers) as client,
            ):
                assert await client.list_tools() == []
        assert issuer.fetches == 1
