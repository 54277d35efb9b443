"""What is read from a code object is what ``inspect`` says."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from mcplumb._fast.plain_functions import is_plain, is_plain_async, plain_parameters

pytestmark = pytest.mark.tricks

MISSING: Any = object()
NOTHING = inspect.Parameter.empty


def f_of(program: str) -> Any:
    """What the program calls ``f``."""
    names: dict[str, Any] = {}
    exec(program, names)  # noqa: S102 - parameters of every kind, which the linters would object to
    return names["f"]


@pytest.mark.parametrize(
    "program",
    [
        "def f(): ...",
        "def f(a, b: int, c: str = 'c', d=None): ...",
        "def f(*, a, b: int = 2, c: str) -> bool: ...",
        "def f(a: int, b: int = 1, *, c: 'int', d: list[int] = []) -> None: ...",
        "def f(a: int = 3) -> int:\n  b = a\n  return b",
        "def f(a):\n  def inner(): return a\n  return inner",
        "async def f(a: int, b: int = 2) -> int: ...",
        "def f(a: int): yield a",
        "async def f(a: int): yield a",
        "def around(b):\n  def inner(a=b): return a + b\n  return inner\nf = around(1)",
        "f = lambda a, b=1: a",
    ],
)
def test_plain_functions_have_the_signature_that_inspect_finds(program: str) -> None:
    function = f_of(program)
    assert is_plain(function)
    expected = [
        tuple(MISSING if part is NOTHING else part for part in (each.name, each.annotation, each.default))
        for each in inspect.signature(function).parameters.values()
    ]
    assert plain_parameters(function, MISSING) == expected
    assert is_plain_async(function) == inspect.iscoroutinefunction(function)


@pytest.mark.parametrize(
    "program",
    [
        "def f(a, /): ...",
        "def f(*a): ...",
        "def f(**a): ...",
        "import functools\n@functools.wraps(print)\ndef f(a): ...",
        "def f(a): ...\nf.anything = 1",
        "class f: ...",
        "class A:\n  def __call__(self, a): ...\nf = A()",
        "class A:\n  def method(self, a): ...\nf = A().method",
        "import functools\ndef g(a): ...\nf = functools.partial(g, 1)",
        "import functools\n@functools.cache\ndef f(a): ...",
        "f = print",
        "f = 1",
    ],
)
def test_everything_else_is_left_to_inspect(program: str) -> None:
    assert not is_plain(f_of(program))
