"""The result cache: results that the server allows the client to keep, until they expire or change."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, TypeAlias

import msgspec

from mcplumb.protocol.subscription_state import Change, Missed, Topic
from mcplumb.types.base import COMPLETE, CacheableResult

__all__ = ["ResultCache"]

#: The number of results, and of bytes of their JSON. In memory they take a few times as much.
_MAX_ENTRIES = 1000
_MAX_BYTES = 16 * 1024 * 1024
#: The longest time for which a result is kept.
_MAX_SECONDS = 24 * 60 * 60.0

#: The methods whose results become stale with a change.
_AFFECTED: dict[Topic, tuple[str, ...]] = {
    "tools": ("tools/list",),
    "prompts": ("prompts/list",),
    "resources": ("resources/list", "resources/templates/list"),
    "updates": ("resources/read",),
}
#: The methods whose results may be cached.
_METHODS = ("server/discover", *(method for methods in _AFFECTED.values() for method in methods))
#: Results of requests with these params depend on a user's input.
_INPUT_PARAMS = ("inputResponses", "requestState")
#: What follows the URI of a resource in the URI of one of its parts.
_PART = ("/", "?", "#")

#: A method, and its params without ``_meta``.
_Key: TypeAlias = tuple[str, frozenset[tuple[str, str]]]


class _Entry(msgspec.Struct, frozen=True):
    result: CacheableResult
    size: int
    expires: float


class ResultCache:
    """The cached results of one server, according to the cache hints in its results.

    ``now`` is any monotonic clock in seconds. A result is kept until its ``ttl_ms`` are over (a day at most), a change
    affects it, or it is evicted as the least recently used. Results without a positive ``ttl_ms``, results that took
    input from a user, and results of requests with params other than strings are not cached. Both cache scopes are
    cached, because a client has one identity.

    All callers get the same object. It is frozen, but the lists and dicts in it are not: do not modify them. Metadata
    is not part of the key, so requests with metadata of their own must bypass the cache.
    """

    def __init__(self, max_entries: int = _MAX_ENTRIES, max_bytes: int = _MAX_BYTES) -> None:
        #: The number of cacheable requests answered from the cache, and not.
        self.hits = 0
        self.misses = 0
        #: The bytes of JSON of all cached results.
        self.size = 0
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        # Not a plain dict: finding its first key steps over all deleted ones.
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._generations = dict.fromkeys(_METHODS, 0)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, method: str, params: dict[str, Any], now: float) -> CacheableResult | None:
        """Return the cached result of a request, if it is still fresh."""
        key = _key(method, params)
        if key is None:
            return None
        entry = self._take(key)
        if entry is None or now >= entry.expires:
            self.misses += 1
            return None
        self.hits += 1
        self._put(key, entry)
        return entry.result

    def generation(self, method: str) -> int:
        """Return the generation of a method: take it before sending a request, and pass it to ``put`` with the result.

        If a change comes in between, the result may be older than the change, and is not cached.
        """
        return self._generations.get(method, 0)

    def put(
        self, method: str, params: dict[str, Any], result: CacheableResult, *, size: int, now: float, generation: int
    ) -> None:
        """Cache a result, if its hints allow. ``size`` is its size in bytes of JSON."""
        key = _key(method, params)
        if key is None or generation != self._generations[method]:
            return
        self._take(key)
        if not result.ttl_ms or result.ttl_ms < 0 or result.result_type not in (None, COMPLETE):
            return
        if size > self._max_bytes:
            return
        # Bounded first: an integer of hundreds of digits is no float.
        seconds = min(result.ttl_ms, _MAX_SECONDS * 1000) / 1000
        self._put(key, _Entry(result, size, now + seconds))
        while len(self._entries) > self._max_entries or self.size > self._max_bytes:
            self._take(next(iter(self._entries)))

    def changed(self, change: Change | Missed) -> None:
        """Drop what a change makes stale: a list, a resource, or everything if changes were missed.

        An update of a part of a resource (a URI below its own) also makes the whole resource stale.
        """
        if isinstance(change, Missed):
            self.clear()
        elif change.topic == "updates" and change.uri is not None:
            self._generations["resources/read"] += 1
            for key in [key for key in self._entries if _reads(key, change.uri)]:
                self._take(key)
        else:
            for method in _AFFECTED[change.topic]:
                self.forget(method)

    def forget(self, method: str) -> None:
        """Drop all results of a method, for example all pages of a list when one of its cursors is invalid."""
        if method in self._generations:
            self._generations[method] += 1
        for key in [key for key in self._entries if key[0] == method]:
            self._take(key)

    def clear(self) -> None:
        """Drop everything, for example because the server was restarted."""
        for method in _METHODS:
            self.forget(method)

    def _put(self, key: _Key, entry: _Entry) -> None:
        self._entries[key] = entry
        self.size += entry.size

    def _take(self, key: _Key) -> _Entry | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= entry.size
        return entry


def _key(method: str, params: dict[str, Any]) -> _Key | None:
    """Return the cache key of a request; None if its result must not be cached."""
    if method not in _METHODS:
        return None
    known = [(name, value) for name, value in params.items() if name != "_meta"]
    if any(name in _INPUT_PARAMS or not isinstance(value, str) for name, value in known):
        return None
    return method, frozenset(known)


def _reads(key: _Key, uri: str) -> bool:
    """Return whether a key reads the resource with this URI, or a resource that contains it."""
    method, params = key
    read = dict(params).get("uri", "")
    return method == "resources/read" and (
        uri == read or (uri.startswith(read) and (read.endswith(_PART) or uri[len(read) :].startswith(_PART)))
    )
