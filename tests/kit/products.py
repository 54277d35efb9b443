"""Parameters of tests: those of every run, and those that only a thorough run adds.

By default a feature is tried in both eras, over the transports where it matters. The full product of revisions,
transports and variants is marked ``thorough``. A test of a rule that only some revisions have names them itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

from mcplumb.revisions import LATEST, LATEST_LEGACY, REVISIONS, Revision

#: The marks of a case that only a thorough run adds. It can run beside others, unlike most that are thorough.
EXTRA = (pytest.mark.thorough, pytest.mark.product)
#: What every run tries: the newest revision of each era.
BOTH_ERAS = (LATEST, LATEST_LEGACY)


def sampled(values: Iterable[Any], default: Collection[Any]) -> list[Any]:
    """Return all values as parameters; those that are not among the defaults are marked ``thorough``."""
    return [pytest.param(value, marks=() if value in default else EXTRA) for value in values]


def spread(values: Iterable[Any], count: int) -> list[Any]:
    """Return all values as parameters; all but so many of them, evenly spread, are marked ``thorough``."""
    cases = list(values)
    default = {round(at * (len(cases) - 1) / max(count - 1, 1)) for at in range(count)}
    return [pytest.param(case, marks=() if at in default else EXTRA) for at, case in enumerate(cases)]


def revisions(among: Iterable[Revision] = REVISIONS) -> list[Any]:
    """Return revisions as parameters; all but the newest of each era are marked ``thorough``."""
    return sampled(among, BOTH_ERAS)


def revision_names(among: Iterable[str] = tuple(map(str, REVISIONS))) -> list[Any]:
    """Return the names of revisions as parameters; all but the newest of each era are marked ``thorough``."""
    return sampled(among, tuple(map(str, BOTH_ERAS)))


def examples(count: int, **more: Any) -> settings:
    """Return settings for a property that needs more or fewer examples than others, which the profile scales.

    A profile has so many examples for each 100 that are named here as it has for a property without settings.
    """
    return settings(max_examples=max(1, count * settings().max_examples // 100), **more)
