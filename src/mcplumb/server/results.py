"""What a function returned, as the result that a client gets.

Tools, resources and prompts each have their own results, made of the same values:

* text, pictures, sounds, files and bytes, resources and their contents, blocks of content: these are content;
* a list of them, in which text may stand beside the others;
* everything else that JSON can hold.

A path is the file that it leads to. The payloads of the protocol pass through as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, MutableSequence, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import msgspec

from mcplumb.errors import EncodeError, UsageError
from mcplumb.server.media import Audio, Data, File, Image, block_of_bytes, mime_type_of, to_base64
from mcplumb.server.schema.codec import checker_of, schema_of, write
from mcplumb.server.schema.read_value import cut, located
from mcplumb.server.schema.shapes import Path
from mcplumb.server.schema.signature import MISSING
from mcplumb.types.base import COMPLETE, Role
from mcplumb.types.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from mcplumb.types.prompts import GetPromptResult, PromptMessage
from mcplumb.types.resources import Resource, ResourceContents
from mcplumb.types.tools import CallToolResult

if TYPE_CHECKING:
    from mcplumb.server.schema.codec import RawSchema

__all__ = [
    "ModernText",
    "Output",
    "TextResult",
    "contents_of",
    "described_output",
    "messages_of",
    "output_of",
    "prompt_result_of",
    "result_of",
]

_CONTENT: tuple[type, ...] = (
    *(Image, Audio, File, os.PathLike, Resource, ResourceContents),
    *get_args(ContentBlock),
    *get_args(Data),
)
_LISTS = (list, tuple)
#: Types that are never content. Asking whether others are takes longer than writing them.
_PLAIN = frozenset({bool, dict, int, str})
#: What a schema may say about a value without describing it.
_LABELS = frozenset({"$defs", "type", "title", "description", "examples"})

# Tools


class Output(msgspec.Struct, frozen=True):
    """What a tool gives: the schema of its structured content, and how a returned value becomes its result."""

    #: None without structured content, and where the annotation does not say what that is.
    schema: dict[str, Any] | None
    #: Gives the result of a call. Raises a UsageError for a value that cannot be one.
    result_of: Callable[[Any], CallToolResult]


class TextResult(CallToolResult, frozen=True):
    """What most calls give: one text and nothing else. Every revision has it in the same way."""


class ModernText(msgspec.Struct, frozen=True, gc=False, tag_field="resultType", tag=COMPLETE):
    """A `TextResult` as a modern client gets it, with the server's ``_meta`` and nothing else."""

    content: list[ContentBlock]
    meta: msgspec.Raw = msgspec.field(name="_meta")


def described_output(schema: RawSchema, spoken: str) -> Output:
    """The output of a tool whose author wrote its schema: what the function returns is structured content."""

    def convert(value: Any) -> CallToolResult:
        if isinstance(value, CallToolResult):
            return value
        data = _json_of(value)
        for path, reason in schema.faults(msgspec.json.decode(data)):
            raise UsageError(f"The {spoken} returned what its output schema does not allow{_at(path)}: {cut(reason)}.")
        return CallToolResult([TextContent(data.decode())], structured_content=msgspec.Raw(data))

    return Output(schema.schema, convert)


def _at(path: Path) -> str:
    return f", at {cut(located(path))}" if path else ""


def output_of(returns: Any, *, structured: bool | None = None) -> Output:
    """The output of a tool whose function has this return annotation, or ``MISSING``.

    Content becomes blocks. Objects and arrays become structured content and its text, with a schema if the annotation
    describes them. All else, such as numbers and dates, becomes text, and None nothing. ``structured=False`` leaves out
    structured content; ``structured=True`` makes structured content, with its schema, of text and numbers as well.
    """
    choices = [] if returns is MISSING else list(_choices_of(returns))
    has_lists = any(_is_content_list(choice) for choice in choices)
    has_content = has_lists or any(_is_content_type(choice) for choice in choices)
    convert = _result_of_list if has_lists else result_of
    if structured is False:
        return Output(None, _without_structure(convert))
    if structured and has_content:
        raise UsageError(f"A tool that returns {_named(returns)} cannot have structured=True: this is content.")
    schema = None if has_content else _maybe_schema_of(returns, needed=structured is True)
    if structured or (schema is not None and _describes(schema, schema.get("$defs", {}))):
        return Output(schema, _structured(schema, returns))
    return Output(None, convert)


