"""Which servers of projects the user has agreed to.

A project's files come from whoever wrote the project: what they want to start, or to send to an address, is shown
to the user first. An agreement is about one server exactly as it is: it is remembered by a digest, and a server that
changed has another one.
"""

# Without pathlib, as this is all that it would be used for:
# ruff: noqa: PTH116

from __future__ import annotations

import os
from typing import Any

import msgspec

from mcplumb.config.files import ConfigError, decode_strict_json, locked, read_file, replace_file
from mcplumb.config.locations import trust_file

__all__ = ["MAX_REMEMBERED", "is_trusted", "remember"]

#: Agreements that are kept. The oldest is forgotten first: its server is shown again.
MAX_REMEMBERED = 500

_OTHERS_CAN_WRITE = 0o022


def is_trusted(digest: str) -> bool:
    """Whether the user has agreed to the server with this digest."""
    return digest in _agreements(trust_file())


def remember(digest: str, *, name: str, source: str) -> None:
    """The user has agreed. Name and file are for people who look into ours."""
    file = trust_file()
    with locked(file):
        agreements = _agreements(file)
        agreements.pop(digest, None)
        agreements[digest] = {"name": _as_text(name), "file": _as_text(source)}
        kept = dict(list(agreements.items())[-MAX_REMEMBERED:])
        replace_file(file, msgspec.json.format(msgspec.json.encode({"trusted": kept}), indent=2) + b"\n")


def _agreements(file: str) -> dict[str, Any]:
    data = read_file(file)
    if data is None:
        return {}
    status = os.stat(file)
    if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_CAN_WRITE:
        raise ConfigError(
            "others can write what you are said to have agreed to. Look at it, and allow only yourself: chmod 600.",
            file=file,
        )
    document = decode_strict_json(data, file)
    agreements = document.get("trusted") if isinstance(document, dict) else None
    if not isinstance(agreements, dict):
        raise ConfigError("it does not say what you have agreed to. Remove it: you will be asked again.", file=file)
    return agreements


def _as_text(name: str) -> str:
    """The name of a file need not be one."""
    return name.encode(errors="backslashreplace").decode()
