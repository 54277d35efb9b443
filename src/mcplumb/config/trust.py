"""The stored consents of the user to servers of projects.

A project's config file can come from anyone, so the command that it starts, or the address that it contacts, is shown
to the user first. A consent covers one server exactly as it is: it is stored by a digest of the server.
"""

# pathlib is avoided: importing it would slow down the start of every command.
# ruff: noqa: PTH116

from __future__ import annotations

import os
from typing import Any

import msgspec

from mcplumb.config.files import ConfigError, decode_strict_json, locked, read_file, replace_file
from mcplumb.config.locations import trust_file

__all__ = ["MAX_REMEMBERED", "is_trusted", "remember"]

#: Consents that are kept. The oldest is dropped first, and its server is shown again.
MAX_REMEMBERED = 500

_OTHERS_CAN_WRITE = 0o022


def is_trusted(digest: str) -> bool:
    """Whether the user has agreed to the server with this digest."""
    return digest in _consents(trust_file())


def remember(digest: str, *, name: str, source: str) -> None:
    """Store the user's consent to a digest. ``name`` and ``source`` are for people who read the file."""
    file = trust_file()
    with locked(file):
        consents = _consents(file)
        consents.pop(digest, None)
        consents[digest] = {"name": _as_text(name), "file": _as_text(source)}
        kept = dict(list(consents.items())[-MAX_REMEMBERED:])
        replace_file(file, msgspec.json.format(msgspec.json.encode({"trusted": kept}), indent=2) + b"\n")


def _consents(file: str) -> dict[str, Any]:
    data = read_file(file)
    if data is None:
        return {}
    status = os.stat(file)
    if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_CAN_WRITE:
        raise ConfigError(
            "other users can write to this file, which stores your consents. Check it, then run: chmod 600.",
            file=file,
        )
    document = decode_strict_json(data, file)
    consents = document.get("trusted") if isinstance(document, dict) else None
    if not isinstance(consents, dict):
        raise ConfigError("it does not contain your consents. Remove it, and you will be asked again.", file=file)
    return consents


def _as_text(name: str) -> str:
    """Return the name as valid text: file names may contain bytes that are not UTF-8."""
    return name.encode(errors="backslashreplace").decode()
