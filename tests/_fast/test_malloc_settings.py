"""The memory of large messages is kept for the next ones."""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import sys

import pytest

from mcplumb import connect

pytestmark = pytest.mark.tricks

#: Echoes large texts, and says how many pages the last of them took.
SERVER = """
import resource
from mcplumb import Server

server, pages = Server("large"), []

@server.tool
async def echo(text: str) -> str:
    pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    return text

@server.tool
async def last() -> int:
    return pages[-1] - pages[-2]

server.run()
"""
PROGRAM = """
import resource
from mcplumb._fast.malloc_settings import keep_memory

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def cost():
    before = pages()
    data = b"x" * 10_000_000
    text = data.decode()
    answer = text.encode()
    del data, text, answer
    return pages() - before

def settled():
    cost()
    cost()
    return cost()

before = settled()
keep_memory()
print(before, settled())
"""
#: The pages of one of the three blocks.
BLOCK = 10_000_000 // os.sysconf("SC_PAGE_SIZE")


needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="Only glibc learns.")


def pages_used(**environment: str) -> tuple[int, int]:
    """How many pages large blocks need, again and again, without and with the lesson."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**clean, **environment}, capture_output=True, text=True, check=True
    )
    before, after = done.stdout.split()
    return int(before), int(after)


@needs_glibc
def test_what_was_used_once_is_used_again() -> None:
    before, after = pages_used()
    assert before > 2 * BLOCK
    assert after < BLOCK // 10


@needs_glibc
def test_who_has_said_how_much_is_kept_is_obeyed() -> None:
    before, after = pages_used(MALLOC_TRIM_THRESHOLD_="1000000", MALLOC_MMAP_THRESHOLD_="1000000")
    assert before > 2 * BLOCK
    assert after > 2 * BLOCK


def test_without_room_for_the_lesson_nothing_happens() -> None:
    program = """
import resource
from mcplumb._fast.malloc_settings import keep_memory
resource.setrlimit(resource.RLIMIT_AS, (1, resource.getrlimit(resource.RLIMIT_AS)[1]))
keep_memory()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@needs_glibc
@pytest.mark.parametrize("is_kept", [True, False])
def test_a_server_that_owns_its_process_keeps_what_its_messages_need(is_kept: bool) -> None:
    async def main() -> int:
        environment = {} if is_kept else {"MALLOC_TRIM_THRESHOLD_": "131072"}
        async with connect([sys.executable, "-c", SERVER], env=environment) as client:
            for _ in range(5):
                await client.call_tool("echo", {"text": "x" * 10_000_000})
            return int((await client.call_tool("last")).content[0].text)  # type: ignore[union-attr]

    pages = asyncio.run(main())
    assert pages < BLOCK if is_kept else pages > 2 * BLOCK
