"""What a subscription is about, as both sides of it see it."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from mcpipe.types.subscriptions import SubscriptionFilter

__all__ = ["TOPICS", "ListTopic", "Topic", "topics_of"]

#: A list that can change.
ListTopic: TypeAlias = Literal["tools", "prompts", "resources"]
#: What a server can offer, and a client ask for: changes of three lists, and updates of single resources.
Topic: TypeAlias = ListTopic | Literal["updates"]

TOPICS: frozenset[Topic] = frozenset((*get_args(ListTopic), "updates"))


def topics_of(wanted: SubscriptionFilter) -> frozenset[Topic]:
    """The topics that a filter asks for."""
    asked: dict[Topic, object] = {
        "tools": wanted.tools_list_changed,
        "prompts": wanted.prompts_list_changed,
        "resources": wanted.resources_list_changed,
        "updates": wanted.resource_subscriptions,
    }
    return frozenset(topic for topic, wish in asked.items() if wish)
