"""Changes, told to clients of both eras by the same calls of the server's author."""

from __future__ import annotations

import pytest

from tests.kit.products import revision_names
from tests.process.harness import LEGACY, MODERN, Client, Message, ServerProcess, cancellation

BOOK = "library://books/1"
SHELF = "library://shelf"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
ALL: Message = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": [BOOK, SHELF],
}


def listen(client: Client, wanted: Message) -> int:
    """Open a subscription; the acknowledgement is its first message."""
    server = client.server
    request_id = client.send("subscriptions/listen", {"notifications": wanted})
    first = server.receive(lambda message: _subscription_of(message) == request_id or message.get("id") == request_id)
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"]["notifications"] == wanted
    return request_id


def changes(server: ServerProcess) -> list[tuple[object, str, str | None]]:
    """What was announced, to which subscription, and takes it out of the inbox."""
    found = []
    for message in list(server.inbox):
        if message.get("method", "").endswith(("list_changed", "updated")):
            server.inbox.remove(message)
            found.append(
                (
                    _subscription_of(message),
                    message["method"].removeprefix("notifications/"),
                    _params(message).get("uri"),
                )
            )
    return found


def _params(message: Message) -> Message:
    params: Message = message.get("params", {})
    return params


def _subscription_of(message: Message) -> object:
    return _params(message).get("_meta", {}).get(SUBSCRIPTION)


@pytest.mark.req("SUB-1", "SUB-2")
def test_a_subscription_hears_what_it_asked_for_and_nothing_else() -> None:
    with ServerProcess("library") as server:
        client = Client(server)
        tools = listen(client, {"toolsListChanged": True})
        book = listen(client, {"resourceSubscriptions": [BOOK]})
        every = listen(client, ALL)
        client.call("rewrite", number="1", text="New.")
        client.call("rewrite", number="2", text="Other.")
        client.fence()
        assert sorted(changes(server), key=str) == sorted(
            [
                (book, "resources/updated", BOOK),
                (every, "resources/updated", BOOK),
                (every, "resources/updated", SHELF),
                (every, "resources/updated", SHELF),
            ],
            key=str,
        )
        client.call("add_tool", name="new")
        client.fence()
        assert changes(server) == [(tools, "tools/list_changed", None), (every, "tools/list_changed", None)]
        server.send(cancellation(every))
        client.call("remove_tool", name="new")
        client.fence()
        assert changes(server) == [(tools, "tools/list_changed", None)]
        server.finish()


@pytest.mark.req("SUB-1")
def test_what_cannot_be_honoured_is_not_in_the_acknowledgement() -> None:
    with ServerProcess("library") as server:
        client = Client(server)
        wanted: Message = {"toolsListChanged": True, "promptsListChanged": False, "somethingElse": True}
        request_id = client.send("subscriptions/listen", {"notifications": wanted})
        acknowledged = server.notified("notifications/subscriptions/acknowledged")
        assert acknowledged == {"notifications": {"toolsListChanged": True}, "_meta": {SUBSCRIPTION: request_id}}
        for params in (None, {}, {"notifications": 5}):
            assert client.error("subscriptions/listen", params)["code"] == -32602
        server.finish()


@pytest.mark.req("SUB-1")
def test_there_is_a_bound_on_subscriptions() -> None:
    with ServerProcess("library", {"limits": {"max_subscriptions": 2, "max_subscribed_resources": 3}}) as server:
        client = Client(server)
        first = listen(client, {"toolsListChanged": True})
        listen(client, {"toolsListChanged": True})
        wanted: Message = {"notifications": {"toolsListChanged": True}}
        assert client.error("subscriptions/listen", wanted)["code"] == -32602
        server.send(cancellation(first))
        listen(client, {"resourceSubscriptions": ["a:1", "a:2", "a:3"]})
        server.finish()


@pytest.mark.req("SUB-5")
def test_a_server_that_stops_ends_its_subscriptions_in_good_order() -> None:
    with ServerProcess("library") as server:
        client = Client(server)
        subscriptions = [listen(client, {"toolsListChanged": True}), listen(client, ALL)]
        ended = server.finish()
        assert [message["id"] for message in ended] == subscriptions
        for message in ended:
            result = message["result"]
            assert result["resultType"] == "complete"
            assert result["_meta"][SUBSCRIPTION] == message["id"]
            assert "io.modelcontextprotocol/serverInfo" in result["_meta"]


