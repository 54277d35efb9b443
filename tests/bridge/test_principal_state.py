from __future__ import annotations

from typing import Any

import pytest

from mcplumb.bridge.bridge import Bridge
from mcplumb.protocol.principal import Principal
from mcplumb.revisions import LATEST
from mcplumb.transports.connection import Peer
from mcplumb.wire.messages import INTERNAL_ERROR, INVALID_PARAMS
from tests.bridge.ends import ASKABLE, FORM, Back, Backs, Front, Refused, call_once, text
from tests.kit.results import text_of

NAME = {"action": "accept", "content": {"name": "Ada"}}
STATE = "state of the server, with a . in it"
QUESTION = {"method": "elicitation/create", "params": {"mode": "form", "message": "Who?", "requestedSchema": FORM}}


async def ask_with_state(back: Back, message: dict[str, Any]) -> Any:
    """Ask as a modern server does, and repeat the state that comes back."""
    params = message["params"]
    if message["method"] != "tools/call" or "inputResponses" not in params:
        return {"resultType": "input_required", "inputRequests": {"q": QUESTION}, "requestState": STATE}
    return text(f"{params['inputResponses']['q']['content']['name']}: {params.get('requestState')}")


def retry(state: Any) -> dict[str, Any]:
    return {"inputResponses": {"q": NAME}, "requestState": state}


@pytest.mark.req("AUT-14", "BRG-2")
async def test_a_state_belongs_to_the_principal_that_got_it() -> None:
    bridge = Bridge(Backs(LATEST, ask_with_state))
    async with Front(bridge):
        asked = await call_once(bridge, ASKABLE, "greet", principal="ada")
        assert asked["inputRequests"] == {"q": QUESTION}
        state = asked["requestState"]
        for other in ("eve", "ada.eve"):
            with pytest.raises(Refused) as refused:
                await call_once(bridge, ASKABLE, "greet", principal=other, more=retry(state))
            assert refused.value.code == INVALID_PARAMS
        result = await call_once(bridge, ASKABLE, "greet", principal="ada", more=retry(state))
        assert text_of(result) == f"Ada: {STATE}"


@pytest.mark.req("AUT-14")
@pytest.mark.parametrize(
    "change",
    [
        lambda state: STATE,
        lambda state: "." + STATE,
        lambda state: state + " ",
        lambda state: state.replace("server", "devil"),
        lambda state: state.partition(".")[0],
        lambda state: "",
        lambda state: 7,
        lambda state: None,
    ],
    ids=["bare", "no seal", "longer", "changed", "seal only", "empty", "number", "null"],
)
async def test_a_state_that_was_changed_is_refused_and_reaches_no_server(change: Any) -> None:
    backs = Backs(LATEST, ask_with_state)
    bridge = Bridge(backs)
    async with Front(bridge):
        asked = await call_once(bridge, ASKABLE, "greet", principal="ada")
        with pytest.raises(Refused) as refused:
            await call_once(bridge, ASKABLE, "greet", principal="ada", more=retry(change(asked["requestState"])))
        assert refused.value.code == INVALID_PARAMS
        calls = [message for message in backs.all[0].seen if message.get("method") == "tools/call"]
        assert len(calls) == 1


async def test_a_state_for_one_method_is_not_taken_for_another() -> None:
    bridge = Bridge(Backs(LATEST, ask_with_state))
    async with Front(bridge):
        asked = await call_once(bridge, ASKABLE, "greet", principal="ada")
        async with Front(bridge, ASKABLE, peer=Peer("modern", Principal("ada"), is_remote=True)) as front:
            with pytest.raises(Refused) as refused:
                await front.ask("prompts/get", name="greet", **retry(asked["requestState"]))
        assert refused.value.code == INVALID_PARAMS


async def test_without_a_principal_the_state_passes_as_it_is() -> None:
    bridge = Bridge(Backs(LATEST, ask_with_state))
    async with Front(bridge, ASKABLE) as front:
        asked = await front.call("greet")
        assert asked["requestState"] == STATE
        assert text_of(await front.call("greet", more=retry(STATE))) == f"Ada: {STATE}"
        once = await call_once(bridge, ASKABLE, "greet")
        assert once["requestState"] == STATE


async def test_a_legacy_client_with_a_principal_is_asked_as_ever() -> None:
    async def answer(_: dict[str, Any]) -> Any:
        return NAME

    bridge = Bridge(Backs(LATEST, ask_with_state))
    peer = Peer("legacy", Principal("ada"), is_remote=True)
    async with Front(bridge, ASKABLE, peer=peer) as front:
        front.on_question = answer
        await front.initialize()
        assert text_of(await front.call("greet")) == f"Ada: {STATE}"


@pytest.mark.parametrize("state", [7, None, {}])
async def test_a_server_whose_state_is_no_string_is_named(state: Any) -> None:
    async def handler(back: Back, message: dict[str, Any]) -> Any:
        return {"resultType": "input_required", "inputRequests": {"q": QUESTION}, "requestState": state}

    bridge = Bridge(Backs(LATEST, handler))
    async with Front(bridge):
        with pytest.raises(Refused, match="gave no result") as refused:
            await call_once(bridge, ASKABLE, "greet", principal="ada")
        assert refused.value.code == INTERNAL_ERROR


async def test_questions_without_a_state_and_results_pass() -> None:
    async def handler(back: Back, message: dict[str, Any]) -> Any:
        if "inputResponses" in message["params"]:
            return text("done")
        return {"resultType": "input_required", "inputRequests": {"q": QUESTION}}

    bridge = Bridge(Backs(LATEST, handler))
    async with Front(bridge):
        asked = await call_once(bridge, ASKABLE, "greet", principal="ada")
        assert "requestState" not in asked
        result = await call_once(bridge, ASKABLE, "greet", principal="ada", more={"inputResponses": {"q": NAME}})
        assert text_of(result) == "done"
