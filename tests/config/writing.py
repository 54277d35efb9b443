"""Config files for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from mcplumb.config import ServerEntry, load_config


def write(path: Path, document: Any) -> Path:
    """Write a file, and the folders above it; text as it is, everything else as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(document.encode() if isinstance(document, str) else msgspec.json.encode(document))
    return path


def entry(folder: Path, raw: Any, *, file: str = "servers.json", **more: Any) -> ServerEntry:
    """The one server of a file that is named."""
    return load_config(write(folder / file, {"mcpServers": {"it": raw}, **more}))["it"]
