"""Imports go down only, the lower layers do nothing but compute, and no module grows without end."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repo.source import SRC, modules, parsed

LAYERS = {
    "_fast": 3,
    "errors": 0,
    "limits": 0,
    "revisions": 0,
    "version": 0,
    "wire": 1,
    "types": 1,
    "protocol": 2,
    "transports": 3,
    "stores": 3,
    "recording": 3,
    "rpc": 4,
    "client": 4,
    "config": 4,
    "server": 4,
    "sync": 4,
    "telemetry": 4,
    "bridge": 5,
    "tap": 5,
    "cli": 5,
    "testing": 5,
    "view": 5,
    "pytest_plugin": 5,
    "__main__": 5,
}
PURE = 2  # the highest layer that only computes
PROGRAMS = 5  # built from the package as any program is
STRANGERS = ({"wire", "types"}, {"client", "server"})  # in the same layer, but not for each other

DENIED = frozenset({
    "asyncio", "concurrent", "contextvars", "ctypes", "dataclasses", "datetime", "email", "fcntl", "glob",
    "http", "inspect", "json", "logging", "mmap", "multiprocessing", "os", "pathlib", "pickle", "platform",
    "pty", "queue", "random", "resource", "sched", "secrets", "select", "selectors", "shutil", "signal",
    "socket", "socketserver", "sqlite3", "ssl", "subprocess", "tempfile", "termios", "threading", "time",
    "urllib", "uuid", "warnings", "_thread",
})  # fmt: skip
#: Of a denied package, what only computes.
PARSING = "urllib.parse."
# What reads or writes without any import.
DENIED_CALLS = frozenset({"open", "print", "input", "breakpoint", "__import__"})
MAX_LINES = 800
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")


def imported(tree: ast.Module, module: str, *, is_package: bool) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that is imported anywhere in the module, functions included."""
    here = ["mcplumb", *(module.split(".") if module else [])]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = node.level - is_package
            start = here[: len(here) - up] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def prose(tree: ast.Module) -> set[int]:
    """The strings that stand alone: docstrings, of modules, classes, functions and attributes."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def import_faults(package: Path, module: str, path: Path) -> Iterator[tuple[int, str]]:
    top = module.partition(".")[0]
    layer = LAYERS[top]
    for line, name in imported(parsed(path), module, is_package=path.name == "__init__.py"):
        first, _, rest = name.partition(".")
        if first != "mcplumb":
            if layer <= PURE and first in DENIED and not name.startswith(PARSING):
                yield line, f"imports {first}, which layer {layer} has no use for"
            continue
        target = rest.partition(".")[0]
        if target not in LAYERS and layer < PROGRAMS:
            yield line, f"imports {name} from the top of the package, which is for users"
        elif LAYERS.get(target, 0) > layer:
            yield line, f"imports {name}: layer {LAYERS[target]} from layer {layer}"
        elif any({top, target} == pair for pair in STRANGERS):
            yield line, f"imports {name}: {top} and {target} do not know each other"


def purity_faults(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(parsed(path)):
        match node:
            case ast.AsyncFunctionDef() | ast.AsyncFor() | ast.AsyncWith() | ast.Await():
                yield node.lineno, "is asynchronous"
            case ast.Call(func=ast.Name(id=name)) if name in DENIED_CALLS:
                yield node.lineno, f"calls {name}()"


def date_faults(path: Path) -> Iterator[tuple[int, str]]:
    tree = parsed(path)
    skipped = prose(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            for date in DATE.findall(node.value):
                yield node.lineno, f"names the revision {date}: ask a record of mcplumb.revisions instead"


def faults(package: Path) -> list[str]:
    """Everything that is wrong with the package, one line each."""
    found = []
    for module, path in modules(package):
        top = module.split(".")[0]
        said = list(date_faults(path)) if top != "revisions" else []
        if module and top not in LAYERS:
            said.append((1, f"belongs to no layer: add {top!r} to LAYERS"))
        elif module:
            said += import_faults(package, module, path)
            if LAYERS[top] <= PURE:
                said += purity_faults(path)
        length = len(path.read_text(encoding="utf-8").splitlines())
        if length > MAX_LINES:
            said.append((length, f"is longer than {MAX_LINES} lines: split it by noun"))
        found += [f"{path.relative_to(package)}:{line} {what}" for line, what in sorted(said)]
    return found


def test_the_layers_hold() -> None:
    assert faults(SRC) == []


PLANTED = {
    "an upward import": ("wire/lines.py", "from mcplumb.protocol import era\n", "layer 2 from layer 1"),
    "an upward import inside a function": (
        "protocol/era.py",
        "def f():\n    import mcplumb.client.api\n",
        ":2 imports mcplumb.client.api: layer 4 from layer 2",
    ),
    "a relative upward import": ("wire/lines.py", "from ..protocol.era import Era\n", "layer 2 from layer 1"),
    "a relative upward import of a package": ("wire/__init__.py", "from .. import protocol\n", "layer 2 from layer 1"),
    "a module of the package's top": ("protocol/era.py", "from mcplumb import Server\n", "which is for users"),
    "the package itself": ("protocol/era.py", "import mcplumb\n", "which is for users"),
    "wire that knows types": ("wire/lines.py", "from mcplumb.types import Tool\n", "do not know each other"),
    "a client that knows servers": ("client/api.py", "from mcplumb.server import api\n", "do not know each other"),
    "types that know wire": ("types/tools.py", "from mcplumb import wire\n", "do not know each other"),
    "a clock": ("protocol/era.py", "import time\n", "imports time"),
    "a part of a denied package": ("errors.py", "from concurrent.futures import Future\n", "imports concurrent"),
    "a coroutine": ("protocol/era.py", "async def f(): pass\n", "is asynchronous"),
    "a print": ("wire/lines.py", "print(1)\n", "calls print()"),
    "a revision's name": ("protocol/era.py", 'x = f"{1}2025-06-18"\n', "names the revision 2025-06-18"),
    "a revision's name at the top": ("__init__.py", 'x = "2025-06-18"\n', "names the revision 2025-06-18"),
    "a long module": ("errors.py", "x = 1\n" * 801, "is longer than 800 lines"),
    "a new package": ("extras/more.py", "", "belongs to no layer"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_guard_finds(name: str, tmp_path: Path) -> None:
    where, code, said = PLANTED[name]
    file = tmp_path / where
    file.parent.mkdir(exist_ok=True)
    file.write_text(code)
    found = faults(tmp_path)
    assert len(found) == 1
    assert found[0].startswith(where)
    assert said in found[0]


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("protocol/era.py", "from mcplumb.wire.lines import Splitter\nfrom mcplumb import errors\n"),
        ("protocol/era.py", '"""Since 2025-06-18."""\nx = 1\n"""2025-06-18 too."""  # 2025-06-18\n'),
        ("revisions.py", 'x = "2025-06-18"\n'),
        ("wire/lines.py", "from .messages import Request\nfrom . import messages\n"),
        ("transports/child.py", "import asyncio, os\nasync def f(): print(await g())\n"),
        ("__init__.py", "from mcplumb.client import connect\n"),
        ("cli/main.py", "from mcplumb import Server\n"),
    ],
)
def test_the_guard_lets_pass(where: str, code: str, tmp_path: Path) -> None:
    file = tmp_path / where
    file.parent.mkdir(exist_ok=True)
    file.write_text(code)
    assert faults(tmp_path) == []
