"""Scopes of tools, resources, templates and prompts, in both eras and over transports with and without HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from mcplumb import Context, Principal, RemoteError, Server, UsageError, connect
from mcplumb.protocol.oauth.challenge import bearer_challenge
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from mcplumb.server.dispatch.scope_check import may_use, needed_scopes
from mcplumb.transports.connection import Peer as TransportPeer
from mcplumb.transports.memory import memory_pair
from mcplumb.types.prompts import PromptReference
from mcplumb.wire.messages import Request
from tests.kit.results import text_of
from tests.kit.servers import serving as serving_at
from tests.server.harness import ABLE, Peer
from tests.transports.http_server.callers import Caller
from tests.transports.http_server.test_sse_session import Guest
from tests.transports.http_server.visits import Answer, Visitor, serving

TOKENS = {
    "reader": Principal("ann", scopes=frozenset(["notes:read"])),
    "writer": Principal("ann", scopes=frozenset(["notes:read", "notes:write"])),
    "nobody": Principal("bob"),
}


def make_server(**settings: Any) -> Server:
    server = Server("notes", version="1", **settings)

    @server.tool
    async def free() -> str:
        return "free"

    @server.tool
    async def who(ctx: Context) -> str:
        principal = ctx.principal
        return "nobody" if principal is None else f"{principal.subject} {' '.join(sorted(principal.scopes))}"

    @server.tool(scopes=["notes:write", "notes:read"])
    async def write(text: str = "") -> str:
        return f"wrote {text}"

    @server.resource("notes://all", scopes=["notes:read"])
    async def everything() -> str:
        return "all notes"

    @server.resource("notes://{name}", scopes=["notes:read"])
    async def note(name: str) -> str:
        return f"note {name}"

    @server.resource("free://{name}")
    async def other(name: str) -> str:
        return name

    @server.prompt(scopes=["notes:read"])
    async def summary(kind: str = "short") -> str:
        return "Summarize."

    @server.completion("summary", "kind")
    async def kinds(typed: str) -> list[str]:
        return ["short", "long"]

    @server.completion("notes://{name}", "name")
    async def names(typed: str) -> list[str]:
        return ["one"]

    return server


ARGUMENT = {"name": "name", "value": ""}
READ: list[tuple[str, dict[str, Any]]] = [
    ("resources/read", {"uri": "notes://all"}),
    ("resources/read", {"uri": "NOTES://all"}),
    ("resources/read", {"uri": "notes://mine"}),
    ("prompts/get", {"name": "summary", "arguments": {}}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "summary"}, "argument": ARGUMENT}),
    ("completion/complete", {"ref": {"type": "ref/resource", "uri": "notes://{name}"}, "argument": ARGUMENT}),
]
WRITE: list[tuple[str, dict[str, Any]]] = [("tools/call", {"name": "write", "arguments": {}})]
LEGACY_READ = [*READ, ("resources/subscribe", {"uri": "notes://mine"})]


async def check_refused(answer: Answer, scopes: list[str]) -> None:
    """What is said to a client whose token does not suffice."""
    assert answer.status == 403
    challenge = bearer_challenge(answer.headers["www-authenticate"])
    assert challenge is not None
    assert challenge.error == "insufficient_scope"
    assert sorted(challenge.scopes) == scopes
    message = await answer.json()
    assert message["error"]["code"] == -32600
    assert " ".join(scopes) in message["error"]["message"]


def served(server: Server, **options: Any) -> Any:
    return serving(server, auth=TOKENS.get, authorization_servers=("https://login.example",), **options)


# Over HTTP


@pytest.mark.req("AUT-13")
async def test_a_modern_request_without_its_scopes_is_told_which_ones() -> None:
    async with served(make_server()) as site:
        for method, params in READ:
            answer = await Caller(site, Authorization="Bearer nobody").request(method, params)
            await check_refused(answer, ["notes:read"])
            assert "/.well-known/oauth-protected-resource/mcp" in answer.headers["www-authenticate"]
            for token in ("reader", "writer"):
                answer = await Caller(site, Authorization=f"Bearer {token}").request(method, params)
                assert (answer.status, "result" in await answer.json()) == (200, True)
        for method, params in WRITE:
            for token in ("nobody", "reader"):
                answer = await Caller(site, Authorization=f"Bearer {token}").request(method, params)
                await check_refused(answer, ["notes:read", "notes:write"])
            answer = await Caller(site, Authorization="Bearer writer").request(method, params)
            assert text_of(await answer.json()) == "wrote "
        answer = await Caller(site, Authorization="Bearer nobody").call("free")
        assert text_of(await answer.json()) == "free"


@pytest.mark.req("AUT-13")
async def test_in_the_middle_of_a_legacy_session_the_token_of_each_request_counts() -> None:
    async with served(make_server()) as site:
        visitor = Visitor(site, Authorization="Bearer reader")
        await visitor.open()
        for method, params in LEGACY_READ:
            assert "result" in await (await visitor.request(method, params)).json()
        for method, params in WRITE:
            await check_refused(await visitor.request(method, params), ["notes:read", "notes:write"])
        # The same user comes back with more, and the session goes on; and with less.
        visitor.headers["Authorization"] = "Bearer writer"
        assert text_of(await (await visitor.call("write")).json()) == "wrote "
        assert text_of(await (await visitor.call("who")).json()) == "ann notes:read notes:write"
        visitor.headers["Authorization"] = "Bearer reader"
        await check_refused(await visitor.call("write"), ["notes:read", "notes:write"])
        assert text_of(await (await visitor.call("who")).json()) == "ann notes:read"


@pytest.mark.req("AUT-13")
async def test_a_legacy_session_of_somebody_without_scopes() -> None:
    async with served(make_server()) as site:
        visitor = Visitor(site, Authorization="Bearer nobody")
        await visitor.open()
        for method, params in LEGACY_READ:
            await check_refused(await visitor.request(method, params), ["notes:read"])
        assert text_of(await (await visitor.call("free")).json()) == "free"


@pytest.mark.req("AUT-13")
async def test_one_request_of_a_batch_is_enough() -> None:
    async with served(make_server()) as site:
        visitor = Visitor(site, Authorization="Bearer reader")
        await visitor.open("2025-03-26")
        calls = [
            {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": {}}}
            for number, name in enumerate(["free", "write"])
        ]
        await check_refused(await visitor.post(calls), ["notes:read", "notes:write"])
        assert (await visitor.post(calls[:1])).status == 200


@pytest.mark.req("AUT-13")
async def test_over_http_and_sse_the_post_is_refused() -> None:
    async with served(make_server()) as site:
        guest = await Guest(site, Authorization="Bearer reader").open()
        call = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "write", "arguments": {}}}
        await check_refused(await guest.send(call), ["notes:read", "notes:write"])
        guest.headers["Authorization"] = "Bearer writer"
        assert text_of(await guest.ask(call)) == "wrote "
        who = {**call, "params": {"name": "who", "arguments": {}}}
        assert text_of(await guest.ask(who)) == "ann notes:read notes:write"
        guest.headers["Authorization"] = "Bearer reader"
        assert text_of(await guest.ask({**who, "id": 6})) == "ann notes:read"


@pytest.mark.req("AUT-13")
async def test_the_status_is_decided_before_a_stream_starts() -> None:
    async with served(make_server()) as site:
        caller = Caller(site, Authorization="Bearer nobody")
        params = {"notifications": {"resourceSubscriptions": ["free://a", "notes://all"]}}
        await check_refused(await caller.request("subscriptions/listen", params), ["notes:read"])
        caller = Caller(site, Authorization="Bearer reader")
        answer = await caller.request("subscriptions/listen", params)
        assert (answer.status, answer.is_stream) == (200, True)


@pytest.mark.req("AUT-13")
@pytest.mark.parametrize(
    "more",
    [
        {"uri": 5},
        {"ref": 5},
        {"notifications": []},
        {"name2": {}},
        {"cursor": 1.5},
        {"arguments": {"text": "x", "name": 1}},
    ],
)
async def test_no_other_member_of_the_params_gets_past_the_check(more: dict[str, Any]) -> None:
    async with served(make_server()) as site:
        for method, params in [*READ, *WRITE]:
            answer = await Caller(site, Authorization="Bearer nobody").request(method, {**more, **params})
            assert answer.status == 403


@pytest.mark.req("AUT-13")
async def test_a_name_that_comes_twice_gets_past_nothing() -> None:
    """All decoders take the last one."""
    server = make_server()
    catalog = server._shared.catalog
    for names, needed in (('"name":"free","name":"write"', 2), ('"name":"write","name":"free"', 0)):
        request = Request(1, "tools/call", msgspec.Raw(b'{"arguments":{},%s}' % names.encode()))
        assert len(needed_scopes(catalog, request)) == needed


async def test_without_a_way_to_check_tokens_nobody_has_scopes() -> None:
    async with serving(make_server()) as site:
        answer = await Caller(site).request(*WRITE[0])
        assert (answer.status, "www-authenticate" in answer.headers) == (403, False)
        assert "set auth" in (await answer.json())["error"]["message"]
        assert text_of(await (await Caller(site).call("who")).json()) == "nobody"


async def test_nothing_is_needed_if_no_entry_needs_any() -> None:
    server = Server("plain", version="1")

    @server.tool
    async def free() -> str:
        return "free"

    assert needed_scopes(server._shared.catalog, Request(1, "tools/call", msgspec.Raw(b'{"name":"free"}'))) == []
    async with serving(server) as site:
        assert (await Caller(site).call("free")).status == 200


@pytest.mark.parametrize("params", [b"{}", b'{"name":5}', b"[]", b"5", b'{"name":"nothing"}', b'{"name":"\xff"}'])
def test_a_request_that_refers_to_nothing_needs_nothing(params: bytes) -> None:
    catalog = make_server()._shared.catalog
    for method in (
        "tools/call",
        "prompts/get",
        "resources/read",
        "completion/complete",
        "subscriptions/listen",
        "ping",
    ):
        assert needed_scopes(catalog, Request(1, method, msgspec.Raw(params))) == []


COMPLETE_TWICE = b'{"ref":{"type":"other"},"ref":{"type":"ref/prompt","name":"summary"},"argument":%b}'


@pytest.mark.req("AUT-13")
async def test_what_is_checked_is_what_is_served_if_a_key_occurs_twice() -> None:
    params = COMPLETE_TWICE % b'{"name":"kind","value":""}'
    body = b'{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":%b}' % params
    async with served(make_server()) as site:
        visitor = Visitor(site, Authorization="Bearer reader")
        await visitor.open()
        assert (await (await visitor.post(body)).json())["result"]["completion"]["values"] == ["short", "long"]
        visitor = Visitor(site, Authorization="Bearer nobody")
        await visitor.open()
        await check_refused(await visitor.post(body), ["notes:read"])


@pytest.mark.req("AUT-13")
async def test_a_handler_in_place_of_a_method_gets_nothing_that_was_not_checked() -> None:
    server = make_server()

    @server.on_request("prompts/get")
    async def get(params: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [], "description": params["name"]}

    @server.on_request("completion/complete")
    async def complete(params: dict[str, Any]) -> dict[str, Any]:
        return {"completion": {"values": [params["ref"]["name"]]}}

    bodies = [
        b'{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":5,"name":"summary"}}',
        b'{"jsonrpc":"2.0","id":2,"method":"completion/complete","params":%b}' % (COMPLETE_TWICE % b"5"),
    ]
    async with served(server) as site:
        visitor = Visitor(site, Authorization="Bearer reader")
        await visitor.open()
        for body in bodies:
            assert '"summary"' in msgspec.json.encode(await (await visitor.post(body)).json()).decode()
        visitor = Visitor(site, Authorization="Bearer nobody")
        await visitor.open()
        for body in bodies:
            await check_refused(await visitor.post(body), ["notes:read"])


# Over transports without a status


@pytest.mark.req("AUT-13")
@pytest.mark.parametrize("revision", [LATEST, LATEST_LEGACY])
async def test_without_http_the_error_says_what_is_needed(revision: Revision) -> None:
    ours, theirs = memory_pair()
    peer = Peer(ours, revision, ABLE)
    who = TransportPeer(principal=TOKENS["reader"])
    peer.serving = asyncio.create_task(make_server().serve_connection(theirs, who))
    ours.start(peer)
    if not revision.is_modern:
        await peer.initialize()
    assert text_of(await peer.result("tools/call", {"name": "who", "arguments": {}})) == "ann notes:read"
    error = await peer.error("tools/call", {"name": "write", "arguments": {}})
    assert error["code"] == -32600
    assert error["data"] == {"error": "insufficient_scope", "scope": "notes:read notes:write"}
    assert "notes:read notes:write" in error["message"]
    ours.abort()
    await peer.serving


async def test_a_client_that_owns_the_server_needs_no_scopes() -> None:
    async with connect(make_server()) as client:
        assert text_of(await client.call_tool("write", {"text": "x"})) == "wrote x"
        assert text_of(await client.call_tool("who")) == "nobody"
        assert [tool.name for tool in await client.list_tools()] == ["free", "who", "write"]


@pytest.mark.req("AUT-13")
async def test_a_client_over_tcp_is_a_stranger_and_one_over_a_unix_socket_is_not(tmp_path: Any) -> None:
    async with serving_at(make_server(), "tcp://127.0.0.1:0", f"unix:{tmp_path / 's'}") as [tcp, unix]:
        async with connect(tcp) as client:
            assert text_of(await client.call_tool("free")) == "free"
            with pytest.raises(RemoteError, match="notes:read notes:write"):
                await client.call_tool("write")
        async with connect(unix) as client:
            assert text_of(await client.call_tool("write")) == "wrote "


# Lists


async def names_of(answer: Answer, kind: str) -> list[str]:
    result = (await answer.json())["result"]
    return [entry.get("uri") or entry.get("uriTemplate") or entry["name"] for entry in result[kind]]


LISTS: dict[str, Any] = {
    "tools/list": ("tools", ["free", "who"], ["free", "who"], ["free", "who", "write"]),
    "resources/list": ("resources", [], ["notes://all"], ["notes://all"]),
    "resources/templates/list": ("resourceTemplates", ["free://{name}"], *2 * [["notes://{name}", "free://{name}"]]),
    "prompts/list": ("prompts", [], ["summary"], ["summary"]),
}


@pytest.mark.req("AUT-13")
@pytest.mark.req("AUT-14")
async def test_lists_are_narrowed_where_that_is_asked_for() -> None:
    async with served(make_server(narrow_lists=True, cache_scope="public", ttl=60)) as site:
        for method, (kind, *expected) in LISTS.items():
            for _ in range(2):  # nothing is kept for others
                for token, names in zip(("nobody", "reader", "writer"), expected, strict=True):
                    answer = await Caller(site, Authorization=f"Bearer {token}").request(method)
                    result = (await answer.json())["result"]
                    found = [entry.get("uri") or entry.get("uriTemplate") or entry["name"] for entry in result[kind]]
                    assert (found, result["cacheScope"]) == (names, "private")
                    visitor = Visitor(site, Authorization=f"Bearer {token}")
                    await visitor.open()
                    assert await names_of(await visitor.request(method), kind) == names


@pytest.mark.req("AUT-13")
async def test_lists_are_complete_otherwise() -> None:
    async with served(make_server(cache_scope="public")) as site:
        for method, (kind, *_, names) in LISTS.items():
            answer = await Caller(site, Authorization="Bearer nobody").request(method)
            result = (await answer.json())["result"]
            found = [entry.get("uri") or entry.get("uriTemplate") or entry["name"] for entry in result[kind]]
            assert (found, result["cacheScope"]) == (names, "public")


@pytest.mark.req("AUT-13")
async def test_pages_of_a_narrowed_list() -> None:
    async with served(make_server(narrow_lists=True, page_size=1)) as site:
        caller, names = Caller(site, Authorization="Bearer nobody"), []
        params: dict[str, str] = {}
        while True:
            result = (await (await caller.request("tools/list", params)).json())["result"]
            names += [tool["name"] for tool in result["tools"]]
            if "nextCursor" not in result:
                break
            params = {"cursor": result["nextCursor"]}
        assert names == ["free", "who"]


@pytest.mark.req("AUT-14")
async def test_what_needs_scopes_is_never_cached_for_everybody() -> None:
    async with served(make_server(cache_scope="public", ttl=60)) as site:
        caller = Caller(site, Authorization="Bearer reader")
        for uri, scope in (("notes://all", "private"), ("notes://x", "private"), ("free://x", "public")):
            result = (await (await caller.request("resources/read", {"uri": uri})).json())["result"]
            assert result["cacheScope"] == scope
    with pytest.raises(UsageError, match="cannot be cached for everybody"):
        Server("x").add_resource("x://y", lambda: "", name="y", scopes=["a"], cache_scope="public")


def test_an_entry_says_which_scopes_it_needs() -> None:
    server = Server("x")
    for scopes in (["a b"], "ab", [""]):
        with pytest.raises(UsageError, match=r"The tool 't'.*scope"):
            server.add_tool(lambda: "", name="t", scopes=scopes)
    tool: Any = make_server()._shared.catalog.tools.get("write")
    assert tool.scopes == {"notes:read", "notes:write"}
    assert [may_use(TOKENS.get(name), tool) for name in ("writer", "reader", "")] == [True, False, False]


async def test_suggestions_are_for_those_who_may_use_the_prompt() -> None:
    async with connect(make_server()) as client:
        found = await client.complete(PromptReference("summary"), "kind", "")
        assert found.values == ["short", "long"]
