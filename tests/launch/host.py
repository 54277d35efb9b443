"""A program that has a server and comes to an end, in one of many ways: ``python -m tests.launch.host SCENE COMMAND``.

It writes ``ready`` to stdout when there is something to see. What it writes to stderr is for the tests to judge.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from mcplumb import Client, ConnectError, RequestLost, UsageError, connect
from tests.launch.harness import HASTY_STOP, HASTY_WAITS, PATIENT_STOP


def ready() -> None:
    print("ready", flush=True)


def connection(command: list[str], **options: Any) -> Any:
    return connect(command, **{"stop": HASTY_STOP, "waits": HASTY_WAITS, **options})


async def greet(client: Client) -> None:
    await client.call_tool("echo", {"text": "hello"})


async def closes(command: list[str]) -> None:
    """In good order."""
    async with connection(command, stop=PATIENT_STOP) as client:
        await greet(client)
        ready()


async def closes_twice(command: list[str]) -> None:
    client = await connection(command, stop=PATIENT_STOP)
    await greet(client)
    await asyncio.gather(client.close(), client.close(), asyncio.create_task(client.close()))
    await client.close()


async def closes_elsewhere(command: list[str]) -> None:
    """Connected in one task, used in others, closed in yet another, in task groups and under timeouts."""

    async def open_it() -> Client:
        async with asyncio.timeout(60):
            client: Client = await connection(command, stop=PATIENT_STOP)
            return client

    client = await asyncio.create_task(open_it())
    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(greet(client))
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(client.close())


async def cancels_everything(command: list[str]) -> None:
    """Connects that are cancelled, closes that are cancelled, calls that are cancelled."""
    for turns in range(20):
        task = asyncio.create_task(stays(command))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    client = await connection(command)
    calls = [asyncio.create_task(client.call_tool("hold")) for _ in range(10)]
    await asyncio.sleep(0)
    for call in calls[:5]:
        call.cancel()
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, *calls, return_exceptions=True)
    await client.close()


async def stays(command: list[str]) -> None:
    async with connection(command) as client:
        await greet(client)
        ready()
        await asyncio.Event().wait()


async def raises(command: list[str]) -> None:
    async with connection(command) as client:
        await greet(client)
        raise KeyError("on purpose")


async def exits(command: list[str]) -> None:
    async with connection(command) as client:
        await greet(client)
        sys.exit(3)


async def leaves_at_once(command: list[str]) -> None:
    async with connection(command) as client:
        await greet(client)
        os._exit(4)


async def forgets(command: list[str]) -> None:
    """The loop ends, and nobody has closed the client."""
    await greet(await connection(command))


async def fails_in_a_group(command: list[str]) -> None:
    """Another task fails, while this one is connected."""

    async def fail() -> None:
        async with connection(command) as client:
            await greet(client)
            raise KeyError("on purpose")

    async with asyncio.TaskGroup() as group:
        group.create_task(stays(command))
        group.create_task(fail())


async def forks(command: list[str]) -> None:
    """A child that was forked lives on, and has copies of all descriptors."""
    async with connection(command) as client:
        await greet(client)
        child = os.fork()
        if child == 0:
            while True:
                signal.pause()
        print(f"child {child}", flush=True)
        ready()
        await asyncio.Event().wait()


async def leaves_in_a_fork(command: list[str]) -> None:
    """A child that was forked leaves the block, and the server stays with the parent."""
    try:
        async with connection(command) as client:
            await greet(client)
            child = os.fork()
            if child == 0:
                sys.exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0  # noqa: ASYNC222 - it exits at once
            await greet(client)
            assert client.process.restarts == 0
            ready()
    except SystemExit:
        if sys.version_info >= (3, 14):  # asyncio lets no task end in a fork: the loop would go on for ever
            os._exit(0)
        raise


async def calls_in_a_fork(command: list[str]) -> None:
    """A child that was forked calls a tool, which is refused at once, and the parent's calls are not disturbed."""
    async with connection(command) as client:
        await greet(client)
        child = os.fork()
        if child == 0:
            try:
                await greet(client)
            except UsageError as error:
                os._exit(0 if "belongs to the process" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0  # noqa: ASYNC222 - it exits at once
        await greet(client)
        ready()


async def opens_in_a_fork(command: list[str]) -> None:
    """``connect`` was called before the fork that opens the connection, and stops the server."""
    connecting = connection(command, stop=PATIENT_STOP)
    child = os.fork()
    if child == 0:
        exit_code = 1

        async def use() -> int:
            asyncio.get_running_loop().slow_callback_duration = 60  # as that of the host
            async with connecting as client:
                await greet(client)
                pid = client.process.pid
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return 0
            return 2

        try:
            exit_code = asyncio.run(use())
        finally:
            os._exit(exit_code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0  # noqa: ASYNC222 - the loop has nothing to do
    ready()


async def crashes(command: list[str]) -> None:
    """The server exits, and that is noticed, whoever else looks at children."""
    async with connection(command, restart=False) as client:
        await greet(client)
        call = asyncio.create_task(client.call_tool("hold"))
        await asyncio.sleep(0.1)
        os.kill(client.process.pid, signal.SIGKILL)
        try:
            await call
        except RequestLost:
            ready()


async def without_sigchld(command: list[str]) -> None:
    """The kernel reaps all children, and says nothing of them."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    await crashes(command)


async def with_a_reaper(command: list[str]) -> None:
    """Somebody else in this process reaps whatever ends, as programs do that are the first of a container."""

    def reap() -> None:
        while not is_done.wait(0.001):
            with suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)

    is_done = threading.Event()
    thread = threading.Thread(target=reap)
    thread.start()
    try:
        await crashes(command)
    finally:
        is_done.set()
        thread.join()


async def without_descriptors(command: list[str]) -> None:
    """As many descriptors as are needed are not free, until they are."""
    import resource

    used, hard = len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # noqa: PTH208
    for more in range(40):
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, hard))
        try:
            async with connection(command) as client:
                await greet(client)
        except ConnectError as error:
            if "open files" not in str(error):
                raise
        else:
            ready()
            break
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    assert len(os.listdir("/proc/self/fd")) <= used  # noqa: PTH208
    await closes(command)


async def without_streams(command: list[str]) -> None:
    """Its own three standard streams are closed, so that others may get their numbers."""
    for number in range(3):
        os.close(number)
    async with connection(command) as client:
        await greet(client)
        with suppress(RequestLost):
            await client.call_tool("crash", {"says": "something\n"})
        await greet(client)


def in_many_threads(command: list[str]) -> None:
    """Several loops at the same time, each with servers of its own."""

    def work() -> None:
        for _ in range(3):
            asyncio.run(_quietly(closes, command))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def in_a_thread(command: list[str]) -> None:
    """The loop runs in a thread that is not the main one."""
    thread = threading.Thread(target=asyncio.run, args=(_quietly(stays, command),), daemon=True)
    thread.start()
    thread.join()


def closes_in_a_thread(command: list[str]) -> None:
    thread = threading.Thread(target=asyncio.run, args=(_quietly(closes, command),))
    thread.start()
    thread.join()


def abandons_the_loop(command: list[str]) -> None:
    """The loop is closed, and nobody has cancelled anything."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_keep(command))
    loop.close()
    ready()


_kept: list[Any] = []


async def _keep(command: list[str]) -> None:
    client = await connection(command)
    await greet(client)
    _kept.append(client)


async def _quietly(scene: Callable[[list[str]], Awaitable[None]], command: list[str]) -> None:
    # Otherwise a slow machine would write to stderr when asyncio is in its debug mode.
    asyncio.get_running_loop().slow_callback_duration = 60
    await scene(command)


def main() -> None:
    scene = globals()[sys.argv[1]]
    command = json.loads(sys.argv[2])
    if inspect.iscoroutinefunction(scene):
        asyncio.run(_quietly(scene, command))
    else:
        scene(command)


if __name__ == "__main__":
    main()