@pytest.mark.req("SUB-2")
def test_the_id_of_a_subscription_keeps_its_type() -> None:
    with ServerProcess("library") as server:
        client = Client(server)
        params = {
            "notifications": {"toolsListChanged": True},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        }
        for request_id in ("77", 77):
            server.send({"jsonrpc": "2.0", "id": request_id, "method": "subscriptions/listen", "params": params})
        client.call("add_tool", name="new")
        client.fence()
        assert [subscription for subscription, *_ in changes(server)] == ["77", 77]
        # A subscription is a request in flight.
        server.send({"jsonrpc": "2.0", "id": 77, "method": "tools/list", "params": params})
        assert server.answer_to(77)["error"]["code"] == -32600
        server.finish()


@pytest.mark.req("SUB-6")
@pytest.mark.parametrize("revision", revision_names(LEGACY))
def test_legacy_subscriptions(revision: str) -> None:
    with ServerProcess("library") as server:
        client = Client(server, revision)
        capabilities = client.opened["capabilities"]
        assert capabilities["resources"] == {"listChanged": True, "subscribe": True}
        assert capabilities["tools"] == capabilities["prompts"] == {"listChanged": True}
        assert client.result("resources/subscribe", {"uri": BOOK}) == {}
        client.call("rewrite", number="1", text="New.")
        client.call("rewrite", number="2", text="Other.")
        client.call("add_tool", name="new")
        client.fence()
        assert changes(server) == [(None, "resources/updated", BOOK), (None, "tools/list_changed", None)]
        assert client.result("resources/unsubscribe", {"uri": BOOK}) == {}
        assert client.result("resources/unsubscribe", {"uri": BOOK}) == {}
        client.call("rewrite", number="1", text="Newer.")
        client.fence()
        assert server.finish() == []


@pytest.mark.req("SUB-6", "SUB-2", "ERA-10")
def test_the_same_change_reaches_both_eras() -> None:
    with ServerProcess("library") as server:
        modern, legacy = Client(server), Client(server, LEGACY[-1])
        subscription = listen(modern, {"resourceSubscriptions": [BOOK], "toolsListChanged": True})
        legacy.result("resources/subscribe", {"uri": BOOK})
        modern.call("rewrite", number="1", text="New.")
        legacy.call("add_tool", name="new")
        modern.fence()
        assert sorted(changes(server), key=str) == sorted(
            [
                (subscription, "resources/updated", BOOK),
                (None, "resources/updated", BOOK),
                (subscription, "tools/list_changed", None),
                (None, "tools/list_changed", None),
            ],
            key=str,
        )
        server.finish()


@pytest.mark.req("SUB-6")
def test_a_session_that_is_not_ready_is_told_nothing() -> None:
    with ServerProcess("library") as server:
        modern = Client(server)
        params = {"protocolVersion": LEGACY[0], "capabilities": {}}
        server.send({"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params})
        server.answer_to("open")
        modern.call("add_tool", name="new")
        modern.fence()
        assert server.finish() == []


@pytest.mark.req("SUB-2", "SUB-6")
def test_lists_may_change_from_any_thread() -> None:
    with ServerProcess("library") as server:
        modern, legacy = Client(server), Client(server, LEGACY[0])
        subscription = listen(modern, ALL)
        assert modern.say("change_all_in_thread") == "changed"
        # From Python 3.14 on, the call may end before the loop has seen what the thread has left for it.
        modern.fence()
        modern.fence()
        heard = changes(server)
        for topic in ("tools", "resources", "prompts"):
            for listener in (subscription, None):
                # Changes that come together may be told together.
                assert 1 <= heard.count((listener, f"{topic}/list_changed", None)) <= 2
        assert legacy.say("add_tool", name="new") == "added"
        assert "new" in [tool["name"] for tool in legacy.result("tools/list")["tools"]]
        assert modern.say("new") == "lent"
        assert modern.say("remove_tool", name="new") == "removed"
        assert modern.error("tools/call", {"name": "new", "arguments": {}})["code"] == -32602
        server.finish()
