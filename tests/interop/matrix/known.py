"""What does not pass in the matrix, and why: what an SDK has not, and what it does wrong, with the bytes that show it.

A cell that does not pass has to be here, and what is here may not pass: tests hold both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from tests.interop.bridge.fidelity import FEATURES, Visit
from tests.interop.bridge.products import MCPLUMB

EVIDENCE = Path(__file__).parent / "evidence"

#: ``none``: it has no such thing.
Verdict: TypeAlias = Literal["pass", "fail", "none"]


class Known(NamedTuple):
    #: As visits name it.
    peer: str
    verdict: Literal["fail", "none"]
    features: tuple[str, ...]
    #: In which visits of the peer.
    applies: Callable[[Visit], bool]
    #: What it does, as a sentence for the page.
    why: str
    #: The file with the messages that show that; ``->`` is what the client sent. What is not there sends nothing.
    evidence: str | None = None
    #: Whether the server refuses it with an error: the table of the bridge counts an error that crosses as passed.
    is_refused: bool = False

    @property
    def messages(self) -> str:
        return "" if self.evidence is None else (EVIDENCE / f"{self.evidence}.txt").read_text(encoding="utf-8")


_LEGACY_TO_MODERN_STDIO = ("legacy", "modern", "http", "stdio")


def _all_but(*features: str) -> tuple[str, ...]:
    return tuple(feature for feature in FEATURES if feature not in features)


def _is_bridged(visit: Visit) -> bool:
    return visit.cell.product is MCPLUMB


KNOWN = (
    Known(
        "go",
        "fail",
        ("list_changes",),
        lambda visit: _is_bridged(visit) and visit[1:] == ("own", "go") and visit.cell[1:] == _LEGACY_TO_MODERN_STDIO,
        "The server keeps the subscriptions to lists by session, which over stdio is the connection. When one "
        "`subscriptions/listen` of a session ends, it forgets the subscriptions to lists of all others, which stay "
        "open and receive nothing. Here, the legacy client unsubscribes from a resource, so that the bridge cancels "
        "the subscription 3; then a tool is added, and the subscription 2 does not announce it. Over HTTP, every "
        "subscription has a session of its own, and it does. Its authors have mended this after 1.8.0 "
        "([go-sdk 1275](https://github.com/modelcontextprotocol/go-sdk/pull/1275)).",
        "go-list-changes",
    ),
    Known(
        "rust",
        "fail",
        ("urls",),
        lambda visit: visit.client == "rust" and visit.cell.client_era == "modern",
        "The client requires `elicitationId` in a question with a web page, as revision 2025-11-25 does. The modern "
        "revision has removed it: its schema has `message`, `mode` and `url`. The client answers nothing, and the call "
        "fails with `Unexpected response type`.",
        "rust-urls",
    ),
    Known(
        "rust",
        "fail",
        ("extension_methods",),
        lambda visit: visit.client == "rust" and visit.cell.client_era == "modern",
        "The client reads the result of a method that it does not know as the first of its own kinds of results that "
        "fits. A `_meta`, in which a modern server names itself, is enough for the result of a tool, so that this "
        "becomes one without content, and the other members of the result, here `echo`, are lost. A change for that is "
        "proposed ([rust-sdk 1197](https://github.com/modelcontextprotocol/rust-sdk/pull/1197)).",
        "rust-extensions",
    ),
    Known(
        "java",
        "none",
        ("cancellation",),
        lambda visit: visit.server == "java",
        "The server has no way to stop a call that is cancelled: it ignores `notifications/cancelled`, goes on, and "
        "answers.",
        "java-cancellation",
    ),
    Known(
        "java",
        "none",
        ("pagination",),
        lambda visit: visit.server == "java",
        "The server has no pages: a list is one answer.",
        "java-pagination",
    ),
    Known(
        "java",
        "none",
        ("extension_methods",),
        lambda visit: visit.server == "java",
        "The server has no way to add a method.",
        "java-extensions",
    ),
    Known(
        "java",
        "none",
        ("cancellation", "extension_methods"),
        lambda visit: visit.client == "java",
        "The client has no way to cancel a request, and none to send a request of its own. One that it no longer waits "
        "for goes on at the server, which is not told.",
    ),
    Known(
        "python_v1",
        "none",
        ("extension_methods",),
        lambda visit: visit.server == "python_v1",
        "The server has no way to add a method, and answers that the request is invalid.",
        "python-extensions",
        is_refused=True,
    ),
    Known(
        "fastmcp_3",
        "none",
        ("subscriptions", "completion", "extension_methods"),
        lambda visit: visit.server == "fastmcp_3",
        "The server has no subscriptions to resources, no completion, and no way to add a method.",
    ),
    Known(
        "fastmcp_4",
        "none",
        ("subscriptions", "list_changes"),
        lambda visit: visit.server == "fastmcp_4",
        "The server has no modern subscriptions, so that no change is announced.",
    ),
    Known(
        "server-everything",
        "none",
        ("metadata", "cancellation", "pagination", "extension_methods"),
        lambda visit: True,
        "The server has no tool that returns `_meta` or heeds a cancellation, no pages, and no methods of extensions.",
    ),
    Known(
        "server-filesystem",
        "none",
        _all_but("introduction", "calls", "tool_errors", "structured_content", "roots"),
        lambda visit: True,
        "The server has only tools, and works in the client's roots.",
    ),
    Known(
        "server-filesystem",
        "none",
        ("roots",),
        lambda visit: visit.cell.client_era == "modern",
        "The server asks for the roots when a session begins. Modern clients have no sessions, and are asked only "
        "within a call. Unless a call is open just then, the bridge refuses the question, and the server works in the "
        "folders of its command line.",
    ),
    Known(
        "server-memory",
        "none",
        _all_but(
            *("introduction", "calls", "tool_errors", "protocol_errors", "structured_content"),
            *("resources", "subscriptions"),
        ),
        lambda visit: True,
        "The server has only tools, and one resource that can be subscribed to.",
    ),
    Known(
        "mcp-server-time",
        "none",
        _all_but("introduction", "calls", "tool_errors", "protocol_errors", "structured_content"),
        lambda visit: True,
        "The server has only tools.",
    ),
    Known(
        "mcp-inspector",
        "none",
        _all_but(
            *("introduction", "calls", "tool_errors", "protocol_errors", "structured_content", "metadata"),
            *("resources", "templates", "prompts", "roots", "pagination"),
        ),
        lambda visit: True,
        "`mcp-inspector --cli` sends one request and prints its answer. It tells its roots and answers no other "
        "question, shows no notification, and has no completion. `mcpdo`, another command of the same package, keeps "
        "a connection and has some of these; it is not tried here.",
    ),
)


def known(visit: Visit, feature: str) -> Known | None:
    """Return why a feature does not pass in a visit, or None if it has to."""
    for each in KNOWN:
        if each.peer in visit[1:] and feature in each.features and each.applies(visit):
            return each
    return None
