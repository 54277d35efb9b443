"""Entries: what clients are told about a function, and what is refused before any client sees it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest

from mcplumb.errors import UsageError
from mcplumb.server.catalog import CompletionEntry, EntryOptions, HandlerEntry, PromptEntry, ResourceEntry, ToolEntry
from mcplumb.server.context import Context
from mcplumb.types.base import Annotations, Icon
from mcplumb.types.tools import ToolAnnotations

ICON = Icon("https://example.com/icon.png")


def tool(function: Callable[..., Any], **described: Any) -> ToolEntry:
    return ToolEntry(function, EntryOptions(**described), annotations=None, structured=None)


def resource(uri: str, function: Callable[..., Any], **options: Any) -> ResourceEntry:
    settings: dict[str, Any] = {
        "mime_type": None,
        "annotations": None,
        "size": None,
        "ttl_ms": None,
        "cache_scope": None,
    }
    described = EntryOptions(**{name: value for name, value in options.items() if name not in settings})
    return ResourceEntry(uri, function, described, **{name: options.get(name) for name in settings})


@dataclass
class Bill:
    total: float


async def book(guests: list[str], nights: int = 1, *, ctx: Context) -> Bill:
    """Book a room.

    It is yours at once.

    Args:
        guests: Everyone who stays.
    """
    return Bill(100.0)


# Tools


def test_a_tool_is_described_by_its_function() -> None:
    entry = tool(book)
    assert (entry.name, entry.label) == ("book", "tool 'book'")
    payload = entry.payload
    assert payload.name == "book"
    assert payload.title is None
    assert payload.description is not None
    assert payload.description.startswith("Book a room.")
    assert "Everyone who stays" not in payload.description
    assert payload.input_schema["properties"]["guests"]["description"] == "Everyone who stays."
    assert payload.input_schema["required"] == ["guests"]
    assert "ctx" not in payload.input_schema["properties"]
    assert payload.output_schema is not None
    assert payload.output_schema["properties"] == {"total": {"type": "number"}}


def test_an_author_may_say_otherwise() -> None:
    annotations = ToolAnnotations(read_only_hint=True)
    described = EntryOptions(name="book.it", title="Book!", description="Books.", icons=(ICON,), meta={"a": 1})
    entry = ToolEntry(book, described, annotations=annotations, structured=False)
    payload = entry.payload
    assert (payload.name, payload.title, payload.description) == ("book.it", "Book!", "Books.")
    assert payload.annotations == annotations
    assert payload.icons == [ICON]
    assert payload.meta == {"a": 1}
    assert payload.output_schema is None


@pytest.mark.parametrize("description", ["", "An own one."])
def test_a_description_of_the_author_s_counts_even_if_it_is_empty(description: str) -> None:
    assert tool(book, description=description).payload.description == description


def test_a_function_without_words_has_no_description() -> None:
    def silent() -> None: ...

    assert tool(silent).payload.description is None
    assert tool(functools.partial(silent), name="partial").payload.description is None


def test_an_object_is_described_by_what_is_called() -> None:
    class Greeter:
        """Holds the words."""

        def __call__(self, name: str) -> str:
            """Greet somebody."""
            return name

    assert tool(Greeter(), name="greet").payload.description == "Greet somebody."
    assert tool(functools.partial(Greeter(), name="Ada"), name="greet").payload.description == "Greet somebody."


@pytest.mark.parametrize("name", ["x", "a.b/c-d_e", "Z9", "x" * 128])
def test_names_that_a_tool_can_have(name: str) -> None:
    assert tool(book, name=name).payload.name == name


@pytest.mark.parametrize("name", ["x" * 129, "two words", "straße", "a\nb", "a:b", "a,b"])
def test_names_that_a_tool_cannot_have(name: str) -> None:
    with pytest.raises(UsageError, match="A tool cannot be called"):
        tool(book, name=name)


def test_what_has_no_name_has_to_be_given_one() -> None:
    with pytest.raises(UsageError, match=r"has no name: pass name="):
        tool(lambda: None)
    with pytest.raises(UsageError, match="has no name"):
        tool(functools.partial(book))
    assert tool(lambda: None, name="nothing").name == "nothing"


# Resources


def test_a_resource_is_described_by_its_function() -> None:
    async def notes() -> str:
        """All notes."""
        return ""

    entry = resource("notes://all", notes)
    assert (entry.name, entry.label) == ("notes://all", "resource 'notes://all'")
    assert msgspec.to_builtins(entry.payload) == {"uri": "notes://all", "name": "notes", "description": "All notes."}


def test_a_resource_may_say_more() -> None:
    annotations = Annotations(priority=0.5)
    entry = resource(
        "notes://all",
        lambda: "",
        name="all",
        title="All",
        description="Everything.",
        mime_type="text/plain",
        annotations=annotations,
        size=5,
        ttl_ms=100,
        cache_scope="public",
        icons=[ICON],
        meta={"a": 1},
    )
    assert msgspec.to_builtins(entry.payload) == {
        "uri": "notes://all",
        "name": "all",
        "title": "All",
        "description": "Everything.",
        "mimeType": "text/plain",
        "annotations": {"priority": 0.5},
        "size": 5,
        "icons": [{"src": "https://example.com/icon.png"}],
        "_meta": {"a": 1},
    }
    assert (entry.mime_type, entry.ttl_ms, entry.cache_scope) == ("text/plain", 100, "public")


def test_an_address_with_variables_is_a_template() -> None:
    def file(path: str, lines: int = 10) -> str:
        """A file."""
        return path

    entry = resource("files://{+path}{?lines}", file, mime_type="text/plain")
    assert entry.label == "resource template 'files://{+path}{?lines}'"
    assert msgspec.to_builtins(entry.payload) == {
        "uriTemplate": "files://{+path}{?lines}",
        "name": "file",
        "description": "A file.",
        "mimeType": "text/plain",
    }
    assert entry.signature.read({"path": "a", "lines": "3"}) == {"path": "a", "lines": 3}


def test_a_template_has_no_size() -> None:
    with pytest.raises(UsageError, match="stands for many resources, so it cannot have a size"):
        resource("a://{b}", lambda b: b, name="x", size=5)


@pytest.mark.parametrize(
    ("uri", "function", "said"),
    [
        ("a://{b}/{c}", lambda: None, "has variables that its function does not take: 'b', 'c'"),
        ("a://{b}", lambda b, c, d: None, "needs values that a URI may omit: 'c', 'd'. Give them defaults"),
        ("a://x", lambda b: None, "needs values that a URI may omit: 'b'"),
        ("a://x{?b}", lambda b: None, "needs values that a URI may omit: 'b'"),
    ],
)
def test_an_address_and_its_function_have_to_fit(uri: str, function: Callable[..., Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resource(uri, function, name="x")


def test_a_context_is_no_variable() -> None:
    def read(b: str, ctx: Context) -> str:
        return b

    assert resource("a://{b}", read).signature.context_name == "ctx"


# Prompts


def test_a_prompt_has_the_arguments_of_its_function() -> None:
    def sort(topic: str, limit: Annotated[int, "At most."] = 10) -> str:
        """Sort notes.

        Args:
            topic: What by.
        """
        return topic

    entry = PromptEntry(sort, EntryOptions(title="Sort!", icons=[ICON], meta={"a": 1}))
    assert entry.label == "prompt 'sort'"
    assert msgspec.to_builtins(entry.payload) == {
        "name": "sort",
        "title": "Sort!",
        "description": "Sort notes.",
        "arguments": [
            {"name": "topic", "description": "What by.", "required": True},
            {"name": "limit", "description": "At most.", "required": False},
        ],
        "icons": [{"src": "https://example.com/icon.png"}],
        "_meta": {"a": 1},
    }


def test_a_prompt_may_have_none() -> None:
    assert PromptEntry(lambda: "", EntryOptions(name="x")).payload.arguments is None


def test_the_name_of_a_prompt_may_be_any_text() -> None:
    assert PromptEntry(lambda: "", EntryOptions(name="Überblick, bitte!")).payload.name == "Überblick, bitte!"


# Completions


def test_a_completion_takes_the_text_and_perhaps_the_others() -> None:
    assert CompletionEntry("sort", "topic", lambda typed: []).takes == ("typed",)
    entry = CompletionEntry("sort", "topic", lambda typed, others: [])
    assert tuple(entry.takes) == ("typed", "others")
    assert entry.label == "completion of 'sort: topic'"


@pytest.mark.parametrize("function", [lambda: None, lambda a, b, c: []])
def test_a_completion_takes_nothing_else(function: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="It must take the text typed so far"):
        CompletionEntry("sort", "topic", function)


# Handlers


def test_a_handler_takes_the_params() -> None:
    def reset(params: dict[str, Any], ctx: Context) -> None: ...
    def hello(params: dict[str, Any]) -> None: ...

    entry = HandlerEntry("example.com/reset", reset, is_notification=False)
    assert (entry.takes, entry.signature.context_name) == ("params", "ctx")
    assert entry.label == "request handler 'example.com/reset'"
    entry = HandlerEntry("example.com/hello", hello, is_notification=True)
    assert entry.label == "notification handler 'example.com/hello'"
    assert entry.is_notification


@pytest.mark.parametrize("function", [lambda: None, lambda a, b: None])
def test_a_handler_takes_nothing_else(function: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match="It must take one, the params"):
        HandlerEntry("x", function, is_notification=False)


def test_a_notification_has_no_context() -> None:
    def hello(params: dict[str, Any], ctx: Context) -> None: ...

    with pytest.raises(UsageError, match="cannot have a Context: that is for requests"):
        HandlerEntry("x", hello, is_notification=True)
