"""Encode and decode any type that a signature may use, with its JSON Schema.

``msgspec`` reads the types that it can. For the others, and to say all that is wrong with a value, there are the
``mcplumb.server.shapes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.errors import EncodeError, UsageError
from mcplumb.server.schema.from_annotation import look
from mcplumb.server.schema.read_value import Fault, Reading, cut, located, read_custom, shown, write_custom
from mcplumb.server.schema.shapes import completer_of
from mcplumb.server.schema.signature import MAX_FAULTS, BadArguments, Signature, in_sentences
from mcplumb.server.schema.to_json_schema import schema_for

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["BadValue", "RawArguments", "RawSchema", "checker_of", "reader_of", "schema_of", "write"]


# JSON schemas that authors write instead of types: kept as they are, and checked if jsonschema-rs is installed.


class RawSchema:
    """A schema, and what is wrong with a value by it. ``what`` is how messages speak of it.

    It is the author's, and so it is trusted; only that it is a schema is checked, as far as jsonschema-rs is installed.
    Nothing outside of it is fetched, and formats are not checked.
    """

    def __init__(self, schema: dict[str, Any], what: str) -> None:
        try:
            # A copy, all the way down: what clients were told must not change with the author's dict.
            self.schema: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema), type=dict[str, Any])
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"The {what} cannot be written as a JSON object: {error}.") from error
        self._errors_in = _compiled(self.schema, what)

    def faults(self, value: Any) -> list[Fault]:
        """What is wrong with a value, and where: the first that are found."""
        errors = islice(self._errors_in(value), MAX_FAULTS + 1)
        return [(tuple(error.instance_path), error.message) for error in errors]


class RawArguments:
    """The arguments of a tool with a schema of its author's own: the function takes them all in one parameter."""

    def __init__(self, schema: RawSchema, signature: Signature, spoken: str) -> None:
        if schema.schema.get("type") != "object":
            raise UsageError(f"The input schema of the {spoken} must have 'type': 'object', as arguments have names.")
        if len(signature.names) != 1:
            raise UsageError(
                f"The {spoken} has an input schema, so its function must take one parameter, a dict with all the "
                f"arguments, and may take a Context beside it. It takes {len(signature.names)}."
            )
        (name,) = signature.names
        if signature.schema["properties"][name].get("type", "object") != "object":
            raise UsageError(
                f"The {spoken} has an input schema, so its function gets all the arguments in {name!r}: "
                "annotate that with dict[str, Any], or with a type that has fields."
            )
        self._schema = schema
        self._signature = signature

    def read(self, arguments: msgspec.Raw | None) -> dict[str, Any]:
        """The keyword arguments for the function; ``BadArguments`` says what is wrong."""
        try:
            values = msgspec.json.decode(arguments or b"null")
        except msgspec.DecodeError as error:
            raise BadArguments(f"The arguments cannot be read: {error}.") from error
        if values is None:
            values = {}
        if not isinstance(values, dict):
            raise BadArguments(in_sentences([((), f"expected an object, got {shown(values)}")]))
        if faults := self._schema.faults(values):
            raise BadArguments(in_sentences(faults))
        return self._signature.read_as_one(values)


def _compiled(schema: dict[str, Any], what: str) -> Callable[[Any], Iterable[jsonschema_rs.ValidationError]]:
    try:
        from jsonschema_rs import validator_for
    except ImportError:
        return _nothing_wrong
    try:
        return validator_for(schema, offline=True, validate_formats=False).iter_errors
    except ValueError as error:
        reason = str(getattr(error, "message", error)).rstrip(".")
        path = located(getattr(error, "instance_path", ()))
        raise UsageError(f"The {what} is no JSON schema{f', at {path}' if path else ''}: {reason}.") from error


def _nothing_wrong(_: Any) -> Iterable[jsonschema_rs.ValidationError]:
    return ()


# Any Python type that an author may use: its JSON schema, and its values from JSON and to JSON.


class BadValue(Exception):
    """A value is not of its type: ``reason`` says why, and ``path`` where in it (empty if all of it is wrong)."""

    def __init__(self, reason: str, path: str = "") -> None:
        self.reason = reason
        self.path = path
        super().__init__(f"at {path}: {reason}" if path else reason)


def schema_of(kind: Any, *, output: bool = False, scope: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON Schema 2020-12 of a type, complete in itself; a UsageError if it has none.

    With ``output`` it describes what ``write`` makes of a value, otherwise what ``reader_of`` reads. Names in string
    annotations that their module does not have are looked up in ``scope``.
    """
    return schema_for(look(kind, scope or {}).shape, output=output)


def reader_of(kind: Any, *, strict: bool = True, scope: Mapping[str, Any] | None = None) -> Callable[[Any], Any]:
    """A function that makes a value of a type from plain data or ``msgspec.Raw``, or raises ``BadValue``.

    Unless ``strict``, a text may stand for another value: ``"3"`` for 3, and JSON for lists and objects.
    """
    looked = look(kind, scope or {})
    shape = looked.shape
    complete = completer_of(shape) if looked.is_native else None
    decoder = msgspec.json.Decoder(shape.kind if looked.is_native else Any, strict=strict, dec_hook=read_custom)

    def read_by_msgspec(value: Any) -> Any:
        if isinstance(value, msgspec.Raw):
            made = decoder.decode(value)
        else:
            made = msgspec.convert(value, shape.kind, strict=strict, dec_hook=read_custom, str_keys=True)
        if complete is not None:
            complete(made)
        return made

    def read(value: Any) -> Any:
        if looked.is_native:
            try:
                return read_by_msgspec(value)
            except (msgspec.ValidationError, TypeError, RecursionError):
                pass  # the walk below says what is wrong, or finds that it can be read after all
        reading = Reading(strict=strict)
        made = reading.whole(shape, value)
        if reading.faults:
            path, reason = reading.faults[0]
            raise BadValue(cut(reason), cut(located(path)))
        return made

    return read


def checker_of(kind: Any) -> Callable[[bytes], object]:
    """A function that takes what ``write`` made and raises ``msgspec.ValidationError`` if it is not of this type.

    What only the type itself can read, such as a pydantic model, is trusted.
    """
    looked = look(kind, {})
    if not looked.is_native or hasattr(kind, "model_validate"):
        return len
    return msgspec.json.Decoder(looked.shape.kind, dec_hook=read_custom).decode


def write(value: Any) -> bytes:
    """A value as JSON, or an EncodeError. NaN and the infinities, which JSON does not have, become null."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise EncodeError(f"A value of type {type(value).__name__!r} cannot be written as JSON: {error}.") from error


_encoder = msgspec.json.Encoder(enc_hook=write_custom)
