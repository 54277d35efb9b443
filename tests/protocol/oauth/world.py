"""A played internet: authorization servers and resources as functions, and a driver that answers a flow's steps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from mcplumb.protocol.oauth.steps import Answer, Fetch, Redirect, Step, Visit

_T = TypeVar("_T")

ENDPOINT = "https://mcp.example/mcp"
ISSUER = "https://auth.example"
RESOURCE_METADATA = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
SERVER_METADATA = "https://auth.example/.well-known/oauth-authorization-server"
REDIRECT = "http://127.0.0.1:3000/callback"
NOW = 1_000_000.0


def random(count: int) -> bytes:
    return bytes(range(count))


def answer(document: object, status: int = 200, **headers: str) -> Answer:
    body = document if isinstance(document, bytes) else msgspec.json.encode(document)
    return Answer(status, body, NOW, {name.replace("_", "-"): value for name, value in headers.items()})


MISSING = answer({}, 404)


def resource(**fields: object) -> dict[str, object]:
    return {"resource": ENDPOINT, "authorization_servers": [ISSUER], **fields}


def issuer(name: str = ISSUER, **fields: Any) -> dict[str, object]:
    return {
        "issuer": name,
        "authorization_endpoint": f"{name}/authorize",
        "token_endpoint": f"{name}/token",
        "registration_endpoint": f"{name}/register",
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
        **fields,
    }


Handler = Callable[[Fetch], Answer]


class Prover:
    """Makes proofs that say what they are for."""

    def proof(self, method: str, url: str, *, now: float, nonce: str | None, access_token: str | None) -> str:
        return f"{method} {url} {now} {nonce} {access_token}"


class World:
    """Answers the steps of a flow, and keeps what was sent."""

    def __init__(self, pages: Mapping[str, Answer | Handler], redirect: Mapping[str, str | None] | None = None) -> None:
        self.pages = dict(pages)
        #: Parameters of the redirect; None leaves one out.
        self.redirect = dict(redirect or {})
        self.fetched: list[Fetch] = []
        self.visited: list[Visit] = []

    def drive(self, flow: Generator[Step, Any, _T]) -> _T:
        given: Any = None
        while True:
            try:
                step = flow.send(given)
            except StopIteration as end:
                result: _T = end.value
                return result
            given = self._fetch(step) if isinstance(step, Fetch) else self._visit(step)

    def _fetch(self, fetch: Fetch) -> Answer:
        self.fetched.append(fetch)
        page = self.pages.get(fetch.url, MISSING)
        return page if isinstance(page, Answer) else page(fetch)

    def _visit(self, visit: Visit) -> Redirect:
        self.visited.append(visit)
        query = query_of(visit.url)
        parameters = {"code": "the-code", "state": query["state"], **self.redirect}
        kept = {name: value for name, value in parameters.items() if value is not None}
        return Redirect(f"{visit.redirect_uri}?{urlencode(kept)}", NOW + 60)

    def urls(self) -> list[str]:
        return [fetch.url for fetch in self.fetched]

    def form(self, url: str) -> dict[str, str]:
        """Return the fields of the last form that was sent to an address."""
        fetch = [fetch for fetch in self.fetched if fetch.url == url][-1]
        return dict(parse_qsl(fetch.body.decode()))


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


TOKEN = {"access_token": "the-token", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "the-refresh"}


def honest(**metadata: Any) -> dict[str, Answer | Handler]:
    """Return the pages of a resource and its authorization server, which do everything right."""
    return {
        RESOURCE_METADATA: answer(resource()),
        SERVER_METADATA: answer(issuer(**metadata)),
        f"{ISSUER}/register": answer({"client_id": "registered"}, 201),
        f"{ISSUER}/token": answer(TOKEN),
    }
