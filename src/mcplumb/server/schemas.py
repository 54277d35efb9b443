"""JSON schemas that authors write instead of types: kept as they are, and checked if jsonschema-rs is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.errors import UsageError
from mcplumb.server.shapes.readings import Fault
from mcplumb.server.shapes.words import located, shown
from mcplumb.server.signatures import MAX_FAULTS, BadArguments, Signature, in_sentences

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["RawArguments", "RawSchema"]


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
