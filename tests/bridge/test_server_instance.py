from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from mcplumb.bridge.bridge import Bridge
from mcplumb.client.connector import connect
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from mcplumb.types.meta import LOG_LEVEL
from tests.bridge.ends import ASKABLE, FORM, Back, Backs, Front, Refused, ask_and_echo, echo, instance_of, text
from tests.client.peers import skip
from tests.kit.loop import turns, until
from tests.kit.results import text_of
from tests.kit.servers import serving

both_eras = pytest.mark.parametrize("revision", [LATEST, LATEST_LEGACY], ids=str)
MESSAGE = "notifications/message"


def log(back: Back, words: str, level: str = "error") -> None:
    back.tell(MESSAGE, level=level, data=words)


class Gate:
    """A server whose calls wait until the test lets them go on, each by its text."""

    def __init__(self, revision: Revision) -> None:
        self.begun: set[str] = set()
        self._go_on: dict[str, asyncio.Event] = {}
        self.backs = Backs(revision, self._serve)

    async def _serve(self, back: Back, request: dict[str, Any]) -> Any:
        words = request["params"]["arguments"]["text"]
        self.begun.add(words)
        await self._go_on.setdefault(words, asyncio.Event()).wait()
        return await echo(back, request)

    def go_on(self, words: str) -> None:
        self._go_on.setdefault(words, asyncio.Event()).set()

    async def called(self, front: Front, words: str) -> Any:
        """Begin a call that wants logs, and wait until the server works on it."""
        params = front.params({"name": "echo", "arguments": {"text": words}})
        if front.is_modern:
            params["_meta"][LOG_LEVEL] = "info"
        call = front.post("tools/call", params)
        await self.backs.until(lambda: self.backs.all)
        await self.backs.all[0].until(lambda: words in self.begun or self.backs.all[0].has_ended)
        return call


@pytest.mark.req("BRG-3")
@both_eras
async def test_a_log_goes_to_the_client_whose_calls_are_the_only_ones(revision: Revision) -> None:
    gate = Gate(revision)
    bridge = Bridge(gate.backs)
    async with Front(bridge) as one, Front(bridge) as other:
        gate.go_on("0")
        await one.answer_to(await gate.called(one, "0"))
        await other.answer_to(await gate.called(other, "0"))
        call = await gate.called(one, "1")
        (back,) = gate.backs.all
        log(back, "for one")
        log(back, "too quiet", "debug")
        await one.until(lambda: one.notes(MESSAGE))
        second = await gate.called(other, "2")
        log(back, "for whom?")
        gate.go_on("1")
        await one.answer_to(call)
        log(back, "for the other")
        await other.until(lambda: other.notes(MESSAGE))
        gate.go_on("2")
        await other.answer_to(second)
        assert [each["data"] for each in one.notes(MESSAGE)] == ["for one"]
        assert [each["data"] for each in other.notes(MESSAGE)] == ["for the other"]
        assert instance_of(bridge).unattributed == 1


@pytest.mark.req("BRG-3")
@both_eras
async def test_a_log_of_a_cancelled_call_reaches_no_other_client(revision: Revision) -> None:
    gate = Gate(revision)
    gate.backs.obeys = False
    bridge = Bridge(gate.backs)
    async with Front(bridge) as one, Front(bridge) as other:
        cancelled = await gate.called(one, "cancelled")
        (back,) = gate.backs.all
        one.tell("notifications/cancelled", requestId=cancelled)
        await back.until(lambda: back.cancelled)
        call = await gate.called(other, "other")
        log(back, "of the cancelled call")
        await until(lambda: instance_of(bridge).unattributed == 1, "the log to be counted")
        skip(61)
        log(back, "of the other")
        await other.until(lambda: other.notes(MESSAGE))
        gate.go_on("other")
        await other.answer_to(call)
        assert [each["data"] for each in other.notes(MESSAGE)] == ["of the other"]
        assert not one.notes(MESSAGE)
        assert instance_of(bridge).unattributed == 1


@pytest.mark.req("BRG-1")
async def test_the_only_client_gets_logs_at_any_time() -> None:
    backs = Backs()
    bridge = Bridge(backs)
    async with Front(bridge) as front:
        await front.initialize()
        await front.call()
        log(backs.all[0], "in the background")
        log(backs.all[0], "too quiet", "debug")
        await front.until(lambda: front.notes(MESSAGE))
        assert [each["data"] for each in front.notes(MESSAGE)] == ["in the background"]
        assert instance_of(bridge).unattributed == 0


@pytest.mark.req("BRG-4")
@both_eras
async def test_a_notification_of_an_extension_reaches_the_only_client(revision: Revision) -> None:
    backs = Backs(revision)
    bridge = Bridge(backs)
    async with Front(bridge) as front:
        await front.call()
        backs.all[0].tell("notifications/example.com/own", a=1)
        backs.all[0].tell("notifications/elicitation/complete", elicitationId="7")  # the modern era has no such thing
        await front.until(lambda: front.notes("notifications/example.com/own"))
        assert front.notes("notifications/example.com/own") == [{"a": 1}]
        await front.call()
        assert not front.notes("notifications/elicitation/complete")
        async with Front(bridge) as other:
            await other.call()
            backs.all[0].tell("notifications/example.com/own", a=2)
            await other.call()
            await front.call()
            assert not other.notes("notifications/example.com/own")
        assert len(front.notes("notifications/example.com/own")) == 1
        assert instance_of(bridge).unattributed == 1


