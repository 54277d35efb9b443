"""A Redis behind sentinels that have a password, TLS, or both, and sentinels that do not answer."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack, asynccontextmanager, suppress

import pytest

from mcplumb.errors import StoreUnavailable, UsageError
from mcplumb.stores.redis_store import RedisStore
from mcplumb.stores.shared_store import open_store
from mcplumb.testing import check_store
from tests.kit.loop import PATIENCE
from tests.kit.ports import FreePort
from tests.kit.redis_server import RedisServer, running_redis
from tests.kit.redis_tls import Front, redis_with_tls
from tests.stores.test_shared_stores import BOUND, two_of
from tests.transports.socket_ends import CERTIFICATES

CA = f"ssl_ca_certs={CERTIFICATES / 'ca.pem'}"
#: With characters that a query encodes, and a plus sign, which it would take for a space.
PASSWORD, ENCODED = "S3cret+&/=@%", "S3cret+%26/=%40%25"


def monitor(sentinel: RedisServer, port: int) -> None:
    assert sentinel.command("SENTINEL", "MONITOR", "main", "127.0.0.1", str(port), "1") == b"+OK"
    for option, milliseconds in (("down-after-milliseconds", "1000"), ("failover-timeout", "5000")):
        assert sentinel.command("SENTINEL", "SET", "main", option, milliseconds) == b"+OK"


def protect(server: RedisServer, password: str, user: str = "default") -> None:
    """From now on, a Redis or a sentinel answers nobody without this password."""
    assert server.command("ACL", "SETUSER", user, "on", f">{password}", "~*", "+@all") == b"+OK"
    if user != "default":
        assert server.command("ACL", "SETUSER", "default", "off") == b"+OK"


async def until_known(sentinel: RedisServer) -> None:
    """Wait until a sentinel knows the replica of its primary."""
    async with asyncio.timeout(BOUND):
        while sentinel.command("SENTINEL", "REPLICAS", "main") != b"*1":  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.1)


async def survives_failover(store: RedisStore, old: RedisServer, new: RedisServer) -> None:
    """A store keeps its records when a sentinel replaces the primary."""
    async with asyncio.timeout(BOUND):
        assert await store.put("a/b", b"x", version=0, ttl=600) == 1
        while new.command("EXISTS", "mcplumb:{a}:b") != b":1":  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.02)
        old.kill()
        version = None
        while version is None:
            with suppress(StoreUnavailable):
                version = await store.touch("a/b", ttl=600)
            await asyncio.sleep(0.05)
    assert version == 1


@pytest.mark.parametrize("user", ["", "joe"])
async def test_sentinels_with_a_password(user: str) -> None:
    with running_redis() as redis, running_redis("--sentinel") as sentinel:
        monitor(sentinel, redis.port)
        protect(sentinel, PASSWORD, user or "default")
        named = f"&sentinel_username={user}" if user else ""
        address = f"redis+sentinel://127.0.0.1:{sentinel.port}/main/0?sentinel_password={ENCODED}{named}"
        await check_store(asynccontextmanager(lambda: two_of(address)))


@pytest.mark.req("SCL-4")
async def test_a_failover_by_a_sentinel_with_a_password() -> None:
    """The Redis has another password."""
    with running_redis() as old, running_redis() as new, running_redis("--sentinel") as sentinel:
        new.command("REPLICAOF", "127.0.0.1", str(old.port))
        monitor(sentinel, old.port)
        await until_known(sentinel)
        protect(sentinel, PASSWORD)
        assert sentinel.command("SENTINEL", "MASTERS").startswith(b"-NOAUTH")
        for server in (old, new):  # which the sentinel and the other Redis use without a password
            assert server.command("ACL", "SETUSER", "joe", "on", ">0ther", "~*", "+@all") == b"+OK"
        store = RedisStore(f"redis+sentinel://joe:0ther@127.0.0.1:{sentinel.port}/main/0?sentinel_password={ENCODED}")
        await survives_failover(store, old, new)
        await store.close()


@pytest.mark.req("SCL-4")
@pytest.mark.parametrize("is_silent", [False, True], ids=["gone", "silent"])
async def test_a_failover_while_the_first_sentinel_is_away(is_silent: bool) -> None:
    """As if it had run on the machine of the primary."""
    with ExitStack() as stack:
        old, new = (stack.enter_context(running_redis()) for _ in range(2))
        first, second = (stack.enter_context(running_redis("--sentinel")) for _ in range(2))
        new.command("REPLICAOF", "127.0.0.1", str(old.port))
        monitor(second, old.port)
        await until_known(second)
        first.hang() if is_silent else first.kill()
        store = RedisStore(f"redis+sentinel://127.0.0.1:{first.port},127.0.0.1:{second.port}/main/0")
        await survives_failover(store, old, new)
        await store.close()


async def test_a_sentinel_that_does_not_know_yet_is_not_decisive() -> None:
    with running_redis() as redis, running_redis("--sentinel") as first, running_redis("--sentinel") as second:
        monitor(second, redis.port)
        protect(first, PASSWORD)
        store = RedisStore(f"redis+sentinel://127.0.0.1:{first.port},127.0.0.1:{second.port}/main/0")
        assert await store.put("a/b", b"x", version=0, ttl=60) == 1
        await store.close()


async def test_tls_to_the_sentinel_and_the_redis() -> None:
    """And a failover. The programs behind the ports need not know TLS."""
    with ExitStack() as programs:
        old, new = (programs.enter_context(running_redis()) for _ in range(2))
        sentinel = programs.enter_context(running_redis("--sentinel"))
        with Front(old) as old_front, Front(new) as new_front, Front(sentinel) as sentinel_front:
            new.command("CONFIG", "SET", "replica-announce-port", str(new_front.port))
            new.command("REPLICAOF", "127.0.0.1", str(old_front.port))
            monitor(sentinel, old_front.port)
            await until_known(sentinel)
            protect(sentinel, PASSWORD)
            address = f"rediss+sentinel://127.0.0.1:{sentinel_front.port}/main/0?sentinel_password={ENCODED}&{CA}"
            await check_store(asynccontextmanager(lambda: two_of(address)))
            assert sentinel_front.handshakes
            assert old_front.handshakes
            store = RedisStore(address)
            await survives_failover(store, old, new)
            assert new_front.handshakes
            await store.close()


async def test_a_redis_and_a_sentinel_that_know_tls() -> None:
    with ExitStack() as programs:
        (old, old_port), (new, _) = (programs.enter_context(redis_with_tls()) for _ in range(2))
        sentinel, port = programs.enter_context(redis_with_tls("--sentinel"))
        new.command("REPLICAOF", "127.0.0.1", str(old_port))
        monitor(sentinel, old_port)
        await until_known(sentinel)
        protect(sentinel, PASSWORD)
        store = RedisStore(f"rediss+sentinel://127.0.0.1:{port}/main/0?sentinel_password={ENCODED}&{CA}")
        await survives_failover(store, old, new)
        await store.close()


@pytest.mark.req("SCL-4")
@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("", r"\(no sentinel can be asked: NOAUTH: it needs a password; .* \?sentinel_password="),
        ("?sentinel_password=Wr0ng", r"\(no sentinel can be asked: WRONGPASS: it refuses .* \?sentinel_password="),
        ("?sentinel_username=eve&sentinel_password=Wr0ng", "no sentinel can be asked: WRONGPASS: it refuses the user"),
    ],
)
async def test_the_password_of_a_sentinel_is_named(query: str, sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with running_redis("--sentinel") as sentinel:
        protect(sentinel, PASSWORD)
        store = RedisStore(f"redis+sentinel://127.0.0.1:{sentinel.port}/main{query}")
        with pytest.raises(StoreUnavailable, match=sentence) as caught:
            await store.get("a/b")
        await store.close()
    for text in (caplog.text, str(caught.value), repr(store)):
        assert "Wr0ng" not in text
        assert "eve" not in text


@pytest.mark.req("SCL-4")
async def test_a_name_that_no_sentinel_knows_is_named(free_port: FreePort) -> None:
    with running_redis("--sentinel") as sentinel:
        store = RedisStore(f"redis+sentinel://127.0.0.1:{sentinel.port},127.0.0.1:{free_port()}/other")
        with pytest.raises(StoreUnavailable, match=r"\(the sentinels know no primary of this name\)"):
            await store.get("a/b")
        await store.close()


@pytest.mark.req("SCL-4")
async def test_a_primary_that_is_down_is_named(free_port: FreePort) -> None:
    with running_redis("--sentinel") as sentinel:
        monitor(sentinel, free_port())
        store = RedisStore(f"redis+sentinel://127.0.0.1:{sentinel.port}/main")
        why = ""
        async with asyncio.timeout(PATIENCE):
            while "(the sentinels consider the primary as down)" not in why:
                with pytest.raises(StoreUnavailable) as caught:
                    await store.get("a/b")
                why = str(caught.value)
                await asyncio.sleep(0.05)
        await store.close()


@pytest.mark.req("SCL-4")
async def test_the_lack_of_a_sentinel_is_named(free_port: FreePort) -> None:
    store = RedisStore(f"redis+sentinel://127.0.0.1:{free_port()}/main")
    with pytest.raises(StoreUnavailable, match="no sentinel can be asked: ECONNREFUSED: nothing listens there"):
        await store.get("a/b")
    await store.close()


@pytest.mark.req("SCL-4")
async def test_sentinels_with_tls_are_told_from_those_without(free_port: FreePort) -> None:
    with running_redis("--sentinel") as sentinel:
        monitor(sentinel, free_port())
        store = RedisStore(f"rediss+sentinel://127.0.0.1:{sentinel.port}/main?{CA}")
        with pytest.raises(StoreUnavailable, match=r"; if the ports are not for TLS, .* redis\+sentinel://"):
            await store.get("a/b")
        await store.close()
        with Front(sentinel) as front:
            wrong = CERTIFICATES / "other-ca.pem"
            store = RedisStore(f"rediss+sentinel://127.0.0.1:{front.port}/main?ssl_ca_certs={wrong}")
            with pytest.raises(StoreUnavailable, match=r"CERTIFICATE_VERIFY_FAILED: .* \?ssl_ca_certs="):
                await store.get("a/b")
            await store.close()


@pytest.mark.parametrize("scheme", ["redis+sentinel", "rediss+sentinel"])
async def test_no_secrets(scheme: str, caplog: pytest.LogCaptureFixture, free_port: FreePort) -> None:
    caplog.set_level(logging.DEBUG)
    query = "prefix=p&sentinel_username=eve&sentinel_password=S3cret2"
    store = RedisStore(f"{scheme}://joe:S3cret@127.0.0.1:{free_port()}/main/0?{query}")
    with pytest.raises(StoreUnavailable) as caught:
        await store.get("a/b")
    await store.close()
    for text in (caplog.text, str(caught.value), repr(caught.value), repr(store)):
        assert "S3cret" not in text
        assert "joe" not in text
        assert "eve" not in text
    assert "127.0.0.1" in str(caught.value)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("rediss+sentinel://joe:S3cret@h", r"must name the service: rediss\+sentinel://host/NAME/0"),
        ("rediss+sentinel://h/main?sentinel_username=S3cret", "a sentinel_username, but no sentinel_password"),
        ("redis+sentinel://h/main?sentinel_password=S3@cret", "an @ after its host. Special characters"),
        ("redis+sentinel://h/main?sentinel_password=S3#cret", "a # in it. Special characters"),
        ("redis+sentinel://h/main?sentinel_password=x&S3cret=1", "an option that the package redis does not know"),
        ("redis+sentinel://h/main?ssl_ca_certs=/S3cret", "an option that the package redis does not know"),
        ("rediss+sentinel://h/main?ssl_S3cret=1", "an option that the package redis does not know"),
        ("rediss+sentinel://h/main?ssl_cert_reqs=S3cret", "an invalid part"),
        ("rediss+sentinel://h/main?sentinel_S3cret=1", "an option that the package redis does not know"),
        ("rediss+sentinel://h/main/S3cret", "an invalid part"),
        ("rediss://h?sentinel_password=S3cret", "an option that the package redis does not know"),
        ("sentinel+rediss://h/main?sentinel_password=S3cret", "begins differently"),
    ],
)
async def test_bad_addresses(address: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        open_store(address)
    assert "S3cret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
