from __future__ import annotations

import msgspec

from mcplumb import types as t


def test_filter() -> None:
    wanted = t.SubscriptionFilter(tools_list_changed=True, resource_subscriptions=["a:b"])
    assert msgspec.to_builtins(t.ListenParams(wanted)) == {
        "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]}
    }
    assert t.read(t.AcknowledgedParams, b'{"notifications":{}}').notifications == t.SubscriptionFilter()


def test_end() -> None:
    assert t.read(t.ListenResult, {"_meta": {t.SUBSCRIPTION_ID: 1}}).meta == {t.SUBSCRIPTION_ID: 1}
