import asyncio
import sys

from mcplumb import connect


async def main() -> None:
    async with connect(sys.argv[1:]) as client:
        await client.call_tool("echo", {"text": "hello"})
        print(*sys.modules)


asyncio.run(main())
