"""The stderr of a server: kept until the first contact, for errors, for those who ask, and for a server that hangs."""

from __future__ import annotations

import asyncio

import pytest

from mcplumb.cli import log_output
from mcplumb.cli.log_output import ServerStderr
from mcplumb.cli.server_target import Target
from tests.cli.kit import PYTHON, SERVERS, here
from tests.kit.loop import until

BANNER = "lines of a banner\n" * 95


def picky(*how: str) -> list[str]:
    return ["--", PYTHON, str(SERVERS / "picky.py"), *how]


def test_what_a_server_writes_before_it_answers_is_not_shown() -> None:
    assert here("tools", *picky(f"early={BANNER}")).err == ""
    # What it writes from then on is.
    assert here("tools", *picky(f"early={BANNER}", "late=listing")).err == "listing\n"


def test_it_is_shown_to_those_who_ask() -> None:
    said = here("-v", "tools", *picky(f"early={BANNER}", "late=listing")).err
    assert BANNER in said
    assert "listing\n" in said


def test_a_server_that_fails_later_shows_its_beginning() -> None:
    many = "\n".join(f"line {number}." for number in range(300))
    done = here("tools", "--timeout", "4", *picky(f"early={many}", "hang=tools/list"))
    assert done.code == 5
    assert " When it started, it wrote to stderr:\nline 280.\n" in done.err
    assert "line 299.\n" in done.err


def test_an_answer_that_is_an_error_does_not_show_its_beginning() -> None:
    done = here("call", "nothing", "--no-check", *picky("early=a banner"))
    assert done.code == 4
    assert "a banner" not in done.err


async def test_a_server_that_does_not_answer_shows_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(log_output, "_HANG_INTERVAL", 0.01)
    shown: list[str] = []

    def has_shown(text: str) -> bool:
        shown.append(capsys.readouterr().err)
        return text in "".join(shown)

    stderr = ServerStderr()
    target = Target([PYTHON, str(SERVERS / "broken.py"), "chatty"], {"stderr": stderr}, title="x")
    connecting = asyncio.ensure_future(target.connect().__aenter__())
    await until(lambda: has_shown("ready\n"))
    stderr("more")
    await until(lambda: has_shown("more\n"))
    connecting.cancel()
    await asyncio.wait([connecting])
    assert has_shown("The server has not answered yet. It writes to stderr:\nready\nmore\n")
    assert (stderr.tail, stderr.has_shown) == ("", True)


async def test_a_server_that_is_interrupted_shows_what_it_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    stderr = ServerStderr()
    target = Target([PYTHON, str(SERVERS / "broken.py"), "chatty"], {"stderr": stderr}, title="x")
    connecting = asyncio.ensure_future(target.connect().__aenter__())
    await until(lambda: stderr.tail)
    assert stderr.tail == "ready"
    connecting.cancel()
    await asyncio.wait([connecting])
    assert capsys.readouterr().err == "The server had not answered yet. It wrote to stderr:\nready\n"


async def test_a_server_that_never_pauses_is_shown_in_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    stderr = ServerStderr()
    loop = asyncio.get_running_loop()

    handle: asyncio.Handle

    def write() -> None:
        nonlocal handle
        stderr("on and on")
        handle = loop.call_soon(write)

    handle = loop.call_soon(write)
    await stderr.contacted()
    handle.cancel()
    assert not stderr.has_shown
    stderr("at last")
    assert capsys.readouterr().err == "at last\n"


async def test_a_command_that_is_interrupted_at_the_first_contact_leaves_no_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def contacted(stderr: ServerStderr) -> None:
        reached.set_result(None)
        await asyncio.Event().wait()

    monkeypatch.setattr(ServerStderr, "contacted", contacted)
    target = Target([PYTHON, str(SERVERS / "picky.py")], {"stderr": ServerStderr()}, title="x")
    connecting = asyncio.ensure_future(target.connect().__aenter__())
    await reached
    # The test fails if the supervisor of the server is left behind.
    connecting.cancel()
    await asyncio.wait([connecting])
    assert connecting.cancelled()


def test_only_so_much_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    stderr = ServerStderr()
    for number in range(300):
        stderr(f"{number} {'x' * 3000}")
    assert len(stderr.tail.splitlines()) == 20
    stderr.show_kept("Look:")
    shown = capsys.readouterr().err.splitlines()
    assert [line.partition(" ")[0] for line in shown] == ["Look:", *map(str, range(100, 300))]
    assert max(map(len, shown)) == 2000
