"""What a server asks of its client, whichever way between them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcplumb import Client
from mcplumb.client import Elicitation
from mcplumb.errors import RemoteError
from mcplumb.types import CreateMessageParams, TextContent
from tests.everywhere.ways import everywhere, meet
from tests.everywhere.words import text

pytestmark = everywhere


@pytest.mark.parametrize("is_async", [False, True])
def test_the_user_is_asked(way: str, is_async: bool) -> None:
    questions: list[str] = []

    def answer(question: Elicitation) -> dict[str, Any] | None:
        assert (question.mode, question.url) == ("form", None)
        questions.append(question.message)
        return {"name": "Ada", "age": 36} if question.message == "Who are you?" else None

    async def answer_later(question: Elicitation) -> dict[str, Any] | None:
        await asyncio.sleep(0)
        return answer(question)

    async def body(client: Client) -> None:
        result = await client.call_tool("introduce")
        if client.revision.has_elicitation:
            assert text(result) == "Ada, 36: decline"
            assert questions == ["Who are you?", "Really?"]
            assert text(await client.call_tool("introduce_in_a_thread")) == "Ada"
        else:
            assert result.is_error
            assert questions == []

    meet(way, body, on_elicit=answer_later if is_async else answer)


def test_the_user_is_asked_in_many_calls_at_once(way: str) -> None:
    async def body(client: Client) -> None:
        if client.revision.has_elicitation:
            results = await asyncio.gather(*(client.call_tool("introduce") for _ in range(20)))
            assert {text(result) for result in results} == {"Ada, 0: accept"}

    meet(way, body, on_elicit=lambda _: {"name": "Ada"})


def test_the_user_is_sent_to_a_page(way: str) -> None:
    def agree(question: Elicitation) -> dict[str, Any]:
        assert (question.mode, question.url) == ("url", "https://example.com/login")
        return {}

    async def body(client: Client) -> None:
        result = await client.call_tool("visit")
        if client.revision.has_url_elicitation:
            assert text(result) == "accept"
        else:
            assert result.is_error

    meet(way, body, on_elicit=agree)


def test_a_client_that_cannot_be_asked(way: str) -> None:
    async def body(client: Client) -> None:
        for tool, arguments in (("introduce", {}), ("think", {"question": "why"}), ("look", {})):
            if client.revision.is_modern:
                with pytest.raises(RemoteError) as caught:
                    await client.call_tool(tool, arguments)
                assert caught.value.code == -32021
            else:
                assert (await client.call_tool(tool, arguments)).is_error

    meet(way, body)


def test_the_model_is_asked(way: str) -> None:
    def on_sample(params: CreateMessageParams) -> str:
        (block,) = params.messages[0].blocks
        assert isinstance(block, TextContent)
        return block.text.upper()

    async def body(client: Client) -> None:
        questions = [f"why {n}" for n in range(10)]
        results = await asyncio.gather(*(client.call_tool("think", {"question": each}) for each in questions))
        assert [text(result) for result in results] == [each.upper() for each in questions]

    meet(way, body, on_sample=on_sample)


def test_the_roots_are_asked_for(way: str) -> None:
    roots = ["file:///a"]

    async def body(client: Client) -> None:
        assert text(await client.call_tool("look")) == "file:///a"
        roots.append("file:///b")
        await client.roots_changed()
        assert text(await client.call_tool("look")) == "file:///a file:///b"

    meet(way, body, roots=lambda: roots)
