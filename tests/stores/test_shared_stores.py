"""Every shared store passes the public checks: in memory, on Redis, and on a cluster of Redis."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from redis.exceptions import ClusterDownError

from mcplumb.errors import StoreUnavailable, UsageError
from mcplumb.stores.memory_store import MemoryStore
from mcplumb.stores.redis_store import RedisStore
from mcplumb.stores.shared_store import Record, SharedStore, open_store
from mcplumb.testing import StoreCheck, check_store, store_checks
from tests.client.peers import LOOPS, skip
from tests.kit.loop import PATIENCE, run
from tests.kit.ports import FreePort
from tests.kit.redis_server import RedisServer, running_redis
from tests.kit.redis_tls import behind_tls, pass_on
from tests.transports.socket_ends import CERTIFICATES

#: Seconds within which any number of operations have failed if the store is away: each waits for some seconds.
BOUND = 60.0


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@contextmanager
def running_cluster() -> Iterator[RedisServer]:
    """A cluster of one node."""
    with running_redis("--cluster-enabled", "yes") as server:
        for first in range(0, 16384, 1024):
            server.command("CLUSTER", "ADDSLOTS", *map(str, range(first, first + 1024)))
        end = time.monotonic() + 60
        while server.command("SET", "probe", "1") != b"+OK":
            assert time.monotonic() < end
            time.sleep(0.05)
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisServer]:
    with running_cluster() as server:
        yield server


def two_of(address: str) -> AsyncIterator[tuple[SharedStore, SharedStore]]:
    return _two(RedisStore(address), RedisStore(address))


async def _two(first: SharedStore, second: SharedStore) -> AsyncIterator[tuple[SharedStore, SharedStore]]:
    try:
        yield first, second
    finally:
        await first.close()
        await second.close()


@pytest.mark.parametrize("check", store_checks(), ids=str)
async def test_memory(check: StoreCheck) -> None:
    store = MemoryStore()
    await check(asynccontextmanager(lambda: _two(store, store)))


@pytest.mark.req("SCL-1")
@pytest.mark.parametrize("check", store_checks(), ids=str)
async def test_redis(check: StoreCheck, redis: RedisServer) -> None:
    await check(asynccontextmanager(lambda: two_of(redis.url)))


async def test_cluster(cluster: RedisServer) -> None:
    address = f"redis+cluster://127.0.0.1:{cluster.port}?prefix=other"
    await check_store(asynccontextmanager(lambda: two_of(address)))


async def test_sentinel(redis: RedisServer) -> None:
    with running_redis("--sentinel") as sentinel:
        sentinel.command("SENTINEL", "MONITOR", "main", "127.0.0.1", str(redis.port), "1")
        address = f"redis+sentinel://127.0.0.1:{sentinel.port}/main/0"
        await check_store(asynccontextmanager(lambda: two_of(address)))


@pytest.mark.req("SCL-4")
async def test_a_primary_that_a_sentinel_replaces_is_left() -> None:
    with running_redis() as old, running_redis() as new, running_redis("--sentinel") as sentinel:
        new.command("REPLICAOF", "127.0.0.1", str(old.port))
        sentinel.command("SENTINEL", "MONITOR", "main", "127.0.0.1", str(old.port), "1")
        sentinel.command("SENTINEL", "SET", "main", "down-after-milliseconds", "500")
        store = RedisStore(f"redis+sentinel://127.0.0.1:{sentinel.port}/main/0")
        async with asyncio.timeout(BOUND):
            while sentinel.command("SENTINEL", "REPLICAS", "main") != b"*1":  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.1)
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
        await store.close()


async def test_tls(redis: RedisServer) -> None:
    async with behind_tls(redis) as port:
        address = f"rediss://127.0.0.1:{port}/0?prefix=tls&ssl_ca_certs={CERTIFICATES / 'ca.pem'}"
        await check_store(asynccontextmanager(lambda: two_of(address)))


@pytest.mark.req("SCL-4")
async def test_a_certificate_that_cannot_be_trusted_is_refused(redis: RedisServer) -> None:
    async with behind_tls(redis) as port:
        store = RedisStore(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={CERTIFICATES / 'other-ca.pem'}")
        with pytest.raises(StoreUnavailable, match=r"CERTIFICATE_VERIFY_FAILED: .* name yours with \?ssl_ca_certs="):
            await store.get("a/b")
        await store.close()


async def test_the_reason_for_no_connection_is_named(free_port: FreePort) -> None:
    store = RedisStore(f"redis://joe:S3cret@127.0.0.1:{free_port()}/0")
    with pytest.raises(StoreUnavailable, match=r"present \(ECONNREFUSED: nothing listens there\)") as caught:
        await store.get("a/b")
    assert "S3cret" not in str(caught.value)
    await store.close()


@pytest.mark.parametrize(
    "address", ["unix:///no/such.sock", "rediss://joe:S3cret@localhost:{port}/0?ssl_ca_certs=/no/such.pem"]
)
async def test_a_file_that_does_not_exist_is_named_as_the_reason(address: str, redis: RedisServer) -> None:
    store = RedisStore(address.format(port=redis.port))
    with pytest.raises(StoreUnavailable, match=r"\(ENOENT: the address names a file or socket that does not exist\)"):
        await store.get("a/b")
    await store.close()


async def test_a_database_that_does_not_exist_is_named_as_the_reason(redis: RedisServer) -> None:
    store = RedisStore(f"redis://127.0.0.1:{redis.port}/99")
    with pytest.raises(StoreUnavailable, match=r"\(DB: it has no database of this number\)"):
        await store.get("a/b")
    await store.close()


@pytest.mark.req("SCL-4")
def test_the_log_says_when_the_store_is_back(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with running_redis() as server:
            store = RedisStore(server.url)
            await store.get("a/b")
            server.kill()
            with pytest.raises(StoreUnavailable):
                await store.get("a/b")
            server.start()
            async with asyncio.timeout(BOUND):
                while "answers again" not in caplog.text:
                    with suppress(StoreUnavailable):
                        await store.get("a/b")
                    await asyncio.sleep(0.05)
            await store.get("a/b")
            await store.close()

    with caplog.at_level(logging.INFO, "mcplumb.store"):
        run(main())
    said = [record.getMessage() for record in caplog.records if record.name == "mcplumb.store"]
    assert sum("answers again" in each for each in said) == 1


async def test_failures_that_take_turns_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    """As while a node of a cluster is missing."""
    store = RedisStore("redis://127.0.0.1:1/0")
    for _ in range(3):
        await store._failed(TimeoutError())
        await store._failed(ClusterDownError("CLUSTERDOWN The cluster is down"))
    await store.close()
    failed = [record.getMessage().partition("failed ")[2] for record in caplog.records]
    assert failed == ["(TimeoutError: it does not answer).", "(CLUSTERDOWN: a node of the cluster is missing)."]


@pytest.mark.req("SCL-4")
async def test_a_connection_that_is_lost_before_a_write_is_named() -> None:
    store = RedisStore("redis://127.0.0.1:1/0")
    lost = ConnectionError("Error while writing to socket.")
    lost.__context__ = ConnectionResetError("Connection lost")
    assert "(ECONNRESET: it closes the connection)" in str(await store._failed(lost))
    await store.close()


async def test_options_of_the_address_reach_a_cluster(cluster: RedisServer) -> None:
    store = RedisStore(f"redis+cluster://127.0.0.1:{cluster.port}?client_name=tea&prefix=p")
    await store.get("a/b")
    assert await store._client.execute_command("CLIENT GETNAME", target_nodes="random") == "tea"
    await store.close()


async def test_options_of_the_address_reach_the_primary_of_a_sentinel(redis: RedisServer) -> None:
    with running_redis("--sentinel") as sentinel:
        sentinel.command("SENTINEL", "MONITOR", "main", "127.0.0.1", str(redis.port), "1")
        store = RedisStore(f"redis+sentinel://127.0.0.1:{sentinel.port}/main?client_name=tea&prefix=p")
        await store.get("a/b")
        assert await store._client.execute_command("CLIENT GETNAME") == "tea"
        await store.close()


async def test_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with running_redis("--unixsocket", str(path)):
        await check_store(asynccontextmanager(lambda: two_of(f"unix://{path}?db=1")))


@pytest.mark.req("SCL-4")
@pytest.mark.parametrize("eager", LOOPS)
def test_a_store_that_was_away_is_used_again(tmp_path: Path, eager: bool) -> None:
    """A path without a socket fails at once: on a loop with eager tasks, before the task that sends is known."""
    path = tmp_path / "redis.sock"

    async def main() -> None:
        store = RedisStore(f"unix://{path}?db=1")
        with pytest.raises(StoreUnavailable):
            await store.get("a/b")
        with running_redis("--unixsocket", str(path)):
            skip(60)
            async with asyncio.timeout(PATIENCE):
                assert await store.put("a/b", b"x", version=0, ttl=60) == 1
            await store.close()

    run(main(), eager=eager)


@pytest.mark.req("SCL-4")
@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        (("SET", "mcplumb:{a}:b", "x"), "WRONGTYPE: another program has keys of these names: choose another ?prefix="),
        (("CONFIG", "SET", "maxmemory", "1"), "OOM: its memory is full"),
        (("REPLICAOF", "127.0.0.1", "1"), "READONLY: it is a replica, which cannot be written to"),
        (("CONFIG", "SET", "requirepass", "S3cret"), "NOAUTH: it needs a password"),
        (
            ("CONFIG", "SET", "min-replicas-to-write", "1"),
            "NOREPLICAS: it has fewer replicas than its min-replicas-to-",
        ),
    ],
    ids=lambda each: each.partition(":")[0] if isinstance(each, str) else "",
)
async def test_the_reason_of_an_error_response_is_named(setting: tuple[str, ...], sentence: str) -> None:
    with running_redis() as server:
        assert server.command(*setting) == b"+OK"
        store = RedisStore(server.url)
        with pytest.raises(StoreUnavailable) as caught:
            await store.put("a/b", b"x", version=0, ttl=60)
        assert f"cannot be used at present ({sentence}" in str(caught.value)
        await store.close()


@pytest.mark.req("SCL-4")
async def test_a_read_that_waits_while_redis_becomes_a_replica() -> None:
    with running_redis() as server:
        store = RedisStore(server.url)
        waiting = asyncio.ensure_future(store.wait("a/log", after=0, within=60))
        async with asyncio.timeout(PATIENCE):
            while server.text("CLIENT", "LIST", "TYPE", "normal").count("flags=b") != 1:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.02)
        server.command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreUnavailable, match=r"\(UNBLOCKED: it has become a replica\)"):
            await waiting
        await store.close()


async def test_a_wrong_password_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with running_redis() as server:
        assert server.command("ACL", "SETUSER", "joe", "on", ">S3cret", "~*", "+@all") == b"+OK"
        store = RedisStore(f"redis://joe:Wr0ng@127.0.0.1:{server.port}/0")
        with pytest.raises(StoreUnavailable, match="it refuses the user or the password"):
            await store.get("a/b")
        await store.close()
    assert "Wr0ng" not in caplog.text


@asynccontextmanager
async def something_else(says: bytes) -> AsyncIterator[int]:
    """A port where a program says this to whatever it is sent, and closes the connection."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(says)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.req("SCL-4")
