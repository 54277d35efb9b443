from __future__ import annotations

import asyncio

from mcpipe.transports.waiters import Waiters


def test_they_look_again_one_after_the_other() -> None:
    async def main() -> None:
        waiters = Waiters(asyncio.get_running_loop())
        is_full = True
        passed: list[str] = []

        async def enter(name: str) -> None:
            nonlocal is_full
            await waiters.wait_while(lambda: is_full)
            passed.append(name)
            is_full = name == "first"

        tasks = [asyncio.create_task(enter(name)) for name in ("first", "second", "third")]
        await asyncio.sleep(0)
        is_full = False
        waiters.wake()
        waiters.wake()
        await tasks[0]
        for _ in range(5):
            await asyncio.sleep(0)
        assert passed == ["first"]
        tasks[1].cancel()
        is_full = False
        waiters.wake()
        await asyncio.wait(tasks)
        assert passed == ["first", "third"]

    asyncio.run(main())


def test_who_need_not_wait_does_not() -> None:
    async def main() -> None:
        await Waiters(asyncio.get_running_loop()).wait_while(lambda: False)

    asyncio.run(main())


def test_waking_is_allowed_when_the_loop_is_gone() -> None:
    loop = asyncio.new_event_loop()
    waiters = Waiters(loop)
    task = loop.create_task(waiters.wait_while(lambda: True))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    waiters.wake()
    assert not task.done()
    task.get_coro().close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
