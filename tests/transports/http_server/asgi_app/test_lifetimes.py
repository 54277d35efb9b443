"""What is held between requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mcplumb.transports.http_server.app_lifetime import Lifetime
from tests.kit.loop import turns


async def test_it_begins_and_ends_in_one_task() -> None:
    tasks: list[object] = []

    @asynccontextmanager
    async def held() -> AsyncIterator[None]:
        tasks.append(asyncio.current_task())
        yield
        tasks.append(asyncio.current_task())

    lifetime = Lifetime(held)
    assert not lifetime.is_open
    await lifetime.opened()
    assert lifetime.is_open
    assert lifetime.loop is asyncio.get_running_loop()
    await lifetime.close()
    await lifetime.close()
    assert not lifetime.is_open
    assert lifetime.is_over
    assert tasks[0] is tasks[1] is not asyncio.current_task()


async def test_whoever_waits_for_its_beginning_hears_why_there_is_none() -> None:
    @asynccontextmanager
    async def held() -> AsyncIterator[None]:
        raise OSError("no")
        yield

    lifetime = Lifetime(held)
    for _ in range(2):
        with pytest.raises(OSError, match="no"):
            await lifetime.opened()
    assert lifetime.is_over
    await lifetime.close()
    Lifetime(held)  # nobody waits for this one
    await turns()


async def test_whoever_ends_it_hears_what_went_wrong() -> None:
    @asynccontextmanager
    async def held() -> AsyncIterator[None]:
        yield
        raise OSError("no")

    lifetime = Lifetime(held)
    await lifetime.opened()
    with pytest.raises(OSError, match="no"):
        await lifetime.close()
    assert lifetime.is_over
