"""What a server has, under its names, in its order, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Annotated, Any

import pytest

from mcplumb.errors import UsageError
from mcplumb.protocol.http_headers import ParamHeader, ParamHeaders
from mcplumb.server.catalog import (
    BadCursor,
    Catalog,
    Entry,
    EntryOptions,
    HandlerEntry,
    PromptEntry,
    Registry,
    ResourceEntry,
    ToolEntry,
)
from mcplumb.server.schema.signature import Header, inspect_function
from tests.kit.loop import PATIENCE


def entry(name: str) -> Entry:
    return Entry("thing", name, str, inspect_function(lambda: None, context=type(None)))


def resource(uri: str) -> ResourceEntry:
    def function(a: str = "", b: str = "") -> str:
        return a + b

    described = EntryOptions(name="r")
    return ResourceEntry(
        uri, function, described, mime_type=None, annotations=None, size=None, ttl_ms=None, cache_scope=None
    )


def names(registry: Registry[Any]) -> list[str]:
    return [entry.name for _, entry in registry.all()]


# Registries


def test_entries_are_found_by_name_and_listed_in_their_order() -> None:
    changes: list[int] = []
    registry: Registry[Entry] = Registry("thing", lambda: changes.append(len(registry)))
    assert names(registry) == []
    assert registry.get("b") is None
    first, second = entry("b"), entry("a")
    registry.add(first)
    registry.add(second)
    assert registry.get("b") is first
    assert names(registry) == ["b", "a"]
    assert len(registry) == 2
    registry.remove("b")
    registry.add(first)
    assert names(registry) == ["a", "b"]  # at the end again
    assert changes == [1, 2, 1, 2]
    assert registry.version == 4


def test_a_name_is_there_once() -> None:
    changes: list[None] = []
    registry: Registry[Entry] = Registry("thing", lambda: changes.append(None))
    registry.add(entry("a"))
    with pytest.raises(UsageError, match=r"There is a thing 'a' already. Remove that first, or use another name."):
        registry.add(entry("a"))
    with pytest.raises(UsageError, match="There is no thing 'b' to remove"):
        registry.remove("b")
    assert len(changes) == registry.version == 1


def test_pages_stay_in_step_while_entries_come_and_go() -> None:
    registry: Registry[Entry] = Registry("thing", lambda: None)
    for name in "abcdef":
        registry.add(entry(name))
    page, cursor = registry.page(None, 2)
    assert [each.name for each in page] == ["a", "b"]
    registry.remove("b")
    registry.remove("c")
    registry.add(entry("b"))
    page, cursor = registry.page(cursor, 2)
    assert [each.name for each in page] == ["d", "e"]
    page, cursor = registry.page(cursor, 2)
    assert [each.name for each in page] == ["f", "b"]
    assert cursor is None


def test_a_cursor_is_good_for_its_own_list_only() -> None:
    registry: Registry[Entry] = Registry("thing", lambda: None)
    other: Registry[Entry] = Registry("other", lambda: None)
    for name in "ab":
        registry.add(entry(name))
        other.add(entry(name))
    _, cursor = registry.page(None, 1)
    with pytest.raises(BadCursor, match="list of others"):
        other.page(cursor, 1)


def test_many_threads_may_change_a_list() -> None:
    registry: Registry[Entry] = Registry("thing", lambda: None)
    things = [[entry(f"{one}.{two}") for two in range(200)] for one in range(4)]

    def change(own: list[Entry]) -> None:
        for each in own:
            registry.add(each)
            registry.all()
        for each in own[::2]:
            registry.remove(each.name)

    threads = [threading.Thread(target=change, args=(own,)) for own in things]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(names(registry)) == sorted(each.name for own in things for each in own[1::2])
    assert registry.version == 4 * 300
    numbers = [number for number, _ in registry.all()]
    assert numbers == sorted(set(numbers))


# The catalog


def test_each_change_is_announced_under_its_list() -> None:
    announced: list[str] = []
    catalog = Catalog(announced.append)

    def hello() -> str:
        return ""

    catalog.prompts.add(PromptEntry(hello, EntryOptions()))
    catalog.resources.add(resource("a://x"))
    catalog.templates.add(resource("a://{a}"))
    catalog.templates.remove("a://{a}")
    catalog.tools.add(entry("tool"))  # type: ignore[arg-type]  # any entry will do
    assert announced == ["prompts", "resources", "resources", "resources", "tools"]


def test_the_most_precise_template_counts() -> None:
    catalog = Catalog(lambda _: None)
    for uri in ("files://{+a}", "files://docs/{a}", "files://docs/{a}.md", "other://{a}/{b}"):
        catalog.templates.add(resource(uri))
    catalog.resources.add(resource("files://docs/index.md"))
    found = {uri: catalog.find_resource(uri) for uri in FOUND}
    assert {uri: each and (each[0].name, each[1]) for uri, each in found.items()} == FOUND
    catalog.templates.remove("files://docs/{a}.md")
    again = catalog.find_resource("files://docs/guide.md")
    assert again is not None
    assert again[0].name == "files://docs/{a}"


FOUND: dict[str, tuple[str, dict[str, str]] | None] = {
    "files://docs/index.md": ("files://docs/index.md", {}),
    "files://docs/guide.md": ("files://docs/{a}.md", {"a": "guide"}),
    "files://docs/guide": ("files://docs/{a}", {"a": "guide"}),
    "files://docs/deep/guide.md": ("files://{+a}", {"a": "docs/deep/guide.md"}),
    "other://1/2": ("other://{a}/{b}", {"a": "1", "b": "2"}),
    "other://1": None,
    "": None,
}


class RankedTemplate:
    """A template that matches nothing, and tells when its rank is looked at."""

    def __init__(self, looked_at: Callable[[], None]) -> None:
        self._looked_at = looked_at

    @property
    def rank(self) -> tuple[bool, int, bool]:
        self._looked_at()
        return (True, 0, False)

    def match(self, _: str) -> None:
        return None


def ranked(uri: str, looked_at: Callable[[], None]) -> Any:
    attributes = {"name": uri, "template": RankedTemplate(looked_at), "scopes": frozenset()}
    return type("RankedEntry", (), attributes)()


def test_templates_are_sorted_once_for_all_that_were_added() -> None:
    catalog = Catalog(lambda _: None)
    looks: list[None] = []
    for number in range(100):
        catalog.templates.add(ranked(f"{number}://{{a}}", lambda: looks.append(None)))
    assert len(looks) == 0
    for _ in range(10):
        assert catalog.find_resource("other://x") is None
    assert len(looks) == 100


def test_a_template_added_while_others_are_sorted_is_found() -> None:
    """A thread that is slow to sort them must not keep its old list for good."""
    catalog = Catalog(lambda _: None)
    is_sorting, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        is_sorting.set()
        assert go_on.wait(PATIENCE)

    catalog.templates.add(ranked("slow://{a}", wait))
    thread = threading.Thread(target=catalog.find_resource, args=("quick://x",))
    thread.start()
    assert is_sorting.wait(PATIENCE)
    catalog.templates.add(resource("quick://{a}"))
    go_on.set()
    thread.join(PATIENCE)
    assert catalog.find_resource("quick://x") is not None


def handler(method: str, *, is_notification: bool = False) -> HandlerEntry:
    def handle(params: dict[str, Any]) -> None:
        """Nothing."""

    return HandlerEntry(method, handle, is_notification=is_notification)


@pytest.mark.parametrize(
    "method",
    [
        "initialize",
        "server/discover",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "subscriptions/listen",
    ],
)
def test_what_the_session_answers_cannot_be_replaced(method: str) -> None:
    catalog = Catalog(lambda _: None)
    with pytest.raises(UsageError, match=f"There is a handler for '{method}' already"):
        catalog.add_handler(handler(method))


@pytest.mark.req("HTP-2")
def test_what_a_tool_wants_to_see_in_headers() -> None:
    async def query(region: Annotated[str, Header("Region")]) -> None:
        """Nothing."""

    async def other(region: str) -> None:
        """Nothing."""

    catalog = Catalog(lambda _: None)
    for function in (query, other):
        catalog.tools.add(ToolEntry(function, EntryOptions(), annotations=None, structured=None))
    assert catalog.param_headers("query") == ParamHeaders((ParamHeader("Mcp-Param-Region", ("region",)),))
    assert catalog.param_headers("other") is None
    assert catalog.param_headers("unknown") is None


def test_a_method_has_one_handler() -> None:
    catalog = Catalog(lambda _: None)
    catalog.add_handler(handler("tools/call"))
    catalog.add_handler(handler("example.com/x"))
    assert set(catalog.request_handlers) == {"tools/call", "example.com/x"}
    with pytest.raises(UsageError, match="cannot be replaced"):
        catalog.add_handler(handler("example.com/x"))
    # A notification of the same name is something else.
    catalog.add_handler(handler("example.com/x", is_notification=True))
    assert set(catalog.notification_handlers) == {"example.com/x"}
    with pytest.raises(UsageError, match="cannot be replaced"):
        catalog.add_handler(handler("example.com/x", is_notification=True))
