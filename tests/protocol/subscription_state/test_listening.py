from __future__ import annotations

from typing import Any

import pytest

from mcplumb.protocol.subscription_state import SUBSCRIPTION, Change, Listener, Subscription
from mcplumb.types.notification_params import SubscriptionFilter
from tests.protocol.walks import rows_taken

TOOLS = SubscriptionFilter(tools_list_changed=True)
FILE = SubscriptionFilter(resource_subscriptions=["a:1"])


def active(wanted: SubscriptionFilter = TOOLS) -> tuple[Listener, Subscription]:
    listener = Listener()
    subscription = listener.open(1, wanted)
    assert listener.acknowledged(1, wanted) is subscription
    return listener, subscription


@pytest.mark.req("SUB-1")
def test_a_subscription_becomes_active_when_it_is_acknowledged() -> None:
    listener = Listener()
    subscription = listener.open(1, FILE)
    assert (subscription.state, subscription.honoured) == ("opening", None)
    assert listener.acknowledged(1, SubscriptionFilter()) is subscription
    assert (subscription.state, subscription.honoured) == ("active", SubscriptionFilter())


@pytest.mark.req("SUB-3")
def test_notifications_are_told_apart_by_their_id() -> None:
    listener, tools = active(TOOLS)
    file = listener.open(2, FILE)
    listener.acknowledged(2, FILE)
    assert listener.changed(1, Change("tools")) is tools
    assert listener.changed(2, Change("updates", "a:1")) is file
    assert (len(listener), listener.strays) == (2, 0)


@pytest.mark.req("SUB-3")
@pytest.mark.parametrize("named", ["1", True, 2, None, [], 1.0])
def test_a_notification_of_no_subscription_is_a_stray(named: Any) -> None:
    listener, _ = active()
    assert listener.changed(named, Change("tools")) is None
    assert listener.acknowledged(named, TOOLS) is None
    assert listener.ended(named) is None
    assert listener.strays == 2


@pytest.mark.req("SUB-1")
def test_nothing_is_delivered_before_the_acknowledgement() -> None:
    listener = Listener()
    listener.open(1, TOOLS)
    assert listener.changed(1, Change("tools")) is None
    assert listener.strays == 1


@pytest.mark.req("SUB-2")
@pytest.mark.parametrize("change", [Change("prompts"), Change("resources"), Change("tools")])
def test_what_was_not_asked_for_is_not_delivered(change: Change) -> None:
    listener, _ = active(FILE)
    assert listener.changed(1, change) is None
    assert listener.strays == 1


def test_an_update_of_a_part_of_a_resource_is_delivered() -> None:
    listener, subscription = active(FILE)
    assert listener.changed(1, Change("updates", "a:1/part")) is subscription


def test_a_second_acknowledgement_is_a_stray() -> None:
    listener, _ = active()
    assert listener.acknowledged(1, TOOLS) is None
    assert listener.strays == 1


@pytest.mark.req("SUB-5")
def test_the_server_may_end_it() -> None:
    listener, subscription = active()
    assert listener.ended(1) is subscription
    assert (subscription.state, len(listener)) == ("ended", 0)
    assert listener.ended(1) is None
    assert listener.changed(1, Change("tools")) is None
    opening = listener.open(2, TOOLS)
    listener.ended(2)
    assert opening.state == "ended"


def test_the_server_may_refuse_it_or_fail() -> None:
    listener, subscription = active()
    assert listener.failed(1) is subscription
    opening = listener.open(2, TOOLS)
    listener.failed(2)
    assert (subscription.state, opening.state) == ("failed", "failed")


def test_closing_tells_whether_the_request_must_be_cancelled() -> None:
    listener, subscription = active()
    opening = listener.open(2, TOOLS)
    assert listener.close(subscription)
    assert not listener.close(subscription), "only once"
    assert listener.close(opening)
    assert (subscription.state, opening.state) == ("closed", "closed")
    assert len(listener) == 0


def test_every_row_of_the_table_has_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = [
        test_notifications_are_told_apart_by_their_id,
        test_the_server_may_end_it,
        test_the_server_may_refuse_it_or_fail,
        test_closing_tells_whether_the_request_must_be_cancelled,
    ]
    assert rows_taken(SUBSCRIPTION, examples, monkeypatch) == set(SUBSCRIPTION.rows)
