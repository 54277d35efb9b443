"""Parameters of tests: those of every run, and those that only a thorough run adds.

By default a feature is tried in both eras, over the transports where it matters. The full product of revisions,
transports and variants is marked ``thorough``. A test of a rule that only some revisions have names them itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

from mcplumb.revisions import LATEST, LATEST_LEGACY, REVISIONS, Revision

#: What every run tries: the newest revision of each era.
BOTH_ERAS = (LATEST, LATEST_LEGACY)


def sampled(values: Iterable[Any], default: Collection[Any]) -> list[Any]:
    """Return all values as parameters; those that are not among the defaults are marked ``thorough``."""
    return [pytest.param(value, marks=() if value in default else pytest.mark.thorough) for value in values]


def revisions(among: Iterable[Revision] = REVISIONS) -> list[Any]:
    """Return revisions as parameters; all but the newest of each era are marked ``thorough``."""
    return sampled(among, BOTH_ERAS)


def revision_names(among: Iterable[str] = tuple(map(str, REVISIONS))) -> list[Any]:
    """Return the names of revisions as parameters; all but the newest of each era are marked ``thorough``."""
    return sampled(among, tuple(map(str, BOTH_ERAS)))
