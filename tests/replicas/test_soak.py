"""The short form of ``python -m chaos replicas``: clients of both eras, while replicas and Redis are killed.

Each fault waits for processes to start, which takes many seconds on a busy machine: nothing hangs because of that.
"""

from __future__ import annotations

import argparse

import pytest

from chaos.replicas import run_soak
from tests.kit.loop import run

#: Seconds in which even a busy machine starts all the processes.
WITHIN = 900.0


@pytest.mark.req("SCL-1", "SCL-2", "SCL-3", "SCL-4")
def test_nothing_is_lost_without_a_word() -> None:
    # 12 faults: replicas are killed 9 times, Redis 3 times.
    failures = run(run_soak(argparse.Namespace(clients=10, calls=600, every=50, seed=1)), within=WITHIN)
    assert failures == {name: [] for name in failures}


@pytest.mark.thorough
def test_many_clients() -> None:
    failures = run(run_soak(argparse.Namespace(clients=200, calls=20_000, every=500, seed=1)), within=WITHIN)
    assert failures == {name: [] for name in failures}
