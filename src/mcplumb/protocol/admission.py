"""How a server takes a request in: under which revision it is served, or why it is refused.

Each modern request is judged by its own metadata and by nothing that came before it. A legacy client opens a session
with ``initialize``, which lasts as long as the connection. Both may use the same connection, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, final

import msgspec

from mcplumb.errors import DecodeError, UsageError
from mcplumb.protocol.state_table import Table
from mcplumb.revisions import Revision, choose_revision, newest_first
from mcplumb.types.base import Implementation, Payload
from mcplumb.types.decode import read
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
from mcplumb.types.notifications import LoggingLevel
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
    "Handshake",
    "Need",
    "Refused",
    "WithMeta",
    "has_capability",
    "missing_capability",
]

_State: TypeAlias = Literal["unopened", "opened", "ready"]
_Event: TypeAlias = Literal["initialize", "initialized"]

SESSION: Table[_State, _Event] = Table(
    "session",
    "unopened",
    {
        ("unopened", "initialize"): "opened",
        ("opened", "initialized"): "ready",
        ("ready", "initialized"): "ready",
    },
    doc=(
        "A legacy session on the server's side. It lasts until the connection ends, so no state is final. "
        "Modern requests are served in every state and change none."
    ),
)


@final
class Admitted(msgspec.Struct, frozen=True):
    """Serve the request under this revision, for a client with these capabilities."""

    revision: Revision
    capabilities: ClientCapabilities
    client_info: Implementation | None
    #: The token for progress notifications; None if the client wants none.
    progress_token: RequestId | None
    #: From which level on log messages are wanted for this request. A legacy session sets it once for all of them.
    log_level: LoggingLevel | None
    meta: RequestMeta


class Handshake(msgspec.Struct, frozen=True):
    """Answer ``initialize`` with this revision: the session with this client is open."""

    revision: Revision
    capabilities: ClientCapabilities
    client_info: Implementation | None


class Refused(msgspec.Struct, frozen=True):
    """Answer with this error; the stream goes on."""

    error: ErrorDetail


class Admission:
    """Judges the requests of one connection. ``served`` are the revisions that the server speaks there."""

    _latest: Admitted

    def __init__(self, served: Sequence[Revision]) -> None:
        if not served:
            raise UsageError("A server that speaks no protocol revision cannot serve anyone.")
        self.state: _State = SESSION.initial
        # By name: this is asked for every modern request.
        self._modern = {revision.name: revision for revision in newest_first(served) if revision.is_modern}
        self._legacy = [revision for revision in newest_first(served) if not revision.is_modern]
        #: How the legacy session was opened, or None while there is none.
        self.session: Handshake | None = None
        # What metadata said, by its bytes. A client sends the same with most requests, and the verdict follows from
        # nothing else; in a session, which opens once and stays as it is, from that as well.
        self._verdicts: dict[bytes, Admitted] = {}
        # The last of them, which is mostly the next one, too: to compare is quicker than to look up.
        self._latest_written = b""

    def request(self, request: Request, meta: msgspec.Raw | None = None) -> Admitted | Handshake | Refused:
        """Judge a request by its method and metadata. Its other parameters are not looked at.

        ``meta`` is its metadata as `WithMeta` gives it, if somebody has read it already.
        """
        if meta is not None and bytes(meta) == self._latest_written:
            return self._latest
        try:
            if request.method == "initialize" and not self._is_modern(request):
                return self._handshake(request)
            written = bytes(read(WithMeta, request.params, what="params").meta if meta is None else meta)
            verdict = self._recalled(written)
            if verdict is not None and request.method != "server/discover":
                return verdict
            return self._judged(request.method, written)
        except DecodeError as error:
            return _invalid(str(error))

    def _judged(self, method: str, written: bytes) -> Admitted | Refused:
        meta = RequestMeta.of(read(_Meta, written, what="params._meta"))
        if self._modern and (method == "server/discover" or not _MODERN_KEYS.isdisjoint(meta.raw)):
            return self._remembered(written, self._stateless(meta))
        if self.session is not None:
            return self._remembered(written, self._in_session(self.session, meta))
        if self._legacy and method == "ping":
            return self._in_session(Handshake(self._legacy[0], ClientCapabilities(), None), meta)
        return self._unopened(method)

    def initialized(self) -> bool:
        """The client said ``notifications/initialized``; False if that came out of turn and means nothing."""
        if self.state == "unopened":
            return False
        self.state = SESSION.after(self.state, "initialized")
        return True

    def _stateless(self, meta: RequestMeta) -> Admitted | Refused:
        version = meta.protocol_version
        if version is None:
            return _invalid(f"params._meta must have {PROTOCOL_VERSION!r}, the protocol version of the request.")
        revision = self._modern.get(version)
        if revision is None:
            return self._unsupported(version)
        capabilities = meta.client_capabilities
        if capabilities is None:
            return _invalid(f"params._meta must have {CLIENT_CAPABILITIES!r}, the client's capabilities.")
        return Admitted(revision, capabilities, meta.client_info, meta.progress_token, meta.log_level, meta)

    def _recalled(self, written: bytes) -> Admitted | None:
        verdict = self._verdicts.get(written)
        if verdict is not None:
            self._latest_written, self._latest = written, verdict
        return verdict

    def _remembered(self, written: bytes, verdict: Admitted | Refused) -> Admitted | Refused:
        if isinstance(verdict, Admitted) and len(written) <= _LONGEST_REMEMBERED:
            if len(self._verdicts) >= _MOST_REMEMBERED:
                self._verdicts.clear()
            self._verdicts[written] = verdict
        return verdict

    def _in_session(self, session: Handshake, meta: RequestMeta) -> Admitted:
        return Admitted(session.revision, session.capabilities, session.client_info, meta.progress_token, None, meta)

    def _is_modern(self, request: Request) -> bool:
        """Whether ``initialize`` comes with the metadata of a modern request: for those it is a method like any other.

        That means: one that there is not. A legacy client may have metadata of its own.
        """
        try:
            written = read(WithMeta, request.params, what="params").meta
            version = RequestMeta.of(read(_Meta, written, what="params._meta")).protocol_version
        except DecodeError:
            return False
        return version is not None and (version in self._modern or not self._legacy)

    def _handshake(self, request: Request) -> Handshake | Refused:
        if not self._legacy:
            return self._unsupported(_requested(request))
        opening = read(_Opening, request.params, what="params")
        if self.session is not None:
            return _wrong("This session is open already: initialize comes once, at its start.")
        revision = choose_revision(self._legacy, [opening.protocol_version]) or self._legacy[0]
        self.state = SESSION.after(self.state, "initialize")
        self.session = Handshake(revision, opening.capabilities, opening.client_info)
        return self.session

    def _unopened(self, method: str) -> Refused:
        ways = []
        if self._modern:
            ways.append(f"send {PROTOCOL_VERSION!r} and {CLIENT_CAPABILITIES!r} in params._meta")
        if self._legacy:
            ways.append("open a session with initialize first")
        return _invalid(f"{method[:80]!r} came before any protocol version was agreed: {', or '.join(ways)}.")

    def _unsupported(self, version: str) -> Refused:
        # Only the modern ones: a request with metadata in a legacy version would be refused again.
        supported = list(self._modern)
        requested = version[:_LONGEST_VERSION]
        return Refused(
            ErrorDetail(
                UNSUPPORTED_VERSION,
                f"Unsupported protocol version {requested!r}: this server takes requests in {', '.join(supported)}"
                + (", and in older versions after initialize." if self._legacy else "."),
                UnsupportedVersionData(supported, requested),
            )
        )


Need: TypeAlias = Literal["roots", "sampling", "sampling.tools", "elicitation.form", "elicitation.url"]

_NEEDS: dict[Need, ClientCapabilities] = {
    "roots": ClientCapabilities(roots=RootsCapability()),
    "sampling": ClientCapabilities(sampling=SamplingCapability()),
    "sampling.tools": ClientCapabilities(sampling=SamplingCapability(tools={})),
    "elicitation.form": ClientCapabilities(elicitation=ElicitationCapability(form={})),
    "elicitation.url": ClientCapabilities(elicitation=ElicitationCapability(url={})),
}


def has_capability(declared: ClientCapabilities, need: Need) -> bool:
    """Whether a client declared that it can do this."""
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
    """The error for a request that cannot be served without a capability which it does not declare."""
    return ErrorDetail(
        MISSING_CAPABILITY,
        f"This request needs the client capability {need!r}, which it does not declare.",
        MissingCapabilityData(_NEEDS[need]),
    )


#: A peer's version is echoed in the error that refuses it; nobody needs a longer one.
_LONGEST_VERSION = 64

_MODERN_KEYS = frozenset((PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL))


#: How much metadata is remembered: for one client it is most often the same, or differs in a progress token.
_MOST_REMEMBERED = 16
_LONGEST_REMEMBERED = 2048

_Meta: Any = dict[str, Any] | None


class WithMeta(Payload, frozen=True, kw_only=True):
    """The params of a request, of which the metadata is left as it is written. Subclasses read more of them."""

    meta: msgspec.Raw = msgspec.field(name="_meta", default=msgspec.Raw(b"null"))


class _Opening(Payload, frozen=True):
    """The params of ``initialize``, forgiving: clients in the wild leave out all but the version."""

    protocol_version: str
    capabilities: ClientCapabilities = ClientCapabilities()
    client_info: Implementation | None = None


def _requested(request: Request) -> str:
    """The version that ``initialize`` asks for; empty if that cannot be read."""
    try:
        return read(_Opening, request.params, what="params").protocol_version
    except DecodeError:
        return ""


def _invalid(sentence: str) -> Refused:
    return Refused(ErrorDetail(INVALID_PARAMS, sentence))


def _wrong(sentence: str) -> Refused:
    return Refused(ErrorDetail(INVALID_REQUEST, sentence))
