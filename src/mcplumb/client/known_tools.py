"""The tools that a server has listed, and validation of their results against output schemas.

The validator is jsonschema-rs, which is loaded with the first check. It fetches nothing, and matches patterns in linear
time. But it blocks the event loop: it cannot be interrupted, and holds the GIL. So a check only starts if its cost is
bounded (see `schema_cost`). Measured on a small machine, the worst case within the limits took 0.1 s; realistic results
take a fraction of that: 20 ms for 20,000 rows of 20 numbers.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.client.validation_cost import Cost, SchemaRefused, size_of
from mcplumb.errors import ProtocolError, UsageError
from mcplumb.types.tools import CallToolResult, Tool
from mcplumb.wire.message_decoder import is_too_deep

if TYPE_CHECKING:
    from mcplumb.protocol.http_headers import ParamHeaders

__all__ = ["OutputChecker", "SchemaValidator", "ToolRegistry"]

_logger = logging.getLogger("mcplumb.client")


# --- The registry ---

#: The number of tools remembered; those listed first are dropped first.
_MAX_TOOLS = 10_000


class ToolRegistry:
    """The tools that the server has listed so far, by name."""

    def __init__(self) -> None:
        #: Whether the whole list was read, so that a tool that is not in it does not exist.
        self.is_complete = False
        #: Incremented by each ``clear``.
        self.generation = 0
        # Not a plain dict: finding its first key steps over all deleted ones.
        self._tools: OrderedDict[str, Tool] = OrderedDict()
        #: The names of the tools with an output schema.
        self.with_output_schema: set[str] = set()
        self._headers: dict[str, ParamHeaders | None] = {}

    def learn(self, tools: Iterable[Tool]) -> None:
        """Add tools that the server listed."""
        for tool in tools:
            self._tools.pop(tool.name, None)
            self._forget(tool.name)
            self._tools[tool.name] = tool
            if tool.output_schema is not None:
                self.with_output_schema.add(tool.name)
        while len(self._tools) > _MAX_TOOLS:
            oldest, _ = self._tools.popitem(last=False)
            self._forget(oldest)

    def find(self, name: str) -> Tool | None:
        """Return the tool of this name, as last listed; None if it is not known."""
        return self._tools.get(name)

    def param_headers(self, name: str) -> ParamHeaders | None:
        """Return which arguments of a tool are also sent as HTTP headers; None if none are, or if it is not known."""
        tool = self._tools.get(name)
        if tool is None:
            return None
        if name not in self._headers:
            from mcplumb.protocol.http_headers import param_headers

            self._headers[name] = param_headers(tool.input_schema)
        return self._headers[name]

    def clear(self) -> None:
        """Forget all tools, because the list has changed."""
        self.is_complete = False
        self.generation += 1
        self._tools.clear()
        self._headers.clear()
        self.with_output_schema.clear()

    def _forget(self, name: str) -> None:
        self._headers.pop(name, None)
        self.with_output_schema.discard(name)


# --- Validation of results ---

#: The number of compiled schemas kept; the least recently used are dropped first.
_MAX_VALIDATORS = 1000
#: The size of a schema in bytes. Compiling this much may take 0.1 s.
_MAX_SCHEMA = 128 * 1024
#: The nesting depth of a schema. Compiling takes 5 KB of stack per level.
_MAX_DEPTH = 64
#: The size of a compiled pattern in bytes.
_MAX_PATTERN = 256 * 1024
#: The steps of one check: 0.1 s, and below 0.2 s including the counting.
_MAX_STEPS = 8_000_000
#: The steps and values up to which an error is located. Each may become an error with a copy of a value.
_MAX_EXPLAINED_STEPS = 30_000
_MAX_EXPLAINED_SIZE = 100_000
#: Characters quoted from each end of a text that is too long.
_MAX_QUOTED = 100


class OutputChecker:
    """Validates the results of one server's tools against their output schemas.

    ``mode`` is True to check, False not to, and None to check if jsonschema-rs is installed. Supported are the drafts
    4, 6, 7, 2019-09 and 2020-12; the latter is the default. Formats are not checked.

    A schema that cannot be used does not make its tool unusable: its results are not checked, and one warning says why.
    Such a schema is invalid, too large, too expensive, in an unknown dialect, or has external references, which are
    never fetched. A single result that would take too long is not checked either. A server gains nothing by that: to
    avoid checks it could simply omit the schema.
    """

    def __init__(self, mode: bool | None = None) -> None:  # noqa: FBT001 - the only parameter
        #: Whether results are checked.
        self.is_active = mode is not False and _is_installed()
        if mode and not self.is_active:
            raise UsageError("Checking the output of tools needs jsonschema-rs: pip install 'mcplumb[schema]'.")
        self._tools: dict[str, _CheckedTool] = {}

    def check(self, tool: str, schema: dict[str, Any], result: CallToolResult) -> None:
        """Raise `ProtocolError` if a result does not match the output schema of its tool.

        Error results are not checked. A check takes a few microseconds, and 0.2 s in the worst case.
        """
        if not self.is_active or result.is_error:
            return
        known = self._tools.pop(tool, None)
        if known is None or not known.has(schema):
            known = _CheckedTool(tool, schema)
        self._tools[tool] = known
        if len(self._tools) > _MAX_VALIDATORS:
            del self._tools[next(iter(self._tools))]
        known.check(result.structured_content)


class _CheckedTool:
    """A tool with its compiled output schema, or without one if the schema cannot be used."""

    def __init__(self, name: str, schema: dict[str, Any]) -> None:
        self._name = _shortened(ascii(name))
        self._schema = schema
        self._encoded = msgspec.json.encode(schema)
        self._is_warned = False
        self._validator: SchemaValidator | None = None
        try:
            self._validator = SchemaValidator(schema, self._encoded)
        except SchemaRefused as reason:
            self._warn(
                f"The results of the tool {self._name} are not checked, because its output schema cannot be used:",
                reason,
            )

    def has(self, schema: dict[str, Any]) -> bool:
        """Return whether this schema equals the compiled one."""
        # Compared as JSON, because in Python 1 == True.
        return schema is self._schema or msgspec.json.encode(schema) == self._encoded

    def check(self, content: Any) -> None:
        """Raise `ProtocolError` if structured content, or its absence, does not match the schema."""
        validator = self._validator
        if validator is None:
            return
        if validator.is_too_slow_for(content):
            self._warn(
                f"A result of the tool {self._name} is not checked:",
                "it is too large to be checked against its output schema",
            )
        elif not validator.is_valid(content):
            if content is None:
                raise ProtocolError(f"The tool {self._name} has an output schema, but gave no structured content.")
            problem = validator.describe_error(content)
            raise ProtocolError(
                f"The tool {self._name} gave structured content that does not match its output schema: {problem}."
            )

    def _warn(self, what: str, why: object) -> None:
        if not self._is_warned:
            self._is_warned = True
            _logger.warning("%s %s.", what, why)


class SchemaValidator:
    """A compiled schema. Raises `SchemaRefused` if the schema cannot be used."""

    def __init__(self, schema: dict[str, Any], written: bytes) -> None:
        if len(written) > _MAX_SCHEMA:
            raise SchemaRefused(f"it has more than {_MAX_SCHEMA} bytes")
        if is_too_deep(written, _MAX_DEPTH):
            raise SchemaRefused(f"it is nested more than {_MAX_DEPTH} deep")
        self._cost = Cost(schema)
        import jsonschema_rs

        patterns = jsonschema_rs.RegexOptions(size_limit=_MAX_PATTERN)
        try:
            compiled = jsonschema_rs.validator_for(
                schema, offline=True, validate_formats=False, pattern_options=patterns
            )
        except ValueError as error:
            raise SchemaRefused(_reason(error)) from error
        self.is_valid = compiled.is_valid
        self._validate = compiled.validate

    def is_too_slow_for(self, content: Any) -> bool:
        """Return whether the check of this content could take too long."""
        return self._cost.of(content, _MAX_STEPS) > _MAX_STEPS

    def describe_error(self, content: Any) -> str:
        """Describe what is wrong with invalid content, and where."""
        steps, size = _MAX_EXPLAINED_STEPS, _MAX_EXPLAINED_SIZE
        if (self._cost.has_choices and self._cost.of(content, steps) > steps) or size_of(content, size) > size:
            return "it is too large to say where"
        problem = "it is not valid"
        try:
            self._validate(content)
        except ValueError as error:
            problem = _reason(error)
        return problem


def _is_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("jsonschema_rs") is not None


def _reason(error: ValueError) -> str:
    message = _shortened(getattr(error, "message", "it is nested too deeply to say where"))
    path = "".join(f"/{step}" for step in getattr(error, "instance_path", ()))
    return f"{message.rstrip('.')}, at {_shortened(path)}" if path else message.rstrip(".")


def _shortened(text: str) -> str:
    return text if len(text) <= 2 * _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…{text[-_MAX_QUOTED:]}"
