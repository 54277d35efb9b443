"""Results that need not be asked for again, as long as the server said that they stay fresh."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, TypeAlias

import msgspec

from mcplumb.protocol.subscription_state import Change, Missed, Topic
from mcplumb.types.base import COMPLETE, CacheableResult

__all__ = ["ResultCache"]

#: Results, and bytes of the JSON that they came in. In memory they take some times as much.
_MAX_ENTRIES = 1000
_MAX_BYTES = 16 * 1024 * 1024
#: A server that promises more than a day means "for long". Nobody watches a clock that long to find out.
_MAX_SECONDS = 24 * 60 * 60.0

#: What is stale when something has changed.
_AFFECTED: dict[Topic, tuple[str, ...]] = {
    "tools": ("tools/list",),
    "prompts": ("prompts/list",),
    "resources": ("resources/list", "resources/templates/list"),
    "updates": ("resources/read",),
}
#: The methods whose results may be kept at all.
_METHODS = ("server/discover", *(method for methods in _AFFECTED.values() for method in methods))
#: Requests with one of these depend on what a person answered.
_INPUT_PARAMS = ("inputResponses", "requestState")
#: What may follow the address of a resource in the address of a part of it.
_PART = ("/", "?", "#")

#: A method, and its params but for ``_meta``.
_Key: TypeAlias = tuple[str, frozenset[tuple[str, str]]]


class _Entry(msgspec.Struct, frozen=True):
    result: CacheableResult
    size: int
    expires: float


class ResultCache:
    """What one client may remember of one server, by the hints in the server's results.

    ``now`` is any clock in seconds that does not run backwards. A result is kept until its ``ttl_ms`` are over (at the
    most a day), a change concerns it, or others need its place: those that were not used for the longest time go first.
    Results without a positive ``ttl_ms``, those that took input from a person, and those with other params than texts
    are not kept. Both scopes are: there is one client, with one identity.

    All callers get the same object. It is frozen, but the lists and dicts in it are not: they must not be changed.
    Metadata is no part of what a request is known by; who sends some that changes the result has to do without.
    """

    def __init__(self, max_entries: int = _MAX_ENTRIES, max_bytes: int = _MAX_BYTES) -> None:
        #: How many requests were answered from here, and how many that could have been were not.
        self.hits = 0
        self.misses = 0
        #: Bytes that are kept.
        self.size = 0
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        # The first of a plain dict is found by stepping over all that were first before.
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._generations = dict.fromkeys(_METHODS, 0)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, method: str, params: dict[str, Any], now: float) -> CacheableResult | None:
        """The result of this request if it is still fresh."""
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
        """A number to take before a request is sent, and to give to ``put`` with its result.

        If something changes in between, the result may be older than that, and is not kept.
        """
        return self._generations.get(method, 0)

    def put(
        self, method: str, params: dict[str, Any], result: CacheableResult, *, size: int, now: float, generation: int
    ) -> None:
        """Keep a result that came now, if its hints allow. ``size`` is how many bytes of JSON it was."""
        key = _key(method, params)
        if key is None or generation != self._generations[method]:
            return
        self._take(key)
        if not result.ttl_ms or result.ttl_ms < 0 or result.result_type not in (None, COMPLETE):
            return
        if size > self._max_bytes:
            return
        self._put(key, _Entry(result, size, now + min(result.ttl_ms / 1000, _MAX_SECONDS)))
        while len(self._entries) > self._max_entries or self.size > self._max_bytes:
            self._take(next(iter(self._entries)))

    def changed(self, change: Change | Missed) -> None:
        """Drop what is stale now: a list, what was read of a resource, or everything if it is not known what changed.

        An update may be that of a part of a resource (with an address below its own): then the whole has changed, too.
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
        """Drop all results of a method, for instance all pages of a list when one of its cursors is not valid."""
        if method in self._generations:
            self._generations[method] += 1
        for key in [key for key in self._entries if key[0] == method]:
            self._take(key)

    def clear(self) -> None:
        """Drop everything, for instance because the server was started again."""
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
    """What a request is known by; None if its result must not be kept."""
    if method not in _METHODS:
        return None
    known = [(name, value) for name, value in params.items() if name != "_meta"]
    if any(name in _INPUT_PARAMS or not isinstance(value, str) for name, value in known):
        return None
    return method, frozenset(known)


def _reads(key: _Key, uri: str) -> bool:
    """Whether this is a request to read the resource with this address, or one that it is a part of."""
    method, params = key
    read = dict(params).get("uri", "")
    return method == "resources/read" and (
        uri == read or (uri.startswith(read) and (read.endswith(_PART) or uri[len(read) :].startswith(_PART)))
    )
