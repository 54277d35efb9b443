"""What goes over the wire for lists, calls, resources, prompts and completions, in every revision."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from tests import spec
from tests.kit.results import text_of
from tests.process.harness import LEGACY, MODERN, Client, Message, ServerProcess

EVERY = [MODERN, *LEGACY]
#: The definition of each method's result in the official schemas.
RESULTS = {
    "server/discover": "DiscoverResult",
    "initialize": "InitializeResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "completion/complete": "CompleteResult",
}
REVIEW = {"type": "ref/prompt", "name": "review"}
TOUR: list[tuple[str, Message]] = [
    ("tools/list", {}),
    ("tools/call", {"name": "find", "arguments": {"title": "Moby Dick"}}),
    ("tools/call", {"name": "find", "arguments": {"title": 5}}),
    ("tools/call", {"name": "count", "arguments": {}}),
    ("tools/call", {"name": "picture", "arguments": {}}),
    ("tools/call", {"name": "burn", "arguments": {}}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "library://shelf"}),
    ("resources/read", {"uri": "library://cover"}),
    ("resources/read", {"uri": "library://books/1"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "review", "arguments": {"title": "Emma", "stars": "4"}}),
    ("completion/complete", {"ref": REVIEW, "argument": {"name": "title", "value": "E"}}),
]  # fmt: skip


@pytest.fixture(scope="module", params=EVERY)
def _reader(request: pytest.FixtureRequest) -> Iterator[Client]:
    with ServerProcess("library") as server:
        yield Client(server, request.param)


@pytest.fixture
def library(_reader: Client) -> Iterator[Client]:
    """A client of the library, in each revision. Tests share it, and change nothing."""
    yield _reader
    _reader.fence()
    assert _reader.server.inbox == []


@pytest.mark.req("LEG-5", "DIR-4", "META-5")
def test_every_result_is_what_the_official_schema_of_its_revision_says(library: Client) -> None:
    tour = [("server/discover", {}), *TOUR] if library.is_modern else TOUR
    results = [(method, library.result(method, params)) for method, params in tour]
    if not library.is_modern:
        results.insert(0, ("initialize", library.opened))
    for method, result in results:
        # As strictly as it reads: a key that the revision does not have is an error.
        validator = spec.validator(library.revision, RESULTS[method])
        assert [error.message for error in validator.iter_errors(result)] == [], (method, result)


@pytest.mark.req("LEG-5")
def test_structured_content_only_where_the_revision_has_it(library: Client) -> None:
    revision = library.revision
    found = library.call("find", title="Emma")
    assert json.loads(text_of(found)) == {"title": "Emma", "pages": 100}
    has_structure = revision >= "2025-06-18"
    assert found.get("structuredContent") == ({"title": "Emma", "pages": 100} if has_structure else None)
    # A list is structured content from the newest revision on; before, it had to be an object.
    wrapped = {"result": [1, 2, 3]} if has_structure else None
    assert library.call("count").get("structuredContent") == ([1, 2, 3] if library.is_modern else wrapped)
    tools = {tool["name"]: tool for tool in library.result("tools/list")["tools"]}
    assert ("outputSchema" in tools["find"]) is has_structure
    assert ("title" in tools["find"]) is has_structure
    assert ("annotations" in tools["find"]) is (revision > "2024-11-05")


@pytest.mark.req("LEG-5")
def test_a_link_becomes_text_or_an_error_where_the_revision_has_no_links(library: Client) -> None:
    response = library.answer("tools/call", {"name": "link", "arguments": {}})
    blocks = response.get("result", {}).get("content", [])
    kinds = [block["type"] for block in blocks]
    assert ("resource_link" in kinds) is (library.revision >= "2025-06-18")


@pytest.mark.req("LEG-6")
@pytest.mark.parametrize("uri", ["library://nothing", "library://books/99", "library://pages/x", "no address", ""])
def test_a_resource_that_is_not_there_has_the_code_of_the_era(library: Client, uri: str) -> None:
    error = library.error("resources/read", {"uri": uri})
    assert error["code"] == (-32602 if library.is_modern else -32002)
    assert error["data"] == {"uri": uri}


@pytest.mark.req("LEG-6")
@pytest.mark.parametrize(
    "uri",
    [
        "library://books/1/2", "library://books/", "library://books/..", "library://books/%2e%2e", "library://books/1%2F2",
        "library://books/1?x", "library://books/1#x", "library://books/1\n",
    ],
)  # fmt: skip
def test_a_value_does_not_escape_its_segment(library: Client, uri: str) -> None:
    assert "error" in library.answer("resources/read", {"uri": uri})


def test_resources_are_text_or_bytes(library: Client) -> None:
    (text,) = library.result("resources/read", {"uri": "library://books/2"})["contents"]
    assert text["text"] == "It was the best of times."
    (cover,) = library.result("resources/read", {"uri": "library://cover"})["contents"]
    assert base64.b64decode(cover["blob"]) == bytes.fromhex("89504e470d0a1a0a")
    assert cover["mimeType"] == "image/png"
    (page,) = library.result("resources/read", {"uri": "library://pages/7"})["contents"]
    assert page["text"] == "page 7"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "no such tool", "arguments": {}}),
        ("tools/call", {"arguments": {}}),
        ("tools/call", None),
        ("prompts/get", {"name": "no such prompt"}),
        ("prompts/get", {"name": "review"}),
        ("prompts/get", {"name": "review", "arguments": {"title": "x", "stars": "many"}}),
        ("resources/read", {}),
        ("resources/read", {"uri": 5}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "no"}, "argument": {"name": "x", "value": ""}}),
        ("completion/complete", {}),
        ("tools/list", {"cursor": "no such cursor"}),
        ("tools/list", {"cursor": 5}),
    ],
)
def test_what_cannot_be_done_is_refused(library: Client, method: str, params: Message | None) -> None:
    assert library.error(method, params)["code"] == -32602


@pytest.mark.parametrize("arguments", [{"a": 1}, {"a": 1, "b": "two"}, {"a": 1, "b": 2, "c": 3}, {"a": 1.5, "b": 2}])
def test_bad_arguments_are_a_tool_error_that_names_them(workshop: Client, arguments: Message) -> None:
    result = workshop.call("add", **arguments)
    assert result["isError"]
    bad = {"a": 1.5} if arguments["a"] == 1.5 else {"c": 3} if "c" in arguments else {"b": 0}
    assert all(f"'{name}'" in text_of(result) or f"`{name}`" in text_of(result) for name in bad), text_of(result)


def test_completions_are_at_most_a_hundred(library: Client) -> None:
    completion = library.result("completion/complete", {"ref": REVIEW, "argument": {"name": "title", "value": "E"}})
    assert completion["completion"]["values"] == [f"E{number}" for number in range(100)]
    assert completion["completion"]["total"] == 150
    assert completion["completion"]["hasMore"] is True
    other = library.result("completion/complete", {"ref": REVIEW, "argument": {"name": "stars", "value": ""}})
    assert other["completion"]["values"] == []


@pytest.mark.parametrize("revision", EVERY)
def test_lists_come_in_pages_that_survive_changes(revision: str) -> None:
    with ServerProcess("library", {"page_size": 2}) as server:
        client = Client(server, revision)

        def page(cursor: str | None) -> tuple[list[str], str | None]:
            result = client.result("tools/list", {} if cursor is None else {"cursor": cursor})
            return [tool["name"] for tool in result["tools"]], result.get("nextCursor")

        names, cursor = page(None)
        assert len(names) == 2
        assert client.say("add_tool", name="added_meanwhile") == "added"
        assert client.say("remove_tool", name=names[0]) == "removed"
        while cursor is not None:
            # The same cursor gives the same page, as often as it is asked.
            assert page(cursor) == page(cursor)
            more, cursor = page(cursor)
            assert len(more) <= 2
            names += more
        assert len(names) == len(set(names))
        assert names[-1] == "added_meanwhile"
        assert {"find", "count", "rewrite"} <= set(names)
        assert "nextCursor" not in client.result("resources/templates/list")
        foreign = client.result("tools/list")["nextCursor"]
        assert client.error("resources/list", {"cursor": foreign})["code"] == -32602


def test_cache_hints_are_on_modern_results_only() -> None:
    with ServerProcess("library", {"ttl": 60, "cache_scope": "public"}) as server:
        modern, legacy = Client(server), Client(server, LEGACY[-1])
        for method, params in [("tools/list", None), ("resources/read", {"uri": "library://shelf"})]:
            assert [modern.result(method, params)[key] for key in ("ttlMs", "cacheScope")] == [60_000, "public"]
            assert not {"ttlMs", "cacheScope"} & legacy.result(method, params).keys()


# What JSON cannot say


@pytest.mark.req("FRM-1", "FRM-2")
@pytest.mark.parametrize(
    "what", ["nan", "infinity", "surrogate", "key", "object", "circle", "deep", "generator", "integer", "newline"]
)
def test_every_value_is_answered_with_valid_json(workshop: Client, what: str) -> None:
    # That it is valid is checked for every line.
    response = workshop.answer("tools/call", {"name": "odd", "arguments": {"what": what}})
    if what in ("surrogate", "key", "object", "circle", "generator"):
        assert "error" in response or response["result"]["isError"]
        assert "0x" not in str(response)
    elif what == "newline":
        assert text_of(response["result"]) == "one\ntwo\r\n\u2028three"
    elif what == "integer":
        assert response["result"]["structuredContent"] == {"value": 10**40}
    assert workshop.say("echo", text="next") == "next"
