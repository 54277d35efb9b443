"""Streams end when the access token of their request does, and say so in the log."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from mcplumb import Principal
from tests.kit.loop import until
from tests.kit.results import text_of
from tests.transports.http_server.callers import Caller
from tests.transports.http_server.test_sse_session import Guest
from tests.transports.http_server.visits import Visitor, serving
from tests.transports.http_server.workshop import Workshop

pytestmark = pytest.mark.req("AUT-14")

#: Seconds from now until the end of a token.
SHORT, LONG = 3600.0, 7200.0
#: Seconds that are left of the short one when a stream begins: its clock is ahead.
LEFT = 0.5


@pytest.fixture(autouse=True)
def clock_of_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is checked long before its token ends, and its stream begins just before that."""
    ahead = SimpleNamespace(time=lambda: time.time() + SHORT - LEFT)
    monkeypatch.setattr("mcplumb.transports.http_server.asgi_request.time", ahead)


def authenticate(token: str) -> Principal | None:
    """Of the tokens of Ann, one ends soon, one later and others never."""
    ends = {"short": time.time() + SHORT, "long": time.time() + LONG, "endless": None, "infinite": float("inf")}
    return Principal("ann", expires_at=ends[token]) if token in ends else None


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("INFO", logger="mcplumb.http")
    return caplog


async def test_a_subscription_ends_with_a_result(log: pytest.LogCaptureFixture) -> None:
    async with serving(Workshop().server, auth=authenticate) as site:
        answer = await Caller(site, Authorization="Bearer short").request(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )
        acknowledged, ended = await answer.messages()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert ended["id"] == 1
        assert "result" in ended
    assert "The access token of 'ann' has ended, and so does its stream (POST /mcp)." in log.text


async def test_a_call_has_the_time_to_finish(log: pytest.LogCaptureFixture) -> None:
    shop = Workshop()
    async with serving(shop.server, auth=authenticate) as site:
        answer = await Caller(site, Authorization="Bearer short").begin_call("wait", gate="a")
        await shop.at("a")
        await until(lambda: "has ended" in log.text)
        shop.gates["a"].set()
        await answer.head()
        assert text_of(await answer.json()) == "a is open"


async def test_a_call_that_does_not_finish_is_ended() -> None:
    shop = Workshop(finish_within=0.0)
    log_level = {"io.modelcontextprotocol/logLevel": "info"}
    async with serving(shop.server, auth=authenticate) as site:
        answer = await Caller(site, Authorization="Bearer short").call("tell", meta=log_level, gate="a")
        messages = await answer.messages()
        assert "result" not in messages[-1]
        await shop.cancelled["a"].wait()


async def test_the_stream_of_a_legacy_session_ends_and_the_session_does_not(log: pytest.LogCaptureFixture) -> None:
    shop = Workshop()
    async with serving(shop.server, auth=authenticate) as site:
        visitor = Visitor(site, Authorization="Bearer long")
        await visitor.open()
        visitor.headers["Authorization"] = "Bearer short"
        assert await (await visitor.listen()).messages() == []
        assert "(GET /mcp)" in log.text
        visitor.headers["Authorization"] = "Bearer long"
        listening = await visitor.listen()
        assert listening.status == 200
        assert text_of(await (await visitor.call("double", n=2)).json()) == "4"


async def test_the_stream_of_a_legacy_call_can_be_resumed_with_another_token() -> None:
    shop = Workshop()
    async with serving(shop.server, auth=authenticate) as site:
        visitor = Visitor(site, Authorization="Bearer long")
        await visitor.open()
        visitor.headers["Authorization"] = "Bearer short"
        answer = await visitor.call("tell", gate="a")
        event = await answer.event()
        last = ""
        while event is not None:
            last = event.id or last
            event = await answer.event()
        assert last
        visitor.headers["Authorization"] = "Bearer long"
        resumed = await visitor.listen(last)
        shop.gates["a"].set()
        *_, result = await resumed.messages()
        assert text_of(result) == "a is open"


async def test_a_client_of_http_and_sse_has_to_come_again(log: pytest.LogCaptureFixture) -> None:
    async with serving(Workshop().server, auth=authenticate) as site:
        guest = await Guest(site, Authorization="Bearer short").arrive()
        assert await guest.stream.messages() == []
        assert "(GET /sse)" in log.text
        ping: Any = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        guest.headers["Authorization"] = "Bearer long"
        assert (await guest.send(ping)).status == 404


@pytest.mark.parametrize("token", ["long", "endless", "infinite"])
async def test_other_streams_go_on(token: str, log: pytest.LogCaptureFixture) -> None:
    shop = Workshop()
    async with serving(shop.server, auth=authenticate) as site:
        answer = await Caller(site, Authorization=f"Bearer {token}").request(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
        )
        await answer.message()
        shop.server.remove_tool("double")
        assert (await answer.message())["method"] == "notifications/tools/list_changed"
    assert "has ended" not in log.text


async def test_a_token_that_has_ended_already_is_refused() -> None:
    async with serving(Workshop().server, auth=lambda _: Principal("ann", expires_at=time.time() - 1)) as site:
        answer = await Caller(site, Authorization="Bearer x").call("double", n=1)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
