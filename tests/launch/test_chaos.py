"""A server that is killed again and again, at random moments, under callers that want nothing but answers."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from mcplumb import Client, McplumbError, RemoteError, RequestLost, RequestTimeout, connect
from mcplumb.client import Missed
from mcplumb.client.process_link import ServerProcess
from mcplumb.types import CallToolResult
from tests.kit.loop import debug_loop, run, until
from tests.launch.harness import EAGER, ERAS, HASTY_STOP, HASTY_WAITS, Stage, say
from tests.launch.remains import memory

pytestmark = pytest.mark.thorough

KILLS = 200
CALLERS = 32
#: A tenth of the kills warm everything up; after them, memory may not grow by more than this.
WARM_UP, GROWTH = 20, 16 << 20


@pytest.mark.req("LIF-4", "LIF-5", "LIF-6", "LIF-7", "FRM-8")
@pytest.mark.parametrize("revision", ERAS)
def test_two_hundred_kills_under_thirty_two_callers(stage: Stage, revision: str) -> None:
    chance = random.Random(4)
    answered = lost = 0
    sizes: list[int] = []

    async def read(client: Client, caller: int, is_done: asyncio.Event) -> None:
        """Read, and read again; each answer has to be that to one's own question. The first of them acts instead."""
        nonlocal answered, lost
        for number in count():
            if is_done.is_set():
                return
            text = f"{caller}-{number}"
            try:
                if caller == 0:
                    await client.call_tool("act", {"text": text})
                elif number % 4:
                    assert await say(client, "echo", text=text) == text
                else:
                    (contents,) = (await client.read_resource(f"test://{text}")).contents
                    assert contents.uri == f"test://{text}"
            except RequestLost:
                lost += 1  # with as many processes as it may be sent to
            else:
                answered += 1

    async def kill_again_and_again(process: ServerProcess) -> None:
        """At any moment of its life: while it starts, while it says who it is, while it answers."""
        killed: set[int | None] = {None}
        while len(killed) <= KILLS:
            await until(lambda: process.pid not in killed, "another start")
            await asyncio.sleep(chance.random() * 0.05)
            pid = process.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
            if len(killed) > WARM_UP and len(killed) % 10 == 0:
                sizes.append(memory())

    async def main() -> None:
        command = stage.command("good", revisions=[revision])
        async with connect(command, restart=EAGER, stop=HASTY_STOP, waits=HASTY_WAITS) as client:
            await client.list_tools()
            assert client.process is not None
            is_done = asyncio.Event()
            async with client.listen(tools=True) as changes, asyncio.TaskGroup() as group:
                for caller in range(CALLERS):
                    group.create_task(read(client, caller, is_done))
                await kill_again_and_again(client.process)
                is_done.set()
                assert await anext(changes) == Missed()
            assert await say(client, "echo", text="at last") == "at last"

    run(main())
    assert stage.living() == []
    assert answered > lost
    acts = [call["params"]["arguments"]["text"] for call in stage.log.calls("act")]
    assert len(acts) == len(set(acts)), "something was done twice"
    assert sizes[-1] - sizes[0] < GROWTH


