from __future__ import annotations

from typing import Any

import pytest

from mcplumb import types as t
from mcplumb.errors import DecodeError
from tests import spec

FULL: dict[str, Any] = {
    t.PROTOCOL_VERSION: "2026-07-28",
    t.CLIENT_INFO: {"name": "me", "version": "1", "x": 1},
    t.CLIENT_CAPABILITIES: {"roots": {}},
    t.LOG_LEVEL: "info",
    t.PROGRESS_TOKEN: 7,
    t.TRACEPARENT: "00-1-2-01",
    t.TRACESTATE: "a=b",
    t.BAGGAGE: "c=d",
    "example.com/own": [1],
}


def test_view_of_a_request() -> None:
    meta = t.RequestMeta.of(FULL)
    assert meta.raw is FULL
    assert meta.protocol_version == "2026-07-28"
    assert meta.client_info == t.Implementation("me", "1")
    assert meta.client_capabilities == t.ClientCapabilities(roots=t.RootsCapability())
    assert meta.log_level == "info"
    assert meta.progress_token == 7
    assert meta.traceparent == "00-1-2-01"
    assert meta.tracestate == "a=b"
    assert meta.baggage == "c=d"


NAMES = [name for name, value in vars(t.RequestMeta).items() if isinstance(value, property)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("meta", [None, {}, {"other": 1}])
def test_what_is_absent_is_none(name: str, meta: dict[str, Any] | None) -> None:
    assert getattr(t.RequestMeta.of(meta), name) is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wrong", [1.5, True, [], {"a": 1, "version": 2, "roots": 3}])
def test_a_wrong_value_is_named(name: str, wrong: Any) -> None:
    meta = t.RequestMeta.of(dict.fromkeys(FULL, wrong))
    with pytest.raises(DecodeError, match=r"^The key '.*' of _meta has a value that cannot be read: .*\.$"):
        getattr(meta, name)


def test_values_that_are_typed_already() -> None:
    me = t.Implementation("me", "1")
    assert t.RequestMeta.of({t.CLIENT_INFO: me}).client_info is me


def test_who_answered() -> None:
    assert t.read_server_info({t.SERVER_INFO: {"name": "you", "version": "2"}}) == t.Implementation("you", "2")
    assert t.read_server_info(None) is None


@pytest.mark.parametrize("subscription", [0, "a"])
def test_subscription(subscription: t.RequestId) -> None:
    assert t.read_subscription_id({t.SUBSCRIPTION_ID: subscription}) == subscription
    assert t.read_subscription_id(None) is None


def test_the_keys_are_those_of_the_schema() -> None:
    revision = "2026-07-28"
    request = {t.PROTOCOL_VERSION, t.CLIENT_INFO, t.CLIENT_CAPABILITIES, t.LOG_LEVEL, t.PROGRESS_TOKEN}
    assert spec.properties(revision, "RequestMetaObject").keys() == request
    assert spec.properties(revision, "ResultMetaObject").keys() == {t.SERVER_INFO}
    assert spec.properties(revision, "NotificationMetaObject").keys() == {t.SUBSCRIPTION_ID}
