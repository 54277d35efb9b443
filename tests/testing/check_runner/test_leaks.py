"""What is left behind is found, and what is on its way out is waited for."""

from __future__ import annotations

import asyncio
import os
import warnings

import pytest

from mcplumb.testing import check_runner
from mcplumb.testing.check_runner import no_leaks


async def test_what_ends_by_itself_is_no_leak() -> None:
    async with no_leaks(60):
        near, far = os.pipe()
        loop = asyncio.get_running_loop()
        loop.call_later(0.02, os.close, near)
        loop.call_later(0.03, os.close, far)
        ending = asyncio.create_task(asyncio.sleep(0.01))
    assert ending.done()


@pytest.mark.parametrize(("kind", "said"), [("pipe", "a pipe"), ("file", "a device"), ("folder", "something else")])
def test_descriptors_are_named(kind: str, said: str) -> None:
    async def main() -> None:
        async with no_leaks(0.05):
            opened.extend(os.pipe() if kind == "pipe" else [os.open("/" if kind == "folder" else os.devnull, 0)])

    opened: list[int] = []
    with pytest.raises(AssertionError, match=rf"descriptors are left open: {'.*'}\({said}, inode"):
        asyncio.run(main())
    for fd in opened:
        os.close(fd)


def test_tasks_are_named() -> None:
    async def main() -> None:
        async with no_leaks(0.05):
            tasks.append(asyncio.create_task(asyncio.Event().wait()))

    tasks: list[asyncio.Task[object]] = []
    with pytest.raises(AssertionError, match=r"Tasks are left behind: .*Event\.wait"):
        asyncio.run(main())


def test_a_coroutine_that_nobody_awaits_is_found() -> None:
    async def main() -> None:
        async with no_leaks(1):
            asyncio.sleep(1)  # type: ignore[unused-coroutine] # that is the fault

    with pytest.raises(AssertionError, match=r"dropped instead of closed: coroutine 'sleep' was never awaited"):
        asyncio.run(main())


def test_errors_that_nobody_sees_are_found() -> None:
    async def main() -> None:
        async with no_leaks(1):
            asyncio.get_running_loop().call_exception_handler({"message": "Something is odd"})

    with pytest.raises(AssertionError, match=r"The event loop reported unhandled errors: Something is odd\."):
        asyncio.run(main())


def test_a_failure_is_told_with_the_errors_that_nobody_saw() -> None:
    async def main() -> None:
        async with no_leaks(1):
            asyncio.get_running_loop().call_soon(int, "x")
            await asyncio.sleep(0)
            raise AssertionError("No.")

    with pytest.raises(AssertionError, match=r"^No\.") as caught:
        asyncio.run(main())
    (note,) = caught.value.__notes__
    assert "ValueError" in note


def test_everything_is_as_before_afterwards() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        handler = loop.get_exception_handler()
        async with no_leaks(1):
            assert loop.get_exception_handler() is not handler
            warnings.warn("Something else.", UserWarning, stacklevel=1)
        assert loop.get_exception_handler() is handler

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        asyncio.run(main())
    assert [str(warning.message) for warning in said] == ["Something else."]


def test_a_system_that_does_not_tell_has_no_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_runner, "_FOLDER", "/no/such/folder")

    async def main() -> None:
        async with no_leaks(1):
            opened.extend(os.pipe())

    opened: list[int] = []
    asyncio.run(main())
    for fd in opened:
        os.close(fd)
