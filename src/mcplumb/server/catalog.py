"""What a server has: its tools, resources, prompts and completions, and whatever else it answers.

Every method may be called from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from mcplumb.errors import UsageError
from mcplumb.protocol.topics import ListTopic
from mcplumb.server.entries import CompletionEntry, Entry, HandlerEntry, PromptEntry, ResourceEntry, ToolEntry
from mcplumb.server.pages import page_of
from mcplumb.server.templates import folded

if TYPE_CHECKING:
    from mcplumb.protocol.mirroring import ParamHeaders

__all__ = ["Catalog", "Registry"]

E = TypeVar("E", bound=Entry)

#: To answer these takes the session's own state.
_OWN = frozenset({
    "initialize", "server/discover", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe",
    "subscriptions/listen",
})  # fmt: skip


class Registry(Generic[E]):
    """Entries by name, in the order they were added. ``changed`` is called after every change."""

    def __init__(self, kind: str, changed: Callable[[], None]) -> None:
        self._kind = kind
        self._changed = changed
        self._lock = threading.Lock()
        self._entries: dict[str, E] = {}
        #: The entry with a name, or None. Not a method of its own: this is on the way of each request.
        self.get: Callable[[str], E | None] = self._entries.get
        self._numbers: dict[str, int] = {}
        self._added = 0
        self._listed: list[tuple[int, E]] | None = []
        #: Grows with every change.
        self.version = 0

    def __len__(self) -> int:
        return len(self._entries)

    def all(self) -> list[tuple[int, E]]:
        """All entries, each with the number that it was given when it was added. Not to be changed."""
        with self._lock:
            if self._listed is None:
                self._listed = [(self._numbers[name], entry) for name, entry in self._entries.items()]
            return self._listed

    def page(self, cursor: str | None, size: int | None) -> tuple[list[E], str | None]:
        """A page of the list, and the cursor of the next one; ``BadCursor`` for what is no cursor of it."""
        return page_of(self.all(), cursor=cursor, size=size, name=f"{self._kind}s")

    def add(self, entry: E) -> None:
        """Add an entry; UsageError if there is one of this name already."""
        with self._lock:
            if entry.name in self._entries:
                raise UsageError(
                    f"There is a {self._kind} {entry.name!r} already. Remove that first, or use another name."
                )
            self._added += 1
            self._entries[entry.name] = entry
            self._numbers[entry.name] = self._added
            self._note_change()
        self._changed()

    def remove(self, name: str) -> None:
        """Remove an entry; UsageError if there is none of this name."""
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
    """Everything that one server has. ``announce`` is told which list has changed."""

    def __init__(self, announce: Callable[[ListTopic], None]) -> None:
        self.tools: Registry[ToolEntry] = Registry("tool", lambda: announce("tools"))
        self.resources: Registry[ResourceEntry] = Registry("resource", lambda: announce("resources"))
        self.templates: Registry[ResourceEntry] = Registry("resource template", lambda: announce("resources"))
        self.prompts: Registry[PromptEntry] = Registry("prompt", lambda: announce("prompts"))
        #: By what they complete: the name of a prompt or a URI template, and the name of the argument.
        self.completions: dict[tuple[str, str], CompletionEntry] = {}
        #: By method: what the author answers, and hears, beyond the protocol.
        self.request_handlers: dict[str, HandlerEntry] = {}
        self.notification_handlers: dict[str, HandlerEntry] = {}
        #: A version of the templates, and how they were sorted then.
        self._by_precision: tuple[int, list[ResourceEntry]] = (0, [])

    def find_resource(self, uri: str) -> tuple[ResourceEntry, dict[str, str]] | None:
        """The resource with this address, or the most precise template for it and the values of its variables."""
        exact = self.resources.get(folded(uri))
        if exact is not None:
            return exact, {}
        for entry in self._templates_by_precision():
            values = entry.template.match(uri)
            if values is not None:
                return entry, values
        return None

    def param_headers(self, tool: str) -> ParamHeaders | None:
        """The arguments of a tool that HTTP clients repeat in headers; None if there are none, or no such tool."""
        entry = self.tools.get(tool)
        return None if entry is None else entry.param_headers

    def add_handler(self, entry: HandlerEntry) -> None:
        """Add a handler; UsageError if its method has one, or is one of those that the session itself answers."""
        handlers = self.notification_handlers if entry.is_notification else self.request_handlers
        if entry.name in _OWN or entry.name in handlers:
            raise UsageError(f"There is a handler for {entry.name!r} already, and it cannot be replaced.")
        handlers[entry.name] = entry

    def _templates_by_precision(self) -> list[ResourceEntry]:
        version, entries = self._by_precision
        if version != self.templates.version:
            # The version first: if more are added meanwhile, they are sorted again the next time.
            version = self.templates.version
            entries = sorted((entry for _, entry in self.templates.all()), key=lambda entry: entry.template.rank)
            self._by_precision = (version, entries)
        return entries
