"""No garbage is looked for while modules are loaded. In fresh processes: it is one setting for all of a process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.tricks

#: Counts the collections, and makes objects enough for several of them, which stay.
BEGIN = """
import gc
from mcplumb._fast.late_collection import collect_later

class Ring:
    def __init__(self):
        self.ring = self

seen = []
gc.collect()
gc.callbacks.append(lambda phase, info: seen.append(info["generation"]) if phase == "start" else None)
"""
MANY = "[Ring() for _ in range(20_000)]"


def run(program: str, **environment: str) -> list[str]:
    """What a fresh interpreter prints."""
    kept = {name: value for name, value in os.environ.items() if name != "MCPLUMB_PLAIN"}
    command = [sys.executable, "-c", BEGIN + program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=kept | environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_nothing_is_collected_in_the_block_and_little_after_it() -> None:
    program = f"with collect_later():\n    kept = {MANY}\n    inside = len(seen)\n"
    # A young collection would have to look through all that is new.
    assert run(program + "print(inside, gc.isenabled(), len(gc.get_objects(0)) < 1000)") == ["0", "True", "True"]


def test_what_was_made_in_the_block_is_collected_once_it_is_garbage() -> None:
    # Python 3.12 begins with some that are frozen.
    program = f"before = gc.get_freeze_count()\nwith collect_later():\n    kept = {MANY}\ndel kept\n"
    assert run(program + "print(gc.collect() >= 20_000, gc.get_freeze_count() == before)") == ["True", "True"]


def test_automatic_collection_goes_on_after_an_error() -> None:
    program = f"try:\n    with collect_later():\n        1 / 0\nexcept ZeroDivisionError:\n    kept = {MANY}\n"
    assert run(program + "print(gc.isenabled(), bool(seen))") == ["True", "True"]


def test_a_program_that_collects_by_itself_is_left_alone() -> None:
    program = (
        "gc.disable()\nwith collect_later():\n    made = [Ring()]\nprint(gc.isenabled(), len(gc.get_objects(0)) > 0)"
    )
    assert run(program) == ["False", "True"]


def test_what_the_program_has_frozen_stays_frozen() -> None:
    program = f"gc.freeze()\nfrozen = gc.get_freeze_count()\nwith collect_later():\n    kept = {MANY}\n"
    assert run(program + "print(frozen > 1000, gc.get_freeze_count() == frozen, gc.isenabled())") == ["True"] * 3


def test_switched_off_it_collects_as_usual() -> None:
    program = f"with collect_later():\n    kept = {MANY}\n    print(bool(seen))"
    assert run(program, MCPLUMB_PLAIN="late_collection") == ["True"]


#: A server that says, where its standard output is, how often garbage was looked for while it loaded its modules.
SERVER = """
import gc, os, sys
from mcplumb import Server

seen = []
gc.callbacks.append(lambda *_: seen.append("asyncio" in sys.modules and "mcplumb.transports.stdio" not in sys.modules))
output = os.dup(1)
Server("x").run()
os.write(output, b"%d" % sum(seen))
"""


@pytest.mark.parametrize(("setting", "collects"), [("", False), ("late_collection", True)])
def test_a_server_that_owns_its_process_loads_its_modules_so(setting: str, collects: bool) -> None:
    environment = os.environ | {"MCPLUMB_PLAIN": setting}
    command = [sys.executable, "-c", SERVER]
    done = subprocess.run(command, input=b"", capture_output=True, check=True, timeout=60, env=environment)
    assert (int(done.stdout) > 0) == collects
