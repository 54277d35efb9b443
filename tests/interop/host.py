"""A host for server-everything, which says when it is connected, and then waits to be killed.

host.py FOLDER COMMAND [ARGUMENT ...] starts the server in the folder.
"""

from __future__ import annotations

import asyncio
import sys

from mcplumb import connect


async def main() -> None:
    folder, *command = sys.argv[1:]
    async with connect(command, cwd=folder, inherit_env=["INTEROP_MARK"]) as client:
        # This starts a timer that keeps the server alive, whatever its input does.
        await client.call_tool("toggle-subscriber-updates")
        print("connected", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
