"""Everything that mcplumb raises on purpose, as one tree.

    McplumbError
    ├── UsageError            you asked for something that cannot work (also a ValueError)
    │   ├── EncodeError       a value that JSON cannot carry
    │   └── NotInRevision     something that the agreed revision does not have
    ├── ToolError             a tool's own message to the model
    ├── RequestError          a handler's own JSON-RPC error, to answer its request with
    ├── ConnectError          a server could not be started or reached, or no agreement was reached
    │   ├── ConnectTimeout    that took too long (also a TimeoutError)
    │   ├── NoCommonRevision  both sides work, but share no protocol revision
    │   ├── ServerExited      the server's process ended when it should not have
    │   └── ServerDown        it did so too often: calls fail at once until a new start succeeds
    ├── RemoteError           the peer answered with a JSON-RPC error
    ├── HttpError             the server refused an HTTP request, and did not say why in JSON-RPC
    ├── ProtocolError         the peer broke a rule of the protocol
    │   └── DecodeError       a payload from the peer that cannot be read
    ├── RequestTimeout        no answer in time (also a TimeoutError)
    ├── RequestCancelled      the request was given up before it was answered
    ├── RequestLost           the connection ended first: the outcome is unknown
    ├── StateRefused          sealed request state that does not verify
    └── Closed                the connection is closed, and nothing can be sent

``str(error)`` is always a sentence that says what happened, to what, and, where there is something to do, what.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "Closed",
    "ConnectError",
    "ConnectTimeout",
    "DecodeError",
    "EncodeError",
    "HttpError",
    "McplumbError",
    "NoCommonRevision",
    "NotInRevision",
    "ProtocolError",
    "RemoteError",
    "RequestCancelled",
    "RequestError",
    "RequestLost",
    "RequestTimeout",
    "ServerDown",
    "ServerExited",
    "StateRefused",
    "ToolError",
    "UsageError",
]


class McplumbError(Exception):
    """The root: catch this to catch everything that mcplumb raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by calling the class again: some have constructors that take other things than the sentence they make.
        return _rebuilt, (type(self), self.args), self.__dict__ or None


class UsageError(McplumbError, ValueError):
    """The caller asked for something that cannot work; nothing was sent."""


class EncodeError(UsageError):
    """A value cannot be written as JSON (a lone surrogate, an unknown type, endless nesting)."""


class NotInRevision(UsageError):
    """The agreed protocol revision has no way to say this."""


class ToolError(McplumbError):
    """Raised by a tool to tell the model what went wrong, in the author's words."""


class RequestError(McplumbError):
    """Raised by a server's handler: the request is answered with this JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(message)


class ConnectError(McplumbError):
    """A server could not be started or reached, or the two sides could not agree."""


class ConnectTimeout(ConnectError, TimeoutError):
    """A server could not be reached in time, or did not answer before the two sides had agreed."""


class NoCommonRevision(ConnectError):
    """Both sides work, but they share no protocol revision."""

    def __init__(self, ours: Sequence[str], theirs: Sequence[str], detail: str = "") -> None:
        self.ours = tuple(ours)
        self.theirs = tuple(theirs)
        offered = f"the server offers {_listed(self.theirs)}" if theirs else "the server named none"
        super().__init__(
            f"No common protocol revision: this client allows {_listed(self.ours)}, and {offered}."
            + (f" {detail}" if detail else "")
        )


class ServerExited(ConnectError):
    """The server's process ended when it should not have."""

    def __init__(
        self,
        command: str,
        *,
        phase: str,
        exit_code: int | None = None,
        signal: str | None = None,
        stderr_tail: str | None = "",
    ) -> None:
        self.command = command
        self.phase = phase
        self.exit_code = exit_code
        self.signal = signal
        self.stderr_tail = stderr_tail or ""
        if signal is not None:
            how = f"was ended by {signal}"
        elif exit_code is not None:
            how = f"exited with code {exit_code}"
        else:
            how = "ended"
        if stderr_tail is None:  # nobody knows
            said = "."
        else:
            said = f"; the end of its stderr:\n{stderr_tail}" if stderr_tail else ", and wrote nothing to stderr."
        super().__init__(f"The server `{command}` {how} during the {phase} phase{said}")


class ServerDown(ConnectError):
    """The server failed again and again: nothing is sent to it until a new start, at a time to come, succeeds."""


class RemoteError(McplumbError):
    """The peer answered a request with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None, *, request: str = "") -> None:
        self.code = code
        self.message = message
        self.data = data
        end = "" if message.endswith((".", "!", "?")) else "."
        said = f": {message}{end}" if message else ", without a message."
        answered = f"answered {request}" if request else "answered"
        super().__init__(f"The peer {answered} with error {code}{said}")


class HttpError(McplumbError):
    """A server refused an HTTP request, and did not say why in JSON-RPC."""

    def __init__(self, status: int, sentence: str, *, www_authenticate: str | None = None) -> None:
        self.status = status
        #: What the server asks for, if it wants to know who is there.
        self.www_authenticate = www_authenticate
        super().__init__(sentence)


class ProtocolError(McplumbError):
    """The peer broke a rule of the protocol."""


class DecodeError(ProtocolError):
    """A payload from the peer cannot be read as what it has to be."""


class RequestTimeout(McplumbError, TimeoutError):
    """A request was not answered in time; it has been cancelled."""


class RequestCancelled(McplumbError):
    """A request was given up before it was answered."""


class RequestLost(McplumbError):
    """The connection ended before the answer came: whether the request took effect is unknown."""

    #: When the time of the request would have been over, by the clock of the event loop.
    deadline: float | None = None


class StateRefused(McplumbError):
    """Request state that a client sent back does not verify; the request must start again without it.

    The sentence may be shown to the client. ``reason`` is for the server's own log: it says more.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        self.reason = reason
        super().__init__(message)


class Closed(McplumbError):
    """The connection is closed: nothing was sent, and nothing can be."""


def _rebuilt(kind: type[McplumbError], args: tuple[Any, ...]) -> McplumbError:
    return kind.__new__(kind, *args)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
