"""Functions that ask a modern client, in rounds: the call ends with a question, and is made again with the answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mcplumb.protocol.sealed_request_state import Sealer
from tests.kit.results import text_of
from tests.process.harness import Client, Message, ServerProcess
from tests.process.orders import EVERYTHING, OTHER_QUESTIONS, accept, order

KEY = "11" * 32
ORDERS = pytest.mark.parametrize("tool", ["order", "plain_order"])


@pytest.fixture(scope="module")
def _shared() -> Iterator[ServerProcess]:
    with ServerProcess("asking", {"key": KEY}) as process:
        yield process


@pytest.fixture
def server(_shared: ServerProcess) -> Iterator[ServerProcess]:
    """A process that tests with modern clients share: each request of theirs stands for itself."""
    yield _shared
    Client(_shared).fence()
    assert _shared.inbox == []


def questions(result: Message) -> dict[str, str]:
    """What a result asks for: each key with the message or the method."""
    assert result["resultType"] == "input_required", result
    asked: dict[str, Message] = result["inputRequests"]
    return {key: each.get("params", {}).get("message", each["method"]) for key, each in asked.items()}


def again(result: Message, *answers: Message) -> Message:
    """The params to send with the next round, with answers in the order of the questions."""
    return {
        "requestState": result["requestState"],
        "inputResponses": dict(zip(result["inputRequests"], answers, strict=True)),
    }


@ORDERS
@pytest.mark.req("MRT-1", "DIR-2", "META-5")
def test_a_modern_call_asks_in_rounds_and_keeps_the_answers(server: ServerProcess, tool: str) -> None:
    client = Client(server, capabilities=EVERYTHING)
    first = client.result("tools/call", order(tool=tool))
    assert list(questions(first).values()) == ["How large a soup?"]
    assert "io.modelcontextprotocol/serverInfo" in first["_meta"]
    (asked,) = first["inputRequests"].values()
    assert asked["method"] == "elicitation/create"
    assert asked["params"]["requestedSchema"]["properties"]["size"]["type"] == "integer"
    second = client.result("tools/call", order(tool=tool) | again(first, accept(size=3)))
    assert list(questions(second).values()) == ["For whom?"]
    third = client.result("tools/call", order(tool=tool) | again(second, accept(name="Ida")))
    assert text_of(third) == "soup of 3 for Ida"
    assert third["resultType"] == "complete"


@ORDERS
@pytest.mark.req("MRT-1")
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_modern_user_may_say_no(server: ServerProcess, tool: str, action: str) -> None:
    client = Client(server, capabilities=EVERYTHING)
    first = client.result("tools/call", order(tool=tool))
    last = client.result("tools/call", order(tool=tool) | again(first, {"action": action}))
    assert text_of(last) == f"soup: {action}"


@pytest.mark.req("MRT-1")
def test_prompts_and_resources_ask_too(server: ServerProcess) -> None:
    client = Client(server, capabilities=EVERYTHING)
    for method, params in [("prompts/get", {"name": "greeting"}), ("resources/read", {"uri": "asking://menu"})]:
        first = client.result(method, params)
        assert list(questions(first).values()) == ["Who are you?"]
        last = client.result(method, params | again(first, accept(name="Ida")))
        assert last["resultType"] == "complete"
        assert "Ida" in json.dumps(last)


@pytest.mark.req("MRT-1")
def test_no_other_method_answers_that_it_needs_input() -> None:
    with ServerProcess("asking", may_fail=True) as server:
        client = Client(server, capabilities=EVERYTHING)
        assert client.error("asking/custom")["code"] == -32603
        server.wait_for_error_text("may not ask")
        assert server.finish() == []


@pytest.mark.req("MRT-1")
def test_several_questions_at_once_are_one_round(server: ServerProcess) -> None:
    client = Client(server, capabilities=EVERYTHING)
    call: Message = {"name": "order_at_once", "arguments": {}}
    first = client.result("tools/call", call)
    assert sorted(questions(first).values()) == ["For whom?", "How large?"]
    answers = [accept(size=3) if "large" in message else accept(name="Ida") for message in questions(first).values()]
    assert text_of(client.result("tools/call", call | again(first, *answers))) == "Size(size=3) Name(name='Ida')"


@pytest.mark.req("MRT-1")
def test_code_that_forgives_every_error_does_not_swallow_a_question(server: ServerProcess) -> None:
    client = Client(server, capabilities=EVERYTHING)
    call: Message = {"name": "guarded", "arguments": {}}
    first = client.result("tools/call", call)
    assert text_of(client.result("tools/call", call | again(first, accept(name="Ida")))) == "for Ida"


@pytest.mark.req("MRT-1", "MRT-2")
def test_a_model_roots_and_a_web_page_are_asked_for_in_rounds(server: ServerProcess) -> None:
    client = Client(server, capabilities=EVERYTHING)
    for tool, method, answer, text in OTHER_QUESTIONS:
        call: Message = {"name": tool, "arguments": {}}
        first = client.result("tools/call", call)
        (asked,) = first["inputRequests"].values()
        assert asked["method"] == method
        assert text_of(client.result("tools/call", call | again(first, answer))) == text


@pytest.mark.req("MRT-1")
def test_without_state_or_answers_the_call_starts_again(server: ServerProcess) -> None:
    client = Client(server, capabilities=EVERYTHING)
    first = client.result("tools/call", order())
    retry = again(first, accept(size=3))
    for params in (
        {"inputResponses": retry["inputResponses"]},
        {"requestState": retry["requestState"]},
        {"requestState": retry["requestState"], "inputResponses": {}},
        {"requestState": retry["requestState"], "inputResponses": {"no such question": accept(size=3)}},
    ):
        result = client.result("tools/call", order() | params)
        assert list(questions(result).values()) == ["How large a soup?"]


@pytest.mark.req("MRT-3")
def test_state_that_does_not_verify_is_refused(server: ServerProcess) -> None:
    client = Client(server, capabilities=EVERYTHING)
    soup = again(client.result("tools/call", order()), accept(size=3))
    state: str = soup["requestState"]
    expired = _resealed(state, order(), now=time.time() - 10_000)
    far_future = _resealed(state, order(), now=time.time() + 10_000)
    foreign = Sealer(b"2" * 32).seal(b"{}", method="tools/call", params=order(), principal=None, now=time.time())
    middle = len(state) // 2
    tampered = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
    for name, params in {
        "tampered": order() | soup | {"requestState": tampered},
        "cut": order() | soup | {"requestState": state[:-1]},
        "padded": order() | soup | {"requestState": state + "="},
        "empty": order() | soup | {"requestState": ""},
        "nonsense": order() | soup | {"requestState": "é🦭"},
        "huge": order() | soup | {"requestState": "A" * 1_000_000},
        "expired": order() | soup | {"requestState": expired},
        "from the future": order() | soup | {"requestState": far_future},
        "of another server": order() | soup | {"requestState": foreign},
        "of other arguments": order("stew") | soup,
        "of another tool": order(tool="plain_order") | soup,
    }.items():
        error = client.error("tools/call", params)
        assert error["code"] == -32602, name
        assert "request state" in error["message"], name
    elsewhere = client.error("prompts/get", {"name": "greeting"} | soup)
    assert elsewhere["code"] == -32602
    # None of this has harmed the real one.
    assert list(questions(client.result("tools/call", order() | soup)).values()) == ["For whom?"]


def _resealed(state: str, params: Message, *, now: float) -> str:
    """Return the state, sealed again with the server's own key at another time."""
    sealer = Sealer(bytes.fromhex(KEY), ttl=3600)
    inside = sealer.open(state, method="tools/call", params=params, principal=None, now=time.time())
    return sealer.seal(inside, method="tools/call", params=params, principal=None, now=now)


