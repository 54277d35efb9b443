"""The package's own names."""

from __future__ import annotations

import importlib
import pkgutil

from mcplumb import types

#: Names that the modules of the package share with each other, and not with users.
INNER = {"ADAPTERS", "DECODERS", "FIELDS", "DEFAULTS", "PAYLOADS", "UNREADABLE", "Adapt"}


def test_all_is_what_the_modules_have() -> None:
    modules = {module.name for module in pkgutil.iter_modules(types.__path__)}
    names = [name for module in modules for name in importlib.import_module(f"mcplumb.types.{module}").__all__]
    assert sorted(names) == sorted({*types.__all__, *INNER})
    assert len(set(names)) == len(names)


def test_all_names_exist() -> None:
    for name in types.__all__:
        assert getattr(types, name) is not None
