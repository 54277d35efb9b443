from __future__ import annotations

import inspect
import math
from typing import Any

import msgspec
import pytest

from mcplumb import limits
from mcplumb.errors import UsageError
from mcplumb.limits import DEFAULT_LIMITS, Limits

NAMES = Limits.__struct_fields__


def test_the_defaults_are_pinned() -> None:
    assert msgspec.to_builtins(DEFAULT_LIMITS) == {
        "max_line": 67_108_864,
        "max_batch": 1000,
        "max_event": 67_108_864,
        "max_in_flight": 10_000,
        "max_waiting": 10_000,
        "max_subscriptions": 1000,
        "max_subscribed_resources": 10_000,
        "max_uri": 8192,
        "max_connections": 1000,
    }
    assert Limits() == DEFAULT_LIMITS


@pytest.mark.parametrize("name", NAMES)
def test_one_is_changed_and_the_rest_stay(name: str) -> None:
    changed: dict[str, Any] = {name: 1}
    assert msgspec.to_builtins(Limits(**changed)) == msgspec.to_builtins(DEFAULT_LIMITS) | changed


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0, -1, 1.5, math.nan, math.inf, "64 MiB", None])
def test_a_cap_that_caps_nothing_is_refused(name: str, value: Any) -> None:
    changed: dict[str, Any] = {name: value}
    with pytest.raises(UsageError) as caught:
        Limits(**changed)
    assert str(caught.value) == f"The limit {name} is {value!r}: it must be an integer of at least 1."


def test_limits_do_not_change() -> None:
    with pytest.raises(AttributeError):
        DEFAULT_LIMITS.max_line = 1  # type: ignore[misc]  # that it cannot be assigned is the point


def test_every_limit_says_why_it_is_what_it_is() -> None:
    lines = [line.strip() for line in inspect.getsource(limits).splitlines()]
    for name in NAMES:
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{name}: int ="))
        assert lines[at - 1].startswith("#: "), name
