"""The base classes of payloads, and the types that many payloads use.

These rules apply to every type of this package:

* One set of types serves all revisions. ``for_revision`` removes what a revision lacks before a payload is sent.
* Attributes are in snake case, the JSON in camel case; ``_meta`` is the attribute ``meta``.
* An optional attribute is None if its key is absent, so reading and writing a payload loses no known key. An optional
  JSON null is read as absent. To write a null, use ``NULL``. ``is_error`` alone is always a bool.
* Unknown keys are ignored. Only ``_meta`` and JSON Schemas, which are plain dicts, keep all their keys.
* A number is ``int | float``: in JSON Schema ``1.0`` is an integer, and some peers write it that way.
* Hints (an icon's theme, content's audience, a field's format) are plain strings, so a new value is not an error.
* Ranges (a priority between 0 and 1, at most 100 completions) are not checked on reading.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

__all__ = [
    "COMPLETE",
    "INPUT_REQUIRED",
    "NULL",
    "Annotations",
    "CacheScope",
    "CacheableResult",
    "Icon",
    "Implementation",
    "Number",
    "PageParams",
    "Params",
    "Payload",
    "RequestId",
    "Result",
    "RetryParams",
    "Role",
    "flag",
]

#: A JSON null, for fields where None means that the key is absent.
NULL = msgspec.Raw(b"null")

#: The two values of ``resultType`` that the protocol itself defines; extensions may add others.
COMPLETE = "complete"
INPUT_REQUIRED = "input_required"

Number: TypeAlias = int | float
RequestId: TypeAlias = int | str
Role: TypeAlias = Literal["user", "assistant"]
CacheScope: TypeAlias = Literal["public", "private"]


class Payload(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, repr_omit_defaults=True):
    """The base of every type in this package."""


def flag(kind: type[Payload], name: str) -> None:
    """Make an optional field of a payload read as a bool: False if its key is absent.

    The field itself keeps None, so a key that was absent stays absent when the payload is written again, and a False
    that was there stays there.
    """
    field: Any = vars(kind)[name]
    setattr(kind, name, property(lambda payload: field.__get__(payload) is True))


class Params(Payload, frozen=True, kw_only=True):
    """The params of a request or a notification; used as is for those without other params."""

    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class PageParams(Params, frozen=True, kw_only=True):
    """The params of a request for one page of a list: the first page, or the page at a cursor."""

    cursor: str | None = None


class RetryParams(Params, frozen=True, kw_only=True):
    """The params of a request that may be sent again with the input that its result asked for."""

    #: The answers, under the keys of their ``input_requests``; see ``read_input_response``.
    input_responses: dict[str, Any] | None = None
    #: The server's own state, sent back unchanged.
    request_state: str | None = None


class Result(Payload, frozen=True, kw_only=True):
    """The result of a request; used as is for results without other members."""

    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    #: ``complete`` (also if absent), ``input_required``, or a value that an extension defines.
    result_type: str | None = None


class CacheableResult(Result, frozen=True, kw_only=True):
    """A result with cache hints: how long, and for whom, it may be cached."""

    ttl_ms: Number | None = None
    cache_scope: CacheScope | None = None


class Annotations(Payload, frozen=True, kw_only=True):
    """The audience, priority (0 to 1) and modification time of a piece of content."""

    #: ``user``, ``assistant`` or both.
    audience: list[str] | None = None
    priority: Number | None = None
    #: An ISO 8601 date and time.
    last_modified: str | None = None


class _IconDetails(Payload, frozen=True, kw_only=True):
    mime_type: str | None = None
    #: ``48x48``, or ``any`` for a scalable format.
    sizes: list[str] | None = None
    #: ``light`` or ``dark``.
    theme: str | None = None


class Icon(_IconDetails, frozen=True):
    """An icon for a user interface, by its URL or as a ``data:`` URI."""

    src: str


class _ImplementationDetails(Payload, frozen=True, kw_only=True):
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None


class Implementation(_ImplementationDetails, frozen=True):
    """The name and version of a client or server."""

    name: str
    version: str