@pytest.mark.parametrize(
    ("says", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "InvalidResponse: it is not Redis"),
        (b"-ERR unknown command `HELLO`, with args beginning with: `3`\r\n", "or older than Redis 6.2"),
        (b"-ERR max number of clients reached\r\n", "it has as many clients as its maxclients allows"),
        (b"", "it closes the connection; if the port is for TLS, the address begins with rediss://"),
    ],
    ids=["http", "old", "full", "tls"],
)
async def test_what_is_not_a_redis_for_us_is_named(says: bytes, sentence: str) -> None:
    async with something_else(says) as port:
        store = RedisStore(f"redis://:S3cret@127.0.0.1:{port}/0")
        with pytest.raises(StoreUnavailable, match=sentence) as caught:
            await store.put("a/b", b"x", version=0, ttl=60)
        with pytest.raises(StoreUnavailable, match=sentence):  # at once, and with the reason as well
            await store.get("a/b")
        assert "S3cret" not in str(caught.value)
        await store.close()


@pytest.mark.req("SCL-4")
async def test_a_port_without_tls_is_named(redis: RedisServer) -> None:
    store = RedisStore(f"rediss://127.0.0.1:{redis.port}/0")
    with pytest.raises(StoreUnavailable, match="if the port is not for TLS, the address begins with redis://"):
        await store.get("a/b")
    await store.close()


