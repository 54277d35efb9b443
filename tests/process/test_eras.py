"""Which revision a request is served under: by its own metadata, by the session, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kit.products import revision_names
from tests.kit.results import text_of
from tests.process.harness import (
    LEGACY,
    MODERN,
    Client,
    Message,
    ServerProcess,
    encoded,
    modern,
    modern_meta,
    notification,
    request,
)

VERSION, CAPABILITIES, INFO = (
    f"io.modelcontextprotocol/{name}" for name in ("protocolVersion", "clientCapabilities", "clientInfo")
)
TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "vendor=1,other=2",
    "baggage": "user=é;x=1",
    "com.example/own": {"deep": [1, 2.5, None, "🦭"]},
}


def ask(server: ServerProcess, method: str, meta: Message | None, params: Message | None = None) -> Message:
    """The response to a request with just this metadata."""
    request_id = server.next_id()
    full = params if meta is None else {**(params or {}), "_meta": meta}
    server.send(request(request_id, method, full))
    return server.answer_to(request_id)


# Modern


@pytest.mark.req("META-2")
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call", "no/such"])
def test_a_request_without_version_or_capabilities_is_refused(workshop: Client, method: str) -> None:
    for missing in (VERSION, CAPABILITIES):
        meta = {key: value for key, value in modern_meta().items() if key != missing} | {
            INFO: {"name": "x", "version": "1"}
        }
        error = ask(workshop.server, method, meta, {"name": "echo", "arguments": {"text": "x"}})["error"]
        assert error["code"] == -32602
        assert missing in error["message"]


@pytest.mark.req("META-2")
@pytest.mark.parametrize("meta", [{VERSION: 5}, {CAPABILITIES: "none"}, {INFO: []}, {"progressToken": {}}])
def test_unreadable_metadata_is_refused(workshop: Client, meta: Message) -> None:
    assert ask(workshop.server, "tools/list", modern_meta() | meta)["error"]["code"] == -32602


@pytest.mark.req("META-3")
def test_a_version_that_is_not_served_is_refused_each_time(workshop: Client) -> None:
    for version in ("1999-01-01", LEGACY[-1], "", "x" * 1000):
        workshop.fence()
        error = ask(workshop.server, "tools/list", modern_meta(version=version))["error"]
        assert error["code"] == -32022
        assert error["data"] == {"supported": [MODERN], "requested": version[:64]}


@pytest.mark.req("META-5", "DIR-4")
def test_every_result_has_a_type_and_names_the_server(workshop: Client) -> None:
    for method, params in [
        ("server/discover", None),
        ("tools/list", None),
        ("tools/call", {"name": "echo", "arguments": {"text": "x"}}),
        ("tools/call", {"name": "echo", "arguments": {}}),
        ("prompts/list", None),
        ("resources/list", None),
        ("resources/templates/list", None),
        ("workshop/custom", {"value": 1}),
    ]:
        result = workshop.result(method, params)
        assert result["resultType"] == "complete"
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "workshop", "version": "1.0"}


@pytest.mark.req("META-6")
@pytest.mark.parametrize("revision", [MODERN, LEGACY[-1]])
def test_trace_context_reaches_the_function_untouched(revision: str) -> None:
    with ServerProcess("workshop") as server:
        client = Client(server, revision)
        result = client.result("tools/call", {"name": "whoami", "arguments": {}}, **TRACE)
        meta = json.loads(text_of(result))["meta"]
        assert {key: meta[key] for key in TRACE} == TRACE
        assert server.finish() == []


@pytest.mark.req("META-7")
def test_nothing_is_remembered_from_earlier_requests(workshop: Client) -> None:
    server = workshop.server
    params: Message = {"name": "whoami", "arguments": {}}
    rich = modern_meta({"roots": {}, "sampling": {}}) | {INFO: {"name": "somebody", "version": "1"}}
    first = json.loads(text_of(ask(server, "tools/call", rich, params)["result"]))
    second = json.loads(text_of(ask(server, "tools/call", modern_meta(), params)["result"]))
    assert [first["client"], first["roots"], first["sampling"]] == ["somebody", True, True]
    assert [second["client"], second["roots"], second["sampling"]] == [None, False, False]
    # Not even that there have been modern requests at all.
    assert ask(server, "tools/call", None, params)["error"]["code"] == -32602
    assert ask(server, "tools/call", {VERSION: MODERN}, params)["error"]["code"] == -32602


@pytest.mark.req("ERA-9")
def test_discover_tells_what_the_server_is(workshop: Client) -> None:
    result = workshop.result("server/discover")
    assert result["supportedVersions"] == [MODERN]
    assert result["instructions"] == "Handle with care."
    assert "tools" in result["capabilities"]


@pytest.mark.req("ERA-9")
def test_discover_is_served_in_a_legacy_session_too() -> None:
    with ServerProcess("workshop") as server:
        Client(server, LEGACY[0])
        assert Client(server).result("server/discover")["supportedVersions"] == [MODERN]
        assert server.finish() == []


@pytest.mark.req("ERA-11")
def test_a_modern_server_answers_initialize_with_its_versions() -> None:
    with ServerProcess("workshop", {"revisions": [MODERN]}) as server:
        for params in ({"protocolVersion": LEGACY[-1], "capabilities": {}}, None):
            error = ask(server, "initialize", None, params)["error"]
            assert error["code"] == -32022
            assert error["data"]["supported"] == [MODERN]
            assert MODERN in error["message"]
        assert ask(server, "ping", None)["error"]["code"] == -32602
        assert Client(server).say("echo", text="next") == "next"
        assert server.finish() == []


@pytest.mark.req("ERA-10", "ERA-11")
def test_a_legacy_server_refuses_modern_requests_and_serves_initialize() -> None:
    with ServerProcess("workshop", {"revisions": [LEGACY[1], LEGACY[2]]}) as server:
        for method in ("server/discover", "tools/list"):
            error = ask(server, method, modern_meta())["error"]
            assert error["code"] != -32022
            assert "initialize" in error["message"]
        client = Client(server, LEGACY[3])
        assert client.opened["protocolVersion"] == LEGACY[2]
        assert client.say("echo", text="next") == "next"
        assert server.finish() == []


@pytest.mark.req("ERA-10", "META-7", "DIR-2")
def test_two_eras_interleave_on_one_process() -> None:
    with ServerProcess("workshop") as server:
        modern_client = Client(server)
        assert modern_client.say("echo", text="first") == "first"
        legacy_client = Client(server, LEGACY[2], {"roots": {}})
        held = {client: client.begin("hold") for client in (modern_client, legacy_client)}
        for _ in range(3):
            for client in (modern_client, legacy_client):
                me = json.loads(client.say("whoami"))
                assert me["revision"] == client.revision
                assert me["roots"] is (client is legacy_client)
                assert me["client"] == ("raw bytes" if client is legacy_client else None)
        assert modern_client.say("release") == "done"
        results = {client: server.answer_to(request_id)["result"] for client, request_id in held.items()}
        assert [text_of(result) for result in results.values()] == ["released", "released"]
        assert "resultType" in results[modern_client]
        assert "resultType" not in results[legacy_client]
        assert server.finish() == []


@pytest.mark.req("ERA-10")
def test_methods_of_the_other_era_are_not_found() -> None:
    with ServerProcess("workshop") as server:
        legacy_client, modern_client = Client(server, LEGACY[3]), Client(server)
        wanted: Message = {"notifications": {"toolsListChanged": True}}
        assert legacy_client.error("subscriptions/listen", wanted)["code"] == -32601
        for method in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
            assert modern_client.error(method, {"level": "info", "uri": "x:y"})["code"] == -32601
        for client in (legacy_client, modern_client):
            for method in ("no/such", "", "sampling/createMessage", "notifications/cancelled", "é🦭" * 1000):
                assert client.error(method)["code"] == -32601
        assert server.finish() == []


# Legacy


@pytest.mark.req("LEG-1", "LEG-2")
@pytest.mark.parametrize("revision", LEGACY)
def test_the_handshake_of_each_revision(revision: str) -> None:
    with ServerProcess("workshop") as server:
        client = Client(server, revision)
        assert client.opened["protocolVersion"] == revision
        assert client.opened["serverInfo"] == {"name": "workshop", "version": "1.0"}
        assert client.opened["instructions"] == "Handle with care."
        assert "resultType" not in client.opened
        assert client.say("add", a=1, b=2) == "3"
        assert json.loads(client.say("whoami"))["revision"] == revision
        assert server.finish() == []


@pytest.mark.req("LEG-1")
def test_the_whole_handshake_may_come_in_one_piece() -> None:
    with ServerProcess("workshop") as server:
        opening = request(0, "initialize", {"protocolVersion": LEGACY[0], "capabilities": {}})
        server.write(encoded(opening, notification("notifications/initialized"), request(1, "tools/list")))
        server.end_input()
        assert [answer["id"] for answer in server.rest()] == [0, 1]
        assert server.exit_code() == 0


@pytest.mark.req("LEG-2")
@pytest.mark.parametrize("asked", ["1999-01-01", "2099-12-31", MODERN, "", "nonsense"])
def test_a_version_that_is_not_served_gets_our_newest_legacy_one(asked: str) -> None:
    with ServerProcess("workshop") as server:
        answer = ask(server, "initialize", None, {"protocolVersion": asked, "capabilities": {}})
        assert answer["result"]["protocolVersion"] == LEGACY[-1]
        assert server.finish() == []


@pytest.mark.req("LEG-3", "LEG-4")
def test_requests_before_initialize_get_a_clear_error_and_the_stream_works() -> None:
    with ServerProcess("workshop") as server:
        for method in ("tools/list", "tools/call", "resources/subscribe", "no/such"):
            error = ask(server, method, None)["error"]
            assert error["code"] == -32602
            assert "initialize" in error["message"]
        assert ask(server, "ping", None)["result"] == {}
        server.send(notification("notifications/initialized"))
        assert ask(server, "tools/list", None)["error"]["code"] == -32602
        client = Client(server, LEGACY[2])
        assert client.say("echo", text="next") == "next"
        assert server.finish() == []


@pytest.mark.req("LEG-1", "LEG-3")
@pytest.mark.parametrize("params", [None, {}, {"protocolVersion": 5}, {"protocolVersion": None, "capabilities": {}}])
def test_an_unreadable_initialize_opens_nothing(params: Message | None) -> None:
    with ServerProcess("workshop") as server:
        assert ask(server, "initialize", None, params)["error"]["code"] == -32602
        assert ask(server, "tools/list", None)["error"]["code"] == -32602
        assert Client(server, LEGACY[2]).opened["protocolVersion"] == LEGACY[2]
        assert server.finish() == []


@pytest.mark.req("LEG-1")
def test_a_second_initialize_starts_the_session_over() -> None:
    with ServerProcess("workshop") as server:
        client = Client(server, LEGACY[1])
        assert json.loads(client.say("whoami"))["revision"] == LEGACY[1]
        again = client.result("initialize", {"protocolVersion": LEGACY[2], "capabilities": {}})
        assert again["protocolVersion"] == LEGACY[2]
        server.send(notification("notifications/initialized"))
        assert json.loads(client.say("whoami"))["revision"] == LEGACY[2]
        assert server.finish() == []


@pytest.mark.req("LEG-1")
def test_a_second_initialize_is_refused_while_a_call_runs() -> None:
    with ServerProcess("workshop") as server:
        client = Client(server, LEGACY[1])
        running = client.begin("hold")
        client.fence()
        error = client.error("initialize", {"protocolVersion": LEGACY[2], "capabilities": {}})
        assert (error["code"], "in flight" in error["message"]) == (-32600, True)
        assert json.loads(client.say("whoami"))["revision"] == LEGACY[1]
        server.send(notification("notifications/cancelled", {"requestId": running}))
        assert client.result("initialize", {"protocolVersion": LEGACY[2], "capabilities": {}})
        assert server.finish() == []


@pytest.mark.req("LEG-4")
@pytest.mark.parametrize("revision", revision_names(LEGACY))
def test_ping_and_log_levels(revision: str) -> None:
    levels = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
    with ServerProcess("workshop") as server:
        client = Client(server, revision)
        assert client.result("ping") == {}
        for least in ("info", "error", "debug"):
            if least != "info":  # which it is, if nothing is said
                assert client.result("logging/setLevel", {"level": least}) == {}
            assert client.say("log_each_level") == "logged"
            heard = [message["params"] for message in server.inbox]
            assert [each["level"] for each in heard] == levels[levels.index(least) :]
            assert heard[-1] == {"level": "emergency", "data": "a emergency", "logger": "workshop"}
            server.inbox.clear()
        assert client.error("logging/setLevel", {"level": "loud"})["code"] == -32602
        assert server.finish() == []


def test_log_messages_of_modern_requests_come_on_request(workshop: Client) -> None:
    server = workshop.server

    def levels(**meta: Any) -> list[str]:
        workshop.result("tools/call", {"name": "log_each_level", "arguments": {}}, **meta)
        heard = [message["params"]["level"] for message in server.inbox]
        server.inbox.clear()
        return heard

    assert levels() == []
    assert levels(**{"io.modelcontextprotocol/logLevel": "alert"}) == ["alert", "emergency"]
    assert levels() == []


def test_an_extension_has_its_own_methods(workshop: Client) -> None:
    assert workshop.result("workshop/custom", {"value": [1]})["got"] == [1]
    workshop.server.send(notification("notifications/workshop/note", {"value": "hello"}))
    assert "hello" in workshop.say("notes")
    workshop.server.send(notification("notifications/no/such", {"value": 1}))


def test_modern_requests_are_unharmed_by_strange_notifications(workshop: Client) -> None:
    for method in ("notifications/initialized", "notifications/progress", "notifications/roots/list_changed", "", "x"):
        for params in (None, {}, {"progressToken": None}):
            workshop.server.send(notification(method, params))
    assert workshop.say("echo", text="next") == "next"
    workshop.server.send(modern("x", "tools/list"))
    assert "result" in workshop.server.answer_to("x")
