"""Encode and decode values of any type that a signature may use, and return its JSON Schema.

``msgspec`` reads the types that it supports. The others are read by their shape (``read_value``), and so are values
that ``msgspec`` refuses, to report every fault and not only the first. Authors may also pass a JSON Schema instead of a
type: ``RawSchema`` validates values against it if jsonschema-rs is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.errors import EncodeError, UsageError
from mcplumb.server.schema.from_annotation import parse_type
from mcplumb.server.schema.read_value import (
    Fault,
    ValueReader,
    format_path,
    read_custom,
    shorten,
    value_in_words,
    write_custom,
)
from mcplumb.server.schema.signature import MAX_FAULTS, BadArguments, Signature, describe_faults
from mcplumb.server.schema.to_json_schema import schema_for
from mcplumb.server.schema.type_tree import completer_of

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["BadValue", "RawArguments", "RawSchema", "reader_of", "schema_of", "validator_of", "write"]


# JSON Schemas written by the author.


class RawSchema:
    """A JSON Schema from the author, and its validator. ``what`` is its name in error messages.

    If jsonschema-rs is installed, the schema itself is checked and values are validated; otherwise neither is. The
    author's schema is trusted, but remote references are not fetched. Formats are not validated.
    """

    def __init__(self, schema: dict[str, Any], what: str) -> None:
        try:
            # A deep copy: what clients were told must not change with the author's dict.
            self.schema: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema), type=dict[str, Any])
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"The {what} cannot be written as a JSON object: {error}.") from error
        self._errors_in = _compile(self.schema, what)

    def faults(self, value: Any) -> list[Fault]:
        """Return the first faults of a value, each with its path."""
        errors = islice(self._errors_in(value), MAX_FAULTS + 1)
        return [(tuple(error.instance_path), error.message) for error in errors]


class RawArguments:
    """Reads the arguments of a tool with a schema from its author: the function takes all of them as one parameter."""

    def __init__(self, schema: RawSchema, signature: Signature, label: str) -> None:
        if schema.schema.get("type") != "object":
            raise UsageError(f"The input schema of the {label} must have 'type': 'object', as arguments have names.")
        if len(signature.names) != 1:
            raise UsageError(
                f"The {label} has an input schema, so its function must take one parameter, a dict with all the "
                f"arguments, and may take a Context beside it. It takes {len(signature.names)}."
            )
        (name,) = signature.names
        if signature.schema["properties"][name].get("type", "object") != "object":
            raise UsageError(
                f"The {label} has an input schema, so its function gets all the arguments in {name!r}: "
                "annotate that with dict[str, Any], or with a type that has fields."
            )
        self._schema = schema
        self._signature = signature

    def read(self, arguments: msgspec.Raw | None) -> dict[str, Any]:
        """Return the keyword arguments for the function; raise ``BadArguments`` if they are invalid."""
        try:
            values = msgspec.json.decode(arguments or b"null")
        except msgspec.DecodeError as error:
            raise BadArguments(f"The arguments cannot be read: {error}.") from error
        if values is None:
            values = {}
        if not isinstance(values, dict):
            raise BadArguments(describe_faults([((), f"expected an object, got {value_in_words(values)}")]))
        if faults := self._schema.faults(values):
            raise BadArguments(describe_faults(faults))
        return self._signature.read_as_one(values)


def _compile(schema: dict[str, Any], what: str) -> Callable[[Any], Iterable[jsonschema_rs.ValidationError]]:
    try:
        from jsonschema_rs import validator_for
    except ImportError:
        return _no_errors
    try:
        return validator_for(schema, offline=True, validate_formats=False).iter_errors
    except ValueError as error:
        reason = str(getattr(error, "message", error)).rstrip(".")
        path = format_path(getattr(error, "instance_path", ()))
        raise UsageError(f"The {what} is not a valid JSON Schema{f', at {path}' if path else ''}: {reason}.") from error


def _no_errors(_: Any) -> Iterable[jsonschema_rs.ValidationError]:
    return ()


# Python types: their JSON Schema, and their values from and to JSON.

_encoder = msgspec.json.Encoder(enc_hook=write_custom)


class BadValue(Exception):
    """A value does not match its type: ``reason`` says why, and ``path`` where in it (empty for the whole value)."""

    def __init__(self, reason: str, path: str = "") -> None:
        self.reason = reason
        self.path = path
        super().__init__(f"at {path}: {reason}" if path else reason)


def schema_of(kind: Any, *, output: bool = False, scope: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the self-contained JSON Schema (2020-12) of a type; raise UsageError if it has none.

    With ``output`` the schema describes the JSON that ``write`` returns, otherwise the JSON that ``reader_of`` accepts.
    Names in string annotations that their module does not define are looked up in ``scope``.
    """
    return schema_for(parse_type(kind, scope or {}).shape, output=output)


def reader_of(kind: Any, *, strict: bool = True, scope: Mapping[str, Any] | None = None) -> Callable[[Any], Any]:
    """Return a function that converts plain data or ``msgspec.Raw`` to a value of a type, or raises ``BadValue``.

    Unless ``strict``, strings are converted: ``"3"`` to 3, and JSON in a string to a list or an object.
    """
    parsed = parse_type(kind, scope or {})
    shape = parsed.shape
    complete = completer_of(shape) if parsed.is_native else None
    decoder = msgspec.json.Decoder(shape.kind if parsed.is_native else Any, strict=strict, dec_hook=read_custom)

    def read_by_msgspec(value: Any) -> Any:
        if isinstance(value, msgspec.Raw):
            made = decoder.decode(value)
        else:
            made = msgspec.convert(value, shape.kind, strict=strict, dec_hook=read_custom, str_keys=True)
        if complete is not None:
            complete(made)
        return made

    def read(value: Any) -> Any:
        if parsed.is_native:
            try:
                return read_by_msgspec(value)
            except (msgspec.ValidationError, TypeError, RecursionError):
                pass  # reading by the shape below reports all faults, or accepts the value after all
        reader = ValueReader(strict=strict)
        made = reader.read_whole(shape, value)
        if reader.faults:
            path, reason = reader.faults[0]
            raise BadValue(shorten(reason), shorten(format_path(path)))
        return made

    return read


def validator_of(kind: Any) -> Callable[[bytes], object]:
    """Return a function that raises ``msgspec.ValidationError`` if the JSON from ``write`` does not match this type.

    Types that only pydantic can read are not checked.
    """
    parsed = parse_type(kind, {})
    if not parsed.is_native or hasattr(kind, "model_validate"):
        return len
    return msgspec.json.Decoder(parsed.shape.kind, dec_hook=read_custom).decode


def write(value: Any) -> bytes:
    """Return a value as JSON; raise EncodeError if that is impossible. NaN and the infinities become null."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        reason = "it is nested too deeply, or contains itself" if isinstance(error, RecursionError) else error
        raise EncodeError(f"A value of type {type(value).__name__!r} cannot be written as JSON: {reason}.") from error
