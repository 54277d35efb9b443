"""Roots: the folders that a client lets a server work in."""

from __future__ import annotations

from typing import Any

import msgspec

from mcplumb.types.base import Payload

__all__ = ["ListRootsResult", "Root"]


class _RootDetails(Payload, frozen=True, kw_only=True):
    name: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class Root(_RootDetails, frozen=True):
    """A folder or file, as a ``file://`` URI."""

    uri: str


class _RootsDetails(Payload, frozen=True, kw_only=True):
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ListRootsResult(_RootsDetails, frozen=True):
    """All roots of a client."""

    roots: list[Root]
