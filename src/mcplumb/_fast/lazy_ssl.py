"""Import ``asyncio`` without OpenSSL, which is loaded when something first uses it.

``asyncio`` imports ``ssl``, which takes a good part of the memory of a small process and of its start; a server on
pipes needs none of it. In a process that has loaded neither, `load_asyncio` puts a stand-in for ``ssl`` into
``sys.modules``, and one for ``asyncio.sslproto``, the only module of ``asyncio`` that uses ``ssl`` at import.
The first access to a stand-in, from any thread, turns it into the real module: the same object, fully loaded before the
access returns.

This affects the whole process, so only ``Server.run`` and ``mcplumb serve`` do it, which own the process. That is why
``from mcplumb import Server`` and what a server is made of load no ``asyncio`` (``tests/repo/test_import_cost.py``).

What it buys: 4.6 MB of the 24.6 MB of an idle server (19 %), and 7 ms of the 83 ms of CPU of its start (8 %); on
3.13, 4.6 MB of 25.5 and 5 ms of 96. ``python -m bench tricks`` measures it.

Proven on CPython 3.11, 3.12 and 3.13 on Linux; event loops do not matter. On other Pythons, when it is switched off,
in a Python without OpenSSL, and where the program has already imported ``asyncio`` or ``ssl``, it does nothing.
"""

from __future__ import annotations

import sys
import threading
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

from mcplumb._fast import may_use

__all__ = ["load_asyncio"]

_PACKAGE, _LIBRARY, _PROTOCOL = "asyncio", "ssl", "asyncio.sslproto"
#: The attributes that the import system reads from a module.
_FRAME = frozenset({"__class__", "__loader__", "__name__", "__package__", "__path__", "__spec__"})

# One lock for both, because one loads the other; reentrant, because a module may import itself while it is loaded.
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
    if not may_use("lazy_ssl") or _PACKAGE in sys.modules or _LIBRARY in sys.modules:
        return
    package = PathFinder.find_spec(_PACKAGE)
    if not _has_openssl():
        return
    library = _stand_in(_LIBRARY, None)
    protocol = _stand_in(_PROTOCOL, package and package.submodule_search_locations)
    if library is None or protocol is None:  # not found where expected: leave it alone
        return
    sys.modules.update({_LIBRARY: library, _PROTOCOL: protocol})
    import asyncio

    # As the import system does after importing a submodule.
    vars(asyncio)["sslproto"] = protocol


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