@pytest.mark.req("SCL-4")
@pytest.mark.parametrize(
    ("scheme", "extra", "sentence"),
    [
        ("redis", ("--sentinel",), r"it is a sentinel, whose address begins with redis\+sentinel://"),
        ("redis+sentinel", (), "it is no sentinel: the address of one Redis begins with redis://"),
        ("redis+cluster", (), "it is no cluster: the address of one Redis begins with redis://"),
    ],
    ids=["sentinel as redis", "redis as sentinel", "redis as cluster"],
)
async def test_an_address_of_another_kind_is_named(scheme: str, extra: tuple[str, ...], sentence: str) -> None:
    with running_redis(*extra) as server:
        store = RedisStore(f"{scheme}://127.0.0.1:{server.port}/0")
        with pytest.raises(StoreUnavailable, match=sentence):
            await store.put("a/b", b"x", version=0, ttl=60)
        await store.close()


@pytest.mark.req("SCL-4")
async def test_one_node_of_a_cluster_is_named() -> None:
    """The other slots belong to a node that is not there."""
    with (
        running_redis("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no") as node,
        running_redis("--cluster-enabled", "yes") as other,
    ):
        for each, slots in ((node, range(1024)), (other, range(1024, 16384))):
            for slot in range(slots.start, slots.stop, 1024):
                each.command("CLUSTER", "ADDSLOTS", *map(str, range(slot, slot + 1024)))
        node.command("CLUSTER", "MEET", "127.0.0.1", str(other.port))
        async with asyncio.timeout(PATIENCE):
            while not node.command("GET", "mcplumb:{a}:b").startswith(b"-MOVED"):  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.05)
        store = RedisStore(f"redis://127.0.0.1:{node.port}/0")
        with pytest.raises(StoreUnavailable, match=r"MOVED: .* whose address begins with redis\+cluster://"):
            await store.put("a/b", b"x", version=0, ttl=60)
        await store.close()


