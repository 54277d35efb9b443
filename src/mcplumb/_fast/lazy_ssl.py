"""Loading ``asyncio`` without OpenSSL, for as long as nobody uses that.

``asyncio`` imports ``ssl``, which takes a good part of the memory of a small process, and of its start; a server or a
client on pipes needs none of it. So, in a process that has loaded neither, a stand-in takes the place of ``ssl``, and
one that of the only module of ``asyncio`` that looks into it at once. The first look into a stand-in, from whatever
thread, makes it the module that it stands for: the same object, and complete before anybody sees it.
"""

from __future__ import annotations

import sys
import threading
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any

__all__ = ["load_asyncio"]

_PACKAGE, _LIBRARY, _PROTOCOL = "asyncio", "ssl", "asyncio.sslproto"
#: What Python itself asks of a module while that is imported.
_FRAME = frozenset({"__class__", "__loader__", "__name__", "__package__", "__path__", "__spec__"})

# One for all, since one loads the other. Whoever loads a module may look into it meanwhile.
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
    """Import ``asyncio``, with the stand-ins in place unless it is too late for that."""
    if _PACKAGE in sys.modules or _LIBRARY in sys.modules:
        return
    package = PathFinder.find_spec(_PACKAGE)
    if not _has_openssl():
        return
    library = _stand_in(_LIBRARY, None)
    protocol = _stand_in(_PROTOCOL, package and package.submodule_search_locations)
    if library is None or protocol is None:  # then they are not what they used to be
        return
    sys.modules.update({_LIBRARY: library, _PROTOCOL: protocol})
    import asyncio

    # As Python does when it has imported a module of a package.
    vars(asyncio)["sslproto"] = protocol


def _has_openssl() -> bool:
    """Whether this Python was built with it. If not, ``asyncio`` has to find that out."""
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
        # Another thread may have been faster, or this one is in the middle of it.
        if type(module) is not _StandIn or module in _loading:
            return
        _loading.append(module)
        try:
            loader: Any = module.__loader__
            loader.exec_module(module)
        finally:
            _loading.remove(module)
        ModuleType.__setattr__(module, "__class__", ModuleType)
