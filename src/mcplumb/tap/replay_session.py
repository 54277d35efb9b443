"""Send the requests of a recorded session to a server again, and compare the answers.

Requests of the handshake are not sent: the client makes its own. Requests that change something are only sent if that
is asked for: calls of tools that are not marked read-only, subscriptions, and methods that mcplumb does not know.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.errors import McplumbError, RemoteError
from mcplumb.tap.compare_sessions import Answer, differences, without_volatile

if TYPE_CHECKING:
    from mcplumb.client.client import Client

__all__ = ["Replayed", "replay"]

#: Requests that only read.
_READING = frozenset((
    "tools/list", "prompts/list", "prompts/get", "resources/list", "resources/templates/list", "resources/read",
    "completion/complete",
))  # fmt: skip
#: Requests that the client sends itself, or that make no sense again.
_NEVER = frozenset(("initialize", "server/discover", "ping", "logging/setLevel", "subscriptions/listen"))


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """One request of the recording, and its outcome now."""

    answer: Answer
    #: Why it was not sent; empty if it was.
    skipped: str = ""
    #: The places where the answer differs, and how.
    differs: tuple[tuple[str, str], ...] = ()


async def replay(client: Client, answers: list[Answer], *, everything: bool = False) -> AsyncIterator[Replayed]:
    """Send the requests again, one after the other; with ``everything``, also those that may change something."""
    read_only = await _read_only_tools(client)
    for answer in answers:
        reason = _reason_to_skip(answer, read_only, everything=everything)
        if reason:
            yield Replayed(answer=answer, skipped=reason)
            continue
        outcome = await _send(client, answer)
        yield Replayed(
            answer=answer, differs=tuple(differences(without_volatile(answer.outcome), without_volatile(outcome)))
        )


def _reason_to_skip(answer: Answer, read_only: set[str], *, everything: bool) -> str:
    if answer.method in _NEVER:
        return "the client does this by itself"
    if answer.is_masked:
        return "secrets in it are masked"
    if answer.outcome is None:
        return "it had no answer"
    if isinstance(answer.params, dict) and ("inputResponses" in answer.params or "requestState" in answer.params):
        return "it answers a question of the server"
    if everything or answer.method in _READING:
        return ""
    if answer.method == "tools/call":
        return "" if answer.name in read_only else "the tool is not marked read-only"
    return "it may change something"


async def _read_only_tools(client: Client) -> set[str]:
    if client.capabilities.tools is None:
        return set()
    tools = await client.list_tools()
    return {tool.name for tool in tools if tool.annotations is not None and tool.annotations.read_only_hint is True}


async def _send(client: Client, answer: Answer) -> Any:
    params = without_volatile(answer.params) or {}
    try:
        return msgspec.to_builtins(await client.request(answer.method, params))
    except RemoteError as error:
        return {"error": {"code": error.code, "message": error.message}}
    except McplumbError as error:
        return {"failure": str(error)}
