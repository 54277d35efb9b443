"""The gate shuts: whatever a call should not do is noticed."""

from __future__ import annotations

import pytest

from tests.costs.ceilings import TABLE, ceiling, check, too_high
from tests.costs.measuring import Case, count

#: What a server's tool might do, by the figure in which it shows.
WASTE = {
    "callbacks": "__import__('asyncio').get_running_loop().call_soon(int)",
    "timers": "__import__('asyncio').get_running_loop().call_later(600, int)",
    "tasks": "__import__('asyncio').create_task(__import__('asyncio').sleep(0))",
    "contexts": "__import__('contextvars').copy_context()",
    "writes": "__import__('os').write(2, b'')",
    "f-strings": "f'{text} {text}'",
    "closures": "lambda: text",
    "imports": "import os",
    "kept blocks": "vars(__import__('os')).setdefault('kept', []).append(object())",
    "garbage": "ring = []; ring.append(ring)",
    "turns": "await __import__('asyncio').sleep(0)",
}


def test_every_waste_shows() -> None:
    figures = count("server", Case(body="; ".join(WASTE.values()))).figures()
    assert {"instructions", "functions", "C functions", *WASTE} <= set(too_high("server", figures))


def test_nothing_is_counted_twice_or_forgotten() -> None:
    plain = count("server", Case())
    wasteful = count("server", Case(body="text.upper(); [].append(text)"))
    assert wasteful.figures()["C functions"] == plain.figures()["C functions"] + 2
    assert wasteful.figures()["functions"] == plain.figures()["functions"]
    grown = {
        name for name, numbers in wasteful.per_call("Steps").items() if numbers != plain.per_call("Steps").get(name)
    }
    assert {name for name in grown if not name.startswith(":")} == {"author.echo"}


def test_the_verdict_names_the_figure_and_says_what_to_do() -> None:
    figures = {"reads": 2.0, "writes": ceiling("server", "writes")}
    with pytest.raises(AssertionError, match=r"^server: 2 reads, and at most 1 are allowed\.\n`python -m tests\.costs"):
        check("server", figures)


def test_a_newer_python_has_limits_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.costs.ceilings._column", lambda: 9)
    for subject, figures in TABLE.items():
        for figure, limit in figures.items():
            known = limit[-1] if isinstance(limit, tuple) else limit
            assert known <= ceiling(subject, figure) <= known * 1.2
