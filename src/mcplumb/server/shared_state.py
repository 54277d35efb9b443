"""What all connections of one server share."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.errors import UsageError
from mcplumb.limits import Limits
from mcplumb.protocol.admission import Admission
from mcplumb.revisions import Era, Revision
from mcplumb.rpc.thread_pool import Workers
from mcplumb.server.catalog import Catalog, WrittenPages
from mcplumb.server.results import ModernText, TextResult
from mcplumb.server.schema.codec import write
from mcplumb.types.base import COMPLETE, CacheScope, Implementation, Payload, Result
from mcplumb.types.lifecycle import ListCapability, ResourcesCapability, ServerCapabilities
from mcplumb.types.meta import SERVER_INFO
from mcplumb.types.revision_adapter import for_revision

if TYPE_CHECKING:
    from mcplumb.protocol.request_state import Sealer  # it loads hashlib, and most servers never ask

__all__ = ["SharedState"]


class SharedState(msgspec.Struct, kw_only=True):
    """The settings, the catalog and the threads of one server."""

    identity: Implementation
    instructions: str | None
    #: Newest first.
    revisions: tuple[Revision, ...]
    limits: Limits
    catalog: Catalog
    workers: Workers
    page_size: int
    ttl_ms: int
    cache_scope: CacheScope
    extensions: dict[str, Any] | None
    experimental: dict[str, Any] | None
    state_keys: list[bytes]
    state_ttl: float = 3600.0
    #: What the lifespan gave; None while the server does not run.
    lifespan: Any = None
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
        """What judges the requests of a connection on which this era is spoken, or both."""
        # The modern one remembers no client, so one does for all: there may be a connection for each request.
        if era == "modern" and self._modern_admission is not None:
            return self._modern_admission
        admission = Admission([each for each in self.revisions if era in (None, each.era)])
        if era == "modern":
            self._modern_admission = admission
        return admission

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server has. Each list may be empty now and have entries later, so all are named."""
        return ServerCapabilities(
            tools=ListCapability(list_changed=True),
            resources=ResourcesCapability(list_changed=True, subscribe=True),
            prompts=ListCapability(list_changed=True),
            completions={} if self.catalog.completions else None,
            logging={},
            extensions=self.extensions,
            experimental=self.experimental,
        )

    @property
    def sealer(self) -> Sealer:
        """Seals request state, with the keys given or, without any, with one that lasts as long as the process."""
        if self._sealer is None:
            from secrets import token_bytes  # most servers never ask

            from mcplumb.protocol.request_state import Sealer

            self._sealer = Sealer(self.state_keys or [token_bytes(32)], ttl=self.state_ttl)
        sealer: Sealer = self._sealer
        return sealer

    def check_keys(self) -> None:
        """UsageError if state cannot be sealed with the keys that were given, now and not at the first question."""
        self.sealer  # noqa: B018 - asking for it makes it

    def now(self) -> float:
        """The time by which request state is sealed."""
        return time.time()

    def result_meta(self, revision: Revision) -> dict[str, Any]:
        """The ``_meta`` of a result: who the server is. Not to be changed."""
        meta = self._result_meta.get(revision.name)
        if meta is None:
            written = msgspec.Raw(msgspec.json.encode(for_revision(self.identity, revision)))
            meta = self._result_meta[revision.name] = {SERVER_INFO: written}
        return meta

    def written(self, outcome: Any, revision: Revision) -> Any:
        """A result as this revision has it, with the server's name in its ``_meta`` where that is usual."""
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
        """The same for what the author's own handler returned."""
        written = {} if value is None else msgspec.json.decode(write(value))
        if not isinstance(written, dict):
            raise UsageError(f"A result has to be an object, and this is {type(value).__name__!r}.")
        if revision.has_result_types:
            written.setdefault("resultType", COMPLETE)
            written["_meta"] = self.result_meta(revision) | written.get("_meta", {})
        return written

    def pages(self, kind: str, version: int, revision: Revision) -> WrittenPages:
        """What was kept of this version of a list."""
        pages = self._pages.get((kind, revision.name))
        if pages is None or pages.version != version:
            pages = self._pages[kind, revision.name] = WrittenPages(version)
        return pages
