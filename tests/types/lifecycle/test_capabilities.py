from __future__ import annotations

from typing import Any

import pytest

from mcplumb import types as t


@pytest.mark.parametrize(
    ("capability", "has_form", "has_url"),
    [
        (t.ElicitationCapability(), True, False),
        (t.ElicitationCapability(form={}), True, False),
        (t.ElicitationCapability(url={}), False, True),
        (t.ElicitationCapability(form={}, url={}), True, True),
    ],
)
def test_modes_of_elicitation(capability: t.ElicitationCapability, has_form: bool, has_url: bool) -> None:
    assert capability.has_form == has_form
    assert capability.has_url == has_url


def test_a_capability_that_is_empty_is_there() -> None:
    read = t.read(t.ServerCapabilities, b'{"tools":{},"logging":{}}')
    assert read == t.ServerCapabilities(tools=t.ListCapability(), logging={})
    assert read.prompts is None


def test_tasks_are_kept_as_they_come() -> None:
    tasks: dict[str, Any] = {"requests": {"tools": {"call": {}}}}
    assert t.read(t.ServerCapabilities, {"tasks": tasks}).tasks == tasks
    assert t.read(t.ClientCapabilities, {"tasks": tasks}).tasks == tasks
