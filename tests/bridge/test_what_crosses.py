"""Small cases of what crosses a bridge, which the fidelity table has shown to matter."""

from __future__ import annotations

from typing import Any

import pytest

from mcplumb import Bridge, RemoteError, connect
from mcplumb.bridge.server_instance import FrontClient
from mcplumb.bridge.server_pool import ServerPool
from mcplumb.types.lifecycle import ClientCapabilities, ElicitationCapability
from mcplumb.types.meta import LOG_LEVEL
from mcplumb.types.notification_params import LogMessageParams
from tests.bridge.group_servers import LEGACY, MODERN, notes
from tests.client.peers import Peer
from tests.kit.loop import turns, until

eras = pytest.mark.parametrize("era", [MODERN, LEGACY])
ANNOUNCED = {"resultType": "complete", "content": [{"type": "text", "text": "announced"}]}


@eras
@pytest.mark.req("BRG-1")
async def test_the_log_level_reaches_a_modern_server_that_declares_no_logging(era: str) -> None:
    # Version 2 of the official Python SDK sends log messages without declaring that it does.
    async def play(peer: Peer) -> None:
        await peer.discover(capabilities={"tools": {}})
        while (request := await peer.next())["method"] != "tools/call":
            pass  # a legacy client watches the lists
        assert request["params"]["_meta"][LOG_LEVEL] == "info"
        peer.notify("notifications/message", level="info", data="Dinner is served.")
        peer.answer(request, ANNOUNCED)

    peer = Peer(play)
    log: list[LogMessageParams] = []
    async with connect(Bridge(peer), revisions=[era], on_log=log.append, check_output=False) as client:
        if era == MODERN:
            await client.set_log_level("info")
        else:
            await client.request("logging/setLevel", {"level": "info"})
        assert (await client.call_tool("announce")).text == "announced"
        assert [message.data for message in log] == ["Dinner is served."]
    peer.check()


@pytest.mark.req("BRG-1")
async def test_a_subscription_that_the_server_does_not_offer_is_refused() -> None:
    async def play(peer: Peer) -> None:
        await peer.initialize(LEGACY, capabilities={"resources": {}})

    peer = Peer(play)
    params: dict[str, Any] = {"uri": "note://first"}
    async with connect(Bridge(peer, revisions=[LEGACY]), revisions=[LEGACY]) as client:
        for _ in range(2):
            with pytest.raises(RemoteError, match="does not offer subscriptions to resources") as refused:
                await client.request("resources/subscribe", params)
            assert refused.value.code == -32601
    peer.check()


@pytest.mark.req("BRG-1", "BRG-3")
async def test_a_subscription_leaves_its_server_free_for_calls() -> None:
    # Over modern HTTP each request stands alone. If a subscription kept a legacy server for itself, the client's calls
    # would go to another one, and what they change would not be announced.
    pool = ServerPool("notes", lambda: connect(notes(LEGACY)), share="auto", idle=300, max_instances=5)
    client = FrontClient(ClientCapabilities(elicitation=ElicitationCapability()), None, None, None, stays=False)
    other = FrontClient(
        ClientCapabilities(elicitation=ElicitationCapability()), None, "somebody else", None, stays=False
    )
    subscribed = await pool.join(client)
    first = await pool.lease(client)
    assert first is subscribed
    second, third = await pool.lease(client), await pool.lease(other)
    assert len({first, second, third}) == 3
    assert await pool.join(client) in (first, second)
    for instance in (first, second, third):
        pool.release(instance)
    assert await pool.join(other) is third
    await pool.close()


@pytest.mark.req("BRG-6")
async def test_a_server_with_a_subscription_is_not_idle() -> None:
    pool = ServerPool("notes", lambda: connect(notes(LEGACY)), share="auto", idle=0, max_instances=5)
    client = FrontClient(ClientCapabilities(elicitation=ElicitationCapability()), None, None, None, stays=False)
    subscribed = await pool.join(client)
    called = await pool.lease(client)
    pool.release(called)
    await turns(10)
    assert pool.state == "running"
    pool.leave(subscribed)
    await until(lambda: pool.state == "idle")
    await pool.close()
