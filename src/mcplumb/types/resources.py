"""Payloads of resources: data with a URI that a server lets clients read."""

from __future__ import annotations

from typing import Any

import msgspec

from mcplumb.errors import UsageError
from mcplumb.types.base import Annotations, CacheableResult, Icon, Number, Params, Payload, RetryParams

__all__ = [
    "ListResourceTemplatesResult",
    "ListResourcesResult",
    "ReadResourceParams",
    "ReadResourceResult",
    "Resource",
    "ResourceContents",
    "ResourceParams",
    "ResourceTemplate",
    "ResourceUpdatedParams",
]


class _ResourceDetails(Payload, frozen=True, kw_only=True):
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class Resource(_ResourceDetails, frozen=True):
    """One resource in a server's list."""

    uri: str
    name: str
    #: The size in bytes, before any encoding.
    size: Number | None = None


class ResourceTemplate(_ResourceDetails, frozen=True):
    """A family of resources, with a URI template (RFC 6570)."""

    uri_template: str
    name: str


class _ContentsDetails(Payload, frozen=True, kw_only=True):
    mime_type: str | None = None
    text: str | None = None
    #: Bytes in base64.
    blob: str | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class ResourceContents(_ContentsDetails, frozen=True):
    """The contents of a resource: either ``text`` or ``blob``."""

    uri: str

    def __post_init__(self) -> None:
        if (self.text is None) == (self.blob is None):
            raise UsageError("The contents of a resource need either 'text' or 'blob', not both.")

    @property
    def is_text(self) -> bool:
        """Whether the contents are text; otherwise they are bytes."""
        return self.text is not None


class ListResourcesResult(CacheableResult, frozen=True, kw_only=True):
    """A page of a server's resources."""

    resources: list[Resource]
    next_cursor: str | None = None


class ListResourceTemplatesResult(CacheableResult, frozen=True, kw_only=True):
    """A page of a server's resource templates."""

    resource_templates: list[ResourceTemplate]
    next_cursor: str | None = None


class ResourceParams(Params, frozen=True):
    """The params of ``resources/subscribe`` and ``resources/unsubscribe``."""

    uri: str


class ReadResourceParams(RetryParams, frozen=True):
    """The params of ``resources/read``."""

    uri: str


class ReadResourceResult(CacheableResult, frozen=True):
    """The contents of a resource, in one or more parts."""

    contents: list[ResourceContents]


class ResourceUpdatedParams(Params, frozen=True):
    """The params of ``notifications/resources/updated``: a resource has changed."""

    uri: str
