"""What the payloads share: their base class, and the parts that many of them have.

The rules that hold for every type of this package:

* One set of types serves all revisions. ``for_revision`` leaves out what a revision lacks when a payload is written.
* Attributes are in snake case, the JSON in camel case; ``_meta`` is the attribute ``meta``.
* An optional attribute is None when its key is absent, so that reading and writing a payload loses nothing that
  the types know. A JSON null in an optional place reads as absent. To write one, use ``NULL``.
* Unknown keys are passed over. Only ``_meta`` and JSON schemas, which are plain dicts, keep all theirs.
* A number is ``int | float``: for JSON Schema ``1.0`` is an integer, and some peers write it so.
* Hints (an icon's theme, content's audience, a field's format) are plain strings, so that a new one is no error.
* Ranges (a priority between 0 and 1, at most 100 completions) are not checked when reading.
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
]

#: A JSON null to be written where None would mean that the key is absent.
NULL = msgspec.Raw(b"null")

#: The two values of ``resultType`` that the protocol itself defines; extensions may add others.
COMPLETE = "complete"
INPUT_REQUIRED = "input_required"

Number: TypeAlias = int | float
RequestId: TypeAlias = int | str
Role: TypeAlias = Literal["user", "assistant"]
CacheScope: TypeAlias = Literal["public", "private"]


class Payload(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The base of every type in this package."""


class Params(Payload, frozen=True, kw_only=True):
    """The params of a request or a notification; by itself, of those that carry nothing else."""

    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class PageParams(Params, frozen=True, kw_only=True):
    """Asks for a page of a list: the first, or the one that a cursor names."""

    cursor: str | None = None


class RetryParams(Params, frozen=True, kw_only=True):
    """The params of a request that may be sent again with the input that its first answer asked for."""

    #: The answers, under the keys of the ``input_requests`` that they answer; see ``read_input_response``.
    input_responses: dict[str, Any] | None = None
    #: The server's own state, sent back as it came.
    request_state: str | None = None


class Result(Payload, frozen=True, kw_only=True):
    """What a server answers; by itself, an answer that says nothing but "done"."""

    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")
    #: ``complete`` (also when absent), ``input_required``, or what an extension defines.
    result_type: str | None = None


class CacheableResult(Result, frozen=True, kw_only=True):
    """A result that says how long, and by whom, it may be kept."""

    ttl_ms: Number | None = None
    cache_scope: CacheScope | None = None


class Annotations(Payload, frozen=True, kw_only=True):
    """For whom a piece of content is, how important (0 to 1), and how old."""

    #: ``user``, ``assistant`` or both.
    audience: list[str] | None = None
    priority: Number | None = None
    #: A date and time as in ISO 8601.
    last_modified: str | None = None


class _IconDetails(Payload, frozen=True, kw_only=True):
    mime_type: str | None = None
    #: ``48x48``, or ``any`` for what scales.
    sizes: list[str] | None = None
    #: ``light`` or ``dark``.
    theme: str | None = None


class Icon(_IconDetails, frozen=True):
    """A picture for a user interface, by its address or as a ``data:`` URI."""

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
