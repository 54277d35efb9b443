"""`RedisStore`: a shared store on Redis or Valkey, with the package ``redis``.

Records are hashes, logs are streams whose ids are ``position-0``. Each operation is one command or one script on one
key, so that it happens as a whole. The name of a key has its group in braces: a cluster keeps a group on one node.

All operations that begin in one turn of the event loop leave in one write, over one connection, and happen in their
order. After a failure, operations fail at once for a while that doubles with each further failure, up to a few seconds.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit, urlunsplit

from mcplumb.errors import StoreUnavailable, UsageError
from mcplumb.stores.shared_store import Entry, LogFull, Record

__all__ = ["RedisStore"]

_logger = logging.getLogger("mcplumb.store")

#: Seconds for Redis to answer, and to accept a connection.
_WITHIN = 3.0
#: Operations that wait for a connection at once. Each belongs to a request or a stream, which are limited as well.
_MAX_QUEUED = 20_000
#: Operations in one write.
_MAX_AT_ONCE = 500
#: Seconds without an attempt after the first failure, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 3.0
#: Seconds before the same failure is logged again.
_SAME_WARNING = 60.0
#: The longest blocking read, in seconds: a connection that broke silently is noticed after it.
_LONGEST_WAIT = 10.0

#: For addresses that may have been taken apart in another way than it was meant.
_ENCODE = (
    "Special characters in the user and the password are percent-encoded: %40 for @, %2F for /, %3F for ?, %23 for #."
)
#: Explanations of failures for operators: by the code of an error, which is within the text if a script failed, or by
#: the class of an exception.
_REASONS = {
    "WRONGTYPE": "another program has keys of these names: choose another ?prefix=",
    "READONLY": "it is a replica, which cannot be written to",
    "OOM": "its memory is full",
    "NOAUTH": "it needs a password",
    "WRONGPASS": "it refuses the user or the password",
    "NOPERM": "the user may not do this",
    "LOADING": "it is still loading its data",
    "MISCONF": "it cannot write its data to the disk",
    "NOREPLICAS": "it has fewer replicas than its min-replicas-to-write demands",
    "UNBLOCKED": "it has become a replica",
    "RedisClusterException": "no node of a cluster answers",
    "CLUSTERDOWN": "a node of the cluster is missing",
    "MOVED": "it is one node of a cluster, whose address begins with redis+cluster://",
    "DB": "it has no database of this number",
    "ENOENT": "the address names a file or socket that does not exist",
    "ECONNREFUSED": "nothing listens there",
    "ECONNRESET": "it closes the connection",
    "EHOSTUNREACH": "there is no route to the host",
    "ENETUNREACH": "there is no route to the host",
    "gaierror": "the name of the host cannot be resolved",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is for another name, or of an authority that is not known here: name "
    "yours with ?ssl_ca_certs=",
    "InvalidResponse": "it is not Redis",
    "ConnectionError": "it closes the connection",
    "TimeoutError": "it does not answer",
}
#: The package has classes for some of them, and leaves the code out of the text.
_CODES = {
    "AuthenticationError": "WRONGPASS",
    "BusyLoadingError": "LOADING",
    "ClusterDownError": "CLUSTERDOWN",
    "ConnectionResetError": "ECONNRESET",  # asyncio's own has no number
    "MovedError": "MOVED",
    "NoPermissionError": "NOPERM",
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
}
#: Explanations of error responses without a code, by how they begin.
_TEXTS = {
    r"unknown command .SENTINEL": "it is no sentinel: the address of one Redis begins with redis://",
    r"unknown command": "it is a sentinel, whose address begins with redis+sentinel://, or older than Redis 6.2",
    r"syntax error|Invalid stream ID": "it is older than Redis 6.2",
    r"Cluster mode is not enabled": "it is no cluster: the address of one Redis begins with redis://",
    r"max number of clients": "it has as many clients as its maxclients allows",
    r"No sentinel knows the name": "the sentinels know no primary of this name",
    r"The primary is down": "the sentinels consider the primary as down",
}
#: If no node of a cluster answers, a new client is made: the package asks only nodes that it has found, which may all
#: have been replaced, and forgets those of the address.
_NO_NODE = "RedisClusterException"
#: What to add before the first answer, by the scheme of the address and the reason.
_TLS_HINTS = {
    ("redis", "ConnectionError"): "; if the port is for TLS, the address begins with rediss://",
    ("rediss", "TimeoutError"): "; if the port is not for TLS, the address begins with redis://",
    ("redis+sentinel", "ConnectionError"): "; if the ports are for TLS, the address begins with rediss+sentinel://",
    ("rediss+sentinel", "TimeoutError"): "; if the ports are not for TLS, the address begins with redis+sentinel://",
}

# Scripts are sent as they are, not by their hashes: after a restart or a failover, Redis knows no hashes.
_PUT = """
local v = redis.call('HGET', KEYS[1], 'v') or '0'
if v ~= ARGV[1] then return 0 end
local n = redis.call('HINCRBY', KEYS[1], 'v', 1)
redis.call('HSET', KEYS[1], 'd', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return n"""
_TOUCH = """
local v = redis.call('HGET', KEYS[1], 'v')
if v then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return tonumber(v) or 0"""
_LAST = """
local function last(key)
  local info = redis.call('XINFO', 'STREAM', key)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then return tonumber(string.match(info[i + 1], '%d+')) end
  end
end
local function first()
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000000 + tonumber(now[2])
end
"""
_OPEN = f"""{_LAST}
if redis.call('EXISTS', KEYS[1]) == 0 then
  local id = string.format('%.0f-0', first())
  redis.call('XADD', KEYS[1], id, 'd', '')
  redis.call('XDEL', KEYS[1], id)
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return last(KEYS[1])"""
_APPEND = f"""{_LAST}
local newest = 0
if redis.call('EXISTS', KEYS[1]) == 1 then newest = last(KEYS[1]) elseif ARGV[5] == '1' then return 0 end
local at = tonumber(ARGV[4])
if at > 0 and at <= newest then return 0 end
if ARGV[6] == '1' and newest > 0 and redis.call('XLEN', KEYS[1]) >= tonumber(ARGV[3]) then return -1 end
if at == 0 then at = (newest > 0 and newest or first()) + 1 end
redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[3], string.format('%.0f-0', at), 'd', ARGV[1])
if ARGV[5] ~= '1' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return at"""


class RedisStore:
    """Keeps everything in Redis. See `SharedStore` for the methods.

    The address is ``redis://user:password@host:6379/0``, ``rediss://`` with TLS, ``unix:///path``,
    ``redis+cluster://host,host`` (``rediss+cluster://``) or ``redis+sentinel://host,host/name/0``
    (``rediss+sentinel://``). In its query, ``prefix`` is what the names of all keys begin with, ``sentinel_username``
    and ``sentinel_password`` are for the sentinels, and further options are those of
    ``redis.asyncio.Redis.from_url``.
    """

    def __init__(self, address: str) -> None:
        try:
            import redis.asyncio  # noqa: F401 - only to see whether it is installed
        except ImportError:
            raise UsageError("A store on Redis needs the package redis: pip install 'mcplumb[redis]'.") from None
        self._address = address
        scheme, rest = address.split("://", 1)
        self._shown = f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"
        try:
            parts = urlsplit(address)
        except ValueError:
            raise UsageError(f"The address of the shared store has an invalid host. {_ENCODE}") from None
        _check_parts(parts)
        self._is_cluster = parts.scheme.endswith("+cluster")
        self._prefix = parse_qs(parts.query).get("prefix", ["mcplumb"])[0]
        if not self._prefix or not self._prefix.isprintable() or {"{", "}"} & set(self._prefix):
            raise UsageError("The prefix of the keys of a shared store must be a word without braces.")
        #: Clients to close, besides the two below.
        self._sentinels: list[Any] = []
        self._client = self._connect()
        #: For reads that wait: these must not hold up other operations.
        self._waiting_client = self._connect(_LONGEST_WAIT)
        self._queue: list[tuple[tuple[Any, ...], asyncio.Future[Any]]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._pause = 0.0
        self._paused_until = 0.0
        #: When a failure was logged, by its reason: nodes of a cluster fail in several ways by turns.
        self._warned: dict[str, float] = {}
        #: Whether the lack of an answer was logged, and there has been none since.
        self._was_away = False
        self._has_answered = False
        #: The reason of the last failure.
        self._why = ""
        self._is_closed = False

    def __repr__(self) -> str:
        return f"RedisStore({self._shown!r})"

    # --- Records ---

    async def get(self, key: str) -> Record | None:
        """See `SharedStore`."""
        version, value = await self._run("HMGET", self._name(key), "v", "d")
        return None if version is None else Record(int(version), value)

    async def put(self, key: str, value: bytes, *, version: int, ttl: float) -> int | None:
        """See `SharedStore`."""
        written = await self._run("EVAL", _PUT, 1, self._name(key), version, value, _milliseconds(ttl))
        return int(written) or None

    async def touch(self, key: str, *, ttl: float) -> int | None:
        """See `SharedStore`."""
        return int(await self._run("EVAL", _TOUCH, 1, self._name(key), _milliseconds(ttl))) or None

    async def remove(self, key: str) -> bool:
        """See `SharedStore`."""
        return bool(await self._run("DEL", self._name(key)))

    # --- Logs ---

    async def open(self, key: str, *, ttl: float) -> int:
        """See `SharedStore`."""
        return int(await self._run("EVAL", _OPEN, 1, self._name(key), _milliseconds(ttl)))

    async def append(
        self,
        key: str,
        value: bytes,
        *,
        ttl: float,
        most: int,
        at: int | None = None,
        only_open: bool = False,
        refuse_full: bool = False,
    ) -> int | None:
        """See `SharedStore`."""
        options = (_milliseconds(ttl), most, at or 0, int(only_open), int(refuse_full))
        position = int(await self._run("EVAL", _APPEND, 1, self._name(key), value, *options))
        if position < 0:
            raise LogFull
        return position or None

    async def read(self, key: str, *, after: int, limit: int = 1000) -> list[Entry]:
        """See `SharedStore`."""
        return _entries(await self._run("XRANGE", self._name(key), f"({after}-0", "+", "COUNT", limit))

    async def wait(self, key: str, *, after: int, within: float) -> list[Entry]:
        """See `SharedStore`."""
        from redis.exceptions import ResponseError

        self._check()
        milliseconds = _milliseconds(min(within, _LONGEST_WAIT))
        name = self._name(key)
        client = self._waiting_client
        try:
            found = await client.xread({name: f"{after}-0"}, count=1000, block=milliseconds)
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no answer
            if self._is_cluster and not isinstance(error, ResponseError) and client is self._waiting_client:
                # The package asks one node where the key is, and does not look for another one when that is gone.
                # A client that is closed finds the nodes anew when it is used again.
                if type(error).__name__ == _NO_NODE:
                    self._waiting_client = self._connect(_LONGEST_WAIT)
                await _close(client)
            raise await self._failed(error) from None
        streams: Any = found.items() if isinstance(found, Mapping) else found or ()
        for _, entries in streams:
            # The newer protocol wraps the entries of a stream once more.
            return _entries(entries[0] if entries and isinstance(entries[0], list) else entries)
        return []

    async def trim(self, key: str, *, upto: int) -> None:
        """See `SharedStore`."""
        await self._run("XTRIM", self._name(key), "MINID", f"{upto}-1")

    async def is_open(self, key: str) -> bool:
        """See `SharedStore`."""
        return bool(await self._run("EXISTS", self._name(key)))

    async def close(self) -> None:
        """See `SharedStore`."""
        self._is_closed = True
        if self._flushing is not None and not self._flushing.done():
            await asyncio.wait((self._flushing,), timeout=_WITHIN)
            self._flushing.cancel()
        for client in (self._client, self._waiting_client, *self._sentinels):
            await _close(client)

    # --- Commands ---

    def _name(self, key: str) -> str:
        group, _, name = key.partition("/")
        return f"{self._prefix}:{{{group}}}:{name}"

    async def _run(self, *command: Any) -> Any:
        """Return the answer to a command."""
        self._check()
        if len(self._queue) >= _MAX_QUEUED:
            raise StoreUnavailable(f"The shared store at {self._shown} is too slow: {_MAX_QUEUED} operations wait.")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._queue.append((command, answer))
        if self._flushing is None or self._flushing.done():
            self._flushing = loop.create_task(self._flush())
        return await answer

    async def _flush(self) -> None:
        """Send queued operations until none is left."""
        while self._queue:
            batch, self._queue = self._queue[:_MAX_AT_ONCE], self._queue[_MAX_AT_ONCE:]
            try:
                async with asyncio.timeout(2 * _WITHIN):
                    answers = await self._answers([command for command, _ in batch])
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait get it
                failed = await self._failed(error)
                batch += self._queue
                self._queue = []
                answers = [failed] * len(batch)
            else:
                self._pause = 0.0
                self._has_answered = True
                if self._was_away:
                    self._was_away = False
                    _logger.info("The shared store at %s answers again.", self._shown)
            for (_, answer), value in zip(batch, answers, strict=True):
                if answer.done():
                    continue
                if not isinstance(value, Exception):
                    answer.set_result(value)
                    continue
                failed = value if isinstance(value, StoreUnavailable) else await self._failed(value)
                if not answer.done():  # the caller may have been cancelled meanwhile
                    answer.set_exception(failed)

    async def _answers(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        from redis.exceptions import ResponseError

        client = self._client
        try:
            if len(commands) == 1:  # a pipeline costs more
                try:
                    return [await client.execute_command(*commands[0])]
                except ResponseError as error:
                    return [error]
            pipeline = client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        except Exception as error:
            if type(error).__name__ == _NO_NODE:
                self._client = self._connect()
                await _close(client)
            raise
        return answers

    def _check(self) -> None:
        if self._is_closed:
            raise StoreUnavailable(f"The shared store at {self._shown} is closed.")
        if asyncio.get_running_loop().time() < self._paused_until:
            raise self._unavailable()

    async def _failed(self, error: Exception) -> StoreUnavailable:
        """Note a failure, and return the error to raise.

        An error response fails its own operation only. If there is no response, no other operation has to wait for one.
        """
        from redis.exceptions import ResponseError

        what, loop = _reason(error), asyncio.get_running_loop()
        if not self._has_answered:
            code = what.removeprefix("no sentinel can be asked: ").partition(":")[0]
            what += _TLS_HINTS.get((self._address.partition("://")[0], code), "")
        self._why = what
        if not self._is_closed:
            self._warned = {each: at for each, at in self._warned.items() if loop.time() - at <= _SAME_WARNING}
            if what not in self._warned:
                self._warned[what] = loop.time()
                self._was_away = self._was_away or not isinstance(error, ResponseError)
                _logger.warning("The shared store at %s failed (%s).", self._shown, what)
            if not isinstance(error, ResponseError):
                self._pause = min(max(self._pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
                self._paused_until = loop.time() + self._pause
            elif what.startswith("READONLY"):
                # After a failover, the address may lead to another server by now.
                for client in (self._client, self._waiting_client):
                    if hasattr(client, "connection_pool"):
                        with suppress(Exception):  # a connection that is broken already
                            await client.connection_pool.disconnect()
        return self._unavailable()

    def _unavailable(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"The shared store at {self._shown} cannot be used at present ({self._why}). Try again later."
        )

    # --- Addresses ---

    def _connect(self, waits: float = 0.0) -> Any:
        """Return an unconnected client. Redis may take this many seconds longer than usual to answer."""
        from redis.asyncio import Redis, RedisCluster
        from redis.asyncio.cluster import ClusterNode
        from redis.asyncio.connection import parse_url
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
        from redis.exceptions import RedisClusterException, RedisError

        retry = Retry(NoBackoff(), 0)  # a repeated write would be doubled
        parts = urlsplit(self._address)
        kind, is_sentinel = parts.scheme, parts.scheme.endswith("+sentinel")
        query, own = _own_options(parts.query, of_sentinels=is_sentinel)
        try:
            usual = float(own.get("socket_timeout", _WITHIN))
            options: dict[str, Any] = {
                "socket_timeout": usual + waits,
                "socket_connect_timeout": _WITHIN,
                "socket_keepalive": True,
            }
            if kind == "unix":
                del options["socket_keepalive"]
            if kind in ("redis", "rediss", "unix"):
                return _checked(Redis.from_url(urlunsplit(parts._replace(query=query)), retry=retry, **options))
            who, _, places = parts.netloc.rpartition("@")
            login = _login(*who.partition(":")[::2])
            hosts = [_host(place, 26379 if is_sentinel else 6379) for place in places.split(",")]
            given = parse_url(f"redis://?{query}")
            if is_sentinel:
                name, _, number = parts.path.strip("/").partition("/")
                if not name:
                    raise UsageError(f"The address of a sentinel must name the service: {kind}://host/NAME/0.")
                tls = {"ssl": True} if kind.startswith("rediss") else {}
                watched = self._watch(hosts, options | {"socket_timeout": usual} | tls, own, given)
                options |= {"db": int(number or 0), **login, **given, **tls}
                return _checked(watched.master_for(name, retry=retry, **options))
            nodes = [ClusterNode(host, port) for host, port in hosts]
            options |= given
            return RedisCluster(startup_nodes=nodes, ssl=kind == "rediss+cluster", **login, **options)
        except (ValueError, TypeError, AttributeError, RedisError, RedisClusterException) as error:
            if isinstance(error, UsageError):
                raise
            # Their texts quote the address.
            what = (
                "an option that the package redis does not know" if isinstance(error, TypeError) else "an invalid part"
            )
            raise UsageError(f"The address of the shared store has {what}. {_ENCODE}") from None

    def _watch(
        self, places: list[tuple[str, int]], options: dict[str, Any], own: dict[str, str], given: Mapping[str, Any]
    ) -> Any:
        """Return clients of sentinels. They have a login of their own, and the options for TLS are for them as well."""
        from mcplumb.stores.redis_sentinels import Sentinels

        login = _login(own.get("sentinel_username", ""), own.get("sentinel_password", ""))
        if login["username"] and not login["password"]:
            raise UsageError("The address of the shared store has a sentinel_username, but no sentinel_password.")
        of_tls = {name: value for name, value in given.items() if name.startswith("ssl_")}
        watched = Sentinels(places, {**options, **login, **of_tls})
        self._sentinels += watched.sentinels
        return watched


def _check_parts(parts: SplitResult) -> None:
    """Raise `UsageError` if the address has a part that the package would ignore, or replace by a default."""
    host = parts.netloc.rpartition("@")[2]
    if parts.fragment:
        raise UsageError(f"The address of the shared store has a # in it. {_ENCODE}")
    if parts.scheme == "unix":
        if host or not parts.path:
            raise UsageError("The address of a socket needs an absolute path: unix:///run/redis.sock.")
    elif "@" in parts.path + parts.query:
        raise UsageError(f"The address of the shared store has an @ after its host. {_ENCODE}")
    elif not host or host.startswith(":"):
        raise UsageError("The address of the shared store lacks a host.")
    elif parts.scheme in ("redis", "rediss") and not re.fullmatch(r"/?\d*", parts.path, re.ASCII):
        raise UsageError(
            "The address of the shared store ends with something else than the number of a database, as /0."
        )


async def _close(client: Any) -> None:
    try:
        await client.aclose()
    except Exception as error:  # noqa: BLE001 - it is as good as closed
        _logger.debug("A connection to the shared store was not closed in an orderly way: %s", type(error).__name__)


def _checked(client: Any) -> Any:
    """Return a client whose connections can be made; raise `TypeError` if there is no such option."""
    pool = client.connection_pool
    pool.connection_class(**pool.connection_kwargs)
    return client


def _reason(error: Exception) -> str:
    """Return why an operation failed, without anything that may quote a command or a password.

    Of a connection that could not be made, that is the system's or OpenSSL's name for the reason.
    """
    refusal = error.__cause__
    if type(error).__name__ == "MasterNotFoundError" and isinstance(refusal, Exception):
        why = _reason(refusal)
        hint = "; that of the sentinels is ?sentinel_password=" if why.startswith(("NOAUTH", "WRONGPASS")) else ""
        return f"no sentinel can be asked: {why}{hint}"
    # If no node of a cluster could be used, the last one that answered says more.
    if isinstance(refusal, Exception) and type(refusal).__name__ not in ("ConnectionError", "TimeoutError"):
        error = refusal
    what, words = type(error).__name__, str(error)
    for text, explanation in _TEXTS.items():
        if re.match(text, words):
            return explanation
    if isinstance(cause := error.__context__, OSError):
        what = getattr(cause, "reason", None) or errno.errorcode.get(cause.errno or 0) or type(cause).__name__
    found = {*re.split(r"[^A-Z]+", words), what}
    code = next((each for each in _REASONS if each in found), None) or _CODES.get(what)
    if code == "WRONGPASS" and words.startswith(("HELLO", "Authentication required")):
        code = "NOAUTH"
    if code is not None:
        return f"{code}: {_REASONS[code]}"
    word = words.split(" ", 1)[0]
    return f"{what} {word[:20]}" if word.isascii() and word.isalpha() and word.isupper() else what


def _own_options(query: str, *, of_sentinels: bool) -> tuple[str, dict[str, str]]:
    """Split a query into the options for the package, and those for the store itself, which are encoded still."""
    names = {"prefix", "socket_timeout"} | ({"sentinel_username", "sentinel_password"} if of_sentinels else set())
    rest, own = [], {}
    for option in filter(None, query.split("&")):
        name, _, value = option.partition("=")
        if name in names:
            own[name] = value
        else:
            rest.append(option)
    return "&".join(rest), own


def _login(user: str, password: str) -> dict[str, Any]:
    return {"username": unquote(user) or None, "password": unquote(password) or None}


def _host(place: str, port: int) -> tuple[str, int]:
    host, _, number = place.rpartition(":") if place.rpartition(":")[2].isdigit() else (place, "", "")
    if not host or (":" in host and not host.startswith("[")):
        raise ValueError
    return host.strip("[]"), int(number or port)


def _entries(found: Any) -> list[Entry]:
    return [Entry(int(place.partition(b"-")[0]), fields[b"d"] if isinstance(fields, dict) else fields[1])
            for place, fields in found]  # fmt: skip


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
