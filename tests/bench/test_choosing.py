"""What the page *Choosing* says in words is so in the figures that it shows."""

from __future__ import annotations

from bench.goals import ANY_CORE, ONE_CORE
from bench.lineup import BARE, FLOOR, GO, MINIMAL, OFFICIAL, OURS, RUST
from bench.page import FIGURES_FILE
from bench.results import load

FASTMCP, TYPESCRIPT = "fastmcp 4.1.4", "TypeScript 2.4.0"
LIBRARIES = (OURS, OFFICIAL, FASTMCP, TYPESCRIPT, GO, RUST)
KEPT = load(FIGURES_FILE)


def figure(name: str, part: str, table: str, which: str) -> float:
    found = KEPT.parts[part].tables[table].median(name, which)
    assert found is not None, f"{name} has no {which} in {part}, {table}."
    return found


def ranked(part: str, table: str, which: str) -> list[str]:
    """Return the libraries, from the least to the most."""
    return sorted(LIBRARIES, key=lambda name: figure(name, part, table, which))


def test_what_each_library_is_good_at() -> None:
    assert ranked("server", "starts", "idle")[:2] == [RUST, GO]
    assert ranked("server", "starts", "cold")[:3] == [RUST, GO, OURS]
    assert ranked("server", ONE_CORE, "cpu")[0] == OURS


def test_where_to_think_twice() -> None:
    memory, calls, large = (
        ranked("server", "starts", "idle"),
        ranked("server", ONE_CORE, "in_flight"),
        ranked("server", ONE_CORE, "large"),
    )
    assert TYPESCRIPT in memory[-2:]
    assert set(large[:2]) == {GO, TYPESCRIPT}
    assert calls[:3] == [FASTMCP, OFFICIAL, GO]
    of_go = {row.name: row.ratio for row in KEPT.parts["profiles"].rows if row.name.startswith(GO)}
    assert max(of_go, key=lambda what: of_go[what]) == f"{GO}: decoding JSON"


def test_where_the_differences_come_from() -> None:
    calls = figure(FLOOR, "server", ONE_CORE, "in_flight")
    assert all(calls > 3 * figure(name, "server", ONE_CORE, "in_flight") for name in LIBRARIES)
    go = figure(GO, "server", "starts", "cold")
    assert figure(MINIMAL, "server", "starts", "cold") > go
    assert figure(BARE, "server", "starts", "cold") > 3 * go


def test_what_the_modules_of_a_server_take() -> None:
    whole = figure("server", "starting", "modules", "importing")
    ours, asyncio, msgspec = (
        figure(name, "starting", "server", "importing") / whole for name in (OURS, "asyncio", "msgspec")
    )
    assert 0.28 < ours < 0.38  # about a third
    assert asyncio + msgspec < 0.2


def test_http() -> None:
    for cores in (ONE_CORE, ANY_CORE):
        ours, rust = (figure(name, "http", cores, "in_flight") for name in (OURS, RUST))
        assert ours > 0.9 * rust  # level
    for server in ("uvicorn", "granian"):
        theirs = figure(f"{OURS}, ASGI under {server}", "http", ONE_CORE, "in_flight")
        assert theirs < 0.5 * figure(OURS, "http", ONE_CORE, "in_flight")
