"""The heads of POSTs that were parsed and checked before: a request that repeats one needs neither again.

A client sends much the same head with each of its requests. `RepeatedHeads` remembers heads byte by byte, without
their Content-Length, after the HTTP parser and the application have accepted them. So nothing is parsed here: a head
that differs in a single byte, or in more than the length of the body, takes the usual way.

The requests of legacy sessions differ in the id of the session, too, so their heads are remembered without it: one head
serves all sessions of clients of the same make.

Moving these lines within a head changes nothing about what the head means, because a head is only remembered if all of
its lines end in CRLF, none continues another one, and it has one Content-Length, and at most one Mcp-Session-Id.
"""

from __future__ import annotations

from collections.abc import Callable

from mcplumb.protocol.http_headers import RepeatedHeaders
from mcplumb.transports.http_server.asgi_request import HttpRequest, Scope

__all__ = ["CheckedHead", "RepeatedHeads"]

#: How many heads are remembered, and how many bytes each may have.
_MAX_HEADS = 256
_MAX_HEAD = 4096
#: Headers after which a request is not like any other, or which are secrets.
_SPECIAL = frozenset((b"authorization", b"connection", b"cookie", b"expect", b"transfer-encoding", b"upgrade"))


class CheckedHead:
    """The head of a request that has passed all checks."""

    __slots__ = ("fields", "repeated", "request")

    def __init__(self, request: HttpRequest, repeated: RepeatedHeaders | None) -> None:
        #: The headers of the request. Nothing else about it counts.
        self.request = request
        #: What the body has to say, too; None for a legacy session, where it does not repeat anything.
        self.repeated = repeated
        lines = [b"%b: %b\r\n" % field for field in request.common_headers]
        #: The headers of the response after its Content-Length, and the end of its head.
        self.fields = b"\r\ncontent-type: application/json\r\n%b\r\n" % b"".join(lines)


class RepeatedHeads:
    """The heads that were accepted at one address. ``check`` returns what is known about a head, if it may be kept."""

    __slots__ = ("_check", "_heads", "_session_heads")

    def __init__(self, check: Callable[[Scope], CheckedHead | None]) -> None:
        self._check = check
        self._heads: dict[bytes, CheckedHead] = {}
        #: The heads of requests of legacy sessions, without the ids of these.
        self._session_heads: dict[bytes, CheckedHead] = {}

    def close(self) -> None:
        """Forget all heads and remember no more: each request is parsed, and answered with the listener's headers."""
        self._heads.clear()
        self._session_heads.clear()
        self._check = lambda _: None

    def find(self, data: bytes) -> tuple[CheckedHead, bytes, bytes] | None:
        """Return the head, the body and the session in ``data``, if it is one whole request with a known head.

        The session is the id of a legacy one; empty for a modern request.
        """
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return None
        at = data.find(b"\r\nContent-Length: ", 0, end)
        if at < 0:
            at = data.find(b"\r\ncontent-length: ", 0, end)
            if at < 0:
                return None
        stop = data.find(b"\r\n", at + 18, end)
        if stop < 0:
            stop = end
        key, session = data[:at] + data[stop:end], b""
        head = self._heads.get(key)
        if head is None:
            key, session = _without_session(key)
            head = self._session_heads.get(key)
            if head is None or not session.isalnum():
                return None
        if data[at + 18 : stop] != b"%d" % (len(data) - end - 4):
            return None
        return head, data[end + 4 :], session

    def learn(self, data: bytes, scope: Scope) -> None:
        """Remember the head of a request, if it may be: ``data`` was parsed, and its last request is ``scope``.

        Only if the data is one whole request, is ``scope`` that of the head.
        """
        end = data.find(b"\r\n\r\n")
        at = max(data.find(b"\r\nContent-Length: ", 0, end), data.find(b"\r\ncontent-length: ", 0, end))
        if not 0 < at < end <= _MAX_HEAD:
            return
        stop = data.find(b"\r\n", at + 18, end)
        if stop < 0:
            stop = end
        key = data[:at] + data[stop:end]
        lines = key.count(b"\r\n")
        names = [name for name, _ in scope["headers"]]
        if (
            not key.startswith(b"POST ")
            or data[at + 18 : stop] != b"%d" % (len(data) - end - 4)
            or lines + 1 != len(names)
            or not lines == key.count(b"\n") == key.count(b"\r")
            or b"\r\n " in key
            or b"\r\n\t" in key
            or names.count(b"content-length") != 1
            or names.count(b"mcp-session-id") > 1
            or not _SPECIAL.isdisjoint(names)
            or scope["http_version"] != "1.1"
        ):
            return
        head = self._check(scope)
        if head is None:
            return
        heads = self._heads
        if head.repeated is None:
            heads = self._session_heads
            key, session = _without_session(key)
            if not session:
                return
        if len(heads) >= _MAX_HEADS:
            heads.clear()
        heads[key] = head


def _without_session(key: bytes) -> tuple[bytes, bytes]:
    """Return a head without the id of its session, and that id; it is empty if there is none."""
    at = key.find(b"\r\nmcp-session-id: ")
    if at < 0:
        at = key.find(b"\r\nMcp-Session-Id: ")
        if at < 0:
            return key, b""
    stop = key.find(b"\r\n", at + 18)
    if stop < 0:
        stop = len(key)
    return key[:at] + key[stop:], key[at + 18 : stop]
