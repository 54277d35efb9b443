"""Web pages that try to reach a server on the machine where the browser runs."""

from __future__ import annotations

import json

import pytest

from tests.attacks.harness import Fields, Target, head, initialize, legacy_post, post
from tests.process.harness import modern_call

#: What a page, or a file, or a name that was made to look right, has as its origin.
FOREIGN = [
    "http://evil.example",
    "https://evil.example:443",
    "http://127.0.0.1.evil.example",
    "http://localhost.evil.example",
    "http://127.0.0.1@evil.example",
    "http://evil.example/127.0.0.1",
    "http://evil.example#localhost",
    "null",
    "file://",
    "chrome-extension://localhost",
    "http://evil.example, http://localhost",
    "http://localhost, http://evil.example",
    "//localhost",
    "*",
]
#: What a name that is made to point at the loopback address has as its host.
REBOUND = [
    "evil.example",
    "evil.example:{port}",
    "127.0.0.1.evil.example:{port}",
    "localhost.evil.example",
    "localhost:{port}@evil.example",
    "evil.example:{port}, localhost",
    "[::1].evil.example",
    "0.0.0.0:{port}",
    "169.254.169.254",
    "localhost evil.example",
    "",
]


def everything(fields: Fields) -> list[bytes]:
    """A request of each kind that a server understands, with these headers."""
    base: Fields = {"Host": "127.0.0.1", "Accept": "text/event-stream", **fields}
    message = json.dumps(modern_call(1, "release", name="attacked")).encode()
    return [
        post(modern_call(1, "release", name="attacked"), fields),
        legacy_post(initialize(), fields=fields),
        head("GET", "/mcp", {**base, "Mcp-Session-Id": "abc"}),
        head("DELETE", "/mcp", {**base, "Mcp-Session-Id": "abc"}),
        head("OPTIONS", "/mcp", {**base, "Access-Control-Request-Method": "POST"}),
        head("GET", "/sse", base),
        head("GET", "/", base),
        head("OPTIONS", "/other", {**base, "Access-Control-Request-Method": "POST"}),
        head("POST", "/mcp/other", {**base, "Content-Length": str(len(message))}) + message,
        head("POST", "/messages?session_id=abc", {**base, "Content-Length": str(len(message))}) + message,
    ]


@pytest.mark.req("HTP-4")
@pytest.mark.parametrize("origin", FOREIGN)
def test_a_page_from_elsewhere_is_refused(target: Target, origin: str) -> None:
    for data in everything({"Origin": origin}):
        answer = target.ask(data)
        assert answer.status == 403, (data, answer)
        assert "access-control-allow-origin" not in answer.fields


@pytest.mark.req("HTP-4")
@pytest.mark.parametrize("host", REBOUND)
def test_a_name_that_was_bound_to_this_machine_is_refused(target: Target, host: str) -> None:
    for data in everything({"Host": host.format(port=target.port)}):
        answer = target.ask(data)
        # What is no host at all may be refused as such.
        assert answer.status in {403, 400}, (data, answer)


@pytest.mark.req("HTP-4")
def test_a_host_must_be_named_exactly_once(target: Target) -> None:
    message = modern_call(1, "echo", text="hello")
    assert target.ask(post(message, {"Host": None})).status in {400, 403}
    twice = post(message).replace(b"Host: 127.0.0.1\r\n", b"Host: 127.0.0.1\r\nHost: evil.example\r\n")
    assert target.ask(twice).status in {400, 403}
    other_way_round = post(message).replace(b"Host: 127.0.0.1\r\n", b"Host: evil.example\r\nHost: 127.0.0.1\r\n")
    assert target.ask(other_way_round).status in {400, 403}


@pytest.mark.req("HTP-4")
def test_one_good_origin_does_not_excuse_another(target: Target) -> None:
    data = post(modern_call(1, "echo", text="hello"), {"Origin": f"http://127.0.0.1:{target.port}"})
    for line in (b"Origin: http://evil.example\r\n", b"origin: null\r\n"):
        assert target.ask(data.replace(b"Accept:", line + b"Accept:")).status == 403
        assert target.ask(data.replace(b"Host:", line + b"Host:")).status == 403


@pytest.mark.req("HTP-4")
def test_names_of_this_machine_are_welcome(target: Target) -> None:
    for host in ("127.0.0.1", "localhost", "[::1]", f"127.0.0.1:{target.port}", f"LOCALHOST:{target.port}"):
        assert target.call("echo", {"Host": host}, text=host) == host


@pytest.mark.req("HTP-4")
def test_more_origins_and_hosts_can_be_allowed_and_only_those_are() -> None:
    with Target(http={"origins": ["https://app.example"], "hosts": ["mcp.example", "127.0.0.1"]}) as target:
        good = {"Origin": "https://app.example", "Host": "mcp.example"}
        assert target.call("echo", good, text="hello") == "hello"
        message = modern_call(1, "echo", text="hello")
        for origin in ("http://app.example", "https://app.example.evil.example", "https://app.example:8443"):
            assert target.ask(post(message, {**good, "Origin": origin})).status == 403
        for host in ("app.example", "localhost.evil.example", "mcp.example.evil.example"):
            assert target.ask(post(message, {**good, "Host": host})).status == 403


def test_nothing_of_that_was_done(target: Target) -> None:
    """A page cannot read an answer, but what it asks for must not happen either."""
    name = "attacked"
    for data in everything({"Origin": "http://evil.example"}):
        target.ask(data)
    for data in everything({"Host": "evil.example"}):
        target.ask(data)
    with target.wire() as wire:
        wire.send(post(modern_call(1, "wait", name=name)))
        target.until(f"{name} began")
    target.until(f"{name} cancelled")
    assert target.events(f"{name} finished") == 0
