"""Awaiting something that mostly need not be waited for, without paying for the wait."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

__all__ = ["Begun"]

T = TypeVar("T")


class Begun(Generic[T]):
    """Something awaitable that has been run at once, until it had to wait for the first time or was done.

    ``is_done`` says which, and ``value`` is what it gave. Otherwise this is to be awaited, in the same task, perhaps
    with a timeout. What it raises at once is raised here.
    """

    __slots__ = ("_rest", "_waiting", "is_done", "value")

    value: T

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self._rest = awaitable.__await__()
        try:
            self._waiting: Any = next(self._rest)
        except StopIteration as done:
            self.value = done.value
            self.is_done = True
        else:
            self.is_done = False

    def __await__(self) -> Generator[Any, Any, T]:
        if self.is_done:
            return self.value
        waiting, rest = self._waiting, self._rest
        try:
            while True:
                try:
                    yield waiting
                except BaseException as error:  # noqa: BLE001 - it is for those who wait within
                    waiting = rest.throw(error)
                else:
                    waiting = next(rest)
        except StopIteration as done:
            value: T = done.value
            return value
