"""One entry of a server's catalog: a function, and what clients are told about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from mcplumb.errors import UsageError
from mcplumb.server.context import Context
from mcplumb.server.headers import header_schema, headers_in
from mcplumb.server.results import Output, described_output, output_of
from mcplumb.server.signatures import Signature, inspect_function
from mcplumb.server.templates import UriTemplate, folded
from mcplumb.types.base import Annotations, CacheScope, Icon
from mcplumb.types.prompts import Prompt, PromptArgument
from mcplumb.types.resources import Resource, ResourceTemplate
from mcplumb.types.tools import Tool, ToolAnnotations

__all__ = [
    "CompletionEntry",
    "Described",
    "Entry",
    "HandlerEntry",
    "PromptEntry",
    "ResourceEntry",
    "ToolEntry",
]

_TOOL_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./")
_LONGEST_NAME = 128


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """What an author may say about an entry besides its function."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    icons: Sequence[Icon] | None = None
    meta: dict[str, Any] | None = None


class Entry:
    """A named function that requests lead to."""

    __slots__ = ("function", "name", "signature", "spoken")

    def __init__(self, kind: str, name: str, function: Callable[..., Any], signature: Signature) -> None:
        self.name = name
        self.function = function
        self.signature = signature
        #: How messages speak of it.
        self.spoken = f"{kind} {name!r}"


class ToolEntry(Entry):
    """A tool."""

    __slots__ = ("output", "param_headers", "payload", "read")

    def __init__(
        self,
        function: Callable[..., Any],
        described: Described,
        *,
        annotations: ToolAnnotations | None,
        structured: bool | None,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
    ) -> None:
        name = _name_of(function, described)
        if not 1 <= len(name) <= _LONGEST_NAME or not _TOOL_NAME.issuperset(name):
            raise UsageError(
                f"A tool cannot be called {name!r}: take 1 to {_LONGEST_NAME} letters, digits and the characters _-./ "
                "for its name."
            )
        super().__init__("tool", name, function, inspect_function(function, context=Context))
        schema = self._take_input(input_schema)
        #: The arguments that HTTP clients repeat in headers; None if there are none.
        self.param_headers = headers_in(schema, self.spoken)
        self.output = self._output_of(output_schema, structured=structured)
        self.payload = Tool(
            name,
            schema,
            title=described.title,
            description=_description_of(self.signature, described),
            output_schema=self.output.schema,
            annotations=annotations,
            icons=_listed(described.icons),
            meta=described.meta,
        )

    def _take_input(self, schema: dict[str, Any] | None) -> dict[str, Any]:
        #: Makes the function's arguments of those that came.
        self.read: Callable[[msgspec.Raw | None], dict[str, Any]] = self.signature.read
        if schema is None:
            return header_schema(self.signature.schema)
        from mcplumb.server.schemas import RawArguments, RawSchema  # most tools have none

        raw = RawSchema(schema, f"input schema of the {self.spoken}")
        self.read = RawArguments(raw, self.signature, self.spoken).read
        return raw.schema

    def _output_of(self, schema: dict[str, Any] | None, *, structured: bool | None) -> Output:
        if schema is None:
            return output_of(self.signature.returns, structured=structured)
        if structured is False:
            raise UsageError(f"The {self.spoken} has an output schema, so it cannot have structured=False.")
        from mcplumb.server.schemas import RawSchema  # most tools have none

        return described_output(RawSchema(schema, f"output schema of the {self.spoken}"), self.spoken)


