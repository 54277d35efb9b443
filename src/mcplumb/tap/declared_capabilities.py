"""What each side has declared that it can do, and what a message needs of that.

A capability is named as in ``tools``, and its parts as in ``tools.listChanged``.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from mcplumb.revisions import Revision
from mcplumb.tap.payload_members import members, text_of, value_of

__all__ = ["declared_in", "missing_of_client", "missing_of_server"]

_NEEDED_OF_SERVER = {
    "tools/list": "tools",
    "tools/call": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": "resources",
    "resources/subscribe": "resources.subscribe",
    "prompts/list": "prompts",
    "prompts/get": "prompts",
    "logging/setLevel": "logging",
    "completion/complete": "completions",
}
#: What a server needs to announce something in a session. In the modern era, a subscription says what it includes.
_NEEDED_TO_ANNOUNCE = {
    "notifications/message": "logging",
    "notifications/tools/list_changed": "tools.listChanged",
    "notifications/prompts/list_changed": "prompts.listChanged",
    "notifications/resources/list_changed": "resources.listChanged",
    "notifications/resources/updated": "resources.subscribe",
}


def declared_in(capabilities: Any) -> frozenset[str]:
    """Return the names of all capabilities, and of their parts that are not switched off."""
    found = set()
    for name, raw in members(capabilities).items():
        found.add(name)
        found |= {f"{name}.{part}" for part, value in members(raw).items() if value_of(value) not in (False, None)}
    return frozenset(found)


def missing_of_server(method: str, declared: Container[str], revision: Revision | None) -> str | None:
    """Return the capability of the server that this message needs and the server has not declared."""
    needed = _NEEDED_OF_SERVER.get(method)
    if needed is None and revision is not None and not revision.is_modern:
        needed = _NEEDED_TO_ANNOUNCE.get(method)
    if needed == "completions" and (revision is None or not revision.has_completions_capability):
        return None
    return None if needed is None or needed in declared else needed


def missing_of_client(method: str, params: Any, declared: Container[str]) -> str | None:
    """Return the capability of the client that a question needs and the client has not declared."""
    given = members(params)
    match method:
        case "roots/list":
            needed = "roots"
        case "sampling/createMessage" if value_of(given.get("tools")) or "toolChoice" in given:
            needed = "sampling.tools"
        case "sampling/createMessage":
            needed = "sampling"
        case "elicitation/create" if text_of(given.get("mode")) == "url":
            needed = "elicitation.url"
        # Without any parts, it has forms.
        case "elicitation/create" if "elicitation.url" in declared:
            needed = "elicitation.form"
        case "elicitation/create":
            needed = "elicitation"
        case _:
            return None
    return None if needed in declared else needed
