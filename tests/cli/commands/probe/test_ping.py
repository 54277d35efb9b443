"""``mcplumb ping``."""

from __future__ import annotations

import re

import pytest

from tests.cli.kit import LEGACY, WEATHER, here


@pytest.mark.parametrize("server", [WEATHER, LEGACY], ids=["modern", "legacy"])
def test_a_server_answers(server: list[str]) -> None:
    done = here("ping", *server)
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(r"1: answered in \d+\.\d ms\n", done.out)


def test_it_is_asked_as_often_as_wanted() -> None:
    done = here("ping", "-n", "3", "--interval", "0.001", *LEGACY)
    lines = done.out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["1", "2", "3", "3 answers"]
    assert re.fullmatch(r"3 answers: [\d.]+ ms at best, [\d.]+ ms median, [\d.]+ ms at worst", lines[-1])


def test_the_median_of_two_is_between_them() -> None:
    done = here("ping", "-n", "2", "--interval", "0.001", *LEGACY)
    first, second, low, middle, high = map(float, re.findall(r"[\d.]+(?= ms)", done.out))
    assert (low, high) == (min(first, second), max(first, second))
    assert middle == pytest.approx((first + second) / 2, abs=0.11)


def test_json_is_one_document() -> None:
    done = here("ping", "-n", "2", "--interval", "0.001", "--json", *LEGACY)
    assert done.json["revision"] == "2025-06-18"
    assert len(done.json["seconds"]) == 2


def test_a_number_that_is_none_is_refused() -> None:
    done = here("ping", "-n", "0", *LEGACY)
    assert (done.code, done.out) == (2, "")
    assert "'--count': 0 is not in the range x>=1" in done.err
