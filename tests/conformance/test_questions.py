"""What the server asks its client: requests in a legacy session, results that ask for input in the modern era."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.ways import CAPABILITIES, Exchange, Message, Wire
from tests.kit.results import success_text_of

PREFIX = "test_input_required_result_"


def accepted(**content: Any) -> Message:
    return {"action": "accept", "content": content}


SAMPLED: Message = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "test"}
ROOTS: Message = {"roots": [{"uri": "file:///test/root", "name": "Test Root"}]}


def asked(exchange: Exchange) -> dict[str, Message]:
    """What a modern result asks for, under its keys."""
    assert exchange.result["resultType"] == "input_required"
    requests: dict[str, Message] = exchange.result["inputRequests"]
    return requests


def is_complete(exchange: Exchange) -> bool:
    return bool(exchange.result["resultType"] == "complete" and exchange.result["content"])


# Legacy: tools-call-sampling, tools-call-elicitation, elicitation-sep1034-defaults, elicitation-sep1330-enums


def test_the_clients_model_is_asked(legacy: Wire) -> None:
    exchange = legacy.call("test_sampling", {"prompt": "Where?"}, answers={"sampling/createMessage": SAMPLED})
    (request,) = exchange.requests
    assert request["params"]["messages"] == [{"role": "user", "content": {"type": "text", "text": "Where?"}}]
    assert request["params"]["maxTokens"] == 100
    assert success_text_of(exchange.result) == "LLM response: Paris"


def elicited(legacy: Wire, tool: str, answer: Message, **arguments: Any) -> tuple[Message, str]:
    """The question that the tool asks, and what it says to the answer."""
    exchange = legacy.call(tool, arguments or None, answers={"elicitation/create": answer})
    (request,) = exchange.requests
    params: Message = request["params"]
    assert params["requestedSchema"]["type"] == "object"
    return params, success_text_of(exchange.result)


def test_the_clients_user_is_asked(legacy: Wire) -> None:
    answer = accepted(username="testuser", email="test@example.com")
    params, text = elicited(legacy, "test_elicitation", answer, message="Who are you?")
    assert params["message"] == "Who are you?"
    assert params["requestedSchema"]["required"] == ["username", "email"]
    assert text.startswith("User response: accept")
    assert "testuser" in text


def test_a_user_may_decline(legacy: Wire) -> None:
    _, text = elicited(legacy, "test_elicitation", {"action": "decline"}, message="Who are you?")
    assert text == "User response: decline, None"


def test_forms_have_defaults_of_every_type(legacy: Wire) -> None:
    params, text = elicited(legacy, "test_elicitation_sep1034_defaults", accepted())
    fields = params["requestedSchema"]["properties"]
    assert {name: (field["type"], field["default"]) for name, field in fields.items()} == {
        "name": ("string", "John Doe"),
        "age": ("integer", 30),
        "score": ("number", 95.5),
        "status": ("string", "active"),
        "verified": ("boolean", True),
    }
    assert fields["status"]["enum"] == ["active", "inactive", "pending"]
    assert "John Doe" in text


def test_forms_have_every_kind_of_choice(legacy: Wire) -> None:
    answer = accepted(
        untitledSingle="option1",
        titledSingle="value1",
        legacyEnum="opt1",
        untitledMulti=["option1", "option2"],
        titledMulti=["value1", "value2"],
    )
    params, text = elicited(legacy, "test_elicitation_sep1330_enums", answer)
    fields = params["requestedSchema"]["properties"]
    assert fields["untitledSingle"].keys() == {"type", "enum"}
    assert fields["titledSingle"].keys() == {"type", "oneOf"}
    assert len(fields["legacyEnum"]["enum"]) == len(fields["legacyEnum"]["enumNames"])
    assert fields["untitledMulti"]["items"].keys() == {"type", "enum"}
    assert fields["titledMulti"]["items"].keys() == {"anyOf"}
    for choice in [*fields["titledSingle"]["oneOf"], *fields["titledMulti"]["items"]["anyOf"]]:
        assert {type(choice["const"]), type(choice["title"])} == {str}
    assert "option2" in text


def test_a_legacy_client_is_sent_several_requests_at_once(legacy: Wire) -> None:
    exchange = legacy.call(
        PREFIX + "multiple_inputs",
        answers={
            "elicitation/create": accepted(name="Alice"),
            "sampling/createMessage": SAMPLED,
            "roots/list": ROOTS,
        },
    )
    assert success_text_of(exchange.result) == "Paris Alice, with 1 roots."


# Modern: input-required-result-*


def test_basic_elicitation(modern: Wire) -> None:
    first = modern.call(PREFIX + "elicitation")
    question = asked(first)["user_name"]
    assert (question["method"], question["params"]["message"]) == ("elicitation/create", "What is your name?")
    assert question["params"]["requestedSchema"]["required"] == ["name"]
    second = modern.retry(PREFIX + "elicitation", {"user_name": accepted(name="Alice")}, first.result["requestState"])
    assert is_complete(second)
    assert success_text_of(second.result) == "Hello, Alice!"


def test_basic_sampling(modern: Wire) -> None:
    first = modern.call(PREFIX + "sampling")
    question = asked(first)["capital_question"]
    assert (question["method"], question["params"]["maxTokens"]) == ("sampling/createMessage", 100)
    second = modern.retry(PREFIX + "sampling", {"capital_question": SAMPLED}, first.result["requestState"])
    assert is_complete(second)
    assert "Paris" in success_text_of(second.result)


def test_basic_roots(modern: Wire) -> None:
    first = modern.call(PREFIX + "list_roots")
    assert asked(first)["client_roots"]["method"] == "roots/list"
    second = modern.retry(PREFIX + "list_roots", {"client_roots": ROOTS}, first.result["requestState"])
    assert is_complete(second)
    assert "file:///test/root" in success_text_of(second.result)


def test_request_state(modern: Wire) -> None:
    first = modern.call(PREFIX + "request_state")
    assert asked(first)["confirm"]["params"]["requestedSchema"]["properties"]["ok"]["type"] == "boolean"
    state = first.result["requestState"]
    assert isinstance(state, str)
    assert state
    assert "state-ok" in success_text_of(
        modern.retry(PREFIX + "request_state", {"confirm": accepted(ok=True)}, state).result
    )


def test_several_questions_are_asked_at_once(modern: Wire) -> None:
    first = modern.call(PREFIX + "multiple_inputs")
    assert {key: question["method"] for key, question in asked(first).items()} == {
        "user_name": "elicitation/create",
        "greeting": "sampling/createMessage",
        "client_roots": "roots/list",
    }
    responses = {"user_name": accepted(name="Alice"), "greeting": SAMPLED, "client_roots": ROOTS}
    second = modern.retry(PREFIX + "multiple_inputs", responses, first.result["requestState"])
    assert success_text_of(second.result) == "Paris Alice, with 1 roots."


def test_what_is_missing_of_several_is_asked_again(modern: Wire) -> None:
    first = modern.call(PREFIX + "multiple_inputs")
    second = modern.retry(PREFIX + "multiple_inputs", {"greeting": SAMPLED}, first.result["requestState"])
    assert asked(second).keys() == {"user_name", "client_roots"}
    responses = {"user_name": accepted(name="Alice"), "client_roots": ROOTS}
    third = modern.retry(PREFIX + "multiple_inputs", responses, second.result["requestState"])
    assert success_text_of(third.result) == "Paris Alice, with 1 roots."


def test_multi_round(modern: Wire) -> None:
    first = modern.call(PREFIX + "multi_round")
    assert asked(first).keys() == {"step1"}
    second = modern.retry(PREFIX + "multi_round", {"step1": accepted(name="Alice")}, first.result["requestState"])
    assert asked(second).keys() == {"step2"}
    assert first.result["requestState"] != second.result["requestState"]
    third = modern.retry(PREFIX + "multi_round", {"step2": accepted(ok=True)}, second.result["requestState"])
    assert is_complete(third)


def test_a_missing_response_is_asked_for_again(modern: Wire) -> None:
    assert asked(modern.retry(PREFIX + "elicitation", {"wrong_key": accepted(data="wrong")})).keys() == {"user_name"}


def test_a_prompt_may_ask_too(modern: Wire) -> None:
    params: Message = {"name": PREFIX + "prompt"}
    first = modern.exchange("prompts/get", params)
    assert asked(first).keys() == {"user_context"}
    params |= {"inputResponses": {"user_context": accepted(context="tea")}}
    second = modern.exchange("prompts/get", params | {"requestState": first.result["requestState"]})
    (message,) = second.result["messages"]
    assert message["content"]["text"] == "Help me with tea."


@pytest.mark.parametrize("method", ["tools/list", "prompts/list"])
def test_lists_never_ask(modern: Wire, method: str) -> None:
    assert modern.exchange(method).result["resultType"] == "complete"


def test_tampered_state_is_refused(modern: Wire) -> None:
    state = modern.call(PREFIX + "tampered_state").result["requestState"]
    refused = modern.retry(PREFIX + "tampered_state", {"confirm": accepted(ok=True)}, state + "-TAMPERED")
    assert refused.error["code"] == -32602


@pytest.mark.parametrize(
    ("capability", "method"), [("sampling", "sampling/createMessage"), ("elicitation", "elicitation/create")]
)
def test_only_what_the_client_can_do_is_asked(modern: Wire, capability: str, method: str) -> None:
    meta = modern.meta(clientCapabilities={capability: CAPABILITIES[capability]})
    questions = asked(modern.call(PREFIX + "capabilities", meta=meta))
    assert {question["method"] for question in questions.values()} == {method}


def test_responses_that_nobody_asked_for_are_ignored(modern: Wire) -> None:
    responses = {
        "user_name": accepted(name="Alice"),
        "unknown_extra_key": accepted(foo="bar"),
        "another_unexpected": accepted(baz=123),
    }
    assert success_text_of(modern.retry(PREFIX + "elicitation", responses).result) == "Hello, Alice!"


@pytest.mark.parametrize("responses", [{"user_name": 12345}, None], ids=["number", "null"])
def test_responses_are_checked(modern: Wire, responses: Any) -> None:
    exchange = modern.retry(PREFIX + "elicitation", responses)
    assert "error" in exchange.response or asked(exchange)
