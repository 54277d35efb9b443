from __future__ import annotations

import asyncio

import pytest

from mcplumb.client.client import Client
from mcplumb.protocol.stop_ladder import StopLadder
from tests.client.peers import Peer, modern, talk

SOON = StopLadder(close_wait=0.01)


async def nothing_to_say(client: Client) -> None:
    """Close the client at once."""


async def wait_for_a_call(peer: Peer) -> None:
    await peer.expect("tools/call")


def test_a_play_that_still_waits_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"still waited .* connection 1, which has seen .*discover"):
        talk(modern(wait_for_a_call), nothing_to_say, stop=SOON)


def test_a_play_that_still_waits_is_no_error_if_the_test_says_so() -> None:
    talk(modern(wait_for_a_call, may_be_cancelled=True), nothing_to_say, stop=SOON)


def test_the_error_of_a_test_is_not_hidden_by_a_play_that_still_waits() -> None:
    async def fail(client: Client) -> None:
        await asyncio.sleep(0)
        raise LookupError("the test's own")

    with pytest.raises(LookupError, match="the test's own"):
        talk(modern(wait_for_a_call), fail, stop=SOON)
