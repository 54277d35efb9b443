"""What Python knows about a callable."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from mcplumb.errors import UsageError
from mcplumb.server.schema.signature import enclosing_names, is_async, parameters_of, unwrap


def plain(a: int, b: int = 2) -> int:
    return a + b


async def waiting(a: int, b: int = 2) -> int:
    return a + b


def passing_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Thing:
    def __init__(self, size: int = 1) -> None:
        self.size = size

    def method(self, a: int) -> int:
        return a

    @classmethod
    def of_class(cls, a: int) -> int:
        return a

    @staticmethod
    def static(a: int) -> int:
        return a

    def __call__(self, c: int) -> int:
        return c


class Waiting:
    async def __call__(self, c: int) -> int:
        return c


class Bare:
    pass


@pytest.mark.parametrize(
    ("function", "source", "names"),
    [
        (plain, plain, ["a", "b"]),
        (waiting, waiting, ["a", "b"]),
        (functools.partial(plain, b=3), plain, ["a"]),
        (functools.partial(plain, 3), plain, ["b"]),
        (functools.partial(functools.partial(plain, b=3), a=1), plain, []),
        (passing_on(plain), plain, ["a", "b"]),
        (functools.partial(passing_on(plain), b=3), plain, ["a"]),
        (Thing().method, Thing.method, ["a"]),
        (Thing.of_class, Thing.__dict__["of_class"].__func__, ["a"]),
        (Thing.static, Thing.static, ["a"]),
        (Thing.__dict__["static"], Thing.static, ["a"]),
        (Thing(), Thing.__call__, ["c"]),
        (Thing, Thing.__init__, ["size"]),
        (Bare, Bare, []),
        (len, len, ["obj"]),
    ],
)
def test_what_is_behind_a_callable(function: Any, source: Any, names: list[str]) -> None:
    assert unwrap(function) is source
    assert [each.name for each in parameters_of(function, "It")[0]] == names


@pytest.mark.parametrize(
    "function",
    [
        waiting,
        functools.partial(waiting, b=1),
        Waiting(),
        Waiting().__call__,
        passing_on(waiting),
        passing_on(Waiting()),
    ],
)
def test_what_has_to_be_awaited(function: Any) -> None:
    assert is_async(function)


@pytest.mark.parametrize(
    "function", [plain, functools.partial(plain, b=1), Thing(), Thing, Thing().method, passing_on(plain), len]
)
def test_what_has_not(function: Any) -> None:
    assert not is_async(function)


def test_what_has_no_signature_is_refused() -> None:
    with pytest.raises(UsageError, match="It has no signature that Python can inspect: wrap it in a function"):
        parameters_of(dict, "It")


def test_the_names_around_a_local_function() -> None:
    in_closure = 1
    around = 2

    def local() -> int:
        return in_closure

    assert enclosing_names(local)["in_closure"] == 1
    assert enclosing_names(local)["around"] == around
    assert enclosing_names(plain) == {}
    assert enclosing_names(len) == {}


def test_the_names_that_are_left_when_the_function_around_has_returned() -> None:
    def make() -> Any:
        in_closure = 1
        around = 2

        def local() -> int:
            return in_closure

        del around
        return local

    assert enclosing_names(make()) == {"in_closure": 1}


def test_a_name_in_a_closure_may_have_no_value_yet() -> None:
    def local() -> Any:
        return later

    assert "later" not in enclosing_names(local)
    later = 1
    assert enclosing_names(local)["later"] == later


def test_type_parameters_are_names_too() -> None:
    class Parameter:
        __name__ = "T"

    def local() -> None: ...

    parameter = Parameter()
    local.__type_params__ = (parameter,)  # type: ignore[attr-defined] # as newer Pythons do by themselves
    assert enclosing_names(local)["T"] is parameter
