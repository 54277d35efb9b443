"""Lists of what a server did not declare: nothing is asked, unless a legacy server has declared nothing at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcplumb import Client, RemoteError
from mcplumb.wire.messages import METHOD_NOT_FOUND
from tests.client.peers import Peer, talk

MODERN, LEGACY = "2026-07-28", "2025-11-25"
ALL = ["tools/list", "resources/list", "resources/templates/list", "prompts/list"]
#: An answer to any of them.
EVERYTHING = {
    "resultType": "complete",
    "tools": [{"name": "x", "inputSchema": {"type": "object"}}],
    "resources": [{"uri": "a:b", "name": "x"}],
    "resourceTemplates": [{"uriTemplate": "a:{b}", "name": "x"}],
    "prompts": [{"name": "x"}],
}
BOTH = pytest.mark.parametrize("revision", [MODERN, LEGACY])


async def list_all(client: Client) -> list[list[Any]]:
    return [
        await client.list_tools(),
        await client.list_resources(),
        await client.list_resource_templates(),
        await client.list_prompts(),
    ]


def lists_of(capabilities: Any, revision: str, *, answers: bool = True) -> tuple[list[int], list[str]]:
    """Return how much is in each list of such a server, and what it was asked for."""
    asked: list[str] = []

    async def play(peer: Peer) -> None:
        if revision == MODERN:
            await peer.discover(capabilities=capabilities)
        else:
            await peer.initialize(revision, capabilities=capabilities)
        answering = asyncio.create_task(answer_all(peer))
        await peer.gone()
        answering.cancel()

    async def answer_all(peer: Peer) -> None:
        while True:
            request = await peer.next()
            asked.append(request["method"])
            if answers:
                peer.answer(request, EVERYTHING)
            else:
                peer.refuse(request, METHOD_NOT_FOUND)

    lists = talk(Peer(play), list_all, revisions=[revision])
    return [len(each) for each in lists], asked


@BOTH
@pytest.mark.parametrize("declared", [["tools"], ["resources"], ["prompts"], ["tools", "prompts"]])
def test_what_is_not_declared_is_empty_and_not_asked_for(declared: list[str], revision: str) -> None:
    counts, asked = lists_of({name: {} for name in declared}, revision)
    assert asked == [method for method in ALL if method.partition("/")[0] in declared]
    assert counts == [int(method in asked) for method in ALL]


def test_a_modern_server_that_declares_nothing_has_nothing() -> None:
    assert lists_of({}, MODERN) == ([0, 0, 0, 0], [])


@pytest.mark.parametrize("capabilities", [{}, {"logging": {}}])
def test_a_legacy_server_that_declares_no_feature_is_asked(capabilities: Any) -> None:
    assert lists_of(capabilities, LEGACY) == ([1, 1, 1, 1], ALL)
    assert lists_of(capabilities, LEGACY, answers=False) == ([0, 0, 0, 0], ALL)


@BOTH
@pytest.mark.parametrize("details", [True, "yes", {"listChanged": "often"}, [1]])
def test_a_declaration_with_unreadable_details_is_one(details: Any, revision: str) -> None:
    assert lists_of({"tools": details, "prompts": {}}, revision) == ([1, 0, 0, 1], ["tools/list", "prompts/list"])


@BOTH
def test_a_declared_list_that_is_refused_is_an_error(revision: str) -> None:
    with pytest.raises(RemoteError):
        lists_of({"tools": {}}, revision, answers=False)