class ResourceEntry(Entry):
    """A resource, or a template for many. Its name is the address; that of a resource as ``folded`` writes it."""

    __slots__ = ("cache_scope", "mime_type", "payload", "template", "ttl_ms")

    def __init__(
        self,
        uri: str,
        function: Callable[..., Any],
        described: Described,
        *,
        mime_type: str | None,
        annotations: Annotations | None,
        size: int | None,
        ttl_ms: int | None,
        cache_scope: CacheScope | None,
    ) -> None:
        template = UriTemplate(uri)
        kind = "resource template" if template.is_template else "resource"
        super().__init__(kind, uri, function, inspect_function(function, context=Context, strict=False))
        if not template.is_template:
            self.name = folded(uri)
        self.template = template
        self.mime_type = mime_type
        self.ttl_ms = ttl_ms
        self.cache_scope = cache_scope
        self._check_variables()
        name = described.name or _name_of(function, described)
        details: dict[str, Any] = {
            "title": described.title,
            "description": _description_of(self.signature, described),
            "mime_type": mime_type,
            "annotations": annotations,
            "icons": _listed(described.icons),
            "meta": described.meta,
        }
        if template.is_template and size is not None:
            raise UsageError(f"The {self.spoken} stands for many resources, so it cannot have one size.")
        self.payload: Resource | ResourceTemplate = (
            ResourceTemplate(uri, name, **details) if template.is_template else Resource(uri, name, size, **details)
        )

    def _check_variables(self) -> None:
        names = set(self.template.names)
        unknown = names - set(self.signature.names)
        if unknown:
            raise UsageError(f"The {self.spoken} has variables that its function does not take: {_quoted(unknown)}.")
        missing = set(self.signature.required) - (names - set(self.template.optional_names))
        if missing:
            raise UsageError(
                f"The function of the {self.spoken} needs values that an address may not have: {_quoted(missing)}. "
                "Give them defaults, or put them into the address in braces, before its query."
            )


class PromptEntry(Entry):
    """A prompt."""

    __slots__ = ("payload",)

    def __init__(self, function: Callable[..., Any], described: Described) -> None:
        name = _name_of(function, described)
        super().__init__("prompt", name, function, inspect_function(function, context=Context, strict=False))
        required = set(self.signature.required)
        properties = self.signature.schema.get("properties", {})
        arguments = [
            PromptArgument(
                argument,
                title=properties[argument].get("title"),
                description=properties[argument].get("description"),
                required=argument in required,
            )
            for argument in self.signature.names
        ]
        self.payload = Prompt(
            name,
            title=described.title,
            description=_description_of(self.signature, described),
            arguments=arguments or None,
            icons=_listed(described.icons),
            meta=described.meta,
        )


class CompletionEntry(Entry):
    """Proposals for one argument of a prompt or one variable of a template.

    The function takes the text typed so far and, if it has a second parameter for them, the other arguments' values.
    """

    __slots__ = ("takes",)

    def __init__(self, of: str, argument: str, function: Callable[..., Any]) -> None:
        super().__init__("completion of", f"{of}: {argument}", function, inspect_function(function, context=Context))
        if not 1 <= len(self.signature.names) <= 2:
            raise UsageError(
                f"The function of the {self.spoken} takes {len(self.signature.names)} arguments. It must take the text "
                "typed so far, and may take the values of the other arguments."
            )
        #: The names of these parameters.
        self.takes: Sequence[str] = self.signature.names


class HandlerEntry(Entry):
    """A function that answers a method of an extension, or hears a notification of one.

    The function takes the params, whole: as a dict, or as the type that its parameter has.
    """

    __slots__ = ("is_notification", "takes")

    def __init__(self, method: str, function: Callable[..., Any], *, is_notification: bool) -> None:
        kind = "notification" if is_notification else "request"
        super().__init__(f"{kind} handler", method, function, inspect_function(function, context=Context))
        if len(self.signature.names) != 1:
            raise UsageError(
                f"The function of the {self.spoken} takes {len(self.signature.names)} arguments. It must take one, the "
                "params, and may take a Context beside it."
            )
        if is_notification and self.signature.context_name is not None:
            raise UsageError(f"The function of the {self.spoken} cannot have a Context: that is for requests.")
        self.is_notification = is_notification
        self.takes = self.signature.names[0]


def _name_of(function: Callable[..., Any], described: Described) -> str:
    name = described.name or getattr(function, "__name__", None)
    if name is None or name == "<lambda>":
        raise UsageError(f"{function!r} has no name of its own. Give it one with name=….")
    return str(name)


def _description_of(signature: Signature, described: Described) -> str | None:
    if described.description is not None:
        return described.description
    return signature.docstring.description or None


def _listed(icons: Sequence[Icon] | None) -> list[Icon] | None:
    return None if icons is None else list(icons)


def _quoted(names: set[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
