"""The steps of an OAuth flow: what the flow asks its driver to do, and what the driver gives back.

A flow is a generator. It yields a `Fetch` and is sent the `Answer`, or yields a `Visit` and is sent the `Redirect`. It
returns its result, or raises `AuthorizationError`. It does no I/O and reads no clock: answers carry the time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlencode

import msgspec

__all__ = ["Answer", "Fetch", "Flow", "RandomBytes", "Redirect", "Step", "Visit", "form_post", "get_json", "hidden"]

_T = TypeVar("_T")

#: Returns this many random bytes that nobody can guess.
RandomBytes: TypeAlias = Callable[[int], bytes]


def hidden(value: str | None) -> str:
    """Return the placeholder for a secret in a ``repr``."""
    return "None" if value is None else "'…'"


class Fetch(msgspec.Struct, frozen=True):
    """An HTTP request to make. The driver does not follow redirects and sends no other headers that carry secrets."""

    method: str
    url: str
    #: What the request is for, in words: "the metadata of the authorization server".
    purpose: str
    headers: Mapping[str, str] = {}
    body: bytes = b""

    def __repr__(self) -> str:
        # Headers and body carry codes, secrets and assertions.
        return f"Fetch({self.method!r}, {self.url!r}, {self.purpose!r})"


class Answer(msgspec.Struct, frozen=True):
    """The answer to a `Fetch`: status, headers with their names in lower case, body, and the time it arrived."""

    status: int
    body: bytes
    #: Seconds since the epoch.
    at: float
    headers: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"Answer({self.status}, {len(self.body)} bytes)"


class Visit(msgspec.Struct, frozen=True):
    """An address for the user to open; the authorization server redirects the browser to ``redirect_uri``."""

    url: str
    redirect_uri: str

    def __repr__(self) -> str:
        return f"Visit({self.url.partition('?')[0]!r})"


class Redirect(msgspec.Struct, frozen=True):
    """The address that the browser was redirected to, with its query, and the time it arrived."""

    url: str
    at: float

    def __repr__(self) -> str:
        return f"Redirect({self.url.partition('?')[0]!r})"


Step: TypeAlias = Fetch | Visit

#: A flow that returns a value of type T.
Flow: TypeAlias = Generator[Step, Any, _T]


def get_json(url: str, purpose: str) -> Fetch:
    """Return the request for a JSON document."""
    return Fetch("GET", url, purpose, {"accept": "application/json"})


def form_post(url: str, purpose: str, fields: Mapping[str, str], headers: Mapping[str, str] = {}) -> Fetch:
    """Return a POST of form fields whose answer is a JSON document."""
    content = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    return Fetch("POST", url, purpose, {**content, **headers}, urlencode(fields).encode())