@pytest.mark.req("SCL-4")
@pytest.mark.parametrize(
    ("password", "sentence"), [("", "NOAUTH: it needs a password"), (":Wr0ng@", "WRONGPASS: it refuses")]
)
async def test_the_password_of_a_cluster_is_named(password: str, sentence: str) -> None:
    with running_redis("--cluster-enabled", "yes") as node:
        assert node.command("CONFIG", "SET", "requirepass", "S3cret") == b"+OK"
        store = RedisStore(f"redis+cluster://{password}127.0.0.1:{node.port}")
        with pytest.raises(StoreUnavailable, match=sentence):
            await store.get("a/b")
        await store.close()


@pytest.mark.req("SCL-4")
async def test_an_error_response_fails_its_own_operation_only(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisStore(f"{redis.url}?prefix=own")
    redis.command("SET", "own:{a}:bad", "x")
    await store.put("a/good", b"x", version=0, ttl=60)
    for _ in range(20):
        answers = await asyncio.gather(store.get("a/good"), store.get("a/bad"), return_exceptions=True)
        assert [type(each) for each in answers] == [Record, StoreUnavailable]
        assert await store.get("a/good") is not None  # at once
    await store.close()
    assert len([each for each in caplog.records if each.name == "mcplumb.store"]) == 1


@asynccontextmanager
async def leading_to(places: list[RedisServer]) -> AsyncIterator[int]:
    """A port that leads to the first of these servers, as the name of a host does. Connections stay where they are."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_redis, to_redis = await asyncio.open_connection("127.0.0.1", places[0].port)
        await asyncio.gather(pass_on(reader, to_redis), pass_on(from_redis, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.req("SCL-4")
async def test_a_primary_that_becomes_a_replica_is_left() -> None:
    with running_redis() as old, running_redis() as new:
        places = [old]
        async with leading_to(places) as port:
            store = RedisStore(f"redis://127.0.0.1:{port}/0")
            assert await store.put("a/b", b"x", version=0, ttl=60) == 1
            places[0] = new
            old.command("REPLICAOF", "127.0.0.1", str(new.port))
            with pytest.raises(StoreUnavailable, match="READONLY"):
                await store.put("a/c", b"x", version=0, ttl=60)
            assert await store.put("a/c", b"x", version=0, ttl=60) == 1
            assert new.command("EXISTS", "mcplumb:{a}:c") == b":1"
            await store.close()


@pytest.mark.req("SCL-4")
@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "new"])
async def test_a_node_of_a_cluster_that_is_replaced_is_left(is_known: bool, at_once: int) -> None:
    """By a replica that the store has heard of, or only by one that its address names."""
    with running_cluster() as old, running_redis("--cluster-enabled", "yes") as new:
        store = RedisStore(f"redis+cluster://127.0.0.1:{old.port},127.0.0.1:{new.port}")
        if not is_known:
            assert await store.get("a/b") is None
            assert await store.wait("a/log", after=0, within=0.01) == []
        old.command("CLUSTER", "MEET", "127.0.0.1", str(new.port))
        async with asyncio.timeout(BOUND):
            node = old.text("CLUSTER", "MYID")
            while new.command("CLUSTER", "REPLICATE", node) != b"+OK":  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.05)
            while not new.command("GET", "probe").startswith(b"-MOVED"):  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.05)
            while old.command("WAIT", "1", "1000") != b":1":  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.05)
            assert await store.put("a/b", b"x", version=0, ttl=600) == 1
            assert await store.wait("a/log", after=0, within=0.01) == []
            while new.command("DBSIZE") != b":2":  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.05)
            old.kill()
            assert new.command("CLUSTER", "FAILOVER", "TAKEOVER") == b"+OK"
            versions = None
            while versions is None:
                with suppress(StoreUnavailable):
                    versions = await asyncio.gather(*(store.touch("a/b", ttl=600) for _ in range(at_once)))
                await asyncio.sleep(0.05)
            found = None
            while not found:
                with suppress(StoreUnavailable):
                    await store.append("a/log", b"x", ttl=60, most=9)
                    found = await store.wait("a/log", after=0, within=1)
                await asyncio.sleep(0.05)
        assert set(versions) == {1}
        await store.close()


@pytest.mark.req("SCL-4")
@pytest.mark.parametrize("closing", ["waits", "fails"])
async def test_operations_end_while_a_primary_is_left(
    closing: str, monkeypatch: pytest.MonkeyPatch, free_port: FreePort
) -> None:
    """One of them is cancelled meanwhile, or closing the connections fails."""
    with running_redis() as server:
        store = RedisStore(server.url)
        await store.put("a/b", b"x", version=0, ttl=60)
        server.command("REPLICAOF", "127.0.0.1", str(free_port()))
        pool = store._client.connection_pool
        disconnect, is_closing, may_close = pool.disconnect, asyncio.Event(), asyncio.Event()

        async def disconnect_later() -> None:
            is_closing.set()
            await may_close.wait()
            await disconnect()
            if closing == "fails":
                raise TimeoutError("The connection is broken.")

        monkeypatch.setattr(pool, "disconnect", disconnect_later)
        operations = [asyncio.ensure_future(store.put(f"a/{n}", b"x", version=0, ttl=60)) for n in range(3)]
        await is_closing.wait()
        if closing == "waits":
            operations[0].cancel()
        may_close.set()
        async with asyncio.timeout(BOUND):
            done = await asyncio.gather(*operations, return_exceptions=True)
        first = asyncio.CancelledError if closing == "waits" else StoreUnavailable
        assert [type(each) for each in done] == [first, StoreUnavailable, StoreUnavailable]
        await store.close()


async def test_older_protocol(redis: RedisServer) -> None:
    await check_store(asynccontextmanager(lambda: two_of(f"{redis.url}?protocol=2")))


async def test_a_read_that_waits_is_given_its_time(redis: RedisServer) -> None:
    """The option is for operations that have an answer at once."""
    store = RedisStore(f"{redis.url}?socket_timeout=0.2")
    assert await store.wait("a/silent", after=0, within=1.0) == []
    await store.close()


async def test_prefixes_are_apart(redis: RedisServer) -> None:
    one, other = RedisStore(f"{redis.url}?prefix=one"), RedisStore(f"{redis.url}?prefix=two")
    await one.put("a/b", b"x", version=0, ttl=60)
    assert await other.get("a/b") is None
    assert await one.remove("a/b")
    await one.close()
    await other.close()


async def test_all_keys_expire(redis: RedisServer) -> None:
    store = RedisStore(f"{redis.url}?prefix=ttl")
    await store.put("a/record", b"x", version=0, ttl=60)
    await store.open("a/log", ttl=60)
    await store.append("a/other", b"x", ttl=60, most=3)
    for name in ("record", "log", "other"):
        assert int(redis.command("PTTL", f"ttl:{{a}}:{name}")[1:]) > 0
    await store.close()


@pytest.mark.req("SCL-4")
@pytest.mark.parametrize("way", ["killed", "hangs"])
async def test_store_away(way: str) -> None:
    """Operations fail within a bound, many at once do not add up, and all works again when the store is back."""
    with running_redis() as server:
        store = RedisStore(server.url)
        await store.put("a/b", b"x", version=0, ttl=600)
        waiting = asyncio.ensure_future(store.wait("a/log", after=0, within=60))
        await asyncio.sleep(0.1)
        server.kill() if way == "killed" else server.hang()
        started = time.monotonic()
        answers = await asyncio.gather(*(store.get("a/b") for _ in range(2000)), return_exceptions=True)
        assert {type(answer) for answer in answers} == {StoreUnavailable}
        assert time.monotonic() - started < BOUND
        if way == "killed":
            with pytest.raises(StoreUnavailable):
                await waiting
            server.start()
        else:
            server.go_on()
        record = None
        async with asyncio.timeout(60):
            while True:
                try:
                    record = await store.get("a/b")
                except StoreUnavailable:
                    await asyncio.sleep(0.05)
                else:
                    break
        assert record is not None
        assert record.value == b"x"
        waiting.cancel()
        await asyncio.wait((waiting,))
        await store.close()
        with pytest.raises(StoreUnavailable, match="is closed"):
            await store.get("a/b")


@pytest.mark.parametrize(
    "address",
    [
        "redis://joe:S3cret@127.0.0.1:{port}/0",
        "redis+cluster://joe:S3cret@127.0.0.1:{port}",
        "redis+sentinel://joe:S3cret@127.0.0.1:{port}/main",
    ],
)
async def test_no_secrets(address: str, caplog: pytest.LogCaptureFixture, free_port: FreePort) -> None:
    caplog.set_level(logging.DEBUG, "mcplumb")
    store = RedisStore(address.format(port=free_port()))
    with pytest.raises(StoreUnavailable) as caught:
        await store.get("a/b")
    await store.close()
    for text in (caplog.text, str(caught.value), repr(caught.value), repr(store)):
        assert "S3cret" not in text
        assert "joe" not in text
    assert "127.0.0.1" in str(caught.value)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://joe:S3cret@h", "begins differently"),
        ("", "begins differently"),
        ("redis://joe:S3cret@host:port/0", "an invalid part"),
        ("redis://[joe:S3cret@host", "an invalid host"),
        ("redis://joe:12?S3cret@host/0", "an @ after its host. Special characters"),
        ("redis://joe:S3@cret/1@host/0", "an @ after its host"),
        ("redis://joe:12#S3cret@host/0", "a # in it"),
        ("redis://", "lacks a host"),
        ("rediss://joe:S3cret@:6379/0", "lacks a host"),
        ("redis://host/S3cret", "the number of a database"),
        ("redis://host/0?S3cret=1", "an option that the package redis does not know"),
        ("redis+cluster://host?S3cret=1", "an option that the package redis does not know"),
        ("redis+sentinel://host/main?S3cret=1", "an option that the package redis does not know"),
        ("redis+sentinel://host:port/main", "an invalid part"),
        ("redis://host?protocol=9", "an invalid part"),
        ("redis://host?retry=S3cret", "an invalid part"),
        ("redis://host?socket_timeout=S3cret", "an invalid part"),
        ("rediss://host?ssl_cert_reqs=S3cret", "an invalid part"),
        ("redis+cluster://host?db=-1", "an invalid part"),
        ("unix://relative.sock", "an absolute path"),
        ("redis://h?prefix=a{b}", "without braces"),
        ("redis+sentinel://joe:S3cret@h", "name the service"),
        ("redis+cluster://joe:S3cret@", "lacks a host"),
    ],
)
async def test_bad_addresses(address: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        open_store(address)
    assert "S3cret" not in str(caught.value)


async def test_store_objects_are_taken() -> None:
    store = MemoryStore()
    assert open_store(store) is store
