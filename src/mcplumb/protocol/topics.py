"""What a subscription is about, as both sides of it see it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from mcplumb.types.subscriptions import SubscriptionFilter

__all__ = ["LIST_CHANGED", "TOPICS", "ListTopic", "Topic", "topics_of"]

#: A list that can change.
ListTopic: TypeAlias = Literal["tools", "prompts", "resources"]
#: What a server can offer, and a client ask for: changes of three lists, and updates of single resources.
Topic: TypeAlias = ListTopic | Literal["updates"]

#: The notification for each list.
LIST_CHANGED: dict[ListTopic, str] = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}

TOPICS: frozenset[Topic] = frozenset((*LIST_CHANGED, "updates"))


def topics_of(wanted: SubscriptionFilter) -> frozenset[Topic]:
    """The topics that a filter asks for."""
    asked: dict[Topic, object] = {
        "tools": wanted.tools_list_changed,
        "prompts": wanted.prompts_list_changed,
        "resources": wanted.resources_list_changed,
        "updates": wanted.resource_subscriptions,
    }
    return frozenset(topic for topic, wish in asked.items() if wish)
