"""HTTP headers that repeat parts of a modern request's body, for gateways that read only headers.

Every request has ``MCP-Protocol-Version`` and ``Mcp-Method``, and some have ``Mcp-Name``. A tool may ask for some of
its arguments as ``Mcp-Param-…``: the annotation ``x-mcp-header`` of a property in its input schema is the rest of that
name. A server refuses a request whose headers differ from its body.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterator
from string import ascii_letters, digits
from typing import Any, TypeAlias

import msgspec

from mcplumb.errors import DecodeError, EncodeError
from mcplumb.types.base import Payload
from mcplumb.types.meta import PROTOCOL_VERSION
from mcplumb.types.method_table import METHODS
from mcplumb.wire.messages import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    ErrorDetail,
    Request,
)

__all__ = [
    "ANNOTATION",
    "BadAnnotation",
    "ParamHeader",
    "ParamHeaders",
    "RepeatedHeaders",
    "check_headers",
    "decode_field",
    "encode_field",
    "headers_of",
    "is_token",
    "learn_headers",
    "param_headers",
    "status_of",
]


# Header values: plain text where HTTP allows it, otherwise ``=?base64?…?=``.

_PREFIX = "=?base64?"
_SUFFIX = "?="
_WHITE_SPACE = " \t"
_TOKEN_CHARACTERS = f"!#$%&'*+-.^_`|~{digits}{ascii_letters}"


def encode_field(text: str) -> str:
    """Return the text as the value of a header field.

    The text stays unchanged if it is ASCII without control characters (including tabs) and without spaces at its ends,
    and does not look like the base64 form. Raises `EncodeError` for a text that UTF-8 cannot represent.
    """
    # The printable ASCII characters are those from the space to the tilde.
    if text.isascii() and text.isprintable() and text == text.strip(" ") and not _is_encoded(text):
        return text
    try:
        encoded = b2a_base64(text.encode(), newline=False).decode()
    except UnicodeEncodeError as error:
        raise EncodeError("A header field cannot carry a text that has a lone surrogate.") from error
    return f"{_PREFIX}{encoded}{_SUFFIX}"


def decode_field(value: str) -> str:
    """Return the text in a header field, without white space around it.

    Raises `DecodeError` if the value has characters that HTTP does not allow, or is a malformed base64 form. A value
    with only the prefix or only the suffix of that form is plain text.
    """
    value = value.strip(_WHITE_SPACE)
    if not _is_encoded(value):
        if value.isascii() and value.replace("\t", " ").isprintable():
            return value
        raise DecodeError("The value has characters that HTTP headers do not allow.")
    if len(value) < len(_PREFIX) + len(_SUFFIX):
        raise DecodeError("The value has the base64 form, but its prefix and suffix overlap.")
    try:
        return a2b_base64(value[len(_PREFIX) : -len(_SUFFIX)], strict_mode=True).decode()
    except ValueError as error:
        raise DecodeError("The value has the base64 form, but its content is not valid base64 or not UTF-8.") from error


def is_token(name: str) -> bool:
    """Return whether this may be the name of a header field, or the end of one."""
    return bool(name) and not name.strip(_TOKEN_CHARACTERS)


def _is_encoded(value: str) -> bool:
    return value.startswith(_PREFIX) and value.endswith(_SUFFIX)


# The headers of a request: which arguments they repeat, how a client writes them, and how a server checks them.

ANNOTATION = "x-mcp-header"

_VERSION = "MCP-Protocol-Version"
_METHOD = "Mcp-Method"
_NAME = "Mcp-Name"

#: The member of the params that ``Mcp-Name`` repeats, by method.
_NAMED_BY = {method.name: method.named_by for method in METHODS.values() if method.named_by is not None}

#: The depth to which a schema is searched, two for each property. Real schemas do not reach half of it.
_MAX_STEPS = 128
#: The largest integer that JavaScript represents exactly.
_MAX_INTEGER = 2**53 - 1
_MAX_DIGITS = len(str(_MAX_INTEGER))
#: The characters of a mismatching value that an error quotes.
_MAX_QUOTE = 80

#: Keywords whose members are schemas under arbitrary names, which may look like keywords.
_SCHEMAS_BY_NAME = frozenset((
    "properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions",
))  # fmt: skip
#: Keywords whose values are data, not schemas.
_DATA = frozenset(("const", "default", "enum", "examples"))

_STATUS = dict.fromkeys(
    (PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION), 400
) | {METHOD_NOT_FOUND: 404}

_NULL = msgspec.Raw(b"null")

_Path: TypeAlias = tuple[str, ...]


class BadAnnotation(DecodeError):
    """An invalid ``x-mcp-header`` annotation: the tool cannot be used over HTTP."""


class ParamHeader(msgspec.Struct, frozen=True):
    """One argument that is repeated in a header."""

    #: The full name of the header.
    name: str
    #: The properties that lead to the argument.
    path: _Path


class ParamHeaders(msgspec.Struct, frozen=True):
    """The arguments of one tool that are repeated in headers; at least one."""

    headers: tuple[ParamHeader, ...]


def param_headers(schema: dict[str, Any]) -> ParamHeaders | None:
    """Return the headers that an input schema asks for; None if it has no annotations.

    Raises `BadAnnotation` if an annotation is invalid. The cost is linear in the size of the schema, and small without
    annotations.
    """
    if ANNOTATION.encode() not in msgspec.json.encode(schema):
        return None
    found: dict[str, ParamHeader] = {}
    for annotated, place, path in _annotated(schema, (), ()):
        name = annotated[ANNOTATION]
        if not path:
            raise _bad(place, "is not on a property that is reached through 'properties' alone")
        if not isinstance(name, str) or not is_token(name):
            raise _bad(place, f"is {_quoted(name)}, which cannot be part of a header's name")
        if not _is_primitive(annotated.get("type")):
            raise _bad(place, "is on a property whose type is not 'string', 'integer' or 'boolean'")
        if name.lower() in found:
            raise _bad(place, f"is {_quoted(name)}, as is another one: names must differ in more than their case")
        found[name.lower()] = ParamHeader(f"Mcp-Param-{name}", path)
    return ParamHeaders(tuple(found.values())) if found else None


class _ListedTool(msgspec.Struct, rename="camel"):
    name: str
    input_schema: dict[str, Any]


class _ListedTools(msgspec.Struct):
    tools: list[_ListedTool]


#: The tools whose headers one program remembers.
_MAX_LEARNED = 10_000


def learn_headers(listed: Any, known: dict[str, ParamHeaders]) -> None:
    """Note in ``known`` the arguments that the tools in a ``tools/list`` result repeat in headers, by tool."""
    written = listed if isinstance(listed, msgspec.Raw) else msgspec.json.encode(listed)
    if not known and ANNOTATION.encode() not in bytes(written):
        return
    try:
        tools = msgspec.json.decode(written, type=_ListedTools).tools
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    for tool in tools:
        known.pop(tool.name, None)
        try:
            headers = param_headers(tool.input_schema)
        except BadAnnotation:
            continue  # clients must not use this tool over HTTP
        if headers is not None and len(known) < _MAX_LEARNED:
            known[tool.name] = headers


def headers_of(request: Request, params: ParamHeaders | None) -> list[tuple[str, str]]:
    """Return the headers that a client sends with this request.

    ``params`` are the headers of the called tool, for ``tools/call``. A value that no header can represent, such as a
    list where the schema has a string, gets none: the server will refuse it.
    """
    written = request.params
    if not isinstance(written, msgspec.Raw | msgspec.UnsetType):
        written = msgspec.json.encode(written)
    body = _read_body(written)
    headers = [(_METHOD, encode_field(request.method))]
    for name, value in ((_VERSION, body.version), (_NAME, _name_in(body, request.method))):
        if value is not None:
            headers.append((name, encode_field(value)))
    if params is not None:
        texts = ((header.name, _text_of(value)) for header, value in _values(params, body))
        headers += [(name, encode_field(text)) for name, text in texts if text is not None]
    return headers


def check_headers(
    header: Callable[[str], str | None], request: Request, params: ParamHeaders | None
) -> ErrorDetail | None:
    """Return the error for a request whose headers differ from its body; None if they match.

    ``header`` returns the value of a header by its case-insensitive name, or None. ``params`` are the headers of the
    called tool, for ``tools/call``. Members that are missing from the body or cannot be read are not compared: decoding
    the body reports those.
    """
    body = _read_body(request.params)
    mismatch = (
        _compare(header(_VERSION), _VERSION, body.version, _trimmed)
        or _compare(header(_METHOD), _METHOD, request.method, _trimmed)
        or _compare(header(_NAME), _NAME, _name_in(body, request.method), decode_field)
    )
    if mismatch is None and params is not None:
        mismatches = (_compare_param(header(found.name), found, value) for found, value in _values(params, body))
        mismatch = next(filter(None, mismatches), None)
    return None if mismatch is None else ErrorDetail(HEADER_MISMATCH, f"Header mismatch: {mismatch}")


class RepeatedHeaders(msgspec.Struct, frozen=True):
    """The headers of a request that repeat parts of its body, decoded, to be compared with many bodies."""

    version: str
    method: str
    name: str | None

    def match(self, request: Request) -> bool:
        """Return whether they repeat the request. If not, `check_headers` says why, or why they need not."""
        method = request.method
        if method != self.method:
            return False
        try:
            body = _decode_repeated(request.params)
        except _UNREADABLE:
            return False
        named_by = _NAMED_BY.get(method)
        if named_by is not None and (self.name is None or getattr(body, named_by) != self.name):
            return False
        return body.meta is not None and body.meta.version == self.version


def status_of(error: ErrorDetail) -> int:
    """Return the HTTP status of a response with this error."""
    return _STATUS.get(error.code, 200)


# The parts of a body that headers repeat.


class _Meta(Payload, frozen=True):
    version: str | None = msgspec.field(default=None, name=PROTOCOL_VERSION)


class _Body(Payload, frozen=True):
    """The params that headers repeat. Each is decoded separately, so that an invalid one does not hide the others."""

    meta: msgspec.Raw = msgspec.field(default=_NULL, name="_meta")
    name: msgspec.Raw = _NULL
    uri: msgspec.Raw = _NULL
    arguments: msgspec.Raw = _NULL

    @property
    def version(self) -> str | None:
        try:
            return _decode_meta(self.meta).version
        except _UNREADABLE:
            return None


class _Repeated(Payload, frozen=True):
    """The params that headers repeat, if all of them are valid."""

    meta: _Meta | None = msgspec.field(default=None, name="_meta")
    name: str | None = None
    uri: str | None = None


_EMPTY = _Body()
_UNREADABLE = (TypeError, msgspec.DecodeError, UnicodeDecodeError)

_decode_meta = msgspec.json.Decoder(_Meta).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_repeated = msgspec.json.Decoder(_Repeated).decode
_decode_body = msgspec.json.Decoder(_Body).decode
_decode_arguments: Callable[[Any], Any] = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode: Callable[[Any], Any] = msgspec.json.Decoder().decode


def _read_body(params: Any) -> _Body:
    try:
        return _decode_body(params)
    except _UNREADABLE:
        return _EMPTY


def _name_in(body: _Body, method: str) -> str | None:
    named_by = _NAMED_BY.get(method)
    try:
        return None if named_by is None else _decode_text(getattr(body, named_by))
    except _UNREADABLE:
        return None


def _values(params: ParamHeaders, body: _Body) -> Iterator[tuple[ParamHeader, Any]]:
    """Yield the arguments that are repeated, each with its value; None if it is absent."""
    try:
        arguments = _decode_arguments(body.arguments)
    except _UNREADABLE:
        arguments = {}
    for header in params.headers:
        first, *others = header.path
        value = _read_value(arguments[first]) if first in arguments else None
        for step in others:
            value = value.get(step) if isinstance(value, dict) else None
        yield header, value


def _read_value(written: Any) -> Any:
    try:
        return _decode(written)
    except _UNREADABLE:
        # For example, a number that is too large: the argument is present, but no header can represent it.
        return ()


def _text_of(value: Any) -> str | None:
    """Return an argument as the text of a header, before encoding; None if no header can represent it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and abs(value) <= _MAX_INTEGER and value == int(value):
        return str(int(value))
    return None


