from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mcplumb.client.client import Client
from mcplumb.client.requests import MAX_ROUNDS, read_result
from mcplumb.errors import DecodeError, ProtocolError
from mcplumb.revisions import LATEST, LATEST_LEGACY
from mcplumb.types.client_features import InputRequiredResult
from mcplumb.types.lifecycle import ClientCapabilities
from mcplumb.types.meta import CLIENT_CAPABILITIES
from mcplumb.types.tools import CallToolResult, ListToolsResult
from tests.client.peers import TEXT, Peer, modern, talk

ELICIT = {
    "method": "elicitation/create",
    "params": {"message": "Name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}},
}
SAMPLE = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 9}}
ROOTS = {"method": "roots/list"}

#: State that has everything in it that careless hands would change.
STATE = 'é"\\/\u2028\x00 {"a": 1}  ==\n'


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def asks(**fields: Any) -> dict[str, Any]:
    return {"resultType": "input_required", **fields}


async def call(client: Client) -> CallToolResult:
    return await client.call_tool("book", {"city": "Oslo"})


# --- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.req("DIR-4")
def test_a_result_without_a_type_is_complete() -> None:
    for type_ in ({}, {"resultType": "complete"}):
        result = read_result(CallToolResult, raw({"content": [], **type_}), "tools/call", LATEST)
        assert isinstance(result, CallToolResult)


@pytest.mark.req("DIR-4")
@pytest.mark.parametrize("rest", [{}, {"content": []}])
def test_a_result_of_an_unknown_type_is_invalid(rest: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="unknown type 'partial'"):
        read_result(CallToolResult, raw({"resultType": "partial", **rest}), "tools/call", LATEST)


@pytest.mark.req("DIR-4")
def test_a_legacy_result_has_no_type_whatever_it_says() -> None:
    result = read_result(CallToolResult, raw({"content": [], "resultType": "partial"}), "tools/call", LATEST_LEGACY)
    assert isinstance(result, CallToolResult)


@pytest.mark.parametrize("revision", [LATEST, LATEST_LEGACY])
def test_a_result_that_lacks_something_is_named(revision: Any) -> None:
    with pytest.raises(DecodeError, match=r"The result of tools/call cannot be read: .*content"):
        read_result(CallToolResult, raw({}), "tools/call", revision)


@pytest.mark.parametrize("rest", [{}, {"content": []}])
def test_a_result_may_ask_for_input(rest: dict[str, Any]) -> None:
    result = read_result(CallToolResult, raw(asks(requestState="s", **rest)), "tools/call", LATEST)
    assert isinstance(result, InputRequiredResult)
    assert result.request_state == "s"


def test_a_list_may_not_ask_for_input() -> None:
    with pytest.raises(ProtocolError, match="asked for input to answer tools/list, which must not"):
        read_result(ListToolsResult, raw(asks(requestState="s")), "tools/list", LATEST)


# --- answering ------------------------------------------------------------------------------------------------------


@pytest.mark.req("MRT-4", "DIR-1")
def test_all_input_is_given_with_the_state_as_it_came_under_a_new_id() -> None:
    async def play(peer: Peer) -> None:
        first = await peer.expect("tools/call")
        capabilities = first["params"]["_meta"][CLIENT_CAPABILITIES]
        assert sorted(capabilities) == ["elicitation", "roots", "sampling"]
        peer.answer(first, asks(inputRequests={"who": ELICIT, "what": SAMPLE, "where": ROOTS}, requestState=STATE))
        second = await peer.expect("tools/call")
        assert second["id"] != first["id"]
        assert second["params"] == {
            **first["params"],
            "requestState": STATE,
            "inputResponses": {
                "who": {"action": "accept", "content": {"name": "Ada"}},
                "what": {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "unknown"},
                "where": {"roots": [{"uri": "file:///a"}]},
            },
        }
        peer.answer(second, TEXT)
        await peer.gone()
        assert all("method" in message for message in peer.seen), "a modern client writes no response"

    result = talk(
        modern(play),
        call,
        on_elicit=lambda question: {"name": "Ada"} if question.message == "Name?" else None,
        on_sample=lambda _: "hi",
        roots=["file:///a"],
    )
    assert result.content


@pytest.mark.req("MRT-4")
def test_what_the_server_did_not_send_is_not_sent_back() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/call"), asks(inputRequests={"a": ROOTS}))
        second = await peer.expect("tools/call")
        assert "requestState" not in second["params"]
        peer.answer(second, asks(requestState="later"))
        third = await peer.expect("tools/call")
        assert "inputResponses" not in third["params"]
        assert third["params"]["requestState"] == "later"
        peer.answer(third, TEXT)

    assert talk(modern(play), call, roots=[]).content


@pytest.mark.req("MRT-4")
@pytest.mark.parametrize(
    ("method", "result"), [("prompts/get", {"messages": []}), ("resources/read", {"contents": []})]
)
def test_prompts_and_resources_may_ask_too(method: str, result: dict[str, Any]) -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect(method), asks(requestState="s"))
        again = await peer.expect(method)
        assert again["params"]["requestState"] == "s"
        peer.answer(again, result)

    async def body(client: Client) -> None:
        await (client.get_prompt("p") if method == "prompts/get" else client.read_resource("a:b"))

    talk(modern(play), body)


@pytest.mark.req("MRT-4")
def test_the_rounds_are_bounded() -> None:
    async def play(peer: Peer) -> None:
        for _ in range(MAX_ROUNDS):
            peer.answer(await peer.expect("tools/call"), asks(requestState="again"))
        await peer.gone()
        assert len(peer.seen) == 1 + MAX_ROUNDS

    with pytest.raises(ProtocolError, match=f"asked for input {MAX_ROUNDS} times"):
        talk(modern(play), call)


def test_a_server_that_asks_for_nothing_broke_a_rule() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/call"), asks())

    with pytest.raises(ProtocolError, match="did not say which"):
        talk(modern(play), call)


def test_a_server_that_asks_for_what_was_not_declared_broke_a_rule() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/call"), asks(inputRequests={"a": SAMPLE}))

    with pytest.raises(ProtocolError, match="asked for sampling/createMessage, which this client did not declare"):
        talk(modern(play), call, capabilities=ClientCapabilities())


def test_what_a_handler_raises_fails_its_call_and_no_other() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/call"), asks(inputRequests={"a": ELICIT}))
        peer.answer(await peer.expect("tools/call"), TEXT)

    def on_elicit(_: object) -> None:
        raise ZeroDivisionError("no idea")

    async def body(client: Client) -> None:
        with pytest.raises(ZeroDivisionError, match="no idea"):
            await call(client)
        assert (await call(client)).content

    talk(modern(play), body, on_elicit=on_elicit)
