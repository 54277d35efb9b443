"""Questions of a server to its user: each waits until the page has an answer.

A form or a web page (elicitation), a message that a person writes in place of a model (sampling), and the consent to a
sign-in. What a server may ask is not trusted: it is shown as text, and only http and https addresses can be opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from mcplumb.client.input_handlers import Elicitation
from mcplumb.errors import AuthorizationError, RequestError
from mcplumb.limits import MAX_WORKBENCH_QUESTIONS
from mcplumb.types.client_features import CreateMessageParams, CreateMessageResult, ElicitResult
from mcplumb.types.content import TextContent
from mcplumb.view.api_routes import ApiError, Gone

__all__ = ["Answer", "Questions", "can_be_opened"]

#: The error that a refused sampling request gets, as in the examples of the protocol.
_REJECTED = -1


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The user's answer."""

    action: Literal["accept", "decline", "cancel"]
    #: Of a form, or a whole result of a sampling request.
    content: dict[str, Any] | None = None
    #: Of a sampling request: the message, and the name of the model that the server gets to see.
    text: str = ""
    model: str = ""


class _Question:
    """One question, and the future of its answer."""

    def __init__(self, number: int, kind: str, shown: dict[str, Any]) -> None:
        self.number = number
        self.shown = {"id": number, "kind": kind, **shown}
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.check: Callable[[Answer], None] = lambda _: None


class Questions:
    """The open questions of one server. ``changed`` is called whenever they change."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._waiting: dict[int, _Question] = {}
        self._last = 0

    def shown(self) -> list[dict[str, Any]]:
        """Return the questions, oldest first."""
        return [question.shown for question in self._waiting.values()]

    def answer(self, number: int, answer: Answer) -> None:
        """Answer a question; raise `Gone` if it is no longer open, `ApiError` if the answer does not fit it."""
        question = self._waiting.get(number)
        if question is None or question.answer.done():
            raise Gone("This question does not wait for an answer any more.")
        question.check(answer)
        question.answer.set_result(answer)

    # The handlers of the client

    async def elicit(self, asked: Elicitation) -> ElicitResult:
        """Ask the user with a form, or send the user to a web page."""
        shown: dict[str, Any] = {"message": asked.message, "mode": asked.mode}
        if asked.params.is_form:
            shown["schema"] = asked.schema
        elif asked.params.is_url:
            shown |= {"url": asked.url, "canBeOpened": can_be_opened(asked.url or "")}
        else:
            raise RequestError(-32602, f"mcplumb view cannot ask in the mode {asked.mode[:40]!r}.")
        answer = await self._ask("elicitation", shown)
        is_accepted_form = answer.action == "accept" and asked.params.is_form
        return ElicitResult(answer.action, (answer.content or {}) if is_accepted_form else None)

    async def sample(self, asked: CreateMessageParams) -> CreateMessageResult:
        """Ask the user for the message that a model would write."""
        answer = await self._ask("sampling", {"params": asked}, _check_sampled)
        if answer.action != "accept":
            raise RequestError(_REJECTED, "User rejected sampling request")
        return _sampled(answer)

    async def visit(self, url: str) -> None:
        """Show the address of a sign-in; raise `AuthorizationError` if the user declines."""
        answer = await self._ask("sign-in", {"url": url, "canBeOpened": can_be_opened(url)})
        if answer.action != "accept":
            host = urlsplit(url).hostname
            raise AuthorizationError("denied", f"You did not sign in at {host}. Connect again to be asked again.")

    async def _ask(self, kind: str, shown: dict[str, Any], check: Callable[[Answer], None] | None = None) -> Answer:
        if len(self._waiting) >= MAX_WORKBENCH_QUESTIONS:
            raise RequestError(_REJECTED, f"{MAX_WORKBENCH_QUESTIONS} questions wait for an answer already.")
        self._last += 1
        question = _Question(self._last, kind, shown)
        if check is not None:
            question.check = check
        self._waiting[question.number] = question
        self._changed()
        try:
            return await question.answer
        finally:
            del self._waiting[question.number]
            self._changed()


def can_be_opened(url: str) -> bool:
    """Return whether a browser may be sent to an address: it must be http or https and name a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False


def _sampled(answer: Answer) -> CreateMessageResult:
    if answer.content is not None:
        return msgspec.convert(answer.content, CreateMessageResult)
    return CreateMessageResult(
        "assistant", TextContent(answer.text), model=answer.model or "a person", stop_reason="endTurn"
    )


def _check_sampled(answer: Answer) -> None:
    if answer.action == "accept":
        try:
            _sampled(answer)
        except msgspec.ValidationError as error:
            raise ApiError(400, f"This is no result of a sampling request: {error}.") from None
