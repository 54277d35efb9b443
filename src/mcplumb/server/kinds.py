"""Any Python type that an author may use: its JSON schema, and its values from JSON and to JSON.

``msgspec`` reads the types that it can. For the others, and to say all that is wrong with a value, there are the
``mcplumb.server.shapes``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from mcplumb.errors import EncodeError
from mcplumb.server.shapes.completing import completer_of
from mcplumb.server.shapes.customs import read_custom, write_custom
from mcplumb.server.shapes.looking import look
from mcplumb.server.shapes.readings import Reading
from mcplumb.server.shapes.schemas import schema_for
from mcplumb.server.shapes.words import cut, located

__all__ = ["BadValue", "checker_of", "reader_of", "schema_of", "write"]


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
