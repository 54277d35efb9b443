from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcplumb.bridge.bridge import Bridge
from mcplumb.revisions import LATEST, LATEST_LEGACY, LEGACY, Revision
from mcplumb.transports.connection import Peer
from mcplumb.wire.messages import INTERNAL_ERROR, INVALID_PARAMS
from tests.bridge.ends import ASKABLE, FORM, Back, Backs, Front, Refused, ask_and_echo, call_once, text
from tests.client.peers import skip
from tests.kit.loop import until
from tests.kit.results import text_of

NAME = {"action": "accept", "content": {"name": "Ada"}}


def answers(asked: dict[str, Any], *each: Any) -> dict[str, Any]:
    """The params with which a client goes on after a question."""
    responses = dict(zip(asked["inputRequests"], each or [NAME] * len(asked["inputRequests"]), strict=False))
    return {"inputResponses": responses, "requestState": asked["requestState"]}


@pytest.mark.req("BRG-2")
@pytest.mark.parametrize("revision", [each for each in LEGACY if each.has_elicitation], ids=str)
async def test_a_question_ends_the_request_and_the_answer_goes_on(revision: Revision) -> None:
    backs = Backs(revision, ask_and_echo)
    bridge = Bridge(backs, revisions=[str(revision)])
    async with Front(bridge, ASKABLE) as front:
        asked = await front.call("greet")
        assert asked["resultType"] == "input_required"
        assert asked["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "peer"
        (question,) = asked["inputRequests"].values()
        assert (question["method"], question["params"]["message"]) == ("elicitation/create", "Who?")
        assert len(bridge.parked_calls) == 1
        result = await front.call("greet", more=answers(asked))
        assert (text_of(result), result["resultType"]) == ("Ada", "complete")
        assert len(bridge.parked_calls) == 0
        assert [message["method"] for message in backs.all[0].seen if "method" in message].count("tools/call") == 1


@pytest.mark.req("BRG-2", "BRG-3")
async def test_each_request_over_http_may_come_on_a_connection_of_its_own() -> None:
    backs = Backs(handler=ask_and_echo)
    bridge = Bridge(backs, max_servers=1)  # the answer needs no server of its own
    async with Front(bridge):
        asked = await call_once(bridge, ASKABLE, "greet", principal="ada")
        result = await call_once(bridge, ASKABLE, "greet", principal="ada", more=answers(asked))
        assert text_of(result) == "Ada"
        assert len(backs.all) == 1
        asked = await call_once(bridge, ASKABLE, "greet", principal="ada")
        assert len(backs.all) == 1  # it was given back, once
        assert text_of(await call_once(bridge, ASKABLE, "greet", principal="ada", more=answers(asked))) == "Ada"


@pytest.mark.req("BRG-3")
async def test_nobody_else_can_answer() -> None:
    bridge = Bridge(Backs(handler=ask_and_echo))
    async with Front(bridge) as other:
        asked = await call_once(bridge, ASKABLE, "greet", principal="ada")
        go_on = answers(asked)
        with pytest.raises(Refused) as refused:
            await call_once(bridge, ASKABLE, "greet", principal="eve", more=go_on)
        assert refused.value.code == INVALID_PARAMS
        with pytest.raises(Refused):
            await call_once(bridge, ASKABLE, "greet", more=go_on)
        with pytest.raises(Refused):  # other params
            await call_once(bridge, ASKABLE, "greet", principal="ada", more=go_on, loud=True)
        with pytest.raises(Refused):  # another tool
            await call_once(bridge, ASKABLE, "leave", principal="ada", more=go_on)
        other.capabilities = ASKABLE
        with pytest.raises(Refused):  # another kind of connection
            await other.call("greet", more=go_on)
        assert len(bridge.parked_calls) == 1
        assert text_of(await call_once(bridge, ASKABLE, "greet", principal="ada", more=go_on)) == "Ada"


@pytest.mark.req("BRG-3")
async def test_an_answer_counts_once_and_on_its_own_connection() -> None:
    bridge = Bridge(Backs(handler=ask_and_echo))
    async with Front(bridge, ASKABLE) as front, Front(bridge, ASKABLE) as other:
        asked = await front.call("greet")
        with pytest.raises(Refused, match="not waiting for an answer any more"):
            await other.call("greet", more=answers(asked))
        assert text_of(await front.call("greet", more=answers(asked))) == "Ada"
        with pytest.raises(Refused, match="not waiting for an answer any more"):
            await front.call("greet", more=answers(asked))


@pytest.mark.req("BRG-2", "BRG-6")
@pytest.mark.parametrize("responses", [7, "text", [1], None])
async def test_answers_that_cannot_be_read_do_not_lose_the_call(responses: Any) -> None:
    backs = Backs(handler=ask_and_echo)
    bridge = Bridge(backs)
    async with Front(bridge, ASKABLE) as front:
        asked = await front.call("greet")
        with pytest.raises(Refused) as refused:
            await front.call("greet", more=answers(asked) | {"inputResponses": responses})
        assert refused.value.code == INVALID_PARAMS
        with pytest.raises(Refused) as refused:
            await front.call("greet", more=answers(asked) | {"requestState": 7})
        assert refused.value.code == INVALID_PARAMS
        assert text_of(await front.call("greet", more=answers(asked))) == "Ada"


async def test_without_an_answer_the_client_is_asked_again() -> None:
    bridge = Bridge(Backs(handler=ask_and_echo))
    async with Front(bridge, ASKABLE) as front:
        asked = await front.call("greet")
        again = await front.call("greet", more={"requestState": asked["requestState"]})
        assert again["inputRequests"] == asked["inputRequests"]
        again = await front.call("greet", more=answers(again) | {"inputResponses": {"unknown": {}}})
        assert text_of(await front.call("greet", more=answers(again))) == "Ada"


@pytest.mark.req("BRG-2", "BRG-6")
async def test_a_parked_call_expires() -> None:
    backs = Backs(handler=ask_and_echo)
    bridge = Bridge(backs, park_within=5.0)
    async with Front(bridge, ASKABLE) as front:
        asked = await front.call("greet")
        skip(6)
        await backs.all[0].until(lambda: backs.all[0].cancelled)
        assert len(bridge.parked_calls) == 0
        with pytest.raises(Refused):
            await front.call("greet", more=answers(asked))
        assert backs.all[0].notes("notifications/cancelled")


@pytest.mark.req("BRG-2")
async def test_there_is_a_limit_to_parked_calls() -> None:
    backs = Backs(handler=ask_and_echo)
    bridge = Bridge(backs, max_parked=1)
    async with Front(bridge, ASKABLE) as front:
        asked = await front.call("greet")
        with pytest.raises(Refused, match="1 calls wait for answers already") as refused:
            await front.call("greet", number=2)
        assert refused.value.code == INTERNAL_ERROR
        await backs.all[0].until(lambda: backs.all[0].cancelled)
        assert text_of(await front.call("greet", more=answers(asked))) == "Ada"


@pytest.mark.req("BRG-6")
async def test_a_client_that_leaves_takes_its_calls_with_it() -> None:
    backs = Backs(handler=ask_and_echo)
    bridge = Bridge(backs)
    async with Front(bridge):
        async with Front(bridge, ASKABLE) as front:
            await front.call("greet")
        assert len(bridge.parked_calls) == 0
        await backs.all[0].until(lambda: backs.all[0].cancelled)
        await until(lambda: not backs.open, "the server of that client to stop")


@pytest.mark.req("BRG-6")
async def test_a_bridge_that_stops_takes_the_calls_with_it() -> None:
    backs = Backs(handler=ask_and_echo)
    bridge = Bridge(backs)
    async with Front(bridge):
        await call_once(bridge, ASKABLE, "greet")
        assert len(backs.open) == 1
    assert not backs.open


@pytest.mark.req("BRG-2")
async def test_several_questions_at_once_reach_the_client_together() -> None:
    async def both(back: Back, _: dict[str, Any]) -> Any:
        asked = [back.post("elicitation/create", FORM), back.post("roots/list", {})]
        first, second = [await back.answer_to(each) for each in asked]
        return text(f"{first['content']['name']} {len(second['roots'])}")

    async with Front(Bridge(Backs(handler=both)), ASKABLE) as front:
        asked = await front.call("both")
        methods = {key: each["method"] for key, each in asked["inputRequests"].items()}
        assert sorted(methods.values()) == ["elicitation/create", "roots/list"]
        # One after the other: the second is asked for again.
        order = sorted(methods, key=lambda key: methods[key])
        again = await front.call(
            "both", more={"inputResponses": {order[0]: NAME}, "requestState": asked["requestState"]}
        )
        assert list(again["inputRequests"]) == [order[1]]
        result = await front.call("both", more=answers(again, {"roots": [{"uri": "file:///a"}]}))
        assert text_of(result) == "Ada 1"


@pytest.mark.req("BRG-2")
async def test_a_question_without_params_reaches_the_client_with_empty_ones() -> None:
    """They may be left out, but the Go SDK's client cannot read a question without them."""

    async def look(back: Back, _: dict[str, Any]) -> Any:
        return text(f"{len((await back.answer_to(back.post('roots/list')))['roots'])} roots")

    async with Front(Bridge(Backs(handler=look)), ASKABLE) as front:
        asked = await front.call("look")
        assert list(asked["inputRequests"].values()) == [{"method": "roots/list", "params": {}}]
        assert text_of(await front.call("look", more=answers(asked, {"roots": []}))) == "0 roots"


@pytest.mark.req("BRG-2")
async def test_a_question_of_a_parked_call_waits_for_the_next_answer() -> None:
    second = asyncio.Event()

    async def both(back: Back, _: dict[str, Any]) -> Any:
        first = back.post("elicitation/create", FORM)
        await second.wait()
        other = back.post("elicitation/create", FORM)
        names = [(await back.answer_to(each))["content"]["name"] for each in (first, other)]
        return text(" ".join(names))

    backs = Backs(handler=both)
    bridge = Bridge(backs)
    async with Front(bridge, ASKABLE) as front:
        asked = await front.call("both")
        second.set()
        back = backs.all[0]
        # A ping is answered after the question has been received.
        await back.answer_to(back.post("ping"))
        again = await front.call("both", more=answers(asked))
        result = await front.call("both", more=answers(again, {"action": "accept", "content": {"name": "Bob"}}))
        assert text_of(result) == "Ada Bob"


@pytest.mark.req("BRG-2")
async def test_a_question_outlives_a_call_that_it_did_not_belong_to() -> None:
    done = asyncio.Event()

    async def work(back: Back, request: dict[str, Any]) -> Any:
        if request["params"]["name"] == "ask":
            return await ask_and_echo(back, request)
        await done.wait()
        return text("other")

    async with Front(Bridge(Backs(handler=work)), ASKABLE) as front:
        other = front.begin("other")  # the bridge takes the question for one of this call
        mine = front.begin("ask")
        asked = await front.answer_to(other)
        done.set()
        mine_asked = await front.answer_to(mine)
        assert text_of(await front.call("other", more=answers(asked))) == "other"
        assert text_of(await front.call("ask", more=answers(mine_asked))) == "Ada"


@pytest.mark.req("BRG-2")
async def test_a_question_outlives_a_cancelled_call_that_it_did_not_belong_to() -> None:
    async def work(back: Back, request: dict[str, Any]) -> Any:
        if request["params"]["name"] == "ask":
            return await ask_and_echo(back, request)
        await asyncio.Event().wait()
        return None

    backs = Backs(handler=work)
    async with Front(Bridge(backs, park_within=5.0), ASKABLE) as front:
        other, mine = front.begin("other"), front.begin("ask")
        await front.answer_to(other)  # the bridge takes the question for one of this call
        skip(6)  # and gives that call up
        asked = await front.answer_to(mine)
        assert text_of(await front.call("ask", more=answers(asked))) == "Ada"
        assert len(backs.all[0].cancelled) == 1


@pytest.mark.req("BRG-2")
async def test_a_question_outlives_a_call_that_the_client_gave_up() -> None:
    async def work(back: Back, request: dict[str, Any]) -> Any:
        if request["params"]["name"] == "ask":
            return await ask_and_echo(back, request)
        await asyncio.Event().wait()
        return None

    async with Front(Bridge(Backs(handler=work)), ASKABLE) as front:
        other, mine = front.begin("other"), front.begin("ask")
        # The bridge takes the question for one of the first call, to which the client never comes back.
        asked = await front.answer_to(other)
        skip(31)
        again = await front.answer_to(mine)
        assert again["inputRequests"] == asked["inputRequests"]
        assert text_of(await front.call("ask", more=answers(again))) == "Ada"


@pytest.mark.req("BRG-2")
async def test_a_server_may_take_its_question_back() -> None:
    async def changes_its_mind(back: Back, _: dict[str, Any]) -> Any:
        question = back.post("elicitation/create", FORM)
        await parked.wait()
        back.tell("notifications/cancelled", requestId=question)
        return text("never mind")

    parked = asyncio.Event()
    bridge = Bridge(Backs(handler=changes_its_mind))
    async with Front(bridge, ASKABLE) as front:
        asked = await front.call("greet")
        parked.set()
        assert text_of(await front.call("greet", more=answers(asked))) == "never mind"


@pytest.mark.req("BRG-2", "BRG-5")
async def test_a_server_that_crashes_while_a_call_is_parked() -> None:
    backs = Backs(handler=ask_and_echo)
    bridge = Bridge(backs, name="the clerk")
    async with Front(bridge, ASKABLE) as front:
        asked = await front.call("greet")
        await backs.all[0].crash()
        with pytest.raises(Refused, match="'the clerk' gave no result"):
            await front.call("greet", more=answers(asked))
        asked = await front.call("greet")  # started again
        assert text_of(await front.call("greet", more=answers(asked))) == "Ada"


@pytest.mark.req("BRG-2")
async def test_a_client_may_cancel_after_its_answer() -> None:
    async def asks_and_hangs(back: Back, request: dict[str, Any]) -> Any:
        await back.ask("elicitation/create", **FORM)
        await asyncio.Event().wait()

    backs = Backs(handler=asks_and_hangs)
    bridge = Bridge(backs)
    async with Front(bridge, ASKABLE) as front:
        asked = await front.call("greet")
        going_on = front.begin("greet", more=answers(asked))
        back = backs.all[0]
        await back.until(lambda: any("result" in message for message in back.seen))
        front.tell("notifications/cancelled", requestId=going_on)
        await back.until(lambda: back.cancelled)
        assert len(bridge.parked_calls) == 0


@pytest.mark.req("BRG-3")
async def test_a_server_whose_call_was_cancelled_serves_nobody_else() -> None:
    async def late(back: Back, request: dict[str, Any]) -> Any:
        if request["params"]["name"] == "late":
            await given_up.wait()
            return await ask_and_echo(back, request)
        return text("done")

    given_up = asyncio.Event()
    backs = Backs(handler=late)
    backs.obeys = False  # it goes on with what was cancelled
    bridge = Bridge(backs)
    async with Front(bridge):
        async with Front(bridge, ASKABLE, peer=Peer("modern")) as front:
            late_call = front.begin("late")
            await backs.until(lambda: backs.all)
            await backs.all[0].until(lambda: backs.all[0].notes("tools/call"))
            front.tell("notifications/cancelled", requestId=late_call)
            await backs.all[0].until(lambda: backs.all[0].cancelled)
        given_up.set()
        assert text_of(await call_once(bridge, ASKABLE, "other")) == "done"
        assert len(backs.all) == 2


@pytest.mark.req("BRG-2")
async def test_what_a_question_cannot_become_is_an_error_for_the_server() -> None:
    seen: list[Refused] = []

    async def asks_badly(back: Back, request: dict[str, Any]) -> Any:
        for method in ("sampling/createMessage", "example.com/unknown"):
            with pytest.raises(Refused) as refused:
                await back.ask(method)
            seen.append(refused.value)
        return text("done")

    async with Front(Bridge(Backs(handler=asks_badly)), {"elicitation": {}}) as front:
        assert text_of(await front.call("greet")) == "done"
    assert "did not declare that it can do sampling/createMessage" in seen[0].message
    assert "cannot pass on example.com/unknown" in seen[1].message


async def test_a_modern_server_s_state_is_its_own() -> None:
    async def modern(back: Back, request: dict[str, Any]) -> Any:
        if request["params"].get("requestState") == "mine":
            return text("done") | {"resultType": "complete"}
        questions = {"q": {"method": "elicitation/create", "params": {**FORM, "mode": "form"}}}
        return {"resultType": "input_required", "inputRequests": questions, "requestState": "mine"}

    bridge = Bridge(Backs(LATEST, modern))
    async with Front(bridge, ASKABLE) as front:
        asked = await front.call("greet")
        assert asked["requestState"] == "mine"
        assert len(bridge.parked_calls) == 0
        assert text_of(await front.call("greet", more=answers(asked))) == "done"


async def test_a_state_from_before_a_restart_of_the_bridge_is_refused() -> None:
    backs = Backs(LATEST_LEGACY, ask_and_echo)
    async with Front(Bridge(backs), ASKABLE) as front:
        asked = await front.call("greet")
    async with Front(Bridge(backs), ASKABLE) as front:
        with pytest.raises(Refused) as refused:
            await front.call("greet", more=answers(asked))
        assert refused.value.code == INVALID_PARAMS
