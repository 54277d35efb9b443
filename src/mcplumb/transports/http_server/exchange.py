"""Between an HTTP server and the posts that no task serves: `Exchange` takes their answers."""

from __future__ import annotations

from typing import Protocol

from mcplumb.transports.http_server.asgi_request import HttpRequest

__all__ = ["DirectPost", "Exchange"]


class DirectPost(Protocol):
    """A POST with a request that no task serves."""

    @property
    def answer_to_send(self) -> tuple[int, bytes] | None:
        """The status and the body of the response, as soon as the request is answered."""

    @property
    def is_gone(self) -> bool:
        """Whether the client disconnected before the answer."""

    def serve(self) -> None:
        """Let a task serve this from now on. May be called again."""

    def disconnected(self) -> None:
        """Take note that the client is gone."""


class Exchange(Protocol):
    """Takes the answer of a post that no task serves. It gets either that or the post, once."""

    def waits(self, post: DirectPost) -> None:
        """Call ``post.disconnected`` if the client disconnects from now on: the request is not answered yet."""

    def answered(self, post: DirectPost) -> bool:
        """Send the answer, which is all of the response; return False if a task has to serve the post first."""

    def serve(self, post: DirectPost) -> HttpRequest:
        """Let a task serve the post from now on, and return its request."""
