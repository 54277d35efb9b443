"""No file outside ``_fast/`` relies on internals of CPython or asyncio."""

from __future__ import annotations

import re

import pytest

from tests.repo.source import SRC

#: What belongs to no public interface, or changes the whole process.
INTERNALS = re.compile(
    r"""
      (?<!self)(?<!cls)\._(ready|scheduled|selector|callbacks|run_once|stopping|fut_waiter|must_cancel)\b
    | \bsys\.modules\.(update|setdefault|pop)\b
    | \bgc\.(disable|freeze|set_threshold)\b
    | \b(mallopt|malloc_trim)\b
    | cannot\ enter\ context
    | ["']call_soon["']
    | \b_asyncio\b
    | \bsetswitchinterval\b
    """,
    re.VERBOSE,
)


def test_only_fast_relies_on_internals() -> None:
    found = [
        f"{path.relative_to(SRC)}:{number}: {line.strip()}"
        for path in sorted(SRC.rglob("*.py"))
        if "_fast" not in path.parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if INTERNALS.search(line)
    ]
    assert found == [], "each such trick is a file of src/mcplumb/_fast, with what it buys"


@pytest.mark.parametrize(
    "line",
    [
        "ready = loop._ready",
        "poll = loop._selector._selector.poll",
        '[(wake, context)] = getattr(future, "x")._callbacks',
        'sys.modules.update({"ssl": library})',
        "gc.disable()",
        'names["call_soon"] = self._catch',
        'if "cannot enter context" in str(error):',
    ],
)
def test_the_guard_sees_internals(line: str) -> None:
    assert INTERNALS.search(line)


def test_the_guard_leaves_attributes_of_one_s_own_alone() -> None:
    assert INTERNALS.search("self._ready = True") is None
