from __future__ import annotations

import importlib
import pkgutil
from enum import StrEnum
from typing import Any, Literal

import pytest

import mcplumb.protocol
from mcplumb.errors import UsageError
from mcplumb.protocol.transition_table import Table

State = Literal["shut", "open", "broken"]
Event = Literal["push", "pull", "kick"]

DOOR: Table[State, Event] = Table(
    "door",
    "shut",
    {
        ("shut", "push"): "open",
        ("shut", "pull"): "open",
        ("open", "pull"): "shut",
        ("open", "kick"): "broken",
        ("broken", "kick"): "broken",
    },
    final=("broken",),
)


def test_a_row_leads_on() -> None:
    assert DOOR.after("shut", "push") == "open"
    assert DOOR.after("open", "pull") == "shut"


def test_a_missing_row_is_refused_with_what_was_possible() -> None:
    with pytest.raises(UsageError) as caught:
        DOOR.after("shut", "kick")
    assert str(caught.value) == (
        "The machine 'door' in state 'shut' cannot take the event 'kick'; possible here: push, pull."
    )


def test_an_ended_machine_says_so() -> None:
    table: Table[State, Event] = Table("door", "shut", {("shut", "kick"): "broken"}, final=("broken",))
    with pytest.raises(UsageError, match="possible here: nothing, it has ended"):
        table.after("broken", "kick")


def test_states_and_events_are_in_the_order_of_the_rows() -> None:
    assert DOOR.states() == ("shut", "open", "broken")
    assert DOOR.events("open") == ("pull", "kick")


def test_the_diagram_has_every_row_and_joins_events_with_the_same_ends() -> None:
    assert DOOR.mermaid() == (
        "stateDiagram-v2\n"
        "    [*] --> shut\n"
        "    shut --> open: push, pull\n"
        "    open --> shut: pull\n"
        "    open --> broken: kick\n"
        "    broken --> broken: kick\n"
        "    broken --> [*]\n"
    )


def test_the_diagram_does_not_depend_on_the_order_of_a_set() -> None:
    names = frozenset("abcdefgh")
    table: Table[str, str] = Table("many", "start", {("start", name): name for name in "abcdefgh"}, final=names)
    ends = [line for line in table.mermaid().splitlines() if line.endswith("--> [*]")]
    assert ends == [f"    {name} --> [*]" for name in "abcdefgh"]
    assert table.states() == ("start", *"abcdefgh")


def test_enumerations_work_too() -> None:
    class Light(StrEnum):
        RED = "red"
        GREEN = "green"

    table: Table[Light, Light] = Table("light", Light.RED, {(Light.RED, Light.GREEN): Light.GREEN})
    assert table.after(Light.RED, Light.GREEN) is Light.GREEN
    with pytest.raises(UsageError, match="in state 'green' cannot take the event 'red'"):
        table.after(Light.GREEN, Light.RED)
    assert "red --> green: green" in table.mermaid()


@pytest.mark.parametrize(
    ("rows", "final", "faults"),
    [
        ({("shut", "push"): "open", ("open", "pull"): "shut"}, (), []),
        ({("shut", "push"): "open"}, ("open",), []),
        ({("shut", "push"): "open"}, (), ["The state 'open' is not final, but nothing can happen in it."]),
        (
            {("shut", "push"): "open", ("open", "kick"): "open"},
            (),
            [],
        ),
        (
            {("shut", "push"): "open", ("open", "pull"): "shut"},
            ("open",),
            ["The state 'open' is final, but has a way out."],
        ),
        (
            {("shut", "push"): "open", ("broken", "pull"): "open"},
            ("open",),
            ["Nothing leads to the state 'broken'."],
        ),
        ({("shut", "push"): "open"}, ("open", "broken"), ["Nothing leads to the state 'broken'."]),
    ],
)
def test_faults_are_found(rows: Any, final: Any, faults: list[str]) -> None:
    assert Table("door", "shut", rows, final=final).faults() == faults


def tables_of_the_package() -> dict[str, Table[str, str]]:
    found: dict[str, Table[str, str]] = {}
    for info in pkgutil.iter_modules(mcplumb.protocol.__path__, "mcplumb.protocol."):
        module = importlib.import_module(info.name)
        found |= {f"{info.name}.{name}": value for name, value in vars(module).items() if isinstance(value, Table)}
    return found


def test_the_machines_of_the_package_are_sound() -> None:
    tables = tables_of_the_package()
    assert tables
    for where, table in tables.items():
        assert table.faults() == [], where
        assert table.doc, where
        assert table.doc.endswith("."), where
        # What Mermaid takes for a name without quoting.
        assert all(state.isidentifier() for state in table.states()), where
        assert all(event.isidentifier() for _, event in table.rows), where
