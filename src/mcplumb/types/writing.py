"""Writing payloads: the same types for every revision, without what the revision lacks."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import Any, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from mcplumb.errors import NotInRevision
from mcplumb.revisions import Revision
from mcplumb.types.adapting import ADAPTED, Adapt
from mcplumb.types.base import Payload
from mcplumb.types.differences import FIELDS, FILLED, PAYLOADS
from mcplumb.types.elicitation import ElicitResult
from mcplumb.types.roots import ListRootsResult
from mcplumb.types.sampling import CreateMessageResult

__all__ = ["for_revision"]

P = TypeVar("P", bound=Payload)

_LISTS = (list, tuple)
_NOTHING: Mapping[str, Any] = {}


class _Plan(msgspec.Struct, frozen=True):
    """What has to be done to the payloads of one type for one revision."""

    #: What the revision lacks, if it cannot have the payload at all.
    refused: str | None
    adapt: Adapt | None
    left_out: tuple[str, ...]
    filled: tuple[tuple[str, Any], ...]
    #: The fields that may hold payloads for which something has to be done, and the types of those.
    inner: tuple[tuple[str, tuple[type[Payload], ...]], ...]


# Under the revision's name, as hashing its record would cost more than writing most payloads does.
_plans: dict[tuple[str, type[Payload]], _Plan | None] = {}


def for_revision(payload: P, revision: Revision, more: Mapping[str, Any] = _NOTHING) -> P:
    """The payload as this revision has it: the same object if nothing has to change, otherwise a copy.

    What the revision lacks is left out, or said in another way where that keeps its meaning: a link or a sound becomes
    a text that names it, titled choices become ``enumNames``. So a content block may come back as one of another type;
    params and results stay what they are. What the revision requires is filled in: ``resultType``, and cache hints
    that forbid caching. ``_meta`` is not looked into. The copy shares with the payload what has not changed.

    ``more`` has values for fields of the payload itself, to be set on the way. Raises ``NotInRevision`` if the revision
    has no way to say it.
    """
    try:
        plan = _plans[revision.name, type(payload)]
    except KeyError:
        plan = _plan_for(type(payload), revision)
    if plan is not None:
        return _follow(plan, payload, revision, more)  # type: ignore[no-any-return]
    return replace(payload, **more) if more else payload


def _plan_for(kind: type[Payload], revision: Revision) -> _Plan | None:
    try:
        return _plans[revision.name, kind]
    except KeyError:
        plan = _plans[revision.name, kind] = _make_plan(kind, revision)
        return plan


def _follow(plan: _Plan, payload: Any, revision: Revision, more: Mapping[str, Any]) -> Any:
    if plan.refused is not None:
        raise NotInRevision(f"Protocol revision {revision} has no {plan.refused}.")
    if plan.adapt is not None:
        adapted = plan.adapt(payload, revision)
        if type(adapted) is not type(payload):
            return for_revision(adapted, revision)
        payload = adapted
    changes = dict(more)
    for name, default in plan.filled:
        if name not in changes and getattr(payload, name) is None:
            changes[name] = default
    for name in plan.left_out:
        if getattr(payload, name) is not None:
            changes[name] = None
    for name, kinds in plan.inner:
        value = getattr(payload, name)
        if value is not None:
            written = _write_value(value, kinds, revision)
            if written is not value:
                changes[name] = written
    return replace(payload, **changes) if changes else payload


def _write_value(value: Any, kinds: tuple[type[Payload], ...], revision: Revision) -> Any:
    if isinstance(value, kinds):
        return for_revision(value, revision)
    if isinstance(value, _LISTS):
        # Most lists have nothing in them for which anything has to be done.
        for item in value:
            if isinstance(item, kinds):
                break
        else:
            return value
        items = [for_revision(item, revision) if isinstance(item, kinds) else item for item in value]
        return value if all(map(is_, items, value)) else items
    if isinstance(value, dict):
        values = {key: _write_value(item, kinds, revision) for key, item in value.items()}
        return value if all(map(is_, values.values(), value.values())) else values
    return value


def _make_plan(kind: type[Payload], revision: Revision) -> _Plan | None:
    family = [parent for parent in kind.__mro__ if issubclass(parent, Payload)]
    refused: str | None = None
    adapt: Adapt | None = None
    fields: dict[str, str] = {}
    defaults: dict[str, Any] = {}
    for parent in reversed(family):
        if parent in PAYLOADS:
            flag, name = PAYLOADS[parent]
            refused = None if getattr(revision, flag) else name
        if parent in ADAPTED:
            flags, adapt = ADAPTED[parent]
            if flags is not None and all(getattr(revision, flag) for flag in flags):
                adapt = None
        fields |= FIELDS.get(parent, {})
        defaults |= FILLED.get(parent, {})
    left_out = tuple(name for name, flag in fields.items() if not getattr(revision, flag))
    filled = tuple((name, value) for name, value in defaults.items() if name not in left_out)
    inner = []
    for name, kinds in _inner_kinds(kind).items():
        planned = tuple(inner for inner in kinds if _plan_for(inner, revision) is not None)
        if planned and name not in left_out:
            inner.append((name, planned))
    if refused is None and adapt is None and not (left_out or filled or inner):
        return None
    return _Plan(refused, adapt, left_out, filled, tuple(inner))


def _inner_kinds(kind: type[Payload]) -> dict[str, list[type[Payload]]]:
    """The types of payload that each field can hold, for the fields that can hold any."""
    found = {field.name: _payloads_in(field.type) for field in msgspec.structs.fields(kind)}
    if "input_responses" in found:
        # Its values are dicts when they come, but may be given as these.
        found["input_responses"] = [CreateMessageResult, ElicitResult, ListRootsResult]
    return {name: kinds for name, kinds in found.items() if kinds}


def _payloads_in(annotation: Any) -> list[type[Payload]]:
    if isinstance(annotation, type) and issubclass(annotation, Payload):
        return [annotation]
    return [kind for part in get_args(annotation) for kind in _payloads_in(part)]
