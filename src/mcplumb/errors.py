"""The exception tree: every exception that mcplumb raises on purpose.

    McplumbError
    ├── UsageError            you asked for something that cannot work (also a ValueError)
    │   ├── EncodeError       a value cannot be written as JSON
    │   └── NotInRevision     the agreed revision does not have this feature
    ├── ToolError             a tool's own message to the model
    ├── ToolFailed            a tool's result says that the tool failed
    ├── RequestError          a server's handler answers its request with this JSON-RPC error
    ├── ConnectError          a server could not be started or reached, or the handshake failed
    │   ├── ConnectTimeout    connecting took too long (also a TimeoutError)
    │   ├── NoCommonRevision  client and server share no protocol revision
    │   ├── ServerExited      the server's process exited unexpectedly
    │   └── ServerDown        it exited too often: calls fail at once until a new start succeeds
    ├── RemoteError           the peer answered with a JSON-RPC error
    ├── HttpError             the server refused an HTTP request without a JSON-RPC error
    ├── AuthorizationError    access was not granted, or could not be requested safely
    ├── ProtocolError         the peer violated the protocol
    │   └── DecodeError       a payload from the peer cannot be read
    ├── RequestTimeout        no answer in time (also a TimeoutError)
    ├── RequestCancelled      the request was cancelled before it was answered
    ├── RequestLost           the connection ended before the answer: the outcome is unknown
    ├── StateRefused          sealed request state does not verify
    ├── StoreUnavailable      the store that replicas share cannot be reached
    └── Closed                the connection is closed, and nothing can be sent

``str(error)`` is always a sentence: what happened, to what, and what to do about it where something can be done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

__all__ = [
    "AuthorizationError",
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
    "StoreUnavailable",
    "ToolError",
    "ToolFailed",
    "UsageError",
]


class McplumbError(Exception):
    """The base class of all exceptions that mcplumb raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickling must not call the constructor: some take other arguments than the sentence that ends up in args.
        return _rebuild, (type(self), self.args), self.__dict__ or None

    def _render_traceback_(self) -> list[str]:
        """Return what IPython and Jupyter show: the lines of the user's own code, and the sentence.

        The frames of this package, and the errors that caused this one, explain nothing that the sentence does not.
        """
        import traceback  # noqa: PLC0415 - only notebooks need it

        lines = []
        step = self.__traceback__
        while step is not None:
            module = str(step.tb_frame.f_globals.get("__name__", ""))
            if module.partition(".")[0] == __name__.partition(".")[0]:
                break
            if module.partition(".")[0] not in ("IPython", "ipykernel"):
                lines += traceback.format_tb(step, limit=1)
            step = step.tb_next
        said = "\n".join([f"{type(self).__name__}: {self}", *getattr(self, "__notes__", ())])
        return [*"".join(lines).splitlines(), *said.splitlines()]


class UsageError(McplumbError, ValueError):
    """The caller asked for something that cannot work; nothing was sent."""


class EncodeError(UsageError):
    """A value cannot be written as JSON (a lone surrogate, an unknown type, a cycle)."""


class NotInRevision(UsageError):
    """The agreed protocol revision does not have this feature."""


class ToolError(McplumbError):
    """Raised by a tool: its text becomes the tool's error result, for the model to read."""


class ToolFailed(McplumbError):
    """A tool's result says that the tool failed; ``result.raise_for_error()`` raises this."""

    def __init__(self, text: str, result: Any = None) -> None:
        #: The tool's own text, which is written for a model.
        self.text = text
        #: The whole result, a ``CallToolResult``.
        self.result = result
        super().__init__(f"The tool failed: {text}" if text else "The tool failed, and its result has no text.")


