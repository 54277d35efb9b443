"""A server that is also a client, with mcplumb: it launches another server before it serves.

* ``command``: the other server.
* ``ignores``: as for ``stubborn``.
"""

from __future__ import annotations

import asyncio
import threading

from mcplumb import connect
from tests.launch.servers.hand import main
from tests.launch.servers.stubborn import Stubborn


class Gateway(Stubborn):
    """Has a server of its own, in a thread of its own."""

    def run(self) -> None:
        is_connected = threading.Event()
        threading.Thread(target=asyncio.run, args=(self._stay(is_connected),), daemon=True).start()
        is_connected.wait()
        super().run()

    async def _stay(self, is_connected: threading.Event) -> None:
        async with connect(self.options["command"]) as client:
            await client.list_tools()
            is_connected.set()
            await asyncio.Event().wait()


if __name__ == "__main__":
    main(Gateway)
