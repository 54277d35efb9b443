"""The protocol's methods, as a client of each revision sees them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import msgspec
import pytest

from mcplumb.errors import RequestError, ToolError
from mcplumb.revisions import LATEST, LATEST_LEGACY, LEGACY, Revision
from mcplumb.server.context import Context
from mcplumb.server.server import Server
from mcplumb.sync import Context as BlockingContext
from mcplumb.types.base import Icon
from mcplumb.types.content import TextContent
from mcplumb.types.meta import SERVER_INFO
from mcplumb.types.prompts import CompleteResult, Completion
from mcplumb.types.resources import ReadResourceResult, ResourceContents
from mcplumb.types.tools import CallToolResult
from tests.kit.loop import run
from tests.kit.products import revisions
from tests.kit.results import text_of
from tests.server.harness import ABLE, ALL_REVISIONS, ONE_OF_EACH_ERA, Peer, Plain, make_server, raw_client

every_revision = pytest.mark.parametrize("revision", ALL_REVISIONS, ids=str)
both_eras = pytest.mark.parametrize("revision", ONE_OF_EACH_ERA, ids=str)


def talk(server: Server, body: Callable[[Peer], Awaitable[None]], revision: Revision = LATEST, **options: Any) -> None:
    """Let a client of this revision talk to the server."""

    async def main() -> None:
        async with raw_client(server, revision, **options) as peer:
            await body(peer)

    run(main())


# Who a server is


@pytest.mark.req("ERA-9", "META-5")
def test_discover_says_who_the_server_is_and_what_it_has() -> None:
    server = make_server(
        version="1.2",
        title="Test!",
        description="Tests.",
        website_url="https://example.com",
        icons=[Icon("https://example.com/icon.png")],
        instructions="Be kind.",
        ttl=1.5,
        cache_scope="public",
        extensions={"com.example/x": {"y": 1}},
        experimental={"z": {}},
    )
    server.add_tool(lambda: None, name="nothing")

    async def body(peer: Peer) -> None:
        result = await peer.result("server/discover")
        assert result["supportedVersions"] == [str(LATEST)]
        assert result["capabilities"]["tools"] == {"listChanged": True}
        assert result["capabilities"]["extensions"] == {"com.example/x": {"y": 1}}
        assert result["capabilities"]["experimental"] == {"z": {}}
        assert "completions" not in result["capabilities"]
        assert result["instructions"] == "Be kind."
        assert (result["ttlMs"], result["cacheScope"]) == (1500, "public")
        assert result["resultType"] == "complete"
        assert result["_meta"][SERVER_INFO] == {
            "name": "test",
            "version": "1.2",
            "title": "Test!",
            "description": "Tests.",
            "websiteUrl": "https://example.com",
            "icons": [{"src": "https://example.com/icon.png"}],
        }

    talk(server, body)


@pytest.mark.req("ERA-9")
def test_discover_is_served_also_without_metadata_that_could_be_asked_for() -> None:
    async def body(peer: Peer) -> None:
        error = await peer.error("server/discover", meta={"io.modelcontextprotocol/protocolVersion": "1999-01-01"})
        assert error["code"] == -32022
        assert error["data"] == {"supported": [str(LATEST)], "requested": "1999-01-01"}
        assert "result" in await peer.request("server/discover")

    talk(make_server(), body)


@pytest.mark.req("LEG-4")
@every_revision
def test_ping_is_answered_where_there_is_one(revision: Revision) -> None:
    async def body(peer: Peer) -> None:
        response = await peer.request("ping")
        assert response.get("result") == ({} if revision.has_ping else None)
        assert ("error" in response) == (not revision.has_ping)

    talk(make_server(), body, revision)


# Lists


def stocked_server(**options: Any) -> Server:
    server = make_server(**options)
    for number in range(5):
        server.add_tool(lambda: None, name=f"tool{number}")
        server.add_prompt(lambda: "", name=f"prompt{number}")
        server.add_resource(f"r://{number}", lambda: "", name=f"resource{number}")
        server.add_resource(f"t{number}://{{x}}", lambda x: x, name=f"template{number}")
    return server


LISTS = {
    "tools/list": ("tools", "tool"),
    "prompts/list": ("prompts", "prompt"),
    "resources/list": ("resources", "resource"),
    "resources/templates/list": ("resourceTemplates", "template"),
}


@every_revision
@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize(("page_size", "sizes"), [(2, [2, 2, 1]), (5, [5]), (1, [1] * 5)])
def test_lists_come_in_pages_in_their_order(revision: Revision, method: str, page_size: int, sizes: list[int]) -> None:
    field, kind = LISTS[method]

    async def body(peer: Peer) -> None:
        for _ in range(2):  # the second time, the pages have been kept
            names: list[str] = []
            found: list[int] = []
            params: Plain = {}
            while True:
                page = await peer.result(method, params)
                found.append(len(page[field]))
                names += [entry["name"] for entry in page[field]]
                assert ("ttlMs" in page) == ("cacheScope" in page) == revision.has_cache_hints
                assert ("_meta" in page) == revision.is_modern
                if "nextCursor" not in page:
                    break
                params = {"cursor": page["nextCursor"]}
            assert found == sizes
            assert names == [f"{kind}{number}" for number in range(5)]

    talk(stocked_server(page_size=page_size), body, revision)


class CountedEntry:
    """An entry that counts how often it is written."""

    def __init__(self, entry: Any) -> None:
        self.name, self.scopes, self._payload, self.looks = entry.name, entry.scopes, entry.payload, 0

    @property
    def payload(self) -> Any:
        self.looks += 1
        return self._payload


@both_eras
def test_an_entry_is_written_once_however_often_it_is_listed(revision: Revision) -> None:
    server = make_server(page_size=2)
    tools: Any = server._shared.catalog.tools
    entries = []
    for _, entry in stocked_server()._shared.catalog.tools.all():
        entries.append(CountedEntry(entry))
        tools.add(entries[-1])

    async def walk(peer: Peer) -> list[str]:
        page = await peer.result("tools/list")
        names = [tool["name"] for tool in page["tools"]]
        while "nextCursor" in page:
            page = await peer.result("tools/list", {"cursor": page["nextCursor"]})
            names += [tool["name"] for tool in page["tools"]]
        return names

    async def body(peer: Peer) -> None:
        first = await walk(peer)
        for _ in range(3):
            assert await walk(peer) == first == [entry.name for entry in entries]
        assert [entry.looks for entry in entries] == [1] * 5
        tools.remove("tool0")
        assert await walk(peer) == first[1:]
        assert [entry.looks for entry in entries] == [1, 2, 2, 2, 2]

    talk(server, body, revision)


@both_eras
@pytest.mark.parametrize("method", LISTS)
def test_an_empty_list_is_empty(revision: Revision, method: str) -> None:
    async def body(peer: Peer) -> None:
        page = await peer.result(method)
        assert page[LISTS[method][0]] == []
        assert "nextCursor" not in page

    talk(make_server(), body, revision)


@both_eras
@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "!!", 5, "x" * 100_000])
def test_a_cursor_of_nobody_s_is_refused(revision: Revision, cursor: Any) -> None:
    async def body(peer: Peer) -> None:
        error = await peer.error("tools/list", {"cursor": cursor})
        assert error["code"] == -32602
        assert len(error["message"]) < 500

    talk(stocked_server(), body, revision)


def test_a_cursor_of_another_list_is_refused() -> None:
    async def body(peer: Peer) -> None:
        cursor = (await peer.result("tools/list"))["nextCursor"]
        assert (await peer.error("prompts/list", {"cursor": cursor}))["code"] == -32602

    talk(stocked_server(page_size=2), body)


@both_eras
def test_a_list_is_always_up_to_date(revision: Revision) -> None:
    server = stocked_server()

    async def body(peer: Peer) -> None:
        async def names() -> list[str]:
            return [tool["name"] for tool in (await peer.result("tools/list"))["tools"]]

        assert len(await names()) == 5
        server.remove_tool("tool2")
        assert await names() == ["tool0", "tool1", "tool3", "tool4"]
        server.add_tool(lambda: None, name="tool2")
        assert await names() == ["tool0", "tool1", "tool3", "tool4", "tool2"]

    talk(server, body, revision)


@pytest.mark.parametrize(("ttl", "scope"), [(0, "private"), (0.25, "private"), (60, "public")])
def test_lists_say_how_long_they_may_be_kept(ttl: float, scope: Any) -> None:
    async def body(peer: Peer) -> None:
        for method in LISTS:
            page = await peer.result(method)
            assert (page["ttlMs"], page["cacheScope"]) == (ttl * 1000, scope)

    talk(stocked_server(ttl=ttl, cache_scope=scope), body)


@pytest.mark.req("LEG-5")
@every_revision
def test_entries_have_what_the_revision_knows(revision: Revision) -> None:
    server = make_server()
    server.add_tool(lambda: None, name="t", title="T", icons=[Icon("https://example.com/i")], meta={"a": 1})

    async def body(peer: Peer) -> None:
        (tool,) = (await peer.result("tools/list"))["tools"]
        assert ("title" in tool) == revision.has_titles
        assert ("icons" in tool) == revision.has_icons
        assert ("_meta" in tool) == revision.has_item_meta

    talk(server, body, revision)


# Tools


def tool_server() -> Server:
    server = make_server()

    @server.tool
    async def book(guest: str, nights: int = 1) -> str:
        return f"{guest}, {nights}"

    return server


@pytest.mark.parametrize("revision", revisions(), ids=str)
@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"arguments": {"guest": "Ada", "nights": 2}}, "Ada, 2"),
        ({"arguments": {"guest": "Ada"}}, "Ada, 1"),
    ],
)
def test_a_tool_is_called_with_its_arguments(revision: Revision, params: Plain, text: str) -> None:
    async def body(peer: Peer) -> None:
        result = await peer.result("tools/call", {"name": "book", **params})
        assert text_of(result) == text
        assert "isError" not in result or result["isError"] is False

    talk(tool_server(), body, revision)


@both_eras
@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"arguments": {"guest": "Ada", "nights": "two"}}, ["'nights'", '"two"']),
        ({"arguments": {}}, ["'guest'"]),
        ({}, ["'guest'"]),
        ({"arguments": {"guest": "Ada", "breakfast": True}}, ["'breakfast'"]),
        ({"arguments": {"guest": 5, "nights": "two"}}, ["'guest'", "'nights'"]),
        ({"arguments": [1]}, ["arguments"]),
    ],
)
def test_a_wrong_argument_is_told_to_the_model(revision: Revision, params: Plain, words: list[str]) -> None:
    async def body(peer: Peer) -> None:
        result = await peer.result("tools/call", {"name": "book", **params})
        assert result["isError"] is True
        assert all(word in text_of(result) for word in words), text_of(result)

    talk(tool_server(), body, revision)


@both_eras
def test_a_tool_without_arguments_may_get_none(revision: Revision) -> None:
    server = make_server()
    server.add_tool(lambda: "done", name="nothing")

    async def body(peer: Peer) -> None:
        without: list[Plain] = [{}, {"arguments": {}}, {"arguments": None}]
        for arguments in without:
            result = await peer.result("tools/call", {"name": "nothing", **arguments})
            assert text_of(result) == "done"

    talk(server, body, revision)


@both_eras
@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"name": "nothing"}, "There is no tool 'nothing'."),
        ({"name": "x" * 10_000}, f"There is no tool '{'x' * 200}'."),
        ({"name": "a\nb"}, "There is no tool 'a\\nb'."),
        ({}, "The params cannot be read"),
        ({"name": 5}, "The params cannot be read"),
    ],
)
def test_a_tool_that_is_not_there_is_an_error(revision: Revision, params: Plain, said: str) -> None:
    async def body(peer: Peer) -> None:
        error = await peer.error("tools/call", params)
        assert error["code"] == -32602
        assert error["message"].startswith(said)

    talk(tool_server(), body, revision)


@pytest.mark.req("LEG-5")
@every_revision
def test_structured_content_goes_to_those_who_have_it(revision: Revision) -> None:
    server = make_server()

    @dataclass
    class Bill:
        total: float

    @server.tool
    async def bill() -> Bill:
        return Bill(1.5)

    async def body(peer: Peer) -> None:
        result = await peer.call("bill")
        assert text_of(result) == '{"total":1.5}'
        assert result.get("structuredContent") == ({"total": 1.5} if revision.has_structured_content else None)
        (tool,) = (await peer.result("tools/list"))["tools"]
        assert ("outputSchema" in tool) == revision.has_structured_content

    talk(server, body, revision)


@both_eras
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolError("There is no room 13."), "There is no room 13."),
        (ValueError("internals"), "The tool 'fail' failed, and the server's log says why."),
    ],
)
def test_a_tool_s_failure_is_told_to_the_model(revision: Revision, error: Exception, text: str) -> None:
    server = make_server()

    @server.tool
    async def fail() -> None:
        raise error

    async def body(peer: Peer) -> None:
        result = await peer.call("fail")
        assert (result["isError"], text_of(result)) == (True, text)

    talk(server, body, revision)


# Resources

NOTES = {1: "Buy milk.", 2: "Call Ada."}


def note_server(**options: Any) -> Server:
    server = make_server(**options)

    @server.resource("notes://all", mime_type="application/json")
    async def all_notes() -> dict[int, str]:
        return NOTES

    @server.resource("notes://{number}", ttl=60, cache_scope="public")
    def note(number: int) -> str | None:
        return NOTES.get(number)

    @server.resource("files://{+path}{?lines}")
    async def file(path: str, lines: int = 10) -> bytes:
        return f"{lines} of {path}".encode()

    @server.resource("own://result")
    async def own() -> ReadResourceResult:
        return ReadResourceResult([ResourceContents("own://part", text="x")], ttl_ms=5, cache_scope="public")

    return server


@pytest.mark.parametrize("revision", revisions(), ids=str)
@pytest.mark.parametrize(
    ("uri", "contents"),
    [
        ("notes://all", {"mimeType": "application/json", "text": '{"1":"Buy milk.","2":"Call Ada."}'}),
        ("notes://2", {"mimeType": "text/plain", "text": "Call Ada."}),
        ("files://a/b.txt?lines=3", {"blob": "MyBvZiBhL2IudHh0"}),
        ("files://a", {"blob": "MTAgb2YgYQ=="}),
    ],
)
def test_a_resource_is_read(revision: Revision, uri: str, contents: Plain) -> None:
    async def body(peer: Peer) -> None:
        result = await peer.result("resources/read", {"uri": uri})
        (found,) = result["contents"]
        assert found["uri"] == uri
        assert {key: found[key] for key in contents} == contents

    talk(note_server(), body, revision)


@pytest.mark.req("LEG-6")
@pytest.mark.parametrize("revision", revisions(), ids=str)
@pytest.mark.parametrize(
    "uri",
    [
        "notes://3",  # the function says that there is none
        "notes://three",  # no number
        "notes://1/2",
        "notes://..",
        "files://../secret",
        "files://a?lines=x",
        "nothing://here",
        "",
        "x" * 10_000,
    ],
)
def test_a_resource_that_is_not_there_has_the_era_s_error(revision: Revision, uri: str) -> None:
    async def body(peer: Peer) -> None:
        error = await peer.error("resources/read", {"uri": uri})
        assert error["code"] == (-32602 if revision.is_modern else -32002)
        assert error["message"].startswith("There is no resource ")
        assert error["data"] == {"uri": uri[:200]}
        assert len(error["message"]) < 300

    talk(note_server(), body, revision)


@both_eras
@pytest.mark.parametrize("params", [{}, {"uri": 5}])
def test_params_that_cannot_be_read_are_refused(revision: Revision, params: Plain) -> None:
    async def body(peer: Peer) -> None:
        for method in ("resources/read", "prompts/get", "completion/complete", "tools/call"):
            assert (await peer.error(method, params))["code"] == -32602

    talk(note_server(), body, revision)


def test_a_resource_says_how_long_it_may_be_kept() -> None:
    async def body(peer: Peer) -> None:
        hints = {}
        for uri in ("notes://all", "notes://1", "own://result"):
            result = await peer.result("resources/read", {"uri": uri})
            hints[uri] = (result["ttlMs"], result["cacheScope"])
        assert hints == {
            "notes://all": (2000, "private"),
            "notes://1": (60_000, "public"),
            "own://result": (5, "public"),
        }

    talk(note_server(ttl=2), body)


@pytest.mark.req("LEG-5")
def test_a_legacy_client_gets_no_hints() -> None:
    async def body(peer: Peer) -> None:
        assert set(await peer.result("resources/read", {"uri": "own://result"})) == {"contents"}

    talk(note_server(ttl=2), body, LATEST_LEGACY)


# Prompts


def prompt_server() -> Server:
    server = make_server()

    @server.prompt
    def sort_notes(topic: str, limit: int = 10) -> list[tuple[str, str]]:
        """Sort notes by a topic."""
        return [("user", f"Sort by {topic}, at most {limit}."), ("assistant", "Here they are:")]

    return server


@pytest.mark.parametrize("revision", revisions(), ids=str)
def test_a_prompt_is_filled_in(revision: Revision) -> None:
    async def body(peer: Peer) -> None:
        result = await peer.result("prompts/get", {"name": "sort_notes", "arguments": {"topic": "size", "limit": "3"}})
        assert result["description"] == "Sort notes by a topic."
        assert result["messages"] == [
            {"role": "user", "content": {"type": "text", "text": "Sort by size, at most 3."}},
            {"role": "assistant", "content": {"type": "text", "text": "Here they are:"}},
        ]

    talk(prompt_server(), body, revision)


@both_eras
@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"name": "other"}, "There is no prompt 'other'."),
        ({"name": "sort_notes"}, "'topic'"),
        ({"name": "sort_notes", "arguments": {"topic": "a", "limit": "many"}}, "'limit'"),
        (
            {"name": "sort_notes", "arguments": {"topic": 5, "limit": "many"}},
            "Argument 'topic': expected a string, got the number 5.",
        ),
        (
            {"name": "sort_notes", "arguments": {"topic": None, "limit": []}},
            "Argument 'topic': expected a string, got null.\nArgument 'limit': expected a string, got an array",
        ),
        (
            {"name": "sort_notes", "arguments": ["a"]},
            "The params cannot be read: Expected `object | null`, got `array`",
        ),
        (
            {"name": 5, "arguments": {"topic": "a"}},
            "The params cannot be read: Expected `str`, got `int` - at `$.name`",
        ),
    ],
)
def test_a_prompt_that_cannot_be_filled_in_is_an_error(revision: Revision, params: Plain, words: str) -> None:
    async def body(peer: Peer) -> None:
        error = await peer.error("prompts/get", params)
        assert error["code"] == -32602
        assert words in error["message"]

    talk(prompt_server(), body, revision)


# Completions


def completing_server(function: Callable[..., Any]) -> Server:
    server = make_server()
    server.add_prompt(lambda topic: topic, name="sort")
    server.add_resource("notes://{number}", lambda number: number, name="note")
    server.completion("sort", "topic")(function)
    server.completion("notes://{number}", "number")(function)
    return server


PROMPT: Plain = {"type": "ref/prompt", "name": "sort"}
TEMPLATE: Plain = {"type": "ref/resource", "uri": "notes://{number}"}


@pytest.mark.parametrize("revision", revisions(), ids=str)
@pytest.mark.parametrize(("ref", "name"), [(PROMPT, "topic"), (TEMPLATE, "number")])
def test_values_are_proposed_while_one_types(revision: Revision, ref: Plain, name: str) -> None:
    async def propose(typed: str) -> list[str]:
        return [value for value in ("people", "places", "work") if value.startswith(typed)]

    async def body(peer: Peer) -> None:
        result = await peer.result("completion/complete", {"ref": ref, "argument": {"name": name, "value": "p"}})
        assert result["completion"] == {"values": ["people", "places"], "total": 2}

    talk(completing_server(propose), body, revision)


@pytest.mark.parametrize("context", [{}, {"context": {}}, {"context": {"arguments": {"a": "b"}}}])
def test_the_values_of_other_arguments_are_known(context: Plain) -> None:
    def propose(typed: str, others: dict[str, str]) -> list[str]:
        return [typed, *others, *others.values()]

    async def body(peer: Peer) -> None:
        argument = {"name": "topic", "value": "x"}
        result = await peer.result("completion/complete", {"ref": PROMPT, "argument": argument, **context})
        expected = ["x", "a", "b"] if context.get("context") else ["x"]
        assert result["completion"]["values"] == expected

    talk(completing_server(propose), body)


@pytest.mark.parametrize(
    ("value", "completion"),
    [
        (None, {"values": [], "total": 0}),
        ([], {"values": [], "total": 0}),
        ("one", {"values": ["one"], "total": 1}),
        ((1, 2.5), {"values": ["1", "2.5"], "total": 2}),
        ({"a": 1}.keys(), {"values": ["a"], "total": 1}),
        (["x"] * 100, {"values": ["x"] * 100, "total": 100}),
        (["x"] * 101, {"values": ["x"] * 100, "total": 101, "hasMore": True}),
        (Completion(["x"], 7, True), {"values": ["x"], "total": 7, "hasMore": True}),
        (CompleteResult(Completion(["x"])), {"values": ["x"]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_proposals_may_come_in_many_forms(value: Any, completion: Plain) -> None:
    async def body(peer: Peer) -> None:
        argument = {"name": "topic", "value": ""}
        result = await peer.result("completion/complete", {"ref": PROMPT, "argument": argument})
        assert result["completion"] == completion

    talk(completing_server(lambda typed: value), body)


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@pytest.mark.parametrize("revision", revisions(), ids=str)
@pytest.mark.parametrize(
    ("ref", "name", "typed", "values"),
    [
        (PROMPT, "unit", "", ["celsius", "kelvin"]),
        (PROMPT, "unit", "K", ["kelvin"]),
        (PROMPT, "unit", "x", []),
        (PROMPT, "size", "s", ["small"]),
        (PROMPT, "days", "", ["1", "2"]),
        (PROMPT, "both", "", ["small", "large", "none"]),
        (TEMPLATE, "number", "", ["one", "two"]),
    ],
)
def test_choices_are_proposed_by_themselves(
    revision: Revision, ref: Plain, name: str, typed: str, values: list[str]
) -> None:
    server = make_server()

    def sort(
        unit: Literal["celsius", "kelvin"],
        size: Size | None = None,
        days: Literal[1, 2] | None = 1,
        both: Size | Literal["none"] = "none",
        text: str = "",
    ) -> str:
        return f"{unit} {size} {days} {both} {text}"

    def note(number: Literal["one", "two"]) -> str:
        return number

    server.add_prompt(sort)
    server.add_resource("notes://{number}", note)

    async def body(peer: Peer) -> None:
        result = await peer.result("completion/complete", {"ref": ref, "argument": {"name": name, "value": typed}})
        assert result["completion"] == {"values": values, "total": len(values)}
        argument = {"name": "text", "value": ""}
        result = await peer.result("completion/complete", {"ref": PROMPT, "argument": argument})
        assert result["completion"] == {"values": []}

    talk(server, body, revision)


def test_choices_are_declared() -> None:
    server = make_server()
    server.add_prompt(lambda topic: topic, name="any")

    def sort(unit: Literal["celsius", "kelvin"]) -> str:
        return unit

    async def body(peer: Peer) -> None:
        assert "completions" not in (await peer.result("server/discover"))["capabilities"]
        server.add_prompt(sort)
        assert (await peer.result("server/discover"))["capabilities"]["completions"] == {}

    talk(server, body)


def test_an_argument_without_proposals_has_none() -> None:
    async def body(peer: Peer) -> None:
        argument = {"name": "other", "value": ""}
        result = await peer.result("completion/complete", {"ref": PROMPT, "argument": argument})
        assert result["completion"] == {"values": []}

    talk(completing_server(lambda typed: []), body)


@pytest.mark.parametrize(
    "ref",
    [
        {"type": "ref/prompt", "name": "other"},
        {"type": "ref/resource", "uri": "other://{x}"},
        {"type": "ref/resource", "uri": "notes://1"},
        {"type": "ref/tool", "name": "sort"},
    ],
)
def test_what_is_not_there_cannot_be_completed(ref: Plain) -> None:
    async def body(peer: Peer) -> None:
        error = await peer.error("completion/complete", {"ref": ref, "argument": {"name": "topic", "value": ""}})
        assert error["code"] == -32602

    talk(completing_server(lambda typed: []), body)


# Settings of a legacy session


@pytest.mark.req("LEG-4")
@every_revision
def test_the_level_of_logs_is_set_where_there_is_a_way(revision: Revision) -> None:
    async def body(peer: Peer) -> None:
        response = await peer.request("logging/setLevel", {"level": "error"})
        if revision.has_set_level:
            assert response["result"] == {}
            assert (await peer.error("logging/setLevel", {"level": "loud"}))["code"] == -32602
        else:
            assert response["error"]["code"] == -32601

    talk(make_server(), body, revision)


@pytest.mark.req("SUB-6")
@every_revision
def test_resources_are_subscribed_to_where_there_is_a_way(revision: Revision) -> None:
    async def body(peer: Peer) -> None:
        for method in ("resources/subscribe", "resources/unsubscribe"):
            response = await peer.request(method, {"uri": "notes://all"})
            assert response.get("result") == ({} if revision.has_resource_subscribe else None)
            if revision.has_resource_subscribe:
                assert (await peer.error(method, {}))["code"] == -32602
            else:
                assert response["error"]["code"] == -32601

    talk(note_server(), body, revision)


@pytest.mark.req("SUB-1")
def test_a_modern_client_listens() -> None:
    async def body(peer: Peer) -> None:
        peer.post("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        acknowledged = await peer.notification("notifications/subscriptions/acknowledged")
        assert acknowledged["notifications"] == {"toolsListChanged": True}
        assert (await peer.error("subscriptions/listen", {}))["code"] == -32602

    talk(make_server(), body)


@pytest.mark.parametrize("revision", revisions(LEGACY), ids=str)
def test_a_legacy_client_cannot_listen(revision: Revision) -> None:
    async def body(peer: Peer) -> None:
        error = await peer.error("subscriptions/listen", {"notifications": {}})
        assert error["code"] == -32601

    talk(make_server(), body, revision)


# Methods of the author's own


class Reset(msgspec.Struct):
    sure: bool
    count: int = 1


@dataclass
class ResetData:
    sure: bool
    count: int = 1


@pytest.mark.parametrize("revision", revisions(), ids=str)
@pytest.mark.parametrize("kind", ["async", "plain"])
def test_an_extension_s_method_takes_the_params_and_gives_the_result(revision: Revision, kind: str) -> None:
    server = make_server()

    async def reset(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"sure": params["sure"], "revision": str(ctx.revision)}

    def plain_reset(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"sure": params["sure"], "revision": str(ctx.revision)}

    server.request("example.com/reset")(reset if kind == "async" else plain_reset)

    async def body(peer: Peer) -> None:
        result = await peer.result("example.com/reset", {"sure": True})
        assert (result["sure"], result["revision"]) == (True, str(revision))
        assert (result.get("resultType") == "complete") == revision.is_modern

    talk(server, body, revision)


@both_eras
@pytest.mark.parametrize("kind", [Reset, ResetData])
def test_the_params_may_have_a_type(revision: Revision, kind: type) -> None:
    server = make_server()

    async def reset(params: Any) -> dict[str, Any]:
        assert isinstance(params, kind)
        return {"sure": params.sure, "count": params.count}  # type: ignore[attr-defined]

    reset.__annotations__["params"] = kind
    server.request("example.com/reset")(reset)

    async def body(peer: Peer) -> None:
        result = await peer.result("example.com/reset", {"sure": True, "count": 3})
        assert (result["sure"], result["count"]) == (True, 3)
        for params in ({"sure": "yes"}, {}):
            error = await peer.error("example.com/reset", params)
            assert error["code"] == -32602
            assert "sure" in error["message"]

    talk(server, body, revision)


def test_an_extension_s_method_may_answer_with_an_error_or_nothing() -> None:
    server = make_server()

    @server.on_request("example.com/fail")
    async def fail(params: dict[str, Any]) -> None:
        raise RequestError(-32000, "Say that you are sure.", params.get("data"))

    @server.on_request("example.com/nothing")
    async def nothing(params: dict[str, Any]) -> None: ...

    @server.on_request("example.com/wrong")
    async def wrong(params: dict[str, Any]) -> list[int]:
        return [1]

    async def body(peer: Peer) -> None:
        error = await peer.error("example.com/fail", {"data": [1]})
        assert error == {"code": -32000, "message": "Say that you are sure.", "data": [1]}
        assert (await peer.result("example.com/nothing"))["resultType"] == "complete"
        assert (await peer.error("example.com/wrong"))["code"] == -32603

    talk(server, body)


@both_eras
def test_a_method_of_the_protocol_may_be_taken_over(revision: Revision) -> None:
    server = tool_server()

    @server.on_request("tools/list")
    async def list_tools(params: dict[str, Any]) -> dict[str, Any]:
        return {"tools": []}

    @server.on_request("tools/call")
    async def call(params: dict[str, Any]) -> CallToolResult:
        return CallToolResult([TextContent(f"You called {params['name']}.")])

    async def body(peer: Peer) -> None:
        assert (await peer.result("tools/list"))["tools"] == []
        assert await peer.text("book") == "You called book."

    talk(server, body, revision)


@pytest.mark.req("MRT-1")
def test_who_takes_over_a_method_may_ask_for_input_there() -> None:
    server = make_server()

    @server.on_request("tools/call")
    async def call(params: dict[str, Any], ctx: Context) -> CallToolResult:
        answer = await ctx.elicit_url("Sure?", "https://example.com")
        return CallToolResult([TextContent(answer.action)])

    async def body(peer: Peer) -> None:
        asked = await peer.call("any")
        params = {
            "name": "any",
            "arguments": {},
            "requestState": asked["requestState"],
            "inputResponses": {"1": {"action": "decline"}},
        }
        assert text_of(await peer.result("tools/call", params)) == "decline"

    talk(server, body, capabilities=ABLE)


@both_eras
def test_a_notification_s_name_is_no_method(revision: Revision) -> None:
    server = make_server()

    @server.on_notification("example.com/hello")
    async def hear(params: dict[str, Any]) -> None: ...

    async def body(peer: Peer) -> None:
        error = await peer.error("example.com/hello")
        assert error["code"] == -32601
        assert "There is no method 'example.com/hello'" in error["message"]

    talk(server, body, revision)


# Requests that are sent again


def asking_server() -> Server:
    server = make_server(ttl=60)

    @server.tool
    async def ask_tool(ctx: Context, number: int = 0) -> str:
        return (await ctx.elicit_url(f"Tool {number}?", "https://example.com")).action

    @server.prompt
    async def ask_prompt(ctx: Context) -> str:
        return (await ctx.elicit_url("Prompt?", "https://example.com")).action

    @server.resource("ask://{word}", cache_scope="public", ttl=60)
    def ask_resource(word: str, ctx: BlockingContext) -> str:
        return ctx.elicit_url("Resource?", "https://example.com").action

    return server


ASKING: dict[str, tuple[Plain, Callable[[Plain], Any]]] = {
    "tools/call": ({"name": "ask_tool", "arguments": {}}, text_of),
    "prompts/get": ({"name": "ask_prompt"}, lambda result: result["messages"][0]["content"]["text"]),
    "resources/read": ({"uri": "ask://x"}, lambda result: result["contents"][0]["text"]),
}


@pytest.mark.req("MRT-1", "DIR-2")
@pytest.mark.parametrize("method", ASKING)
def test_three_methods_may_ask_for_input(method: str) -> None:
    params, read = ASKING[method]

    async def body(peer: Peer) -> None:
        asked = await peer.result(method, params)
        assert asked["resultType"] == "input_required"
        (key,) = asked["inputRequests"]
        retry = {**params, "requestState": asked["requestState"], "inputResponses": {key: {"action": "accept"}}}
        result = await peer.result(method, retry)
        assert result["resultType"] == "complete"
        assert read(result) == "accept"
        assert [each for each in peer.seen if "method" in each] == []

    talk(asking_server(), body, capabilities=ABLE)


def test_what_the_user_answered_is_not_for_others_to_keep() -> None:
    params, _ = ASKING["resources/read"]

    async def body(peer: Peer) -> None:
        asked = await peer.result("resources/read", params)
        retry = {**params, "requestState": asked["requestState"], "inputResponses": {"1": {"action": "accept"}}}
        assert (await peer.result("resources/read", retry))["ttlMs"] == 0

    talk(asking_server(), body, capabilities=ABLE)


@pytest.mark.req("MRT-3")
@pytest.mark.parametrize("method", ASKING)
def test_state_that_does_not_verify_is_refused(method: str, caplog: pytest.LogCaptureFixture) -> None:
    params, _ = ASKING[method]

    async def body(peer: Peer) -> None:
        for state in ("", "x", "AAAA" * 100):
            error = await peer.error(method, {**params, "requestState": state})
            assert error["code"] == -32602
            assert error["message"].startswith("The request state does not verify")
            assert "not base64url" not in error["message"]

    talk(asking_server(), body, capabilities=ABLE)
    assert "was refused" in caplog.text


@pytest.mark.req("MRT-3")
def test_state_of_another_call_is_refused() -> None:
    async def body(peer: Peer) -> None:
        asked = await peer.call("ask_tool", {"number": 1})
        retry = {
            "name": "ask_tool",
            "arguments": {"number": 2},
            "requestState": asked["requestState"],
            "inputResponses": {"1": {"action": "accept"}},
        }
        assert (await peer.error("tools/call", retry))["code"] == -32602
        # The right one is still good.
        retry["arguments"] = {"number": 1}
        assert text_of(await peer.result("tools/call", retry)) == "accept"

    talk(asking_server(), body, capabilities=ABLE)


@pytest.mark.parametrize("responses", [5, [], "x"])
def test_responses_that_cannot_be_read_are_refused(responses: Any) -> None:
    async def body(peer: Peer) -> None:
        asked = await peer.call("ask_tool")
        retry = {**ASKING["tools/call"][0], "requestState": asked["requestState"], "inputResponses": responses}
        assert (await peer.error("tools/call", retry))["code"] == -32602

    talk(asking_server(), body, capabilities=ABLE)


def test_responses_without_state_are_passed_over() -> None:
    async def body(peer: Peer) -> None:
        retry = {**ASKING["tools/call"][0], "inputResponses": {"1": {"action": "accept"}}}
        assert (await peer.result("tools/call", retry))["resultType"] == "input_required"

    talk(asking_server(), body, capabilities=ABLE)


def test_a_legacy_client_has_no_state() -> None:
    server = tool_server()

    async def body(peer: Peer) -> None:
        params = {"name": "book", "arguments": {"guest": "Ada"}, "requestState": "x", "inputResponses": 5}
        assert text_of(await peer.result("tools/call", params)) == "Ada, 1"

    talk(server, body, LATEST_LEGACY)
