"""The body of a POST: what aiohttp is given to write."""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp.abc import AbstractStreamWriter

__all__ = ["Body"]

#: Bytes that are written at a time, so that a large message does not hold up the others.
_PIECE = 256 * 1024


class Body(aiohttp.Payload):
    """JSON that tells when it has been written."""

    _autoclose = True  # there is nothing to close

    def __init__(self, data: bytes) -> None:
        super().__init__(data, content_type="application/json")
        self._size = len(data)
        #: Set when all of it was handed to the system, or to what waits for the system to take it.
        self.written = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write all of it."""
        # Known to all of aiohttp's writers, though not to their common base.
        self._transport = getattr(writer, "transport", None)
        data = memoryview(self._value)
        for start in range(0, len(data), _PIECE):
            await writer.write(data[start : start + _PIECE])
        self.written.set()

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """The same: the length is that of the data."""
        await self.write(writer)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The data as text."""
        return bytes(self._value).decode(encoding, errors)

    def drop(self) -> None:
        """Give up what is left to write: a connection that waits for a peer to read might never close."""
        if self._transport is not None and self._transport.get_write_buffer_size():
            self._transport.abort()