class RequestError(McplumbError):
    """Raised by a server's handler: the request is answered with this JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(message)


class ConnectError(McplumbError):
    """A server could not be started or reached, or the handshake failed."""


class ConnectTimeout(ConnectError, TimeoutError):
    """A server could not be reached, or did not finish the handshake, in time."""


class NoCommonRevision(ConnectError):
    """Client and server share no protocol revision."""

    def __init__(self, ours: Sequence[str], theirs: Sequence[str], detail: str = "") -> None:
        self.ours = tuple(ours)
        self.theirs = tuple(theirs)
        offered = f"the server offers {_join(self.theirs)}" if theirs else "the server named none"
        super().__init__(
            f"No common protocol revision: this client allows {_join(self.ours)}, and {offered}."
            + (f" {detail}" if detail else "")
        )


class ServerExited(ConnectError):
    """The server's process exited unexpectedly.

    ``phase`` says when: ``spawn`` before it read anything, ``probe`` after it was sent ``server/discover``,
    ``handshake`` after ``initialize``, and ``call`` while it was connected.
    """

    #: The phases as sentences call them.
    WHEN: ClassVar = {
        "spawn": "while starting",
        "probe": "when it was sent server/discover",
        "handshake": "when it was sent initialize",
        "call": "while connected",
    }

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
        if stderr_tail is None:  # stderr was not captured
            said = "."
        else:
            said = f"; the end of its stderr:\n{stderr_tail}" if stderr_tail else ", and wrote nothing to stderr."
        super().__init__(f"The server `{command}` {how} {self.WHEN[phase]}{said}")


class ServerDown(ConnectError):
    """The server failed repeatedly: calls fail at once until a later start succeeds."""


class RemoteError(McplumbError):
    """The peer answered a request with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None, *, request: str = "", peer: str = "peer") -> None:
        self.code = code
        self.message = message
        self.data = data
        end = "" if message.endswith((".", "!", "?")) else "."
        said = f": {message}{end}" if message else ", without a message."
        answered = f"answered {request}" if request else "answered"
        super().__init__(f"The {peer} {answered} with error {code}{said}")


class HttpError(McplumbError):
    """A server refused an HTTP request without a JSON-RPC error."""

    def __init__(
        self,
        status: int,
        sentence: str,
        *,
        www_authenticate: str | None = None,
        token_id: str | None = None,
        answered: str | None = None,
    ) -> None:
        self.status = status
        #: The sentence without advice: what the server has answered.
        self.answered = sentence if answered is None else answered
        #: The ``WWW-Authenticate`` header of the response: how the server wants the client to authenticate.
        self.www_authenticate = www_authenticate
        #: Tells apart the tokens that were refused, without revealing them; None if none was sent.
        self.token_id = token_id
        super().__init__(sentence)


class AuthorizationError(McplumbError):
    """Access to a protected server was not granted, or could not be requested safely.

    ``reason`` is a word for programs, such as "denied"; ``issuer`` and ``resource`` say who was asked for what.
    """

    def __init__(self, reason: str, sentence: str, *, issuer: str | None = None, resource: str | None = None) -> None:
        self.reason = reason
        self.issuer = issuer
        self.resource = resource
        super().__init__(sentence)


class ProtocolError(McplumbError):
    """The peer violated the protocol."""


class DecodeError(ProtocolError):
    """A payload from the peer cannot be read as the expected type."""


class RequestTimeout(McplumbError, TimeoutError):
    """A request was not answered in time; it has been cancelled."""


class RequestCancelled(McplumbError):
    """A request was cancelled before it was answered."""


class RequestLost(McplumbError):
    """The connection ended before the answer arrived: whether the request took effect is unknown."""

    #: When the request would have timed out, by the clock of the event loop; None if it had no timeout.
    deadline: float | None = None


class StateRefused(McplumbError):
    """The request state that a client sent back does not verify; the request must start again without it.

    The message may be shown to the client. ``reason`` has more detail and is for the server's own log only.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        self.reason = reason
        super().__init__(message)


class StoreUnavailable(McplumbError):
    """The store that the replicas of a server share cannot be reached; what was to be written may have been."""


class Closed(McplumbError):
    """The connection is closed: nothing was sent, and nothing can be sent."""


def _rebuild(kind: type[McplumbError], args: tuple[Any, ...]) -> McplumbError:
    return kind.__new__(kind, *args)


def _join(names: Sequence[str]) -> str:
    return ", ".join(names)
