"""What the guards of the repository share: where things are, and how the source is walked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "mcplumb"


def modules(package: Path = SRC) -> Iterator[tuple[str, Path]]:
    """Each module's dotted name below the package (``""`` for the package itself), and its file."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
