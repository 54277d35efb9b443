"""The answers that a modern call has, and the state that it travels with."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mcplumb.errors import DecodeError, EncodeError, StateRefused, UsageError
from mcplumb.protocol.sealed_request_state import Sealer
from mcplumb.server.dispatch.client_input import Answers, InputNeeded, as_result
from mcplumb.types.client_features import ElicitParams, ElicitRequest, InputRequest, ListRootsRequest

SEALER = Sealer(b"k" * 32)
CALL: dict[str, Any] = {"method": "tools/call", "params": {"name": "t"}, "principal": "ada", "now": 1000.0}


def question(text: str) -> InputRequest:
    return ElicitRequest(ElicitParams.for_url(text, "https://example.com"))


def ask(answers: Answers, *texts: str, **named: str) -> list[bytes | InputNeeded]:
    """What comes of asking all of these, some of them under keys, whatever comes of the others."""
    came: list[bytes | InputNeeded] = []
    for key, text in [*((None, text) for text in texts), *named.items()]:
        try:
            came.append(bytes(answers.get(answers.claim(key), question(text))))
        except InputNeeded as needed:
            came.append(needed)
    return came


def needed_in(came: list[bytes | InputNeeded]) -> list[InputNeeded]:
    return [each for each in came if isinstance(each, InputNeeded)]


def reopened(answers: Answers, needed: list[InputNeeded], responses: dict[str, Any] | None) -> Answers:
    """The answers of the next round."""
    token = answers.seal(SEALER, needed, **CALL)
    return Answers.reopened(SEALER, token, written(responses), **CALL)


def written(responses: dict[str, Any] | None) -> Any:
    return msgspec.UNSET if responses is None else msgspec.Raw(msgspec.json.encode(responses))


def test_a_question_without_an_answer_ends_the_call() -> None:
    with pytest.raises(InputNeeded, match="question 1") as caught:
        Answers().get("1", question("Name?"))
    assert caught.value.key == "1"
    assert caught.value.request == question("Name?")
    # A function that guards itself against every error does not catch it.
    assert not isinstance(caught.value, Exception)


def test_each_round_has_the_answers_of_all_rounds_before() -> None:
    answers = Answers()
    texts = ["One?", "Two?", "Three?"]
    for number, _ in enumerate(texts):
        came = ask(answers, *texts[: number + 1])
        assert came[:-1] == [b'"answer to %d"' % (each + 1) for each in range(number)]
        (needed,) = needed_in(came)
        answers = reopened(answers, [needed], {needed.key: f"answer to {number + 1}"})
    assert ask(answers, *texts) == [b'"answer to 1"', b'"answer to 2"', b'"answer to 3"']


@pytest.mark.parametrize("count", [2, 9, 10, 11, 25, 120])
def test_many_questions_may_be_asked_at_once(count: int) -> None:
    """Also more than nine, whose keys do not sort as their numbers do, and also twice the same."""
    texts = [f"Question {number // 2}?" for number in range(count)]
    answers = Answers()
    needed = needed_in(ask(answers, *texts))
    assert [each.key for each in needed] == [str(number + 1) for number in range(count)]
    answers = reopened(answers, needed, {each.key: each.key for each in reversed(needed)})
    assert ask(answers, *texts) == [b'"%d"' % (number + 1) for number in range(count)]


def test_questions_across_the_tenth_keep_their_order() -> None:
    answers = Answers()
    for number in range(8):
        needed = needed_in(ask(answers, *["Again?"] * (number + 1)))
        answers = reopened(answers, needed, {each.key: each.key for each in needed})
    needed = needed_in(ask(answers, *["Again?"] * 12))
    assert [each.key for each in needed] == ["9", "10", "11", "12"]
    answers = reopened(answers, needed, {each.key: each.key for each in needed})
    assert ask(answers, *["Again?"] * 12) == [b'"%d"' % (number + 1) for number in range(12)]


def test_an_answer_does_not_count_for_another_question() -> None:
    answers = Answers()
    needed = needed_in(ask(answers, "Delete A?", "Really?"))
    answers = reopened(answers, needed, {"1": "yes", "2": "yes"})
    came = ask(answers, "Delete B?", "Really?")
    # What was learned on the other way is forgotten.
    assert [each.key for each in needed_in(came)] == ["1", "2"]
    answers = reopened(answers, needed_in(came), {"1": "no", "2": "no"})
    assert ask(answers, "Delete B?", "Really?") == [b'"no"', b'"no"']


def test_a_question_without_a_response_is_asked_again() -> None:
    answers = Answers()
    needed = needed_in(ask(answers, "One?", "Two?"))
    answers = reopened(answers, needed, {"1": 1})
    came = ask(answers, "One?", "Two?")
    assert came[0] == b"1"
    assert [each.key for each in needed_in(came)] == ["2"]
    answers = reopened(answers, needed_in(came), None)
    assert [each.key for each in needed_in(ask(answers, "One?", "Two?"))] == ["2"]


def test_responses_that_nobody_asked_for_are_passed_over() -> None:
    answers = Answers()
    needed = needed_in(ask(answers, "One?"))
    answers = reopened(answers, needed, {"2": "sneaky", "1": "right", "x": None})
    came = ask(answers, "One?", "Two?")
    assert came[0] == b'"right"'
    assert [each.key for each in needed_in(came)] == ["2"]


def test_answers_that_are_there_are_not_asked_for_again() -> None:
    """Also if it is the first question that got none."""
    answers = Answers()
    needed = needed_in(ask(answers, "One?", "Two?"))
    answers = reopened(answers, needed, {"2": 2})
    came = ask(answers, "One?", "Two?")
    assert [each.key for each in needed_in(came)] == ["1"]
    assert came[1] == b"2"


# Keys of the author's


@pytest.mark.req("MRT-1")
def test_questions_under_keys_of_their_own() -> None:
    answers = Answers()
    needed = needed_in(ask(answers, "One?", "Two?", z="Z?", a="A?"))
    assert [each.key for each in needed] == ["1", "2", "z", "a"]
    assert answers.needed == needed
    answers = reopened(answers, needed, {"a": 1, "2": 2, "z": 26})
    # In another order than before, which counts for those without a key only.
    came = ask(answers, a="A?", z="Z?")
    assert came == [b"1", b"26"]
    assert [each.key for each in needed_in(ask(answers, "One?", "Two?"))] == ["1"]


def test_an_answer_under_a_key_does_not_count_for_another_question() -> None:
    answers = Answers()
    needed = needed_in(ask(answers, before="Before?", sure="Delete A?", after="After?"))
    answers = reopened(answers, needed, {"before": 0, "sure": "yes", "after": 1})
    came = ask(answers, before="Before?", sure="Delete B?", after="After?")
    assert came[0] == b"0"
    assert [each.key for each in needed_in(came)] == ["sure", "after"]


@pytest.mark.parametrize("keys", [("a", "a"), ("1", None), (None, "1")])
def test_two_questions_cannot_have_one_key(keys: tuple[str | None, str | None]) -> None:
    answers = Answers()
    answers.claim(keys[0])
    with pytest.raises(UsageError, match="Two questions of this call have the key"):
        answers.claim(keys[1])


@pytest.mark.parametrize("key", ["", 5, ["a"]])
def test_what_cannot_be_a_key(key: Any) -> None:
    with pytest.raises(UsageError, match="The key of a question cannot be"):
        Answers().claim(key)


@pytest.mark.req("MRT-1")
def test_answers_without_a_state_count_under_keys_of_the_author_s() -> None:
    answers = Answers.reopened(SEALER, None, written({"name": "Ada", "1": "sneaky", "x": 0}), **CALL)
    came = ask(answers, "One?", name="Name?", age="Age?")
    assert came[1] == b'"Ada"'
    needed = needed_in(came)
    assert [each.key for each in needed] == ["1", "age"]
    # From now on it is known, and to which question it was the answer.
    token = answers.seal(SEALER, needed, **CALL)
    answers = Answers.reopened(SEALER, token, written({"age": 36, "1": 1}), **CALL)
    assert ask(answers, "One?", name="Name?", age="Age?") == [b"1", b'"Ada"', b"36"]
    answers = Answers.reopened(SEALER, token, written({"name": "Eve"}), **CALL)
    assert ask(answers, name="Name?") == [b'"Ada"']
    assert needed_in(ask(Answers.reopened(SEALER, token, written({}), **CALL), name="Another?"))


@pytest.mark.parametrize("text", ["half a \ud800 pair"])
def test_a_question_that_cannot_be_written_is_not_asked(text: str) -> None:
    answers = Answers()
    with pytest.raises(EncodeError, match="The question cannot be written as JSON"):
        answers.get("1", question(text))
    nested: dict[str, Any] = {}
    nested["nested"] = nested
    with pytest.raises(EncodeError):
        answers.get("1", ElicitRequest(ElicitParams.for_form("x", nested)))


@pytest.mark.parametrize("responses", [b"[]", b"5", b'"x"', b"null"])
def test_responses_that_cannot_be_read(responses: bytes) -> None:
    answers = Answers()
    sealed = answers.seal(SEALER, needed_in(ask(answers, "One?")), **CALL)
    for token in (sealed, None):
        with pytest.raises(DecodeError, match="inputResponses cannot be read"):
            Answers.reopened(SEALER, token, msgspec.Raw(responses), **CALL)


@pytest.mark.req("MRT-3")
@pytest.mark.parametrize(
    "other",
    [
        {"method": "prompts/get"},
        {"params": {"name": "another"}},
        {"principal": None},
        {"principal": "bob"},
        {"now": 1000.0 + 601},
        {"now": 1.0},
    ],
)
def test_state_is_good_for_its_own_call_only(other: dict[str, Any]) -> None:
    answers = Answers()
    token = answers.seal(SEALER, needed_in(ask(answers, "One?")), **CALL)
    with pytest.raises(StateRefused):
        Answers.reopened(SEALER, token, msgspec.UNSET, **{**CALL, **other})
    with pytest.raises(StateRefused):
        Answers.reopened(Sealer(b"x" * 32), token, msgspec.UNSET, **CALL)


def test_state_that_was_sealed_for_something_else() -> None:
    token = SEALER.seal(b'[["x"], 5]', **CALL)
    with pytest.raises(StateRefused, match="does not fit this version of the server") as refused:
        Answers.reopened(SEALER, token, msgspec.UNSET, **CALL)
    assert refused.value.reason == "sealed by another version"


@pytest.mark.req("MRT-1")
def test_the_result_asks_for_everything_at_once() -> None:
    needed = [InputNeeded("1", question("One?")), InputNeeded("2", ListRootsRequest())]
    result = msgspec.to_builtins(as_result(needed, "state"))
    assert result["requestState"] == "state"
    assert result["inputRequests"] == {
        "1": {
            "method": "elicitation/create",
            "params": {"message": "One?", "mode": "url", "url": "https://example.com"},
        },
        "2": {"method": "roots/list"},
    }
