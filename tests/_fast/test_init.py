"""The one switch for all tricks, and the Pythons and loops on which they are off by themselves."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mcplumb._fast
from mcplumb._fast import SHORTCUTS, TRICKS, is_proven_on, is_switched_off, may_use

#: What is on, and what the modules make of that.
SHOW = """
from mcplumb import _fast
from mcplumb._fast import eager_futures, eager_tasks, lazy_modules, malloc_settings, plain_functions, poll_ahead
import asyncio, sys, types

async def main():
    loop = asyncio.get_running_loop()
    on = {name for name in _fast.TRICKS if _fast.may_use(name)}
    seen = {"eager_futures"} if eager_futures.give_now is not eager_futures.give else set()
    if plain_functions.is_plain(main):
        seen.add("plain_functions")
    if poll_ahead.poll_ahead_on(loop) is not None:
        seen.add("poll_ahead")
    async def nothing():
        pass
    def start():
        task = eager_tasks.TaskStarter(loop).start(nothing(), __import__("contextvars").copy_context())
        if task.done():
            seen.add("eager_tasks")
        return task
    begun = loop.create_future()
    loop.call_soon(lambda: begun.set_result(start()))
    await (await begun)
    assert on - seen <= {"lazy_modules", "malloc_settings", "late_collection"}, (on, seen)
    assert seen <= on, (on, seen)
    print(*sorted(on))
asyncio.run(main())
"""


def on_with(setting: str | None, before: str = "") -> set[str]:
    """The tricks that a fresh interpreter uses with this setting."""
    environment = {name: value for name, value in os.environ.items() if name != "MCPLUMB_PLAIN"}
    if setting is not None:
        environment["MCPLUMB_PLAIN"] = setting
    done = subprocess.run(
        [sys.executable, "-c", before + SHOW], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())


def test_every_file_is_a_trick_with_a_name() -> None:
    files = Path(str(mcplumb._fast.__file__)).parent.glob("*.py")
    assert {file.stem for file in files} - {"__init__"} == set(TRICKS)


@pytest.mark.skipif(sys.version_info >= (3, 15) or sys.platform != "linux", reason="The tricks are not proven here.")
@pytest.mark.parametrize(
    ("setting", "off"),
    [
        (None, set()),
        ("", set()),
        ("0", set()),
        ("1", set(TRICKS)),
        ("poll_ahead", {"poll_ahead"}),
        ("eager_tasks,lazy_modules", {"eager_tasks", "lazy_modules"}),
    ],
)
def test_the_environment_turns_all_or_some_of_them_off(setting: str | None, off: set[str]) -> None:
    assert on_with(setting) == set(TRICKS) - off


@pytest.mark.parametrize(
    "change",
    ["sys.version_info = (3, 15, 0, 'final', 0)", "sys.implementation.name = 'other'", "sys.platform = 'darwin'"],
)
def test_all_are_off_where_they_are_not_proven(change: str) -> None:
    before = f"import sys; was = sys.version_info, sys.platform; {change}; import mcplumb._fast; "
    before += "sys.version_info, sys.platform = was; "
    show = "print(*(name for name in mcplumb._fast.TRICKS if mcplumb._fast.may_use(name)))"
    done = subprocess.run([sys.executable, "-c", before + show], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_trick_is_used_where_it_is_proven_unless_it_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcplumb._fast, "_switched_off", ("lazy_modules",))
    assert [name for name in TRICKS if is_switched_off(name)] == ["lazy_modules"]
    for is_proven in (True, False):
        monkeypatch.setattr(mcplumb._fast, "_is_proven", is_proven)
        assert [may_use(name) for name in ("lazy_modules", "poll_ahead")] == [False, is_proven]


@pytest.mark.parametrize(
    ("setting", "is_off"), [("1", True), ("taskless_posts", True), ("0", False), ("poll_ahead", False)]
)
def test_shortcuts_elsewhere_are_switched_off_alike(setting: str, is_off: bool) -> None:
    show = "from mcplumb._fast import *; print(*(is_switched_off(name) for name in SHORTCUTS))"
    environment = {**os.environ, "MCPLUMB_PLAIN": setting}
    done = subprocess.run([sys.executable, "-c", show], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == len(SHORTCUTS) * [str(is_off)]


def test_only_asyncio_s_own_selector_loop_is_proven() -> None:
    class Loop(asyncio.SelectorEventLoop):
        """It may do anything in another way."""

    for kind, is_proven in ((asyncio.SelectorEventLoop, True), (Loop, False)):
        loop = kind()
        assert is_proven_on(loop) == is_proven
        loop.close()