def result_of(value: Any) -> CallToolResult:
    """Return what a tool returned as its result: content as blocks, objects and arrays as structured content."""
    kind = type(value)
    if kind is str:
        return TextResult([TextContent(value)])
    if kind not in _PLAIN:
        if value is None:
            return CallToolResult([])
        if isinstance(value, (float, str)):
            return CallToolResult([TextContent(_text_of(value))])
        if kind in _LISTS:
            if _has_content(value):
                return _result_of_list(value)
        elif isinstance(value, CallToolResult):
            return value
        elif isinstance(value, _CONTENT):
            return CallToolResult([_block_of(value)])
    data = _json_of(value)
    if data.startswith((b"{", b"[")):
        return CallToolResult([TextContent(data.decode())], structured_content=msgspec.Raw(data))
    return CallToolResult([TextContent(_text_in(data))])


def _result_of_list(value: Any) -> CallToolResult:
    if type(value) not in _LISTS:
        return result_of(value)
    return CallToolResult([_block_of(item) for item in value if item is not None])


def _structured(schema: dict[str, Any] | None, returns: Any) -> Callable[[Any], CallToolResult]:
    kind = (schema or {}).get("type")
    start = {"object": b"{", "array": b"["}.get(kind, b"") if isinstance(kind, str) else b""
    check = checker_of(returns) if schema is not None else len

    def convert(value: Any) -> CallToolResult:
        if isinstance(value, CallToolResult):
            return value
        data = _json_of(value)
        if not data.startswith(start):
            raise UsageError(f"A tool that returns {_named(returns)} returned a value of type {type(value).__name__}.")
        try:
            check(data)
        except msgspec.ValidationError as error:
            raise UsageError(f"A tool that returns {_named(returns)} returned something else: {error}.") from None
        return CallToolResult([TextContent(data.decode())], structured_content=msgspec.Raw(data))

    return convert


def _without_structure(convert: Callable[[Any], CallToolResult]) -> Callable[[Any], CallToolResult]:
    def convert_to_text(value: Any) -> CallToolResult:
        result = convert(value)
        return result if result is value or result.structured_content is None else CallToolResult(result.content)

    return convert_to_text


# Resources


def contents_of(value: Any, *, uri: str, mime_type: str | None) -> list[ResourceContents] | None:
    """The contents of the resource ``uri``, whose type is ``mime_type`` unless the value knows better.

    None means that there is no such resource: a function says so by returning None. A list of contents, files, bytes
    and the like becomes as many parts; any other value is text, or the text of its JSON. Raises a UsageError for what
    JSON cannot hold.
    """
    if value is None:
        return None
    if type(value) in _LISTS and _has_content(value):
        return [_one_contents_of(item, uri, mime_type) for item in value if item is not None]
    return [_one_contents_of(value, uri, mime_type)]


def _one_contents_of(value: Any, uri: str, mime_type: str | None) -> ResourceContents:
    match value:
        case str():
            return ResourceContents(uri, text=_text_of(value), mime_type=mime_type or "text/plain")
        case ResourceContents():
            return value
        case EmbeddedResource():
            return value.resource
        case TextContent():
            return ResourceContents(uri, text=value.text, mime_type=mime_type or "text/plain")
        case ImageContent() | AudioContent():
            return ResourceContents(uri, blob=value.data, mime_type=value.mime_type)
        case Image() | Audio() | File():
            return value.contents(uri, mime_type)
        case bytes() | bytearray() | memoryview():
            data = bytes(value)
            return ResourceContents(uri, blob=to_base64(data), mime_type=mime_type or mime_type_of(data))
        case os.PathLike():
            return File(value).contents(uri, mime_type)
    return ResourceContents(uri, text=_json_of(value).decode(), mime_type=mime_type or "application/json")


# Prompts


def prompt_result_of(value: Any, description: str | None = None) -> GetPromptResult:
    """What a prompt's function returned, as its result; see ``messages_of``. A result passes through."""
    return value if isinstance(value, GetPromptResult) else GetPromptResult(messages_of(value), description)


def messages_of(value: Any) -> list[PromptMessage]:
    """The messages in what a prompt's function returned.

    These are messages, pairs of a role and content, and content (text, pictures, files, …), which is the user's; or a
    list of such. A UsageError for all else.
    """
    if isinstance(value, list) or (isinstance(value, tuple) and not _is_pair(value)):
        return [message for item in value for message in _messages_in(item)]
    return _messages_in(value)


