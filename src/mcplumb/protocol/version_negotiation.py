"""Admission of requests to a server: under which revision a request is served, or why it is refused.

The metadata of a modern request alone decides about it; earlier requests have no influence. A legacy client opens a
session with ``initialize``, which lasts as long as the connection, or until another ``initialize`` starts it over: some
bridges open a session of their own before they pass on that of their client. Both kinds may use the same connection, in
any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, final

import msgspec

from mcplumb.errors import DecodeError, UsageError
from mcplumb.protocol.transition_table import Table
from mcplumb.revisions import Revision, choose_revision, newest_first
from mcplumb.types.base import Implementation, Params, Payload
from mcplumb.types.lifecycle import ClientCapabilities, ElicitationCapability, RootsCapability, SamplingCapability
from mcplumb.types.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROTOCOL_VERSION,
    MissingCapabilityData,
    RequestMeta,
    UnsupportedVersionData,
)
from mcplumb.types.notification_params import LoggingLevel
from mcplumb.types.payload_decoder import read, undecoded
from mcplumb.wire.messages import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    ErrorDetail,
    Request,
    RequestId,
)

__all__ = [
    "SESSION",
    "Admission",
    "Admitted",
    "InitializedSession",
    "Need",
    "Refused",
    "has_capability",
    "missing_capability",
]

_MODERN_KEYS = frozenset((PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL))

#: The characters of a peer's version that are echoed in the error that refuses it.
_MAX_VERSION = 64
#: How many metadata objects are cached, and how many bytes each may have. The metadata of one client is usually
#: constant, or differs only in a progress token.
_MAX_CACHED = 16
_MAX_CACHED_SIZE = 2048

_Meta: Any = dict[str, Any] | None

_State: TypeAlias = Literal["unopened", "opened", "ready"]
_Event: TypeAlias = Literal["initialize", "initialized"]

SESSION: Table[_State, _Event] = Table(
    "session",
    "unopened",
    {
        ("unopened", "initialize"): "opened",
        ("opened", "initialize"): "opened",
        ("opened", "initialized"): "ready",
        ("ready", "initialize"): "opened",
        ("ready", "initialized"): "ready",
    },
    doc=(
        "A legacy session on the server's side. It lasts until the connection ends, so no state is final. Another "
        "`initialize` starts it over, if no request is in flight. Modern requests are served in every state and change "
        "none."
    ),
)


@final
class Admitted(msgspec.Struct, frozen=True):
    """Serve the request under this revision, for a client with these capabilities."""

    revision: Revision
    capabilities: ClientCapabilities
    client_info: Implementation | None
    #: The token for progress notifications; None to send none.
    progress_token: RequestId | None
    #: The minimum level of log messages for this request. A legacy session sets it once for all requests.
    log_level: LoggingLevel | None
    meta: RequestMeta


class InitializedSession(msgspec.Struct, frozen=True):
    """Answer ``initialize`` with this revision: the session is open."""

    revision: Revision
    capabilities: ClientCapabilities
    client_info: Implementation | None


class Refused(msgspec.Struct, frozen=True):
    """Answer with this error; the connection stays open."""

    error: ErrorDetail


_WITH_META = undecoded(Params, "meta")


class _LenientInitializeParams(Payload, frozen=True):
    """The params of ``initialize``, of which only the version is required: some clients send nothing else."""

    protocol_version: str
    capabilities: ClientCapabilities = ClientCapabilities()
    client_info: Implementation | None = None


class Admission:
    """Admits or refuses the requests of one connection. ``served`` are the revisions that the server offers there."""

    _latest: Admitted

    def __init__(self, served: Sequence[Revision]) -> None:
        if not served:
            raise UsageError("A server needs at least one protocol revision.")
        self.state: _State = SESSION.initial
        # By name, because every modern request looks its revision up.
        self._modern = {revision.name: revision for revision in newest_first(served) if revision.is_modern}
        self._legacy = [revision for revision in newest_first(served) if not revision.is_modern]
        #: The handshake of the legacy session; None while no session is open.
        self.session: InitializedSession | None = None
        # Admissions by the bytes of their metadata. Most requests of a client have the same metadata, and only the
        # metadata and the session decide about a request; the cache is cleared when a session starts over.
        self._cache: dict[bytes, Admitted] = {}
        # The metadata of the last request, which is usually that of the next one: comparing is faster than a lookup.
        self._latest_written = b""

    def request(
        self, request: Request, meta: msgspec.Raw | None = None, *, is_idle: bool = False
    ) -> Admitted | InitializedSession | Refused:
        """Admit or refuse a request by its method and metadata. Its other parameters are not read.

        ``meta`` is its metadata as raw JSON, if the caller has decoded that already. ``is_idle`` is whether no other
        request is in flight, so that ``initialize`` may start an open session over.
        """
        if meta is not None and bytes(meta) == self._latest_written:
            return self._latest
        try:
            if request.method == "initialize" and not self._is_modern(request):
                return self._handshake(request, is_idle=is_idle)
            written = bytes(read(_WITH_META, request.params, what="params").meta if meta is None else meta)
            verdict = self._from_cache(written)
            if verdict is not None and request.method != "server/discover":
                return verdict
            return self._decide(request.method, written)
        except DecodeError as error:
            return _invalid_params(str(error))

    def initialized(self) -> bool:
        """Record ``notifications/initialized``; return False if it is ignored because no session is open."""
        if self.state == "unopened":
            return False
        self.state = SESSION.after(self.state, "initialized")
        return True

    def _decide(self, method: str, written: bytes) -> Admitted | Refused:
        meta = RequestMeta.of(read(_Meta, written, what="params._meta"))
        if self._modern and (method == "server/discover" or not _MODERN_KEYS.isdisjoint(meta.raw)):
            return self._cached(written, self._admit_modern(meta))
        if self.session is not None:
            return self._cached(written, self._admit_in_session(self.session, meta))
        if self._legacy and method == "ping":
            return self._admit_in_session(InitializedSession(self._legacy[0], ClientCapabilities(), None), meta)
        return self._refuse_without_session(method)

    def _admit_modern(self, meta: RequestMeta) -> Admitted | Refused:
        version = meta.protocol_version
        if version is None:
            return _invalid_params(f"params._meta must have {PROTOCOL_VERSION!r}, the protocol version of the request.")
        revision = self._modern.get(version)
        if revision is None:
            return self._unsupported(version)
        capabilities = meta.client_capabilities
        if capabilities is None:
            return _invalid_params(f"params._meta must have {CLIENT_CAPABILITIES!r}, the client's capabilities.")
        return Admitted(revision, capabilities, meta.client_info, meta.progress_token, meta.log_level, meta)

    def _from_cache(self, written: bytes) -> Admitted | None:
        verdict = self._cache.get(written)
        if verdict is not None:
            self._latest_written, self._latest = written, verdict
        return verdict

    def _cached(self, written: bytes, verdict: Admitted | Refused) -> Admitted | Refused:
        if isinstance(verdict, Admitted) and len(written) <= _MAX_CACHED_SIZE:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[written] = verdict
        return verdict

    def _admit_in_session(self, session: InitializedSession, meta: RequestMeta) -> Admitted:
        return Admitted(session.revision, session.capabilities, session.client_info, meta.progress_token, None, meta)

    def _is_modern(self, request: Request) -> bool:
        """Return whether an ``initialize`` request has modern metadata: then it is a method that does not exist.

        Metadata alone does not make it modern, because a legacy client may send metadata of its own.
        """
        try:
            written = read(_WITH_META, request.params, what="params").meta
            version = RequestMeta.of(read(_Meta, written, what="params._meta")).protocol_version
        except DecodeError:
            return False
        return version is not None and (version in self._modern or not self._legacy)

    def _handshake(self, request: Request, *, is_idle: bool) -> InitializedSession | Refused:
        if not self._legacy:
            return self._unsupported(_requested_version(request))
        params = read(_LenientInitializeParams, request.params, what="params")
        if self.session is not None and not is_idle:
            return _invalid_request("The session is open and has requests in flight: initialize cannot start it over.")
        revision = choose_revision(self._legacy, [params.protocol_version]) or self._legacy[0]
        self.state = SESSION.after(self.state, "initialize")
        self.session = InitializedSession(revision, params.capabilities, params.client_info)
        self._cache.clear()
        self._latest_written = b""
        return self.session

    def _refuse_without_session(self, method: str) -> Refused:
        ways = []
        if self._modern:
            ways.append(f"send {PROTOCOL_VERSION!r} and {CLIENT_CAPABILITIES!r} in params._meta")
        if self._legacy:
            ways.append("open a session with initialize first")
        return _invalid_params(f"{method[:80]!r} came before any protocol version was agreed: {', or '.join(ways)}.")

    def _unsupported(self, version: str) -> Refused:
        # Only the modern versions: a request with metadata of a legacy version would be refused again.
        supported = list(self._modern)
        requested = version[:_MAX_VERSION]
        return Refused(
            ErrorDetail(
                UNSUPPORTED_VERSION,
                f"Unsupported protocol version {requested!r}: this server accepts requests in {', '.join(supported)}"
                + (", and in older versions after initialize." if self._legacy else "."),
                UnsupportedVersionData(supported, requested),
            )
        )


def _requested_version(request: Request) -> str:
    """Return the version that ``initialize`` asks for; an empty string if it cannot be read."""
    try:
        return read(_LenientInitializeParams, request.params, what="params").protocol_version
    except DecodeError:
        return ""


def _invalid_params(sentence: str) -> Refused:
    return Refused(ErrorDetail(INVALID_PARAMS, sentence))


def _invalid_request(sentence: str) -> Refused:
    return Refused(ErrorDetail(INVALID_REQUEST, sentence))


# Client capabilities that a handler needs.

Need: TypeAlias = Literal["roots", "sampling", "sampling.tools", "elicitation.form", "elicitation.url"]

_NEEDS: dict[Need, ClientCapabilities] = {
    "roots": ClientCapabilities(roots=RootsCapability()),
    "sampling": ClientCapabilities(sampling=SamplingCapability()),
    "sampling.tools": ClientCapabilities(sampling=SamplingCapability(tools={})),
    "elicitation.form": ClientCapabilities(elicitation=ElicitationCapability(form={})),
    "elicitation.url": ClientCapabilities(elicitation=ElicitationCapability(url={})),
}


def has_capability(declared: ClientCapabilities, need: Need) -> bool:
    """Return whether a client declared this capability."""
    sampling, elicitation = declared.sampling, declared.elicitation
    has: dict[Need, bool] = {
        "roots": declared.roots is not None,
        "sampling": sampling is not None,
        "sampling.tools": sampling is not None and sampling.tools is not None,
        "elicitation.form": elicitation is not None and elicitation.has_form,
        "elicitation.url": elicitation is not None and elicitation.has_url,
    }
    return has[need]


def missing_capability(need: Need) -> ErrorDetail:
    """Return the error for a request that needs a capability which the client does not declare."""
    return ErrorDetail(
        MISSING_CAPABILITY,
        f"This request needs the client capability {need!r}, which it does not declare.",
        MissingCapabilityData(_NEEDS[need]),
    )