@pytest.mark.req("MRT-3")
def test_a_process_without_given_keys_makes_its_own() -> None:
    with ServerProcess("asking") as one, ServerProcess("asking") as other:
        clients = [Client(server, capabilities=EVERYTHING) for server in (one, other)]
        retry = again(clients[0].result("tools/call", order()), accept(size=3))
        assert clients[1].error("tools/call", order() | retry)["code"] == -32602
        assert list(questions(clients[0].result("tools/call", order() | retry)).values()) == ["For whom?"]


@pytest.mark.parametrize("responses", [5, [], "text", {"1": 5}, {"1": {}}, {"1": accept(size="large")}])
def test_answers_that_do_not_fit_are_refused(responses: Any) -> None:
    with ServerProcess("asking", may_fail=True) as server:
        client = Client(server, capabilities=EVERYTHING)
        first = client.result("tools/call", order())
        response = client.answer("tools/call", order() | again(first, accept(size=3)) | {"inputResponses": responses})
        assert response.get("error", {}).get("code") == -32602 or response["result"]["isError"]
        assert client.say("echo", text="next") == "next"


@pytest.mark.req("META-4", "MRT-2", "META-7")
@pytest.mark.parametrize(
    ("tool", "capabilities", "missing"),
    [
        ("order", {}, {"elicitation": {"form": {}}}),
        ("plain_order", {"sampling": {}}, {"elicitation": {"form": {}}}),
        ("order", {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        ("pay", {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}),
        ("advise", {"elicitation": {}}, {"sampling": {}}),
        ("folders", {"sampling": {}}, {"roots": {}}),
    ],
)
def test_a_missing_capability_is_refused_by_name(
    server: ServerProcess, tool: str, capabilities: Message, missing: Message
) -> None:
    call = order(tool=tool) if "order" in tool else {"name": tool, "arguments": {}}
    # That an earlier request declared it does not count.
    assert "result" in Client(server, capabilities=EVERYTHING).answer("tools/call", call)
    error = Client(server, capabilities=capabilities).error("tools/call", call)
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": missing}