def _compare(given: str | None, name: str, expected: str | None, decode: Callable[[str], str]) -> str | None:
    """Return why a header does not have the expected value; None if it has, or if nothing is expected."""
    if expected is None:
        return None
    if given is None:
        return f"{name} is missing."
    try:
        said = decode(given)
    except DecodeError as error:
        return f"{name} cannot be read. {error}"
    return None if said == expected else f"{name} says {_quoted(said)}, but the body says {_quoted(expected)}."


def _compare_param(given: str | None, header: ParamHeader, value: Any) -> str | None:
    argument = f"the argument {_quoted('.'.join(header.path))}"
    if value is None:
        return None if given is None else f"{header.name} is present, but {argument} is not."
    text = _text_of(value)
    if text is None:
        return f"{argument} is not a string, boolean or integer up to {_MAX_INTEGER}, so {header.name} cannot carry it."
    decode = decode_field if isinstance(value, str | bool) else _decode_number
    return _compare(given, header.name, text, decode)


def _decode_number(value: str) -> str:
    """Return a header's integer in canonical form: in JSON, 42.0 is an integer, too."""
    text = decode_field(value)
    whole, _, fraction = text.partition(".")
    digits = whole.removeprefix("-")
    if digits.isdecimal() and digits.isascii() and len(digits) <= _MAX_DIGITS and not fraction.strip("0"):
        return str(int(whole))
    return text


