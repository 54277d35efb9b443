"""Functions that ask a legacy client: by requests of the server's, while the call waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import spec
from tests.kit.products import revision_names
from tests.kit.results import text_of
from tests.process.harness import LEGACY, MODERN, Client, Message, ServerProcess, cancellation
from tests.process.orders import EVERYTHING, MODEL, OTHER_QUESTIONS, accept, order

TOOLS = ("order", "plain_order")

# What is no answer to a form that wants a size.
BAD_ANSWERS: list[Message] = [
    {"error": {"code": -32000, "message": "The user is asleep."}},
    {"error": "no error object"},
    {"result": 5},
    {"result": {}},
    {"result": {"action": "dance"}},
    {"result": accept(size="large")},
    {"result": accept()},
]


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with ServerProcess("asking") as process:
        yield process
        assert process.finish() == []


def asked(server: ServerProcess) -> Message:
    """The next request of the server's."""
    return server.receive(lambda message: "method" in message and "id" in message, "a request of the server's")


def reply(server: ServerProcess, question: Message, result: Message) -> None:
    server.send({"jsonrpc": "2.0", "id": question["id"], "result": result})


@pytest.mark.req("MRT-5", "LEG-4", "LEG-5")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
def test_a_legacy_client_is_sent_requests(server: ServerProcess, revision: str) -> None:
    client = Client(server, revision, {"elicitation": {}})
    definition = spec.methods(revision)["elicitation/create"]
    for tool in TOOLS:
        call = client.send("tools/call", order(tool=tool))
        size = asked(server)
        known = spec.properties(revision, definition)
        request = {key: value for key, value in size.items() if key in known}
        assert [error.message for error in spec.validator(revision, definition).iter_errors(request)] == []
        assert size["params"]["message"] == "How large a soup?"
        # Other requests are served meanwhile.
        assert client.say("echo", text="meanwhile") == "meanwhile"
        reply(server, size, accept(size=3))
        name = asked(server)
        assert name["id"] != size["id"]
        assert name["params"]["message"] == "For whom?"
        reply(server, name, accept(name="Ida"))
        assert text_of(server.answer_to(call)["result"]) == "soup of 3 for Ida"


@pytest.mark.req("MRT-5")
def test_a_model_roots_and_a_web_page_are_asked_for(server: ServerProcess) -> None:
    client = Client(server, LEGACY[-1], EVERYTHING)
    for tool, method, answer, text in OTHER_QUESTIONS:
        call = client.send_call(tool)
        question = asked(server)
        assert question["method"] == method
        reply(server, question, answer)
        assert text_of(server.answer_to(call)["result"]) == text


@pytest.mark.req("MRT-5")
def test_answers_may_come_in_any_order(server: ServerProcess) -> None:
    client = Client(server, LEGACY[-1], EVERYTHING)
    calls = {dish: client.send("tools/call", order(dish, tool="plain_order")) for dish in ("soup", "stew", "pie")}
    questions = {question["params"]["message"].split()[-1]: question for question in [asked(server) for _ in calls]}
    for dish in ("pie?", "soup?", "stew?"):
        reply(server, questions[dish], {"action": "decline"})
    for dish, call in calls.items():
        assert text_of(server.answer_to(call)["result"]) == f"{dish}: decline"


@pytest.mark.req("MRT-5", "MRT-2", "LEG-5")
@pytest.mark.parametrize("revision", revision_names(LEGACY))
def test_a_client_that_cannot_be_asked_is_told_so_by_a_tool_error(server: ServerProcess, revision: str) -> None:
    client = Client(server, revision)
    for tool in TOOLS:
        result = client.result("tools/call", order(tool=tool))
        assert result["isError"]
        assert "form" in text_of(result)


@pytest.mark.req("LEG-5", "MRT-5")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26"])
def test_no_revision_is_sent_what_it_does_not_have(server: ServerProcess, revision: str) -> None:
    # Even if the client says that it could.
    client = Client(server, revision, EVERYTHING)
    result = client.result("tools/call", order())
    assert result["isError"]
    assert revision in text_of(result)
    call = client.send_call("advise")
    reply(server, asked(server), MODEL)
    assert text_of(server.answer_to(call)["result"]) == "The soup."


@pytest.mark.req("MRT-5", "CAN-4")
def test_a_bad_answer_ends_the_call_with_a_tool_error() -> None:
    with ServerProcess("asking", may_fail=True) as server:
        client = Client(server, LEGACY[-1], EVERYTHING)
        for tool in TOOLS:
            for answer in BAD_ANSWERS:
                call = client.send("tools/call", order(tool=tool))
                server.send({"jsonrpc": "2.0", "id": asked(server)["id"]} | answer)
                assert server.answer_to(call)["result"]["isError"], answer
        assert client.say("echo", text="next") == "next"
        assert server.finish() == []


@pytest.mark.req("MRT-5", "CAN-2")
def test_cancelling_a_call_takes_its_question_back(server: ServerProcess) -> None:
    client = Client(server, LEGACY[-1], EVERYTHING)
    # Many times: a thread that waits and the loop that answers must never get in each other's way.
    for tool in TOOLS * 50:
        call = client.send("tools/call", order(tool=tool))
        question = asked(server)
        server.send(cancellation(call))
        assert server.notified("notifications/cancelled")["requestId"] == question["id"]
        reply(server, question, accept(size=3))
        assert client.say("echo", text="next") == "next"


@pytest.mark.req("MRT-5", "LIF-13")
def test_a_question_that_nobody_can_answer_any_more_ends_the_call() -> None:
    with ServerProcess("asking", may_fail=True) as server:
        client = Client(server, LEGACY[-1], EVERYTHING)
        calls = [client.send("tools/call", order(tool=tool)) for tool in TOOLS]
        for _ in calls:
            asked(server)
        answers = server.finish()
        assert {answer["id"] for answer in answers} == set(calls)
        assert all(answer["result"]["isError"] for answer in answers)


@pytest.mark.req("MRT-1", "MRT-5", "DIR-2", "ERA-10")
def test_both_eras_ask_at_once_on_one_process(server: ServerProcess) -> None:
    modern, legacy = Client(server, MODERN, EVERYTHING), Client(server, LEGACY[-1], EVERYTHING)

    def round_of(last: Message | None, *answers: Message) -> Message:
        if last is None:
            return modern.result("tools/call", order("soup"))
        responses = dict(zip(last["inputRequests"], answers, strict=True))
        state = {"requestState": last["requestState"], "inputResponses": responses}
        return modern.result("tools/call", order("soup") | state)

    call = legacy.send("tools/call", order("stew"))
    size = asked(server)
    first = round_of(None)
    reply(server, size, accept(size=1))
    name = asked(server)
    second = round_of(first, accept(size=2))
    reply(server, name, accept(name="Bo"))
    assert text_of(round_of(second, accept(name="Ida"))) == "soup of 2 for Ida"
    assert text_of(server.answer_to(call)["result"]) == "stew of 1 for Bo"
