"""Convert the return values of functions to the results that clients receive.

Tools, resources and prompts have different results, made from the same kinds of values:

* content: text, images, audio, files and bytes, resources and their contents, content blocks;
* a list of content, which may mix text with the other kinds;
* any other value that JSON can represent.

A path stands for its file. Payload types of the protocol are passed on unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, MutableSequence, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec

from mcplumb.errors import EncodeError, UsageError
from mcplumb.server.media import Audio, Data, File, Image, block_of_bytes, mime_type_of, to_base64
from mcplumb.server.schema.read_value import format_path, shorten
from mcplumb.server.schema.signature import MISSING
from mcplumb.server.schema.type_codec import schema_of, validator_of, write
from mcplumb.server.schema.type_tree import Path
from mcplumb.types.base import COMPLETE, Role
from mcplumb.types.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from mcplumb.types.resources import Resource, ResourceContents
from mcplumb.types.revision_adapter import wrap_result, wrap_result_schema
from mcplumb.types.tools import CallToolResult

if TYPE_CHECKING:
    from mcplumb.server.schema.type_codec import RawSchema
    from mcplumb.types.prompts import GetPromptResult, PromptMessage  # many servers have no prompts

__all__ = [
    "ModernText",
    "Output",
    "Structured",
    "TextResult",
    "contents_of",
    "messages_of",
    "output_as_object",
    "output_of",
    "output_with_schema",
    "prompt_result_of",
    "result_of",
]

_CONTENT: tuple[type, ...] = (
    *(Image, Audio, File, os.PathLike, Resource, ResourceContents),
    *get_args(ContentBlock),
    *get_args(Data),
)
_LISTS = (list, tuple)
#: Types that are never content: for these, checking with isinstance would take longer than encoding.
_PLAIN = frozenset({bool, dict, int, str})
#: Schema keywords that do not describe the structure of a value.
_LABELS = frozenset({"$defs", "type", "title", "description", "examples"})

# Tools


class Output(msgspec.Struct, frozen=True):
    """The output of a tool: the schema of its structured content, and the conversion of return values."""

    #: None without structured content, or if the annotation does not describe it.
    schema: dict[str, Any] | None
    #: Converts a return value to the result of the call. Raises UsageError for a value that cannot be a result.
    result_of: Callable[[Any], CallToolResult]


class TextResult(CallToolResult, frozen=True):
    """The most common result: one text and nothing else. It is the same in every revision."""


class ModernText(msgspec.Struct, frozen=True, gc=False, tag_field="resultType", tag=COMPLETE):
    """A `TextResult` as a modern client gets it, with the server's ``_meta`` and nothing else."""

    content: list[ContentBlock]
    meta: msgspec.Raw = msgspec.field(name="_meta")


#: Whether return values become structured content: True and False decide it, None leaves it to their type. With
#: ``object`` they do, and any that are not objects become the member ``result`` of one.
Structured: TypeAlias = bool | Literal["object"] | None


def output_as_object(output: Output) -> Output:
    """Return an output whose structured content is an object: another value becomes its member ``result``."""
    if output.schema is None or output.schema.get("type") == "object":
        return output

    def convert(value: Any) -> CallToolResult:
        result = output.result_of(value)
        return result if result is value else _wrapped(result)

    return Output(wrap_result_schema(output.schema), convert)


def output_with_schema(schema: RawSchema, label: str) -> Output:
    """Return the output of a tool with a schema from its author: return values become structured content."""

    def convert(value: Any) -> CallToolResult:
        if isinstance(value, CallToolResult):
            return value
        data = _json_of(value)
        for path, reason in schema.faults(msgspec.json.decode(data)):
            raise UsageError(
                f"The {label} returned a value that does not match its output schema{_at(path)}: {shorten(reason)}."
            )
        return CallToolResult([TextContent(data.decode())], structured_content=msgspec.Raw(data))

    return Output(schema.schema, convert)


def _at(path: Path) -> str:
    return f", at {shorten(format_path(path))}" if path else ""


def output_of(returns: Any, *, structured: Structured = None) -> Output:
    """Return the output of a tool whose function has this return annotation, or ``MISSING``.

    Content becomes blocks. Objects and arrays become structured content and its text, with a schema if the annotation
    describes them. Other values, such as numbers and dates, become text; None becomes an empty result.
    ``structured=False`` omits structured content; ``structured=True`` adds structured content, with its schema, for
    text and numbers as well, and ``structured="object"`` makes objects of all of these.
    """
    choices = [] if returns is MISSING else list(_choices_of(returns))
    has_lists = any(_is_content_list(choice) for choice in choices)
    has_content = has_lists or any(_is_content_type(choice) for choice in choices)
    convert = _result_of_list if has_lists else result_of
    if structured is False:
        return Output(None, _without_structure(convert))
    if structured == "object":
        return _object_output(returns, None if has_content else _maybe_schema_of(returns, needed=False), convert)
    if structured and has_content:
        raise UsageError(f"A tool that returns {_named(returns)} cannot have structured=True: this is content.")
    schema = None if has_content else _maybe_schema_of(returns, needed=structured is True)
    if structured or (schema is not None and _describes(schema, schema.get("$defs", {}))):
        return Output(schema, _structured(schema, returns))
    return Output(None, convert)


