"""Era detection: the client's state machine that finds out whether a server is modern or legacy.

The client sends ``server/discover`` (the probe) first. A modern server answers it; a legacy server answers with any
error, not at all, or by exiting. Silence is the hard case: a modern server may be slow to start, and a legacy server
may never answer. So a short time after the server has read the probe, the client sends ``initialize`` as well, while
the probe stays open: the first answer decides, and a late answer to the probe still counts until the server has
answered ``initialize``. Until the probe is read, the server is still starting, and its silence means nothing. But some
servers of both eras refuse everything modern once they have read ``initialize``. So after a late answer the client
repeats the probe: if the server refuses it now, the client starts another process and sends it nothing but the probe.
Some bridges cannot cope with the probe, and refuse ``initialize`` after it or exit: another process gets nothing but
``initialize``.

The machine does no I/O. Each method takes an event and the time, and returns the actions to take, in order; between
calls, ``deadline`` is the time to call ``due``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from mcplumb.errors import ConnectError, ConnectTimeout, DecodeError, NoCommonRevision, UsageError
from mcplumb.protocol.transition_table import Table
from mcplumb.revisions import LATEST, LATEST_LEGACY, Era, Revision, choose_revision, newest_first
from mcplumb.types.meta import UnsupportedVersionData
from mcplumb.types.payload_decoder import read
from mcplumb.wire.messages import UNSUPPORTED_VERSION, ErrorDetail

__all__ = [
    "DEFAULT_WAITS",
    "ERA",
    "Action",
    "Agreed",
    "EraFinder",
    "EraWaits",
    "Failed",
    "SendInitialize",
    "SendInitialized",
    "SendProbe",
    "StartAgain",
]

_State: TypeAlias = Literal[
    "idle",
    "probing",
    "hedging",
    "settling",
    "confirming",
    "waiting",
    "initializing",
    "restarting",
    "asking",
    "modern",
    "legacy",
    "failed",
]
_Event: TypeAlias = Literal[
    "probe",
    "retry",
    "discovered",
    "doubt",
    "turned",
    "refused",
    "quiet",
    "initialize",
    "answered",
    "settled",
    "denied",
    "exited",
    "afresh",
    "ask",
    "fail",
]

_Question: TypeAlias = Literal["probe", "initialize"]

ERA: Table[_State, _Event] = Table(
    "era",
    "idle",
    {
        ("idle", "probe"): "probing",
        ("idle", "initialize"): "initializing",
        ("probing", "discovered"): "modern",
        ("probing", "retry"): "probing",
        ("probing", "refused"): "initializing",
        ("probing", "quiet"): "hedging",
        ("probing", "exited"): "restarting",
        ("probing", "ask"): "asking",
        ("probing", "fail"): "failed",
        ("hedging", "doubt"): "confirming",
        ("hedging", "retry"): "hedging",
        ("hedging", "refused"): "initializing",
        ("hedging", "answered"): "settling",
        ("hedging", "denied"): "waiting",
        ("hedging", "exited"): "restarting",
        ("hedging", "fail"): "failed",
        ("settling", "doubt"): "confirming",
        ("settling", "retry"): "settling",
        ("settling", "refused"): "legacy",
        ("settling", "settled"): "legacy",
        ("settling", "exited"): "restarting",
        ("confirming", "discovered"): "modern",
        ("confirming", "turned"): "restarting",
        ("confirming", "fail"): "failed",
        ("waiting", "discovered"): "modern",
        ("waiting", "retry"): "waiting",
        ("waiting", "exited"): "restarting",
        ("waiting", "afresh"): "restarting",
        ("waiting", "fail"): "failed",
        ("initializing", "answered"): "legacy",
        ("initializing", "probe"): "probing",
        ("initializing", "exited"): "restarting",
        ("initializing", "afresh"): "restarting",
        ("initializing", "ask"): "asking",
        ("initializing", "fail"): "failed",
        ("restarting", "probe"): "probing",
        ("restarting", "initialize"): "initializing",
        ("restarting", "fail"): "failed",
        ("asking", "fail"): "failed",
    },
    final=("modern", "legacy", "failed"),
    doc=(
        "How a client detects a server's era. In *probing* the request `server/discover` is open; in *hedging* "
        "`initialize` is open as well; in *settling* `initialize` was answered first, and the other answer gets a "
        "little more time; in *confirming* `server/discover` was answered after `initialize` was sent, and is sent "
        "again; in *waiting* `initialize` was refused, so the server is modern and slow; in *restarting* another "
        "process is started, because this one has exited, or is confused by the requests so far; in *asking* there is "
        "no common revision, and one more request finds out which revisions to name in the error."
    ),
)


class EraWaits(msgspec.Struct, frozen=True, kw_only=True):
    """The timeouts of era detection, in seconds."""

    #: For an answer to the probe, once the server has read it, before ``initialize`` is sent as well.
    quiet: float = 1.0
    #: Like ``quiet``, for a server that was modern when it was last connected.
    quiet_modern: float = 15.0
    #: Like ``quiet``, from the sending on, where it cannot be known whether the server has read the probe: it may still
    #: be starting. As long as other clients wait.
    quiet_unseen: float = 10.0
    #: For the probe's answer, after ``initialize`` was answered first.
    settle: float = 0.1
    #: For the answer that is needed only to name the server's revisions in an error.
    ask: float = 1.0
    #: For the whole detection, including the server's start.
    patience: float = 60.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            wait = getattr(self, name)
            if not 0 < wait < float("inf"):
                raise UsageError(f"The wait {name} is {wait}: it must be a number of seconds, more than 0.")


DEFAULT_WAITS = EraWaits()

#: How much of a peer's text, and how many of its revisions, an error quotes.
_MAX_QUOTE = 100
_MAX_NAMES = 20

#: The states in which an answer to each request counts; in *asking* it is the request that was sent last.
_OPEN: dict[_Question, frozenset[_State]] = {
    "probe": frozenset(("probing", "hedging", "settling", "confirming", "waiting")),
    "initialize": frozenset(("hedging", "initializing")),
}


class SendProbe(msgspec.Struct, frozen=True):
    """Send ``server/discover`` with this revision in its metadata."""

    revision: Revision


class SendInitialize(msgspec.Struct, frozen=True):
    """Send ``initialize`` with this revision."""

    revision: Revision


class SendInitialized(msgspec.Struct, frozen=True):
    """Send ``notifications/initialized``: the session is open."""


class StartAgain(msgspec.Struct, frozen=True):
    """The process exited, or is confused, because of a request: start another process, then call ``started``."""


class Agreed(msgspec.Struct, frozen=True):
    """Both sides use this revision from now on."""

    revision: Revision


class Failed(msgspec.Struct, frozen=True):
    """Client and server cannot agree; the error says why."""

    error: ConnectError


Action: TypeAlias = SendProbe | SendInitialize | SendInitialized | StartAgain | Agreed | Failed


class EraFinder:
    """Detects the era of one server. Create one for each connect or restart.

    ``allowed`` are the revisions that the user allows. ``remembered`` is the era that was detected earlier: after
    ``legacy`` the probe is skipped, after ``modern`` a silent server gets more time; a wrong value is noticed, and the
    probe sent after all. ``can_start_afresh`` is whether another process can be started that has read nothing yet.
    Answers to requests that are not open are counted in ``late`` and ignored.
    """

    def __init__(
        self,
        allowed: Sequence[Revision],
        *,
        waits: EraWaits = DEFAULT_WAITS,
        remembered: Era | None = None,
        can_start_afresh: bool = False,
    ) -> None:
        if not allowed:
            raise UsageError("No protocol revision is allowed: allow at least one.")
        self.state: _State = ERA.initial
        self.late = 0
        self._allowed = newest_first(allowed)
        self._modern = [revision for revision in self._allowed if revision.is_modern]
        self._legacy = [revision for revision in self._allowed if not revision.is_modern]
        self._waits = waits
        self._remembered = remembered
        self._can_start_afresh = can_start_afresh
        self._give_up_at = 0.0
        self._timer: float | None = None
        #: Whether the timer starts when the server has read the probe.
        self.awaits_reading = False
        #: The modern revisions that the probe was sent with.
        self._probed: list[Revision] = []
        #: Whether a probe was sent to this process, and not to one before it.
        self._probed_here = False
        #: Whether the server proved to be modern, by the error that lists its versions.
        self._is_modern = False
        #: The actions to take when the wait in *settling* is over.
        self._held: tuple[Action, ...] = ()
        self._refusal: ErrorDetail | None = None
        self._denial: ErrorDetail | None = None
        #: The revisions that the server named.
        self._theirs: list[str] = []
        #: How often the server was started again.
        self._restarts = 0
        self._after_restart: _Question = "initialize"
        self._asked: _Question | None = None

    @property
    def deadline(self) -> float | None:
        """When to call ``due``; None before the start and after the end."""
        if self.state == "idle" or self.ended:
            return None
        return self._give_up_at if self._timer is None else min(self._timer, self._give_up_at)

    @property
    def ended(self) -> bool:
        """Whether the detection has ended, with an agreement or a failure."""
        return self.state in ERA.final

    def started(self, now: float) -> tuple[Action, ...]:
        """The server's process was started or restarted."""
        self._probed_here = False
        if self.state == "restarting":
            return self._probe(now) if self._after_restart == "probe" else self._initialize("initialize")
        self._give_up_at = now + self._waits.patience
        knows_legacy = self._remembered == "legacy" and self._legacy
        return self._initialize("initialize") if knows_legacy or not self._modern else self._probe(now)

    def probe_read(self, now: float, *, is_known: bool) -> None:
        """The server has read the probe; without ``is_known``, it may have. Does nothing if that is not awaited."""
        if self.awaits_reading:
            self.awaits_reading = False
            quiet = self._waits.quiet_modern if self._remembered == "modern" else self._waits.quiet
            self._timer = now + (quiet if is_known else max(quiet, self._waits.quiet_unseen))

    def probe_result(self, supported: Any, now: float) -> tuple[Action, ...]:
        """``server/discover`` was answered; ``supported`` is the ``supportedVersions`` of that result."""
        if self._is_late("probe"):
            return ()
        if not isinstance(supported, list | tuple) or not supported:
            return self._refused(ErrorDetail(0, "a result that names no versions"), now)
        self._note_versions(supported)
        revision = None if self.state == "asking" else choose_revision(self._allowed, supported)
        if revision is None:
            return self._no_common()
        if not revision.is_modern:
            return self._chosen_legacy(revision, now)
        if self.state in ("hedging", "settling"):
            self._move("doubt")
            self._timer = None
            return (SendProbe(revision),)
        self._move("discovered")
        return (Agreed(revision),)

    def probe_error(self, error: ErrorDetail, now: float) -> tuple[Action, ...]:
        """``server/discover`` was answered with an error."""
        if self._is_late("probe"):
            return ()
        if self.state == "confirming":
            return self._turned()
        supported = _supported_versions(error)
        if supported is None:
            return self._refused(error, now)
        self._note_versions(supported)
        if self.state == "asking":
            return self._no_common()
        revision = self._next_probe(supported)
        if revision is not None:
            self._move("retry")
            self._probed.append(revision)
            self._is_modern = True
            self._timer = None
            return (SendProbe(revision),)
        legacy = choose_revision(self._legacy, supported)
        if legacy is not None:
            return self._chosen_legacy(legacy, now)
        self._refusal = error
        return self._no_common()

    def init_result(self, version: Any, now: float) -> tuple[Action, ...]:
        """``initialize`` was answered; ``version`` is the ``protocolVersion`` of that result."""
        if self._is_late("initialize"):
            return ()
        self._note_versions([version])
        revision = None if self.state == "asking" else choose_revision(self._legacy, [version])
        if revision is None:
            return self._denied(ErrorDetail(0, f"a result in revision {_cut(version)}"), now)
        agreement = (SendInitialized(), Agreed(revision))
        self._move("answered")
        if self.ended:
            return agreement
        self._held = agreement
        self._timer = None if self._is_modern else now + self._waits.settle
        return ()

    def init_error(self, error: ErrorDetail, now: float) -> tuple[Action, ...]:
        """``initialize`` was answered with an error."""
        if self._is_late("initialize"):
            return ()
        self._note_versions(_supported_versions(error) or ())
        return self._denied(error, now)

    def exited(self, now: float) -> tuple[Action, ...]:
        """The server's process, or the connection to it, ended before there was an agreement."""
        if self.ended:
            return ()
        if self.state == "confirming":
            return self._turned()
        is_settled = self.state in ("asking", "restarting") or (self.state == "waiting" and not self._can_start_afresh)
        unproven = self.state == "initializing" and bool(self._modern) and not self._probed
        by_probe = self._probed_here and bool(self._legacy) and not is_settled
        # A server that was modern may have crashed for any reason: probe it again before assuming that it is legacy.
        was_modern = self._remembered == "modern" and self._restarts == 0
        if self._restarts > (self._remembered == "modern") or not (unproven or by_probe):
            if self.state == "asking":
                return self._no_common()
            return self._fail("The connection ended before the two sides had agreed on a revision.")
        self._move("exited")
        self._restarts += 1
        self._after_restart = "probe" if unproven or self._is_modern or was_modern else "initialize"
        self._timer = None
        return (StartAgain(),)

    def due(self, now: float) -> tuple[Action, ...]:
        """The time ``deadline`` has been reached."""
        if self.ended or self.state == "idle":
            return ()
        if now >= self._give_up_at:
            if self._theirs and self.state != "confirming":  # it answered, but with no usable revision
                return self._no_common()
            names = ", ".join(revision.name for revision in self._allowed)
            unread = ", and has not read the first request" if self.awaits_reading else ""
            return self._fail(
                f"The server did not answer within {self._waits.patience:g} s{unread}. If it needs longer to start, "
                "allow more (EraWaits.patience); if it waits for something, its stderr may say for what; it may also "
                f"know none of the revisions that this client allows ({names}).",
                ConnectTimeout,
            )
        if self._timer is None or now < self._timer:
            return ()
        self._timer = None
        if self.state == "asking":
            return self._no_common()
        if self.state == "settling":
            return self._settle("settled")
        self._move("quiet")
        return (SendInitialize(self._legacy[0]),)

    def _probe(self, now: float) -> tuple[Action, ...]:
        self._move("probe")
        self.awaits_reading = bool(self._legacy) and self._denial is None and not self._is_modern
        self._timer = None
        self._probed = [self._modern[0]]
        self._probed_here = True
        return (SendProbe(self._modern[0]),)

    def _next_probe(self, supported: Sequence[str]) -> Revision | None:
        """Return the revision for the next probe: an untried one, or one tried once, as processes may differ."""
        untried = [revision for revision in self._modern if revision not in self._probed]
        tried_once = [revision for revision in self._modern if self._probed.count(revision) == 1]
        return choose_revision(untried, supported) or choose_revision(tried_once, supported)

    def _initialize(self, event: Literal["initialize", "refused"]) -> tuple[Action, ...]:
        self._move(event)
        self._timer = None
        return (SendInitialize(self._legacy[0]),)

    def _turned(self) -> tuple[Action, ...]:
        """The server is modern, but its process refuses modern requests after ``initialize``: start another one."""
        self._move("turned")
        self._restarts += 1
        self._is_modern = True
        self._after_restart = "probe"
        return (StartAgain(),)

    def _refused(self, error: ErrorDetail, now: float) -> tuple[Action, ...]:
        """The answer to the probe is not that of a modern server."""
        self._refusal = error
        if self.state in ("asking", "settling") or self._is_modern:
            return self._no_common()
        if self.state == "hedging":
            self._move("refused")
            return ()
        if self._denial is not None:
            return self._no_common() if self._theirs else self._refused_both(error, self._denial)
        if self._legacy:
            return self._initialize("refused")
        self._ask("initialize", now)
        return (SendInitialize(LATEST_LEGACY),)

    def _denied(self, error: ErrorDetail, now: float) -> tuple[Action, ...]:
        """The answer to ``initialize`` does not open a session."""
        self._denial = error
        if self.state == "asking":
            return self._no_common()
        if self.state == "hedging":
            self._move("denied")
            return ()
        if self._modern and self._refusal is None:
            return self._probe(now)
        if self._theirs:
            return self._no_common()
        if self._refusal is not None:
            return self._refused_both(self._refusal, error)
        self._ask("probe", now)
        return (SendProbe(LATEST),)

    def _chosen_legacy(self, revision: Revision, now: float) -> tuple[Action, ...]:
        """The server listed its revisions, and the newest common one is a legacy revision."""
        self._legacy = [revision, *(other for other in self._legacy if other != revision)]
        self._is_modern = False
        return self._refused(ErrorDetail(0, f"the names of older revisions, {revision} the best of them"), now)

    def _ask(self, question: _Question, now: float) -> None:
        self._move("ask")
        self._asked = question
        self._timer = now + self._waits.ask

    def _settle(self, event: Literal["settled", "refused"]) -> tuple[Action, ...]:
        self._move(event)
        return self._held

    def _no_common(self) -> tuple[Action, ...]:
        if self.state == "settling":
            return self._settle("refused")
        self._move("fail")
        detail = ""
        if choose_revision(self._probed, self._theirs) is not None:
            detail = "It refused a revision that it names itself."
        elif self._refusal is not None:
            detail = f"It answered server/discover with {_describe(self._refusal)}."
        elif self._denial is not None:
            detail = f"It answered initialize with {_describe(self._denial)}."
        return (Failed(NoCommonRevision([revision.name for revision in self._allowed], self._theirs, detail)),)

    def _note_versions(self, versions: Sequence[Any]) -> None:
        """Keep the revisions that the server lists, for an error: a limited number, each of limited length."""
        names = [_cut(name) for name in versions[:_MAX_NAMES] if isinstance(name, str)]
        self._theirs = list(dict.fromkeys([*self._theirs, *names]))[:_MAX_NAMES]

    def _refused_both(self, probe: ErrorDetail, init: ErrorDetail) -> tuple[Action, ...]:
        # Some bridges open a session of their own for the probe, and stumble over `initialize` after that.
        was_probed_first = self._probed_here and self.state in ("initializing", "waiting")
        if self._can_start_afresh and was_probed_first and self._restarts == 0:
            self._move("afresh")
            self._restarts += 1
            self._after_restart = "initialize"
            self._timer = None
            return (StartAgain(),)
        return self._fail(
            f"The server refused both server/discover ({_describe(probe)}) and initialize ({_describe(init)})."
        )

    def _fail(self, sentence: str, kind: type[ConnectError] = ConnectError) -> tuple[Action, ...]:
        self._move("fail")
        return (Failed(kind(sentence)),)

    def _move(self, event: _Event) -> None:
        self.awaits_reading = False  # until the next probe of a server of which nothing is known
        self.state = ERA.after(self.state, event)

    def _is_late(self, question: _Question) -> bool:
        """Return whether an answer to this request must be ignored, because the request is not open."""
        is_open = self._asked == question if self.state == "asking" else self.state in _OPEN[question]
        self.late += not is_open
        return not is_open


def _supported_versions(error: ErrorDetail) -> list[str] | None:
    """Return the versions in a well-formed "unsupported version" error, else None."""
    if error.code != UNSUPPORTED_VERSION:
        return None
    try:
        return read(UnsupportedVersionData, error.data).supported or None
    except DecodeError:
        return None


def _describe(error: ErrorDetail) -> str:
    return f"error {error.code} ({_cut(error.message)})" if error.code else error.message


def _cut(text: Any) -> str:
    """Return a peer's text, shortened to fit into an error message."""
    return text[:_MAX_QUOTE] if isinstance(text, str) else f"a {type(text).__name__}"
