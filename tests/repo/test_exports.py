"""What a module offers is written in its ``__all__``: all of it, and nothing else. (The linter checks the order.)"""

from __future__ import annotations

import ast
import importlib
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import mcplumb
from tests.repo.source import ROOT, SRC, modules, parsed


def offered(tree: ast.Module) -> list[str] | None:
    """The literal ``__all__``, or None without one."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            assert isinstance(names, list)
            return names
    return None


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """What stands at the top of a module, also what depends on the Python or is there for type checkers only."""
    for node in tree.body:
        yield from (*node.body, *node.orelse) if isinstance(node, ast.If) else (node,)


def public_names(tree: ast.Module, *, is_package: bool) -> set[str]:
    """The public names that a module defines at its top; those that it imports too if it is a package."""
    names: set[str] = set()
    for node in statements(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar" | "ParamSpec"))):
                pass  # for the type checker only
            case ast.Assign(targets=targets):
                names |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
            case ast.ImportFrom(module=module) if is_package and (module or "").split(".")[0] == "mcplumb":
                names |= {alias.asname or alias.name for alias in node.names}
    return {name for name in names if not name.startswith("_")}


def faults(path: Path) -> list[str]:
    tree = parsed(path)
    public = public_names(tree, is_package=path.name == "__init__.py")
    names = offered(tree)
    if names is None:
        return [f"has no __all__, but defines {', '.join(sorted(public))}"] if public else []
    exported = {name for name in names if not name.startswith("__")}
    said = [f"defines {name} and does not offer it" for name in sorted(public - exported)]
    said += [f"offers {name} and does not define it" for name in sorted(exported - public)]
    return said + (["offers a name twice"] if len(names) != len(set(names)) else [])


def test_every_module_offers_exactly_what_it_defines() -> None:
    found = [f"{path.relative_to(SRC)} {said}" for _, path in modules() for said in faults(path)]
    assert found == []


def test_everything_that_is_offered_can_be_had() -> None:
    for name, path in modules():
        module = importlib.import_module(f"mcplumb.{name}".rstrip("."))
        for public in offered(parsed(path)) or []:
            assert hasattr(module, public), f"{name}.{public}"


def test_the_top_of_the_package_is_pinned() -> None:
    assert mcplumb.__all__ == [
        "Audio",
        "AuthorizationError",
        "Bridge",
        "Client",
        "ClientCredentials",
        "Closed",
        "ConnectError",
        "ConnectTimeout",
        "Context",
        "DecodeError",
        "EncodeError",
        "EnterpriseManaged",
        "File",
        "Group",
        "Header",
        "HttpError",
        "HttpOptions",
        "Image",
        "Introspection",
        "JwtVerifier",
        "McplumbError",
        "NoCommonRevision",
        "NotInRevision",
        "OAuth",
        "Principal",
        "ProtocolError",
        "RemoteError",
        "RequestCancelled",
        "RequestError",
        "RequestLost",
        "RequestTimeout",
        "Server",
        "ServerDown",
        "ServerExited",
        "StateRefused",
        "StoreUnavailable",
        "ToolError",
        "ToolFailed",
        "UsageError",
        "WorkloadIdentity",
        "__version__",
        "client_tls",
        "connect",
        "connect_all",
        "load_config",
        "result_for_anthropic",
        "result_for_openai",
        "server_tls",
        "sync",
        "tools_for_anthropic",
        "tools_for_openai",
    ]


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert mcplumb.__version__ == project["project"]["version"]


@pytest.mark.parametrize(
    ("file", "code", "said"),
    [
        ("a.py", "def f(): pass\n", ["has no __all__, but defines f"]),
        ("a.py", "__all__ = []\nclass A: pass\n", ["defines A and does not offer it"]),
        ("a.py", "__all__ = []\nA, (B, _C) = 1, (2, 3)\n", [f"defines {x} and does not offer it" for x in "AB"]),
        ("a.py", "__all__ = []\nA: int = 1\n", ["defines A and does not offer it"]),
        ("a.py", "__all__ = ['f']\n", ["offers f and does not define it"]),
        ("a.py", "__all__ = ['f']\nfrom mcplumb.b import f\n", ["offers f and does not define it"]),
        ("a.py", "__all__ = ['f', 'f']\ndef f(): pass\n", ["offers a name twice"]),
        ("__init__.py", "__all__ = []\nfrom mcplumb.b import f\n", ["defines f and does not offer it"]),
        ("__init__.py", "__all__ = ['f']\nfrom mcplumb.b import f\nfrom typing import Any\n", []),
        ("__init__.py", "__all__ = ['f']\nif TYPE_CHECKING:\n    from mcplumb.b import f\n", []),
        ("__init__.py", '"""Nothing."""\n', []),
        ("a.py", "T = TypeVar('T')\n", []),
        ("a.py", "__all__ = ['__version__', 'f']\n__version__ = ''\ndef f(): pass\ndef _g(): pass\n", []),
    ],
)
def test_the_guard_sees(file: str, code: str, said: list[str], tmp_path: Path) -> None:
    path = tmp_path / file
    path.write_text(code)
    assert faults(path) == said
