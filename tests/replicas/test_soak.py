"""The short form of ``python -m chaos replicas``: clients of both eras, while replicas and Redis are killed."""

from __future__ import annotations

import argparse
import asyncio

import pytest

from chaos.replicas import run_soak


@pytest.mark.req("SCL-1", "SCL-2", "SCL-3", "SCL-4")
async def test_nothing_is_lost_without_a_word() -> None:
    # 15 faults: replicas are killed 12 times, Redis 3 times.
    options = argparse.Namespace(clients=10, calls=600, every=40, seed=1)
    failures = await run_soak(options)
    assert failures == {name: [] for name in failures}


@pytest.mark.thorough
def test_many_clients() -> None:
    # In a loop of its own: the tests' loop takes two minutes for a hang, and on a busy machine this takes longer.
    failures = asyncio.run(run_soak(argparse.Namespace(clients=200, calls=20_000, every=500, seed=1)))
    assert failures == {name: [] for name in failures}
