"""A server that records the functions which the calls of its tool pass, and writes them to a file."""

from __future__ import annotations

import sys
from pathlib import Path

from mcplumb import Server
from tests.costs.walk import CALLS, WARM_UP, Recorder

server = Server("walked")
recorder = Recorder()
calls = 0


@server.tool
async def echo(text: str) -> str:
    global calls  # noqa: PLW0603 - a method would be one more function on the way
    calls += 1
    if calls == WARM_UP:
        recorder.on()
    if calls >= WARM_UP:
        recorder.next_call()
    if calls == WARM_UP + CALLS:
        recorder.off()
        recorder.write(Path(sys.argv[1]))
    return text


server.run()