@pytest.mark.req("LIF-4", "LIF-11", "CAN-1", "SUB-4")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("revision", ERAS)
def test_a_random_walk_through_everything(stage: Stage, revision: str, seed: int) -> None:
    chance = random.Random(seed)

    async def listen(client: Client) -> None:
        async with client.listen(tools=True, resources=["test://one"]) as changes:
            async for _ in changes:
                pass

    async def main() -> None:
        command = stage.command("good", revisions=[revision])
        client = await connect(command, restart=EAGER, stop=HASTY_STOP, waits=HASTY_WAITS, timeout=5)
        assert client.process is not None
        open_ones: list[asyncio.Task[Any]] = []
        for _ in range(60):
            match chance.randrange(8):
                case 0 if client.process.pid is not None:
                    os.kill(client.process.pid, signal.SIGKILL)
                case 1:
                    open_ones.append(asyncio.create_task(listen(client)))
                case 2 if open_ones:
                    chance.choice(open_ones).cancel()
                case 3:
                    await asyncio.sleep(chance.random() * 0.05)
                case 4:
                    tool = chance.choice(["hold", "act", "drip"])
                    open_ones.append(asyncio.create_task(client.call_tool(tool, on_progress=lambda *_: None)))
                case 5:
                    changed = {"method": "notifications/tools/list_changed", "times": chance.randrange(5)}
                    open_ones.append(asyncio.create_task(client.call_tool("change", changed)))
                case _:
                    open_ones.append(asyncio.create_task(client.call_tool("echo", {"text": "x"})))
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
        closing = [asyncio.create_task(client.close()) for _ in range(3)]
        if chance.randrange(2):
            await asyncio.sleep(0)
            closing[0].cancel()
        for outcome in await asyncio.gather(*open_ones, *closing, return_exceptions=True):
            assert outcome is None or isinstance(outcome, CallToolResult | McplumbError | asyncio.CancelledError), (
                outcome
            )
        await client.close()
        assert stage.living() == []

    run(main(), debug=True)


#: One of each kind.
MENAGERIE: list[tuple[str, dict[str, Any]]] = [
    ("good", {}),
    ("good", {"revisions": [ERAS[1]]}),
    ("crashing", {"on": "*", "nth": 3, "signal": "SIGSEGV"}),
    ("crashing", {"on": "start", "raises": "no"}),
    ("crashing", {"on": "tools/call", "torn": True}),
    ("hanging", {"silent_on": ["*"]}),
    ("hanging", {"deaf_after": 0}),
    ("hanging", {"deaf_after": 2}),
    ("hanging", {"mute_after": 1}),
    ("hanging", {"shut_after": 1}),
    ("stubborn", {"ignores": ["EOF", "TERM", "INT", "HUP"]}),
    ("stubborn", {"last_words": 1 << 20}),
    ("parent", {"children": [{"holds": [0, 1, 2], "ignores": ["TERM"]}, {"session": True, "holds": [1]}]}),
    ("parent", {"daemon": True}),
    ("flooding", {"what": "notifications"}),
    ("flooding", {"what": "garbage", "after": 1}),
    ("flooding", {"what": "line", "after": 2}),
    ("flooding", {"what": "stderr"}),
    ("eras", {"revisions": [ERAS[1]], "on_probe": "exit"}),
    ("eras", {"on_probe": "exit", "on_initialize": "exit"}),
    ("eras", {"slow": 0.3}),
    ("asking", {"rogue": True}),
]


@pytest.mark.req("LIF-3", "LIF-4", "LIF-11")
@pytest.mark.parametrize("seed", range(3))
@debug_loop
async def test_a_menagerie_leaves_nothing(stage: Stage, seed: int) -> None:
    chance = random.Random(seed)

    async def visit(program: str, options: dict[str, Any]) -> None:
        restart = EAGER if chance.randrange(2) else False
        command = stage.command(program, **options, number=chance.random())
        visitor = connect(command, restart=restart, stop=HASTY_STOP, waits=HASTY_WAITS, timeout=0.3, stderr="capture")
        async with asyncio.timeout(chance.random()), visitor as client:
            while True:
                with suppress(RemoteError, RequestTimeout, RequestLost):
                    await client.call_tool(chance.choice(["echo", "hold", "act"]))

    animals = [(program, options) for program, options in MENAGERIE for _ in range(2)]
    chance.shuffle(animals)
    visits = [asyncio.create_task(visit(program, options)) for program, options in animals]
    await asyncio.sleep(chance.random())
    for task in chance.sample(visits, len(visits) // 4):
        task.cancel()
    for outcome in await asyncio.gather(*visits, return_exceptions=True):
        assert isinstance(outcome, McplumbError | TimeoutError | asyncio.CancelledError), outcome
    await stage.nothing_lives()  # a visitor that was cancelled while it left does not wait for the end of that
