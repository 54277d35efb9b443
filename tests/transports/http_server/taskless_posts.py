"""What the tests of both kinds of POSTs that need no task share: those of modern clients, and of legacy sessions."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import strategies as st

import mcplumb._fast
from mcplumb import Context, Server, ToolError


@pytest.fixture(autouse=True)
def shortcuts_are_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of a module that imports this are about them: they are on even if all tests run without."""
    monkeypatch.setattr(mcplumb._fast, "_switched_off", ())


def make_server() -> Server:
    """A server with a tool for each way in which a call may end."""
    server = Server("s", version="1")

    @server.tool
    async def double(n: int) -> str:
        return str(2 * n)

    @server.tool
    async def seen(ctx: Context) -> dict[str, str]:
        await asyncio.sleep(0)
        return dict(ctx.headers or {})

    @server.tool
    async def fail() -> None:
        raise ToolError("no")

    @server.tool
    async def odd() -> str:
        return "\ud800"

    @server.tool
    async def cancel() -> str:
        raise asyncio.CancelledError

    @server.tool(scopes=["admin"])
    async def guarded() -> str:
        return "open"

    return server


@st.composite
def chunks_of(draw: st.DrawFn, request: st.SearchStrategy[bytes]) -> list[bytes]:
    """Up to four requests: whole, several at once, or in pieces."""
    requests = draw(st.lists(request, min_size=1, max_size=4))
    whole = b"".join(requests)
    how = draw(st.sampled_from(("whole", "whole", "at once", "pieces", "bytes")))
    if how == "whole":
        return requests
    if how == "bytes":
        return [whole[at : at + 1] for at in range(min(len(whole), 600))] + [whole[600:]]
    cuts = sorted(draw(st.sets(st.integers(1, len(whole) - 1), max_size=5))) if how == "pieces" else []
    return [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


def is_refused_as_http(output: bytes) -> bool:
    """Whether our listener or uvicorn refused a request before the application got it; they do that in own words."""
    return any(words in output for words in _REFUSALS)


_REFUSALS = (
    b"This is not valid HTTP.",
    b"HTTP/1.1 501 ",
    b"its last transfer coding must be chunked",
    b"Invalid HTTP request received.",
)