def _messages_in(value: Any) -> list[PromptMessage]:
    if isinstance(value, PromptMessage):
        return [value]
    if isinstance(value, tuple) and _is_pair(value):
        role, content = value
        if role not in get_args(Role):
            raise UsageError(f"A prompt's message cannot have the role {role!r}: it is 'user' or 'assistant'.")
        return [_message(role, part) for part in (content if type(content) is list else [content])]
    return [_message("user", value)]


def _is_pair(value: tuple[Any, ...]) -> bool:
    return len(value) == 2 and isinstance(value[0], str)


def _message(role: Role, content: Any) -> PromptMessage:
    if not isinstance(content, (str, *_CONTENT)):
        raise UsageError(
            f"A prompt's message cannot be made of a value of type {type(content).__name__}. Return text, content, "
            "messages, pairs of a role and content, or a list of these."
        )
    return PromptMessage(role, _block_of(content))


# Values


def _block_of(value: Any) -> ContentBlock:
    """A value as one block of content; text if nothing else fits."""
    if type(value) is str:
        return TextContent(value)
    match value:
        case Image() | Audio() | File():
            return value.block()
        case ResourceContents():
            return EmbeddedResource(value)
        case bytes() | bytearray() | memoryview():
            return block_of_bytes(bytes(value))
        case os.PathLike():
            return File(value).block()
    if isinstance(value, ContentBlock):
        return value
    if isinstance(value, Resource):
        return ResourceLink(**msgspec.structs.asdict(value))
    return TextContent(_text_of(value))


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return str.__str__(value)  # a plain one also of a subclass, such as an Enum's
    if isinstance(value, float):
        return float.__repr__(value)  # JSON has no word for what is not a number, and text has
    return _text_in(_json_of(value))


def _text_in(data: bytes) -> str:
    """The text of a JSON value: a string without its quotes, all else as it is written."""
    return msgspec.json.decode(data, type=str) if data.startswith(b'"') else data.decode()


def _json_of(value: Any) -> bytes:
    try:
        return write(value)
    except EncodeError as error:
        kind = type(value).__name__
        if hasattr(value, "__await__"):
            raise UsageError(f"A value of type {kind} was returned without being awaited.") from error
        if hasattr(value, "__next__") or hasattr(value, "__anext__"):
            raise UsageError(f"A value of type {kind} cannot be a result: return a list of its items.") from error
        raise


def _has_content(items: Sequence[Any]) -> bool:
    # By type, not by item: a list may be long, and its items are mostly of one type.
    return any(issubclass(kind, _CONTENT) for kind in set(map(type, items)) - _PLAIN)


# Annotations


def _choices_of(kind: Any) -> Iterator[Any]:
    """The types that an annotation allows, without aliases and notes."""
    if get_origin(kind) is Annotated:
        yield from _choices_of(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for choice in get_args(kind):
            yield from _choices_of(choice)
    elif hasattr(kind, "__value__"):
        yield from _choices_of(kind.__value__)
    elif hasattr(kind, "__supertype__"):
        yield from _choices_of(kind.__supertype__)
    else:
        yield kind


def _is_content_type(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, (CallToolResult, *_CONTENT))


def _is_content_list(kind: Any) -> bool:
    if get_origin(kind) not in (*_LISTS, Sequence, MutableSequence, Collection, Iterable):
        return False
    return any(_is_content_type(choice) for item in get_args(kind) for choice in _choices_of(item))


def _maybe_schema_of(kind: Any, *, needed: bool) -> dict[str, Any] | None:
    if kind is MISSING:
        return None
    try:
        return schema_of(kind, output=True) or None
    except UsageError:
        # The function may return something else that can be a result. If not, a call will say so.
        if needed:
            raise
        return None


def _describes(schema: dict[str, Any], definitions: dict[str, Any]) -> bool:
    """Whether a schema describes objects or arrays, and tells more about them than that they are such."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        others = {other: definition for other, definition in definitions.items() if other != name}
        return name in definitions and _describes(definitions[name], others)
    choices = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if any(_describes(choice, definitions) for choice in choices):
        return True
    told = (value for key, value in schema.items() if key not in _LABELS and value is not True)
    return schema.get("type") in ("object", "array") and any(value not in ({}, []) for value in told)


def _named(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) and not get_args(kind) else repr(kind).removeprefix("typing.")
