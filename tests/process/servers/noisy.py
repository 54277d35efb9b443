"""Writes where only the protocol may write, and reads where only the protocol may read."""

from __future__ import annotations

import asyncio
import atexit
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.process.servers.options import make_server

print("stray: printed before the server runs")

server = make_server("noisy")


def libc() -> Any:
    """The C library: loaded late, because loading it may open a file, which is stderr if that is closed."""
    import ctypes

    return ctypes.CDLL(None)


@server.tool
def shout(how: str) -> str:
    {
        "print": lambda: print("stray: print"),
        "flushed": lambda: print("stray: flushed", flush=True),
        "unflushed": lambda: sys.stdout.write("stray: unflushed"),
        "buffer": lambda: sys.stdout.buffer.write(b"stray: buffer"),
        "original": lambda: sys.__stdout__ and sys.__stdout__.write("stray: original"),
        "descriptor": lambda: os.write(1, b"stray: descriptor\n"),
        "opened": lambda: _write_to("/dev/stdout", "stray: opened\n"),
        "native": lambda: libc().puts(b"stray: native"),
        "child": lambda: subprocess.run(["/bin/echo", "stray: child"], check=True),
        "system": lambda: os.system("echo stray: system"),  # noqa: S605, S607 - a shell, on purpose
        "inheriting child": lambda: subprocess.run(["/bin/sh", "-c", _SEARCH], check=True, close_fds=False),
        "fork": _fork,
    }[how]()
    return how


@server.tool
async def shout_in_loop() -> str:
    """Prints from the thread of the event loop."""
    print("stray: in the loop")
    return "shouted"


@server.tool
def steal(how: str) -> str:
    """Tries to read what the client sends; gives what it got."""
    return {
        "stdin": sys.stdin.read,
        "buffer": lambda: sys.stdin.buffer.read().decode(),
        "input": _input,
        "descriptor": lambda: os.read(0, 1000).decode(),
        "native": lambda: str(libc().getchar()),
        "child": lambda: subprocess.run(["/bin/cat"], check=True, capture_output=True, text=True).stdout,
    }[how]()


@server.tool
async def spawn() -> str:
    """A child of the event loop's, which writes and reads."""
    command = "echo 'stray: child of the loop'; cat"
    child = await asyncio.create_subprocess_shell(command, stderr=asyncio.subprocess.PIPE)
    await child.communicate()
    return f"exited with {child.returncode}"


@server.tool
def descriptors() -> list[str]:
    """What stands behind the three standard descriptors."""
    return [str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in range(3)]


# Writes to every descriptor that it was given, but the null device and stderr.
_SEARCH = 'for fd in /proc/self/fd/*; do echo "stray: inherited" > "$fd"; done 2>/dev/null; true'


def _write_to(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - as authors do
        file.write(text)


def _input() -> str:
    try:
        return input("stray: prompt")
    except EOFError:
        return ""


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        for path in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                if path.is_fifo():
                    os.write(int(path.name), b"stray: fork\n")
        os._exit(0)
    os.waitpid(pid, 0)


@atexit.register
def say_goodbye() -> None:
    print("stray: at exit")
    libc().puts(b"stray: native at exit")
    sys.stdout.write("stray: unflushed at exit")


if __name__ == "__main__":
    server.run()
    print("stray: after the server")
