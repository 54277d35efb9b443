"""The catalog: a server's tools, resources, prompts, completions and handlers, and the pages of its lists.

Each entry has a number that increases with every registration and is never reused. A cursor has the number of the last
entry of a page, and the next page starts with the first entry that has a greater one. So an entry that exists all the
time is listed exactly once, whatever is added or removed between two pages, and the server keeps no state for cursors.

A cursor is, in base64url without padding: one version byte, the number, and a checksum of four bytes that also covers
the list's name. The checksum only detects mistakes; a forged cursor does no harm.

Every method may be called from any thread.
"""

from __future__ import annotations

import builtins
import sys
import threading
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from mcplumb.errors import ToolError, UsageError
from mcplumb.server.context import Context
from mcplumb.server.results import Output, Structured, output_as_object, output_of, output_with_schema
from mcplumb.server.schema.signature import Signature, header_schema, headers_in, inspect_function
from mcplumb.types.base import Annotations, CacheScope, Icon
from mcplumb.types.resources import Resource, ResourceTemplate
from mcplumb.types.tools import Tool, ToolAnnotations

if TYPE_CHECKING:
    from mcplumb.protocol.http_headers import ParamHeaders
    from mcplumb.protocol.subscription_state import ListTopic

__all__ = [
    "BadCursor",
    "Catalog",
    "CompletionEntry",
    "Entry",
    "EntryOptions",
    "HandlerEntry",
    "PromptEntry",
    "Registry",
    "ResourceEntry",
    "ToolEntry",
    "WrittenPages",
    "page_of",
    "took_too_long",
]


# Pages of lists.

T = TypeVar("T")

_VERSION = b"\x01"
_CHECKSUM = 4
#: The maximum length of a cursor. A number of 64 bits takes 18 characters.
_MAX_CURSOR = 24

_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE = str.maketrans("-_", "+/")


class BadCursor(Exception):
    """A cursor that does not belong to this list."""