def _trimmed(value: str) -> str:
    return value.strip(" \t")


def _annotated(part: Any, place: _Path, path: _Path | None) -> Iterator[tuple[dict[str, Any], _Path, _Path | None]]:
    """Yield each annotated part of a schema with its place, and its path if that consists of properties only."""
    if len(place) > _MAX_STEPS and isinstance(part, dict | list):
        raise _bad(place, "may be nested too deeply to be checked")
    if isinstance(part, list):
        for number, item in enumerate(part):
            yield from _annotated(item, (*place, str(number)), None)
    elif isinstance(part, dict):
        if ANNOTATION in part:
            yield part, place, path
        for key, value in part.items():
            if key in _SCHEMAS_BY_NAME and isinstance(value, dict):
                for name, inner in value.items():
                    ahead = (*path, name) if key == "properties" and path is not None else None
                    yield from _annotated(inner, (*place, key, name), ahead)
            elif key not in _DATA:
                yield from _annotated(value, (*place, key), None)


def _is_primitive(kind: Any) -> bool:
    """Return whether a header can represent values of this ``type`` of a schema. The type may include null."""
    kinds = [each for each in kind if each != "null"] if isinstance(kind, list) else [kind]
    return len(kinds) == 1 and kinds[0] in ("string", "integer", "boolean")


def _bad(place: _Path, why: str) -> BadAnnotation:
    return BadAnnotation(f"The annotation {ANNOTATION!r} at {_quoted('/'.join(('#', *place)))} {why}.")


def _quoted(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= _MAX_QUOTE else f"{text[:_MAX_QUOTE]}…"
