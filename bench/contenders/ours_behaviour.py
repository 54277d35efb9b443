"""The tools that show how a server behaves, with mcplumb."""

import asyncio
import os
import subprocess
import sys
import time

from mcplumb import Context, Server

server = Server("behaviour")


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


@server.tool
def block(seconds: float) -> str:
    time.sleep(seconds)
    return "done"


@server.tool
def stray(way: str) -> str:
    match way:
        case "print":
            print("stray")
        case "flush":
            print("stray", flush=True)
        case "child":
            subprocess.run([sys.executable, "-c", "print('stray')"], check=True)
        case "write":
            os.write(1, b"stray\n")
    return "done"


@server.tool
async def report(context: Context) -> str:
    for step in range(100):
        await context.progress(step, 100)
        await asyncio.sleep(0.02)
    return "done"


server.run()
