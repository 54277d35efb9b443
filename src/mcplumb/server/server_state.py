"""The state that all connections of one server share: settings, catalog, thread pool and encoded results."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.errors import StoreUnavailable, UsageError
from mcplumb.limits import Limits
from mcplumb.protocol.version_negotiation import Admission
from mcplumb.revisions import Era, Revision
from mcplumb.rpc.thread_pool import ThreadPool
from mcplumb.server.catalog import Catalog, WrittenPages
from mcplumb.server.results import ModernText, TextResult
from mcplumb.server.schema.type_codec import write
from mcplumb.types.base import COMPLETE, CacheScope, Implementation, Payload, Result
from mcplumb.types.lifecycle import ListCapability, ResourcesCapability, ServerCapabilities
from mcplumb.types.meta import SERVER_INFO
from mcplumb.types.revision_adapter import for_revision

if TYPE_CHECKING:
    from mcplumb.protocol.sealed_request_state import Sealer  # loads hashlib, which most servers never need
    from mcplumb.rpc.observed_endpoint import Observer

__all__ = ["SharedState"]


class SharedState(msgspec.Struct, kw_only=True):
    """The settings, the catalog and the thread pool of one server, and caches of what it encodes often."""

    identity: Implementation
    instructions: str | None
    #: Newest first.
    revisions: tuple[Revision, ...]
    limits: Limits
    catalog: Catalog
    thread_pool: ThreadPool
    page_size: int
    ttl_ms: int
    cache_scope: CacheScope
    narrow_lists: bool = False
    extensions: dict[str, Any] | None
    experimental: dict[str, Any] | None
    state_keys: list[bytes]
    state_ttl: float = 3600.0
    #: The value that the lifespan yielded; None while the server does not run.
    lifespan: Any = None
    #: Observes the requests of new sessions, if they are counted or traced.
    observer: Observer | None = None
    #: Whether the keys that seal request state come from other replicas, and are not known yet.
    awaits_keys: bool = False
    _sealer: Any = None
    _modern_admission: Admission | None = None
    #: The encoded ``_meta`` of text results, by the names of the revisions that have it.
    text_meta: dict[str, msgspec.Raw] = {}
    _result_meta: dict[str, dict[str, Any]] = {}
    _pages: dict[tuple[str, str], WrittenPages] = {}

    def __post_init__(self) -> None:
        for revision in self.revisions:
            if revision.has_result_types:
                self.text_meta[revision.name] = msgspec.Raw(msgspec.json.encode(self.result_meta(revision)))

    def admission(self, era: Era | None) -> Admission:
        """Return the admission rules for a connection that is limited to this era, or to none."""
        # The modern rules keep no state, so connections share them: over HTTP, each request has its own connection.
        if era == "modern" and self._modern_admission is not None:
            return self._modern_admission
        admission = Admission([each for each in self.revisions if era in (None, each.era)])
        if era == "modern":
            self._modern_admission = admission
        return admission

    @property
    def capabilities(self) -> ServerCapabilities:
        """The server's capabilities. Empty lists are declared as well, because entries may be added later."""
        return ServerCapabilities(
            tools=ListCapability(list_changed=True),
            resources=ResourcesCapability(list_changed=True, subscribe=True),
            prompts=ListCapability(list_changed=True),
            completions={} if self.catalog.has_completions else None,
            logging={},
            extensions=self.extensions,
            experimental=self.experimental,
        )

    @property
    def sealer(self) -> Sealer:
        """The sealer of request state, with the given keys or, without any, a random key of this process."""
        if self._sealer is None:
            if self.awaits_keys:
                raise StoreUnavailable(
                    "The keys for request state are in the shared store, which has not been reached yet. Try again."
                )
            from secrets import token_bytes  # most servers never need it

            from mcplumb.protocol.sealed_request_state import Sealer

            self._sealer = Sealer(self.state_keys or [token_bytes(32)], ttl=self.state_ttl)
        sealer: Sealer = self._sealer
        return sealer

    def use_keys(self, keys: list[bytes]) -> None:
        """Seal with the first of these keys from now on, and open what any of them has sealed."""
        from mcplumb.protocol.sealed_request_state import Sealer

        self._sealer = Sealer(keys, ttl=self.state_ttl)

    def check_keys(self) -> None:
        """Raise UsageError if the given keys cannot seal state, now rather than at the first request for input."""
        self.sealer  # noqa: B018 - the property creates it

    def now(self) -> float:
        """Return the time used for sealing request state."""
        return time.time()

    def result_meta(self, revision: Revision) -> dict[str, Any]:
        """Return the ``_meta`` of results, with the server's name and version. Do not modify it."""
        meta = self._result_meta.get(revision.name)
        if meta is None:
            written = msgspec.Raw(msgspec.json.encode(for_revision(self.identity, revision)))
            meta = self._result_meta[revision.name] = {SERVER_INFO: written}
        return meta

    def written(self, outcome: Any, revision: Revision) -> Any:
        """Return a result in the form of a revision, with the server's name in ``_meta`` if the revision has that."""
        if type(outcome) is TextResult:
            meta = self.text_meta.get(revision.name)
            return outcome if meta is None else ModernText(outcome.content, meta)
        if isinstance(outcome, msgspec.Raw):
            return outcome
        if not isinstance(outcome, Payload):
            return self._written_object(outcome, revision)
        if revision.has_result_types and isinstance(outcome, Result):
            return for_revision(outcome, revision, {"meta": self.result_meta(revision) | (outcome.meta or {})})
        return for_revision(outcome, revision)

    def _written_object(self, value: Any, revision: Revision) -> dict[str, Any]:
        """Return the result of a custom request handler as an object in the form of a revision."""
        written = {} if value is None else msgspec.json.decode(write(value))
        if not isinstance(written, dict):
            raise UsageError(f"A result must be an object, not a {type(value).__name__!r}.")
        if revision.has_result_types:
            written.setdefault("resultType", COMPLETE)
            written["_meta"] = self.result_meta(revision) | written.get("_meta", {})
        return written

    def pages(self, kind: str, version: int, revision: Revision) -> WrittenPages:
        """Return the encoded pages of this version of a list."""
        pages = self._pages.get((kind, revision.name))
        if pages is None or pages.version != version:
            pages = self._pages[kind, revision.name] = WrittenPages(version)
        return pages
