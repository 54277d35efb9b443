"""A web server that answers each POST with what a function makes of its body: for answers that no good server gives."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

__all__ = ["Reply", "posted", "web_server"]

#: The methods of all requests, by the port of the server.
_methods: dict[Any, list[str]] = {}


class Reply(NamedTuple):
    """A response: a document is sent as JSON, and a string as plain text unless the headers say otherwise."""

    status: int
    body: Any = ""
    headers: Mapping[str, str] = {}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in body:
            self._send(Reply(202))
            return
        _methods.setdefault(self.connection.getsockname()[1], []).append(body["method"])
        self._send(self.server.answer(body))  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        self._send(self.server.answer({"method": "GET"}) if self.server.answers_get else Reply(405))  # type: ignore[attr-defined]

    def _send(self, reply: Reply) -> None:
        kind = "text/plain" if isinstance(reply.body, str) else "application/json"
        data = reply.body.encode() if isinstance(reply.body, str) else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


@contextlib.contextmanager
def web_server(answer: Callable[[Any], Reply], *, answers_get: bool = False) -> Iterator[str]:
    """A server in a thread until the end of the block; gives its URL. With ``answers_get``, a GET is asked for, too."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.answer, server.answers_get = answer, answers_get  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def posted(url: str) -> list[str]:
    """The methods of the requests that a server got, in order."""
    return _methods.get(int(url.rpartition(":")[2].partition("/")[0]), [])