@pytest.mark.req("BRG-1", "BRG-3")
async def test_a_server_of_its_own_sends_a_legacy_client_everything() -> None:
    backs = Backs()
    bridge = Bridge(backs)
    async with Front(bridge, ASKABLE) as front, Front(bridge, ASKABLE) as other:
        await front.initialize()
        await other.initialize()
        back = backs.all[0]
        log(back, "loud")
        log(back, "quiet", "debug")  # the server decides, as it would without a bridge
        back.tell("notifications/elicitation/complete", elicitationId="7")
        await front.until(lambda: front.notes("notifications/elicitation/complete"))
        assert [each["data"] for each in front.notes(MESSAGE)] == ["loud", "quiet"]
        await other.call()
        assert not other.notes(MESSAGE)


@pytest.mark.req("BRG-3")
async def test_what_goes_to_nobody_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mcplumb.bridge")
    backs = Backs()
    bridge = Bridge(backs, name="the clerk")
    async with Front(bridge) as one, Front(bridge) as other:
        await one.call()
        await other.call()
        for _ in range(3):
            backs.all[0].tell("notifications/example.com/own")
        backs.all[0].tell(MESSAGE, level="no such level", data=1)
        await one.call()
        assert instance_of(bridge).unattributed == 4
    warned = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1
    assert "'the clerk' sent the notification 'notifications/example.com/own'" in warned[0].getMessage()


@pytest.mark.req("BRG-2", "BRG-3")
async def test_a_shared_legacy_server_can_ask_nobody() -> None:
    refusals: list[str] = []

    async def ask(back: Back, request: dict[str, Any]) -> Any:
        with pytest.raises(Refused) as refused:
            await back.ask("elicitation/create", **FORM)
        refusals.append(refused.value.message)
        return text("done")

    backs = Backs(handler=ask)
    bridge = Bridge(backs, share="always")
    async with Front(bridge, ASKABLE) as modern, Front(bridge, ASKABLE) as legacy:
        await legacy.initialize()
        assert text_of(await modern.call()) == text_of(await legacy.call()) == "done"
        assert not modern.questions()
        assert not legacy.questions()
        assert backs.all[0].client["capabilities"] == {}
        assert instance_of(bridge).unattributed == 2
    assert all("clients share this server, and it is not known which of them is meant" in each for each in refusals)
    assert len(backs.all) == 1


async def test_a_question_without_a_call_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    backs = Backs()
    async with Front(Bridge(backs, name="the clerk"), ASKABLE) as front:
        await front.call()
        with pytest.raises(Refused, match="no call is open that could carry it"):
            await backs.all[0].ask("roots/list")
        assert await backs.all[0].ask("ping") == {}
    [warned] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warned.getMessage() == (
        "The server 'the clerk' sent the request 'roots/list', which went to no client, because no call is open that "
        "could carry it: a modern client can be asked only with one. If the server needs folders, name them in its "
        "command."
    )


@pytest.mark.req("BRG-5")
async def test_a_client_that_does_not_read_loses_logs_and_nothing_piles_up() -> None:
    backs = Backs()
    bridge = Bridge(backs)
    async with Front(bridge, ASKABLE) as front, Front(bridge) as other:
        await front.initialize()
        front.connection.pause()
        instance = instance_of(bridge)
        words = "x" * 50_000
        for _ in range(200):
            log(backs.all[0], words)
            await turns(3)
        assert instance.dropped > 100
        assert text_of(await other.call(text="not harmed")) == "not harmed"
        front.connection.resume()


async def test_a_level_that_the_server_refuses_harms_no_call() -> None:
    backs = Backs()
    backs.refuses = "logging/setLevel"
    async with Front(Bridge(backs), ASKABLE) as front:
        params = front.params({"name": "echo", "arguments": {"text": "x"}}, **{LOG_LEVEL: "info"})
        assert text_of(await front.answer_to(front.post("tools/call", params))) == "x"
        assert backs.all[0].notes("logging/setLevel")


async def test_without_logging_no_level_is_set_at_a_legacy_server() -> None:
    for revision in (LATEST, LATEST_LEGACY):
        backs = Backs(revision)
        del backs.capabilities["logging"]
        async with Front(Bridge(backs), ASKABLE) as front:
            await front.answer_to(front.post("tools/call", front.params({"name": "echo"}, **{LOG_LEVEL: "info"})))
            assert not backs.all[0].notes("logging/setLevel")
            # Modern servers exist that send log messages without declaring that they do.
            assert (LOG_LEVEL in backs.all[0].notes("tools/call")[0].get("_meta", {})) == revision.is_modern


@pytest.mark.req("BRG-2")
async def test_a_question_outlives_the_response_that_carried_it() -> None:
    asked: list[str] = []

    async def work(back: Back, request: dict[str, Any]) -> Any:
        if request["params"]["name"] == "ask":
            return await ask_and_echo(back, request)
        await asyncio.Event().wait()
        return None

    async def answer(question: Any) -> dict[str, str]:
        asked.append(question.message)
        if len(asked) == 1:
            await asyncio.Event().wait()
        return {"name": "Ada"}

    backs = Backs(handler=work)
    async with (
        serving(Bridge(backs), "http://127.0.0.1:0/mcp") as [url],
        connect(url, revisions=[str(LATEST_LEGACY)], on_elicit=answer) as client,
    ):
        other = asyncio.create_task(client.call_tool("other"))
        await until(lambda: any("other" in str(message) for message in backs.all[-1].seen), "the first call")
        mine = asyncio.create_task(client.call_tool("ask"))
        await until(lambda: asked, "the question, with the response to the first call")
        other.cancel()
        assert (await mine).text == "Ada"
        assert len(asked) == 2
