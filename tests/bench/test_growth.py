"""What grows is found out, unless the floor grows, too; and the programs that are measured do what they say."""

from __future__ import annotations

import sys

import pytest

from bench.driver import driven
from bench.environments import CONTENDERS
from bench.growth import clients, servers
from bench.growth.costs import calls_for, echoes_for, lists_for
from bench.growth.judging import AIM, growth, judged
from bench.results import Table
from bench.traffic import MODERN
from tests.kit.products import spread


def program(name: str) -> list[str]:
    return [sys.executable, str(CONTENDERS / f"{name}.py")]


def table(server: list[float], floor: list[float]) -> Table:
    """One round of three sizes."""
    sizes = ("10", "100", "1,000")
    rounds = {
        size: [{"server": cost, "server_bare": bare, "client": 1.0, "client_bare": 1.0}]
        for size, cost, bare in zip(sizes, server, floor, strict=True)
    }
    return Table("made up", rounds)


def test_a_cost_that_falls_or_stays_does_not_grow() -> None:
    assert growth(table([4, 2, 2], [1, 1, 1]), "server").ratio == 1


def test_a_cost_that_falls_and_rises_again_grows() -> None:
    assert growth(table([4, 1, 3], [1, 1, 1]), "server") == (3, "100", "1,000")


def test_what_the_floor_becomes_dearer_by_is_forgiven() -> None:
    assert growth(table([1, 1, 3], [1, 1, 2]), "server").ratio == 1.5


def test_that_the_floor_becomes_cheaper_is_not_held_against_anyone() -> None:
    assert growth(table([1, 1, 1], [4, 2, 1]), "server").ratio == 1


def test_one_bad_round_of_three_does_not_count() -> None:
    rounds = [table([1, 1, cost], [1, 1, 1]).rounds for cost in (1.0, 9.0, 1.0)]
    merged = {size: [each[size][0] for each in rounds] for size in rounds[0]}
    assert growth(Table("made up", merged), "server").ratio == 1


def test_verdicts_name_the_two_sizes() -> None:
    server, client = judged("a call, by tools", table([4e-6, 1e-6, 3e-6], [1, 1, 1]))
    assert (server.name, server.measure) == ("server: a call, by tools", "1.0 µs (100), 3.0 µs (1,000)")
    assert (server.aim, server.verdict, client.verdict) == (AIM, "MISSED", "reached")


def test_calls_come_in_whole_groups_and_few_where_each_is_large() -> None:
    assert [calls_for(size) % size for size in (1, 3, 7, 10_000)] == [0, 0, 0, 0]
    assert calls_for(10_000) == 10_000
    assert lists_for(10) > lists_for(10_000) == 1
    assert echoes_for(1000) > echoes_for(100_000_000) == 1


@pytest.mark.parametrize("axis", spread(servers.MEASURES, 1))
@pytest.mark.parametrize("server", ["growth_ours", "loop"])
def test_each_server_can_be_measured(server: str, axis: str) -> None:
    costs = servers.MEASURES[axis](program(server), 11)
    assert costs
    assert all(min(cost) > 0 for cost in costs.values())


@pytest.mark.parametrize("axis", spread(clients.measures([]), 1))
@pytest.mark.parametrize("client", ["growth_ours_client", "growth_loop_client"])
def test_each_client_can_be_measured(client: str, axis: str) -> None:
    costs = clients.measures(program("loop"))[axis](program(client), 11)
    assert costs
    assert all(min(cost) > 0 for cost in costs.values())


@pytest.mark.parametrize("server", ["growth_ours", "loop"])
def test_the_list_of_tools_is_walked_to_its_end(server: str) -> None:
    with driven([*program(server), "1001"], MODERN) as process:
        assert servers.walk(process) >= 1001