def _object_output(returns: Any, schema: dict[str, Any] | None, convert: Callable[[Any], CallToolResult]) -> Output:
    if schema is not None and schema.get("type") != "null":
        return output_as_object(Output(schema, _structured(schema, returns, as_text=True)))

    def convert_to_object(value: Any) -> CallToolResult:
        result = convert(value)
        data = result.structured_content
        if result is value or data is None or bytes(data).startswith(b"{"):
            return result
        return _wrapped(result)

    return Output(None, convert_to_object)


def _wrapped(result: CallToolResult) -> CallToolResult:
    return CallToolResult(result.content, structured_content=wrap_result(result.structured_content))


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


def _structured(
    schema: dict[str, Any] | None, returns: Any, *, as_text: bool = False
) -> Callable[[Any], CallToolResult]:
    kind = (schema or {}).get("type")
    start = {"object": b"{", "array": b"["}.get(kind, b"") if isinstance(kind, str) else b""
    check = validator_of(returns) if schema is not None else len

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
        text = _text_in(data) if as_text else data.decode()
        return CallToolResult([TextContent(text)], structured_content=msgspec.Raw(data))

    return convert


def _without_structure(convert: Callable[[Any], CallToolResult]) -> Callable[[Any], CallToolResult]:
    def convert_to_text(value: Any) -> CallToolResult:
        result = convert(value)
        return result if result is value or result.structured_content is None else CallToolResult(result.content)

    return convert_to_text


# Resources


def contents_of(value: Any, *, uri: str, mime_type: str | None) -> list[ResourceContents] | None:
    """Convert a return value to the contents of the resource ``uri``; ``mime_type`` is the default MIME type.

    None means that the resource does not exist: the function returned None. A list of contents, files, bytes and other
    content becomes one part each; any other value becomes text, or its JSON as text. Raises UsageError for a value that
    JSON cannot represent.
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
    """Convert the return value of a prompt's function to its result; see ``messages_of``."""
    from mcplumb.types.prompts import GetPromptResult

    return value if isinstance(value, GetPromptResult) else GetPromptResult(messages_of(value), description)


def messages_of(value: Any) -> list[PromptMessage]:
    """Convert the return value of a prompt's function to messages.

    It is a message, a pair of a role and content, or content (text, images, files, …) with the role ``user``; or a list
    of these. Raises UsageError for any other value.
    """
    if isinstance(value, list) or (isinstance(value, tuple) and not _is_pair(value)):
        return [message for item in value for message in _messages_in(item)]
    return _messages_in(value)


def _messages_in(value: Any) -> list[PromptMessage]:
    from mcplumb.types.prompts import PromptMessage

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
    from mcplumb.types.prompts import PromptMessage

    if not isinstance(content, (str, *_CONTENT)):
        raise UsageError(
            f"A prompt's message cannot be made of a value of type {type(content).__name__}. Return text, content, "
            "messages, pairs of a role and content, or a list of these."
        )
    return PromptMessage(role, _block_of(content))


# Values


def _block_of(value: Any) -> ContentBlock:
    """Convert a value to one content block: by default, to text."""
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
        return str.__str__(value)  # a plain string also for a subclass, such as a string Enum
    if isinstance(value, float):
        return float.__repr__(value)  # text can represent NaN and the infinities, which JSON cannot
    return _text_in(_json_of(value))


def _text_in(data: bytes) -> str:
    """Return the text of a JSON value: a string without its quotes, any other value as JSON."""
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
    # Check the types, not the items: a list may be long, and its items are usually of one type.
    return any(issubclass(kind, _CONTENT) for kind in set(map(type, items)) - _PLAIN)


# Annotations


def _choices_of(kind: Any) -> Iterator[Any]:
    """Yield the types that an annotation allows, without aliases and ``Annotated`` metadata."""
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
        # The function may still return something that can be a result. If not, the call reports it.
        if needed:
            raise
        return None


def _describes(schema: dict[str, Any], definitions: dict[str, Any]) -> bool:
    """Return whether a schema describes objects or arrays in more detail than their type."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        others = {other: definition for other, definition in definitions.items() if other != name}
        return name in definitions and _describes(definitions[name], others)
    choices = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if any(_describes(choice, definitions) for choice in choices):
        return True
    details = (value for key, value in schema.items() if key not in _LABELS and value is not True)
    return schema.get("type") in ("object", "array") and any(value not in ({}, []) for value in details)


def _named(kind: Any) -> str:
    return kind.__qualname__ if isinstance(kind, type) and not get_args(kind) else repr(kind).removeprefix("typing.")
