"""Import ``asyncio`` without the modules that it imports but a server on pipes never uses; load them on first use.

``asyncio`` imports ``ssl``, which takes a good part of the memory of a small process and of its start, and, itself or
through other modules, ``inspect``, ``tokenize`` and ``locale``, which it needs to describe errors and to start
processes. In a process that has not loaded ``asyncio``, `load_asyncio` puts a stand-in for each of these into
``sys.modules``, and one for ``asyncio.sslproto``, the only module of ``asyncio`` that uses ``ssl`` at import. The first
access to a stand-in, from any thread, turns it into the real module: the same object, fully loaded before the access
returns. What the program has loaded already stays as it is.

This affects the whole process, so only ``Server.run`` and ``mcplumb serve`` do it, which own the process. That is why
``from mcplumb import Server`` and what a server is made of load no ``asyncio`` (``tests/repo/test_import_cost.py``).

What ``ssl`` buys: 4.6 MB of the 24.6 MB of an idle server (19 %), and 7 ms of the 83 ms of CPU of its start (8 %); on
3.13, 4.6 MB of 25.5 and 5 ms of 96. ``python -m bench tricks`` measures it. The others take 7 % of the instructions of
the start that is left (5 % is ``inspect``, if `plain_functions` is on as well).

Proven on CPython 3.11 to 3.14 on Linux; event loops do not matter. On 3.14 it buys less, because ``asyncio`` loads
``dataclasses``, and that uses ``inspect``. On other Pythons, when it is switched off,
and where the program has already imported ``asyncio``, it does nothing. In a Python without OpenSSL, ``asyncio`` has
to notice that, so there is no stand-in for ``ssl``.
"""

from __future__ import annotations

import sys
import threading
from importlib._bootstrap import module_from_spec  # the public ``importlib.util`` loads more than it saves
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from mcplumb._fast import may_use

__all__ = ["load_asyncio"]

_PACKAGE, _LIBRARY, _PROTOCOL = "asyncio", "ssl", "asyncio.sslproto"
#: What is replaced besides ``ssl``, and what ``asyncio`` imports it for.
_OTHERS = (
    "inspect",  # to describe callbacks, and for ``iscoroutinefunction``
    "tokenize",  # ``linecache``: to find the encoding of a file that a traceback shows
    "locale",  # ``subprocess``: to find the encoding of a child's output
)
#: The attributes that the import system, and programs that look through ``sys.modules``, read from a module.
_FRAME = frozenset({"__class__", "__file__", "__loader__", "__name__", "__package__", "__path__", "__spec__"})

# One lock for all, because one loads another; reentrant, because a module may import itself while it is loaded.
_lock = threading.RLock()
_loading: list[ModuleType] = []


class _StandIn(ModuleType):
    def __getattribute__(self, name: str) -> Any:
        if name not in _FRAME:
            _load(self)
        return ModuleType.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _FRAME:
            _load(self)
        ModuleType.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        _load(self)
        ModuleType.__delattr__(self, name)


def load_asyncio() -> None:
    """Import ``asyncio`` with the stand-ins in place; do nothing where that is too late or not proven."""
    if not may_use("lazy_modules") or _PACKAGE in sys.modules:
        return
    wanted: dict[str, Any] = dict.fromkeys(_OTHERS)
    if _LIBRARY not in sys.modules and _has_openssl():
        package = PathFinder.find_spec(_PACKAGE)
        wanted |= {_LIBRARY: None, _PROTOCOL: package and package.submodule_search_locations}
    stand_ins = {name: _stand_in(name, path) for name, path in wanted.items() if name not in sys.modules}
    if None in stand_ins.values():  # not found where expected: leave everything alone
        return
    sys.modules.update(stand_ins)  # type: ignore[arg-type] # none of them is None
    import asyncio

    if _PROTOCOL in stand_ins:
        # As the import system does after importing a submodule.
        vars(asyncio)["sslproto"] = stand_ins[_PROTOCOL]


def _has_openssl() -> bool:
    """Return whether this Python was built with OpenSSL. If not, ``asyncio`` has to notice it."""
    return "_ssl" in sys.builtin_module_names or PathFinder.find_spec("_ssl") is not None


def _stand_in(name: str, path: Any) -> ModuleType | None:
    spec = PathFinder.find_spec(name, path)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    module.__class__ = _StandIn
    return module


def _load(module: ModuleType) -> None:
    with _lock:
        # Another thread may have loaded it meanwhile, or this thread is loading it.
        if type(module) is not _StandIn or module in _loading:
            return
        _loading.append(module)
        try:
            loader: Any = module.__loader__
            loader.exec_module(module)
        finally:
            _loading.remove(module)
        ModuleType.__setattr__(module, "__class__", ModuleType)
