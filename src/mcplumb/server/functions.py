"""What Python knows about a callable: what it was written as, where, and whether it has to be awaited."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from mcplumb.errors import UsageError

__all__ = ["is_async", "names_around", "parameters_of", "source_of"]


def source_of(function: Callable[..., Any]) -> Any:
    """The ``def`` behind partials, methods, decorators that use ``functools.wraps``, and objects with ``__call__``."""
    *_, source = _layers(function)
    return source


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a function, or one that it wraps, is a coroutine function."""
    return any(map(inspect.iscoroutinefunction, _layers(function)))


def parameters_of(function: Callable[..., Any], spoken: str) -> inspect.Signature:
    """The signature of a function without the arguments that a partial has filled in."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{spoken} has no signature that Python could tell: wrap it in a function of yours."
        ) from error
    filled = {name for layer in _layers(function) if isinstance(layer, functools.partial) for name in layer.keywords}
    return signature.replace(parameters=[p for name, p in signature.parameters.items() if name not in filled])


def names_around(source: Any) -> dict[str, Any]:
    """The names that surround a function without being in its module: for annotations that are strings.

    They are its type parameters, what it has in its closure and, while the function in which it was defined still
    runs, the names in there.
    """
    code = getattr(source, "__code__", None)
    if code is None:
        return {}
    names: dict[str, Any] = {}
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if code in frame.f_code.co_consts and frame.f_code.co_name != "<module>":
            names.update(frame.f_locals)
            break
        frame = frame.f_back
    for name, cell in zip(code.co_freevars, source.__closure__ or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not yet filled
            continue
    names.update({parameter.__name__: parameter for parameter in getattr(source, "__type_params__", ())})
    return names


def _layers(function: Any) -> Iterator[Any]:
    """A callable, and what is inside it, down to a plain function or something that Python does not look into."""
    while True:
        yield function
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.ismethod(function):
            function = function.__func__
        elif inspect.isclass(function) and not isinstance(function.__init__, types.WrapperDescriptorType):
            function = function.__init__
        elif not inspect.isroutine(function) and not inspect.isclass(function):
            function = type(function).__call__
        else:
            return
