from __future__ import annotations

import pytest

from mcplumb.protocol.subscription_state import TOPICS, Topic, topics_of
from mcplumb.types.notification_params import SubscriptionFilter


@pytest.mark.parametrize(
    ("wanted", "topics"),
    [
        (SubscriptionFilter(), set()),
        (SubscriptionFilter(tools_list_changed=False, resource_subscriptions=[]), set()),
        (SubscriptionFilter(tools_list_changed=True), {"tools"}),
        (SubscriptionFilter(prompts_list_changed=True, resources_list_changed=True), {"prompts", "resources"}),
        (SubscriptionFilter(resource_subscriptions=["a:b"]), {"updates"}),
    ],
)
def test_what_a_filter_asks_for(wanted: SubscriptionFilter, topics: set[Topic]) -> None:
    assert topics_of(wanted) == topics
    assert topics_of(wanted) <= TOPICS
