"""The package's own names."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from mcplumb import types

#: Names that the modules of the package share with each other, and not with users.
INNER = {
    "ADAPTERS",
    "DECODERS",
    "FIELDS",
    "DEFAULTS",
    "PAYLOADS",
    "UNREADABLE",
    "Adapt",
    "display",
    "flag",
    "undecoded",
    "wrap_result",
    "wrap_result_schema",
}


def test_all_is_what_the_modules_have() -> None:
    modules = {module.name for module in pkgutil.iter_modules(types.__path__)}
    names = [name for module in modules for name in importlib.import_module(f"mcplumb.types.{module}").__all__]
    assert sorted(names) == sorted({*types.__all__, *INNER})
    assert len(set(names)) == len(names)


def test_all_names_exist() -> None:
    for name in types.__all__:
        assert getattr(types, name) is not None


def test_a_type_is_found_when_it_is_asked_for() -> None:
    types.__dict__.pop("Root", None)
    assert types.Root is importlib.import_module("mcplumb.types.client_features").Root
    assert "Root" in types.__dict__, "It is looked up once."
    assert dir(types) == sorted(types.__all__)


@pytest.mark.parametrize("name", ["Nothing", "display"])
def test_a_name_that_the_package_does_not_have(name: str) -> None:
    with pytest.raises(AttributeError, match=f"'mcplumb.types' has no attribute '{name}'"):
        getattr(types, name)