class WrittenPages:
    """A cache of the encoded pages of one version of a list."""

    __slots__ = ("_pages", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        #: By cursor; None for a known cursor whose page has not been requested yet.
        self._pages: dict[str | None, Raw | None] = {None: None}

    def get(self, cursor: str | None) -> Raw | None:
        """Return the page after this cursor if it is in the cache, else None."""
        return self._pages.get(cursor)

    def keep(self, cursor: str | None, page: Raw, next_cursor: str | None) -> None:
        """Add a page to the cache if it is the first page or follows a page in the cache.

        So the cache never has more pages than the list, even if clients send forged or outdated cursors.
        """
        if cursor in self._pages:
            self._pages[cursor] = page
            if next_cursor is not None:
                self._pages.setdefault(next_cursor, None)


def page_of(
    items: Sequence[tuple[int, T]], *, cursor: str | None, size: int | None, name: str
) -> tuple[list[T], str | None]:
    """Return the page after ``cursor`` (None: the first), and the cursor of the next page (None: there is none).

    ``items`` are pairs of a number and an item, in the order of the numbers. ``size`` is the maximum number of items on
    a page, None for all. ``name`` is the name of the list. Raises ``BadCursor`` for an invalid cursor, and for a cursor
    of another list.
    """
    if size is not None and size < 1:
        raise UsageError(f"The page size is {size}: it must be at least 1, or None for all items.")
    start = 0
    if cursor is not None:
        from bisect import bisect_right  # most lists have one page

        start = bisect_right(items, _number_in(cursor, name), key=_number_of)
    end = len(items) if size is None else min(start + size, len(items))
    page = [item for _, item in items[start:end]]
    return page, _cursor_after(items[end - 1][0], name) if end < len(items) else None


def _number_of(pair: tuple[int, object]) -> int:
    return pair[0]


def _cursor_after(number: int, name: str) -> str:
    from binascii import b2a_base64

    body = _VERSION + number.to_bytes((number.bit_length() + 7) // 8)
    raw = body + _checksum(body, name)
    return b2a_base64(raw, newline=False).translate(_URL_SAFE).rstrip(b"=").decode("ascii")


def _number_in(cursor: str, name: str) -> int:
    number = _maybe_number_in(cursor)
    # Accept only the canonical encoding: decoders ignore foreign characters and stray bits.
    if number is None or _cursor_after(number, name) != cursor:
        raise BadCursor(f"The cursor is not one that this list of {name} gave. Start again without a cursor.")
    return number


def _maybe_number_in(cursor: str) -> int | None:
    if len(cursor) > _MAX_CURSOR:
        return None
    from binascii import a2b_base64

    try:
        raw = a2b_base64(cursor.translate(_FROM_URL_SAFE) + "=" * (-len(cursor) % 4))
    except ValueError:
        return None
    return int.from_bytes(raw[1:-_CHECKSUM])


def _checksum(body: bytes, name: str) -> bytes:
    from binascii import crc32

    return crc32(body, crc32(name.encode())).to_bytes(_CHECKSUM)


# Entries: a function, and its description for clients.

_TOOL_NAME = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./")
_MAX_TOOL_NAME = 128


class EntryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an author may specify for any entry besides its function."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    icons: Sequence[Icon] | None = None
    meta: dict[str, Any] | None = None
    scopes: Sequence[str] = ()


class Entry:
    """A named function that handles requests."""

    __slots__ = ("function", "label", "name", "scopes", "signature", "timeout")

    def __init__(self, kind: str, name: str, function: Callable[..., Any], signature: Signature) -> None:
        self.name = name
        self.function = function
        self.signature = signature
        #: In seconds; None without one.
        self.timeout: float | None = None
        #: The entry's name in error messages.
        self.label = f"{kind} {name!r}"
        #: The scopes that a client over the network needs to use it.
        self.scopes: frozenset[str] = frozenset()

    def _need(self, scopes: Sequence[str]) -> None:
        if scopes:
            from mcplumb.protocol.principal import scope_set  # most servers have none

            self.scopes = scope_set(scopes, f"The {self.label}")

    def choices(self, argument: str) -> list[str]:
        """Return the values that an argument can have, as clients write them; empty if it is not a choice."""
        part = self.signature.schema.get("properties", {}).get(argument, {})
        options = [option for option in part.get("anyOf", (part,)) if option.get("type") != "null"]
        if not options or not all("enum" in option or "const" in option for option in options):
            return []
        values = [value for option in options for value in option.get("enum", [option.get("const")])]
        return [value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in values]


class ToolEntry(Entry):
    """A tool."""

    __slots__ = ("param_headers", "payload", "read", "result_of")

    def __init__(
        self,
        function: Callable[..., Any],
        described: EntryOptions,
        *,
        annotations: ToolAnnotations | None,
        structured: Structured,
        input_schema: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        name = _name_of(function, described)
        if not 1 <= len(name) <= _MAX_TOOL_NAME or not _TOOL_NAME.issuperset(name):
            raise UsageError(
                f"A tool cannot be called {name!r}: use 1 to {_MAX_TOOL_NAME} letters, digits and the characters _-./ "
                "for its name."
            )
        super().__init__("tool", name, function, inspect_function(function, context=Context))
        self._need(described.scopes)
        if timeout is not None:
            self._limit(timeout)
        schema = self._take_input(input_schema)
        #: The arguments that HTTP clients repeat in headers; None if there are none.
        self.param_headers = headers_in(schema, self.label)
        if structured not in (None, True, False, "object"):
            raise UsageError(f"structured of the {self.label} is {structured!r}: it must be True, False or 'object'.")
        output = self._output_of(output_schema, structured=structured)
        #: Converts the function's return value to a result.
        self.result_of = output.result_of
        self.payload = Tool(
            name,
            schema,
            title=described.title,
            description=_description_of(self.signature, described),
            output_schema=output.schema,
            annotations=annotations,
            icons=_listed(described.icons),
            meta=described.meta,
        )

    def _limit(self, seconds: float) -> None:
        if type(seconds) not in (int, float) or not 0 < seconds < float("inf"):
            raise UsageError(
                f"The {self.label} cannot have a timeout of {seconds!r}: give a number of seconds above 0."
            )
        self.timeout = seconds
        if not self.signature.is_async:
            return  # the caller, which waits for a thread, has to stop waiting
        function = self.function

        @wraps(function)
        async def call_within(**arguments: Any) -> Any:
            import asyncio  # a server is made before it runs, and loads this when it does

            scope = asyncio.timeout(seconds)
            try:
                async with scope:
                    return await function(**arguments)
            except TimeoutError:
                if scope.expired():
                    raise took_too_long(self) from None
                raise  # the function's own

        self.function = call_within

    def _take_input(self, schema: dict[str, Any] | None) -> dict[str, Any]:
        #: Converts the arguments of a call to the function's arguments.
        self.read: Callable[[msgspec.Raw | None], dict[str, Any]] = self.signature.read
        if schema is None:
            return header_schema(self.signature.schema)
        from mcplumb.server.schema.type_codec import RawArguments, RawSchema  # most tools have none

        raw = RawSchema(schema, f"input schema of the {self.label}")
        self.read = RawArguments(raw, self.signature, self.label).read
        return raw.schema

    def _output_of(self, schema: dict[str, Any] | None, *, structured: Structured) -> Output:
        if schema is None:
            return output_of(self.signature.returns, structured=structured)
        if structured is False:
            raise UsageError(f"The {self.label} has an output schema, so it cannot have structured=False.")
        from mcplumb.server.schema.type_codec import RawSchema  # most tools have none

        output = output_with_schema(RawSchema(schema, f"output schema of the {self.label}"), self.label)
        return output_as_object(output) if structured == "object" else output


class ResourceEntry(Entry):
    """A resource or a resource template. Its name is the URI; for a resource, as ``normalize_uri`` returns it."""

    __slots__ = ("cache_scope", "mime_type", "payload", "template", "ttl_ms")

    def __init__(
        self,
        uri: str,
        function: Callable[..., Any],
        described: EntryOptions,
        *,
        mime_type: str | None,
        annotations: Annotations | None,
        size: int | None,
        ttl_ms: int | None,
        cache_scope: CacheScope | None,
    ) -> None:
        from mcplumb.server.uri_templates import UriTemplate, normalize_uri  # a server of tools needs none

        template = UriTemplate(uri)
        kind = "resource template" if template.is_template else "resource"
        super().__init__(kind, uri, function, inspect_function(function, context=Context, strict=False))
        if not template.is_template:
            self.name = normalize_uri(uri)
        self.template = template
        self.mime_type = mime_type
        self.ttl_ms = ttl_ms
        self.cache_scope = cache_scope
        self._need(described.scopes)
        if self.scopes and cache_scope == "public":
            raise UsageError(f"The {self.label} needs scopes, so it cannot be cached for everybody.")
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
            raise UsageError(f"The {self.label} stands for many resources, so it cannot have a size.")
        self.payload: Resource | ResourceTemplate = (
            ResourceTemplate(uri, name, **details) if template.is_template else Resource(uri, name, size, **details)
        )

    def _check_variables(self) -> None:
        names = set(self.template.names)
        unknown = names - set(self.signature.names)
        if unknown:
            raise UsageError(f"The {self.label} has variables that its function does not take: {_quoted(unknown)}.")
        missing = set(self.signature.required) - (names - set(self.template.optional_names))
        if missing:
            raise UsageError(
                f"The function of the {self.label} needs values that a URI may omit: {_quoted(missing)}. "
                "Give them defaults, or put them into the URI in braces, before its query."
            )


class PromptEntry(Entry):
    """A prompt."""

    __slots__ = ("payload",)

    def __init__(self, function: Callable[..., Any], described: EntryOptions) -> None:
        from mcplumb.types.prompts import Prompt, PromptArgument  # many servers have no prompts

        name = _name_of(function, described)
        super().__init__("prompt", name, function, inspect_function(function, context=Context, strict=False))
        self._need(described.scopes)
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
    """Suggestions for one argument of a prompt or one variable of a template.

    The function takes the text typed so far and, if it has a second parameter, the values of the other arguments.
    """

    __slots__ = ("takes",)

    def __init__(self, of: str, argument: str, function: Callable[..., Any]) -> None:
        super().__init__("completion of", f"{of}: {argument}", function, inspect_function(function, context=Context))
        if not 1 <= len(self.signature.names) <= 2:
            raise UsageError(
                f"The function of the {self.label} takes {len(self.signature.names)} arguments. It must take the text "
                "typed so far, and may take the values of the other arguments."
            )
        #: The names of the function's parameters.
        self.takes: Sequence[str] = self.signature.names


class HandlerEntry(Entry):
    """A function that handles a request or a notification of an extension.

    The function takes the params as one argument: as a dict, or as the type of its parameter.
    """

    __slots__ = ("is_notification", "takes")

    def __init__(self, method: str, function: Callable[..., Any], *, is_notification: bool) -> None:
        kind = "notification" if is_notification else "request"
        super().__init__(f"{kind} handler", method, function, inspect_function(function, context=Context))
        if len(self.signature.names) != 1:
            raise UsageError(
                f"The function of the {self.label} takes {len(self.signature.names)} arguments. It must take one, the "
                "params, and may take a Context beside it."
            )
        if is_notification and self.signature.context_name is not None:
            raise UsageError(f"The function of the {self.label} cannot have a Context: that is for requests.")
        self.is_notification = is_notification
        self.takes = self.signature.names[0]


def took_too_long(entry: Entry) -> ToolError:
    """Return the error for a model when a tool's timeout has passed."""
    end = ", and was stopped." if entry.signature.is_async else ". It cannot be stopped, and may still run."
    return ToolError(f"The {entry.label} took longer than {entry.timeout:g} seconds{end}")


def _is_defined_again(known: Entry, entry: Entry) -> bool:
    """Return whether a notebook, or a Python prompt, has defined the function of an entry again."""
    if not (hasattr(builtins, "__IPYTHON__") or hasattr(sys, "ps1")):
        return False
    places = [
        (getattr(each.function, "__module__", None), getattr(each.function, "__qualname__", None))
        for each in (known, entry)
    ]
    return places[0] == places[1] and places[0][0] == "__main__" and places[0][1] != "<lambda>"


def _name_of(function: Callable[..., Any], described: EntryOptions) -> str:
    name = described.name or getattr(function, "__name__", None)
    if name is None or name == "<lambda>":
        raise UsageError(f"{function!r} has no name: pass name=….")
    return str(name)


def _description_of(signature: Signature, described: EntryOptions) -> str | None:
    if described.description is not None:
        return described.description
    return signature.docstring.description or None


def _listed(icons: Sequence[Icon] | None) -> list[Icon] | None:
    return None if icons is None else list(icons)


def _quoted(names: set[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))


# The catalog.

E = TypeVar("E", bound=Entry)

#: The methods that the session itself handles, because they use its state.
_SESSION_METHODS = frozenset({
    "initialize", "server/discover", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe",
    "subscriptions/listen",
})  # fmt: skip


class Registry(Generic[E]):
    """Entries by name, in the order of registration. ``changed`` is called after every change."""

    def __init__(self, kind: str, changed: Callable[[], None]) -> None:
        self._kind = kind
        self._changed = changed
        self._lock = threading.Lock()
        self._entries: dict[str, E] = {}
        #: Returns the entry with a name, or None. The dict's own method, because every request calls it.
        self.get: Callable[[str], E | None] = self._entries.get
        self._numbers: dict[str, int] = {}
        self._added = 0
        self._listed: list[tuple[int, E]] | None = []
        #: Whether an entry needs scopes, or needed some before it was removed.
        self.has_scopes = False
        #: Increases with every change.
        self.version = 0

    def __len__(self) -> int:
        return len(self._entries)

    def all(self) -> list[tuple[int, E]]:
        """Return all entries, each with its registration number. The list must not be changed."""
        with self._lock:
            if self._listed is None:
                self._listed = [(self._numbers[name], entry) for name, entry in self._entries.items()]
            return self._listed

    def page(
        self, cursor: str | None, size: int | None, may_see: Callable[[E], bool] | None = None
    ) -> tuple[list[E], str | None]:
        """Return a page of the list, and the cursor of the next one; raise ``BadCursor`` for an invalid cursor.

        With ``may_see``, the list has only the entries for which that returns True.
        """
        items = self.all() if may_see is None else [item for item in self.all() if may_see(item[1])]
        return page_of(items, cursor=cursor, size=size, name=f"{self._kind}s")

    def add(self, entry: E) -> None:
        """Add an entry; raise UsageError if the name is in use already.

        In a notebook, a cell that is run again replaces what it added.
        """
        with self._lock:
            known = self._entries.get(entry.name)
            if known is None:
                self._added += 1
                self._numbers[entry.name] = self._added
            elif not _is_defined_again(known, entry):
                raise UsageError(
                    f"There is a {self._kind} {entry.name!r} already. Remove that first, or use another name."
                )
            self._entries[entry.name] = entry
            self.has_scopes = self.has_scopes or bool(entry.scopes)
            self._note_change()
        self._changed()

    def remove(self, name: str) -> None:
        """Remove an entry; raise UsageError if there is none with this name."""
        with self._lock:
            if name not in self._entries:
                raise UsageError(f"There is no {self._kind} {name!r} to remove.")
            del self._entries[name], self._numbers[name]
            self._note_change()
        self._changed()

    def _note_change(self) -> None:
        self._listed = None
        self.version += 1


class Catalog:
    """All entries of one server. ``announce`` is called with the list that has changed."""

    def __init__(self, announce: Callable[[ListTopic], None]) -> None:
        self.tools: Registry[ToolEntry] = Registry("tool", lambda: announce("tools"))
        self.resources: Registry[ResourceEntry] = Registry("resource", lambda: announce("resources"))
        self.templates: Registry[ResourceEntry] = Registry("resource template", lambda: announce("resources"))
        self.prompts: Registry[PromptEntry] = Registry("prompt", lambda: announce("prompts"))
        #: By the name of the prompt or the URI template, and the name of the argument.
        self.completions: dict[tuple[str, str], CompletionEntry] = {}
        #: The handlers of extension methods, by method.
        self.request_handlers: dict[str, HandlerEntry] = {}
        self.notification_handlers: dict[str, HandlerEntry] = {}
        #: The templates sorted by rank, with the version of the registry that was sorted.
        self._by_rank: tuple[int, list[ResourceEntry]] = (0, [])

    @property
    def has_completions(self) -> bool:
        """Whether an argument of a prompt or a variable of a template has suggestions, registered or by its type."""
        owners = (*self.prompts.all(), *self.templates.all())
        return bool(self.completions) or any(
            entry.choices(name) for _, entry in owners for name in entry.signature.names
        )

    @property
    def has_scopes(self) -> bool:
        """Whether an entry needs scopes."""
        tools, resources, templates, prompts = self.tools, self.resources, self.templates, self.prompts
        return tools.has_scopes or resources.has_scopes or templates.has_scopes or prompts.has_scopes

    def find_resource(self, uri: str) -> tuple[ResourceEntry, dict[str, str]] | None:
        """Return the resource with this URI, or the most specific matching template and its values; None if neither."""
        from mcplumb.server.uri_templates import normalize_uri

        exact = self.resources.get(normalize_uri(uri))
        if exact is not None:
            return exact, {}
        for entry in self._templates_by_rank():
            values = entry.template.match(uri)
            if values is not None:
                return entry, values
        return None

    def param_headers(self, tool: str) -> ParamHeaders | None:
        """Return the arguments of a tool that HTTP clients repeat in headers; None if there are none, or no tool."""
        entry = self.tools.get(tool)
        return None if entry is None else entry.param_headers

    def add_handler(self, entry: HandlerEntry) -> None:
        """Add a handler; raise UsageError if the method has one already, or the session itself handles it."""
        handlers = self.notification_handlers if entry.is_notification else self.request_handlers
        known = handlers.get(entry.name)
        if entry.name in _SESSION_METHODS or (known is not None and not _is_defined_again(known, entry)):
            raise UsageError(f"There is a handler for {entry.name!r} already, and it cannot be replaced.")
        handlers[entry.name] = entry

    def _templates_by_rank(self) -> list[ResourceEntry]:
        version, entries = self._by_rank
        if version != self.templates.version:
            # Read the version first: if templates are added meanwhile, they are sorted again next time.
            version = self.templates.version
            entries = sorted((entry for _, entry in self.templates.all()), key=lambda entry: entry.template.rank)
            self._by_rank = (version, entries)
        return entries
