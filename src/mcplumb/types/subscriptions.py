"""Subscriptions: one long request, and the notifications that it lets through."""

from __future__ import annotations

from mcplumb.types.base import Params, Payload, Result

__all__ = ["AcknowledgedParams", "ListenParams", "ListenResult", "SubscriptionFilter"]


class SubscriptionFilter(Payload, frozen=True, kw_only=True):
    """Which changes are wanted, or granted."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    #: The addresses of the resources whose updates are wanted.
    resource_subscriptions: list[str] | None = None


class ListenParams(Params, frozen=True):
    """Opens a subscription."""

    notifications: SubscriptionFilter


class AcknowledgedParams(Params, frozen=True):
    """The subscription is open, and this much of it is granted. ``meta`` has the subscription's id."""

    notifications: SubscriptionFilter


class ListenResult(Result, frozen=True):
    """The subscription has ended in good order. ``meta`` has the subscription's id."""
