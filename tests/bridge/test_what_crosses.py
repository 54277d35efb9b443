"""Small cases of what crosses a bridge, which the fidelity table has shown to matter."""

from __future__ import annotations

from typing import Any

import pytest

from mcplumb import Bridge, RemoteError, connect
from mcplumb.types.meta import LOG_LEVEL
from mcplumb.types.notification_params import LogMessageParams
from tests.bridge.group_servers import LEGACY, MODERN
from tests.client.peers import Peer

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
