from __future__ import annotations

import pytest

from mcplumb import types as t
from mcplumb.revisions import LATEST, LEGACY, REVISIONS, Revision
from tests import spec

#: Experimental in one revision, and not implemented.
TASKS = {"tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "notifications/tasks/status"}


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize("revision", REVISIONS, ids=str)
@pytest.mark.parametrize("side", ["client", "server"])
@pytest.mark.parametrize("kind", ["Request", "Notification"])
def test_each_side_sends_what_the_schema_lets_it_send(revision: Revision, side: t.Side, kind: str) -> None:
    sent = {
        method.name
        for method in t.METHODS.values()
        if method.sent_by(side, revision) and method.is_notification == (kind == "Notification")
    }
    assert sent == spec.union(str(revision), side.capitalize() + kind) - TASKS


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
def test_every_method_of_a_revision_is_there(revision: Revision) -> None:
    ours = {name for name, method in t.METHODS.items() if method.in_revision(revision)}
    embedded = {"sampling/createMessage", "elicitation/create", "roots/list"} if revision.is_modern else set()
    assert ours | embedded == spec.methods(str(revision)).keys() - TASKS


def test_names_are_keys() -> None:
    assert all(method.name == name for name, method in t.METHODS.items())


def test_types() -> None:
    call = t.METHODS["tools/call"]
    assert (call.params, call.result) == (t.CallToolParams, t.CallToolResult)
    assert not call.is_notification
    assert t.METHODS["notifications/message"].is_notification


def test_in_revision_asks_both_sides() -> None:
    assert t.METHODS["roots/list"].in_revision(LEGACY[0])
    assert not t.METHODS["roots/list"].in_revision(LATEST)
    assert t.METHODS["server/discover"].in_revision(LATEST)
    assert not t.METHODS["server/discover"].in_revision(LEGACY[0])


def test_what_may_need_input() -> None:
    may = {method.name for method in t.METHODS.values() if method.may_need_input}
    answers = spec.definitions(str(LATEST))
    assert may == {
        method
        for method, name in spec.methods(str(LATEST)).items()
        if "InputRequiredResult" in str(answers.get(f"{name.removesuffix('Request')}ResultResponse"))
    }
    assert all(issubclass(t.METHODS[name].params, t.RetryParams) for name in may)


def test_what_is_repeated_in_a_header() -> None:
    named = {method.name: method.named_by for method in t.METHODS.values() if method.named_by is not None}
    assert named == {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
    assert all(by in t.METHODS[name].params.__struct_fields__ for name, by in named.items())
