from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mcplumb.errors import UsageError
from mcplumb.limits import Limits
from mcplumb.protocol.subscription_state import PUBLICATION, TOPICS, Publisher, Topic
from mcplumb.types.meta import SUBSCRIPTION_ID
from mcplumb.types.notification_params import ListenResult, SubscriptionFilter
from mcplumb.wire.messages import Error, Notification, RequestId, Result
from tests.protocol.walks import rows_taken

ALL = SubscriptionFilter(
    tools_list_changed=True,
    prompts_list_changed=True,
    resources_list_changed=True,
    resource_subscriptions=["a:1", "a:2", "a:1"],
)


def publisher(offers: frozenset[Topic] = TOPICS, subscriptions: int = 10, resources: int = 10) -> Publisher:
    return Publisher(offers, Limits(max_subscriptions=subscriptions, max_subscribed_resources=resources, max_uri=20))


def plain(notification: Notification | Error) -> tuple[str, Any]:
    assert isinstance(notification, Notification)
    return notification.method, msgspec.to_builtins(notification.params)


def sent(method: str, subscription: RequestId, **params: Any) -> tuple[str, Any]:
    return f"notifications/{method}", {"_meta": {SUBSCRIPTION_ID: subscription}, **params}


@pytest.mark.req("SUB-1")
def test_the_acknowledgement_says_what_is_honoured() -> None:
    acknowledged = publisher().open("s", ALL)
    honoured = {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": ["a:1", "a:2"],
    }
    assert plain(acknowledged) == sent("subscriptions/acknowledged", "s", notifications=honoured)


@pytest.mark.req("SUB-1")
@pytest.mark.parametrize("offers", [frozenset[Topic](), frozenset[Topic](["tools"]), frozenset[Topic](["updates"])])
def test_what_is_not_offered_is_not_honoured(offers: frozenset[Topic]) -> None:
    publications = publisher(offers)
    _, params = plain(publications.open(1, ALL))
    names = {"tools": "toolsListChanged", "updates": "resourceSubscriptions"}
    assert set(params["notifications"]) == {names[topic] for topic in offers}
    assert len(publications.list_changed("tools")) == ("tools" in offers)
    assert len(publications.resource_updated("a:1")) == ("updates" in offers)
    assert publications.list_changed("prompts") == []


@pytest.mark.req("SUB-2")
def test_each_gets_what_it_asked_for_under_its_own_id() -> None:
    publications = publisher()
    publications.open(1, SubscriptionFilter(tools_list_changed=True))
    publications.open("1", SubscriptionFilter(resource_subscriptions=["a:1"]))
    publications.open(2, ALL)
    tools = sent("tools/list_changed", 1), sent("tools/list_changed", 2)
    assert [plain(n) for n in publications.list_changed("tools")] == list(tools)
    assert [plain(n) for n in publications.list_changed("resources")] == [sent("resources/list_changed", 2)]
    updates = sent("resources/updated", "1", uri="a:1"), sent("resources/updated", 2, uri="a:1")
    assert [plain(n) for n in publications.resource_updated("a:1")] == list(updates)
    assert publications.resource_updated("a:3") == []


def test_a_resource_is_watched_while_a_subscription_names_it() -> None:
    subscriptions = publisher()
    assert not subscriptions.is_watched("a://b")
    subscriptions.open(1, SubscriptionFilter(resource_subscriptions=["a://b"]))
    assert subscriptions.is_watched("a://b")
    assert not subscriptions.is_watched("a://c")
    subscriptions.cancel(1)
    assert not subscriptions.is_watched("a://b")


@pytest.mark.req("SUB-5", "CAN-6")
def test_the_server_ends_one_with_a_complete_result_and_no_cancellation() -> None:
    publications = publisher()
    publications.open(1, ALL)
    result = Result(1, ListenResult(result_type="complete", meta={"server": "me", SUBSCRIPTION_ID: 1}))
    assert publications.end(1, {"server": "me"}) == result
    assert publications.end(1) is None
    assert publications.list_changed("tools") == []
    publications.open(1, ALL)
    publications.open(2, ALL)
    assert [ended.id for ended in publications.end_all()] == [1, 2]
    assert len(publications) == 0


@pytest.mark.req("CAN-2")
def test_nothing_is_sent_after_the_client_cancelled() -> None:
    publications = publisher()
    publications.open(1, ALL)
    assert publications.cancel(1)
    assert not publications.cancel(1)
    assert publications.list_changed("tools") == []
    assert publications.end(1) is None


def test_the_numbers_are_bounded() -> None:
    def asks_for(*uris: str) -> SubscriptionFilter:
        return SubscriptionFilter(resource_subscriptions=list(uris))

    def refusal(outcome: Notification | Error) -> str:
        assert isinstance(outcome, Error)
        return outcome.error.message

    publications = publisher(subscriptions=2, resources=3)
    assert "no more than 20 characters" in refusal(publications.open(1, asks_for("a" * 21)))
    assert isinstance(publications.open(1, asks_for("a" * 20, "b")), Notification)
    assert "no more than 3 resources" in refusal(publications.open(2, asks_for("c", "d")))
    assert isinstance(publications.open(2, asks_for("c", "c")), Notification)
    assert "No more than 2 subscriptions" in refusal(publications.open(3, asks_for()))
    assert len(publications) == 2
    publications.cancel(1)
    publications.end(2)
    assert isinstance(publications.open(3, asks_for("a", "b", "c")), Notification), "what is over counts no more"


def test_an_id_is_open_once() -> None:
    publications = publisher()
    publications.open(1, ALL)
    with pytest.raises(UsageError, match="open already"):
        publications.open(1, ALL)


def test_every_row_of_the_table_has_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = [
        test_each_gets_what_it_asked_for_under_its_own_id,
        test_the_server_ends_one_with_a_complete_result_and_no_cancellation,
        test_nothing_is_sent_after_the_client_cancelled,
    ]
    assert rows_taken(PUBLICATION, examples, monkeypatch) == set(PUBLICATION.rows)
