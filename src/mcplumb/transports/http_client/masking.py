"""Masks what a request had to keep secret in all that errors and logs quote of its response: some servers echo it."""

from __future__ import annotations

import aiohttp
import msgspec

from mcplumb.wire.message_decoder import BadMessage, Batch

__all__ = ["masked", "masked_message"]

#: Headers of a request whose values are no secrets.
_HARMLESS_HEADERS = frozenset((
    "accept", "accept-encoding", "connection", "content-length", "content-type", "host", "mcp-method", "mcp-name",
    "mcp-protocol-version", "user-agent",
))  # fmt: skip
#: The shortest value that is masked: a shorter one may be part of any word.
_SHORTEST_SECRET = 4
_MASK = "***"


def masked(request: aiohttp.RequestInfo, text: str) -> str:
    """Return a text of the server without what the request had to keep secret."""
    import re

    for secret in _secrets(request):
        text = text.replace(secret, _MASK)
    return re.sub(r"(?i)\b(bearer|basic|dpop)\s+[\w.~+/=-]{6,}", rf"\1 {_MASK}", text)


def masked_message(request: aiohttp.RequestInfo, bad: BadMessage | Batch) -> BadMessage | Batch:
    """Return a malformed message, or a batch with some, without what the request had to keep secret."""
    if isinstance(bad, Batch):
        items = tuple(_masked_bad(request, each) if isinstance(each, BadMessage) else each for each in bad.items)
        return Batch(items)
    return _masked_bad(request, bad)


def _masked_bad(request: aiohttp.RequestInfo, bad: BadMessage) -> BadMessage:
    head = masked(request, bad.head.decode(errors="surrogateescape"))
    # The head may be cut in the middle of a secret.
    for secret in _secrets(request):
        for length in range(len(secret) - 1, _SHORTEST_SECRET - 1, -1):
            if head.endswith(secret[:length]):
                head = head[:-length] + _MASK
    return msgspec.structs.replace(bad, head=head.encode(errors="surrogateescape"))


def _secrets(request: aiohttp.RequestInfo) -> list[str]:
    """Return the values of the request that must not be shown, the longest first.

    They are the query, and all headers that may be credentials.
    """
    found = {request.url.raw_query_string, request.url.query_string, *request.url.query.values()}
    for name, value in request.headers.items():
        if name.lower() not in _HARMLESS_HEADERS and not name.lower().startswith("mcp-param-"):
            found |= {value, value.rpartition(" ")[2]}
    return sorted((secret for secret in found if len(secret) >= _SHORTEST_SECRET), key=len, reverse=True)
