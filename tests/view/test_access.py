"""Who may use the page: nobody without the secret, from another machine, another origin or by another name."""

from __future__ import annotations

import pytest

from mcplumb.transports.http_server.asgi_request import HttpRequest, Refusal
from mcplumb.view.access import Access
from tests.kit.leaks import leaves_nothing
from tests.view.visitor import visiting

pytestmark = leaves_nothing


@pytest.mark.req("VIW-1")
async def test_without_the_secret_nothing_is_there() -> None:
    async with visiting() as visitor:
        other = Access().secret
        for path in ("", "index.html", "api/events", "scripts/main.js", other, f"{other}/", f"{other}/api/events", "/"):
            got = await visitor.ask(path, at=visitor.root)
            assert got.status == 403, path
            assert b"<html" not in got.body
            assert visitor.served.url.encode() not in got.body
        for path in ("", "scripts/main.js", "styles/theme.css", "icon.svg"):
            assert (await visitor.ask(path)).status == 200


@pytest.mark.req("VIW-1")
async def test_every_secret_is_another_one_and_long() -> None:
    secrets = {Access().secret for _ in range(50)}
    assert len(secrets) == 50
    assert min(map(len, secrets)) >= 43


@pytest.mark.req("VIW-1")
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Host": "localhost.evil.example:{port}"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://localhost:{port}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
async def test_another_site_gets_nothing_even_with_the_secret(headers: dict[str, str]) -> None:
    async with visiting() as visitor:
        sent = {name: value.format(port=visitor.served.port) for name, value in headers.items()}
        got = await visitor.ask("api/events", headers=sent)
        assert got.status == 403
        assert "access-control-allow-origin" not in got.headers


async def test_the_page_itself_passes_by_both_names() -> None:
    async with visiting() as visitor:
        own = f"http://127.0.0.1:{visitor.served.port}"
        got = await visitor.ask("api/nothing", headers={"Origin": own, "Sec-Fetch-Site": "same-origin"})
        assert got.status == 404
        local = f"localhost:{visitor.served.port}"
        assert (await visitor.ask("", headers={"Host": local})).status == 200


@pytest.mark.req("VIW-1")
async def test_every_response_has_the_headers() -> None:
    async with visiting() as visitor:
        for path, at in (("", None), ("api/nothing", None), ("nothing", None), ("", visitor.root)):
            headers = (await visitor.ask(path, at=at)).headers
            policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
            assert policy["default-src"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
            assert policy["require-trusted-types-for"] == "'script'"
            assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cross-origin-opener-policy"] == "same-origin"
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"
            assert "set-cookie" not in headers


@pytest.mark.req("VIW-1")
async def test_a_ticket_leads_to_the_page_once() -> None:
    async with visiting() as visitor:
        first, second = visitor.served.one_time_url(), visitor.served.one_time_url()
        assert (await visitor.ask("", at=first)).status == 403  # a newer one replaces it
        for sent in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            assert (await visitor.ask("", at=second, headers=sent)).status == 403
        got = await visitor.ask("", at=second)
        assert got.status == 303
        assert visitor.served.url.endswith(got.headers["location"])
        again = await visitor.ask("", at=second)
        assert again.status == 403
        assert b"another user of this machine has opened the page" in again.body
        assert "location" not in again.headers


def test_a_ticket_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    access = Access()
    ticket = access.new_ticket()
    monkeypatch.setattr("time.monotonic", lambda: float("inf"))
    with pytest.raises(Refusal, match="within a minute"):
        access.use_ticket(ticket)


@pytest.mark.req("VIW-1")
@pytest.mark.parametrize("client", [("192.0.2.7", 1), ("::ffff:192.0.2.7", 1), None])
def test_another_machine_gets_nothing(client: tuple[str, int] | None) -> None:
    access = Access()
    scope = {
        "type": "http",
        "method": "GET",
        "path": f"/{access.secret}/",
        "headers": [(b"host", b"127.0.0.1:80")],
        "server": ("127.0.0.1", 80),
        "client": client,
    }
    with pytest.raises(Refusal, match="this machine only"):
        access.admit(HttpRequest(scope, None, None))  # type: ignore[arg-type]
    # Browsers leave out the port 80.
    scope["headers"] = [(b"host", b"127.0.0.1"), (b"origin", b"http://127.0.0.1")]
    assert access.admit(HttpRequest({**scope, "client": ("127.0.0.1", 9)}, None, None)) == ""  # type: ignore[arg-type]
