from __future__ import annotations

import msgspec
import pytest

from mcplumb import types as t
from mcplumb.revisions import LATEST, REVISIONS, Revision
from mcplumb.types.revision_adapter import DEFAULTS, FIELDS, PAYLOADS

FLAGS = {name for name in Revision.__struct_fields__ if name.startswith("has_")}


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize("kind", FIELDS)
def test_fields_and_their_flags_exist(kind: str) -> None:
    fields = {field.name: field for field in msgspec.structs.fields(getattr(t, kind))}
    for name, flag in FIELDS[kind].items():
        assert fields[name].default is None
        assert flag in FLAGS
        assert any(not getattr(revision, flag) for revision in REVISIONS)


def test_what_is_filled_in_belongs_to_the_newest_revision() -> None:
    for kind, defaults in DEFAULTS.items():
        family = getattr(t, kind).__mro__
        flags = {name: flag for parent in family for name, flag in FIELDS.get(parent.__name__, {}).items()}
        assert all(getattr(LATEST, flags[name]) for name in defaults)


@pytest.mark.parametrize("kind", PAYLOADS)
def test_payloads_have_a_flag_and_a_name(kind: str) -> None:
    assert issubclass(getattr(t, kind), t.Payload)
    flag, name = PAYLOADS[kind]
    assert flag in FLAGS
    assert name
