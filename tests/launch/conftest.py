"""A stage for each test, which has to be left as it was."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kit.loop import blocking_until
from tests.launch.harness import MODERN, Stage
from tests.launch.remains import Belongings
from tests.transports.families import patient_watchdogs


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """At the end, nothing may be left: no process, no descriptor, no thread; and every line was a message."""
    patient_watchdogs(monkeypatch)
    before = Belongings()
    stage = Stage(tmp_path)
    yield stage
    left = stage.living()
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert left == [], "these processes were left, and are killed now"
    # A thread that has done its last work may still be on its way out.
    blocking_until(
        lambda: not Belongings().more_than(before), "nothing to be left", lambda: Belongings().more_than(before)
    )
    messages = stage.log.messages()
    speaks_modern = any(message.get("method") == "server/discover" for message in messages)
    if speaks_modern and not any(message.get("method") == "initialize" for message in messages):
        assert not [message for message in messages if "method" not in message], f"an answer to a {MODERN} server"
