from __future__ import annotations

import asyncio

import pytest

from mcpipe.client.places import Places
from tests.client.peers import run, turns


def test_free_places_are_taken_without_a_wait() -> None:
    async def main() -> None:
        places = Places(2)
        await places.take()
        await places.take()
        assert places.free == 0
        places.give_back()
        assert places.free == 1

    run(main())


def test_whoever_came_first_is_let_in_first() -> None:
    async def main() -> None:
        async def visit(name: str) -> None:
            await places.take()
            seen.append(name)

        places, seen = Places(1), list[str]()
        await places.take()
        visits = [asyncio.ensure_future(visit(name)) for name in "abc"]
        await turns()
        assert seen == []
        for count in range(1, 4):
            places.give_back()
            assert places.free == 0, "it belongs to the next one at once"
            await turns()
            assert seen == list("abc")[:count]
        await asyncio.gather(*visits)
        places.give_back()
        assert places.free == 1

    run(main())


@pytest.mark.parametrize("is_its_turn", [False, True])
def test_whoever_is_cancelled_takes_no_place(is_its_turn: bool) -> None:
    async def main() -> None:
        places = Places(1)
        await places.take()
        first, second = (asyncio.ensure_future(places.take()) for _ in range(2))
        await turns()
        if is_its_turn:
            places.give_back()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        if not is_its_turn:
            places.give_back()
        await second
        assert places.free == 0
        places.give_back()
        assert places.free == 1

    run(main())
