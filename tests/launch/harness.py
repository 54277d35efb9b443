"""Real clients of real servers, most of which misbehave: what the tests in this folder share.

A ``Stage`` is where one test's servers play. Each of them keeps a log of what it received, so that a test can see the
wire from the other side; and each has the path of that log in its command, as all processes that it forks have, so
that whatever is left of it can be found.

Nothing here judges by time: whatever is waited for has a bound that only a hang reaches.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from mcplumb.protocol.era import EraWaits
from mcplumb.protocol.restart import RestartPolicy
from mcplumb.protocol.stop_ladder import StopLadder
from tests.kit.loop import PATIENCE, until
from tests.kit.results import text_of
from tests.launch.remains import living

if TYPE_CHECKING:
    from mcplumb import Client

T = TypeVar("T")
Message: TypeAlias = dict[str, Any]

ROOT = Path(__file__).parents[2]
SERVERS = ROOT / "tests" / "launch" / "servers"
MODERN = "2026-07-28"
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
#: One revision of each era.
ERAS = (MODERN, LEGACY[-1])

#: Waits that are short, for servers that would use up the usual ones.
HASTY_STOP = StopLadder(close_wait=0.2, term_wait=0.2, kill_wait=30.0)
#: So patient that who needs to be ended by force is noticed as a hang.
PATIENT_STOP = StopLadder(close_wait=PATIENCE * 2, term_wait=PATIENCE * 2, kill_wait=PATIENCE * 2)
HASTY_WAITS = EraWaits(quiet=0.05, settle=0.05, ask=0.5)
#: Restarts as fast as can be, and as often as it takes.
EAGER = RestartPolicy(first_wait=0.01, factor=1.0, max_wait=0.01, jitter=0.0, breaker_after=10_000)


class Stage:
    """Where the servers of one test play."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = Log(folder / "log.jsonl")

    def command(self, program: str, **options: Any) -> list[str]:
        """The command that starts one of the programs in ``servers``."""
        where = {"log": str(self.log.path), "state": str(self.folder / "starts")}
        # Without what is installed, they start faster; one of them needs it.
        python = [sys.executable] if program == "gateway" else [sys.executable, "-S"]
        return [*python, str(SERVERS), program, json.dumps(where | options)]

    def living(self) -> list[int]:
        """The processes of this test that live."""
        return living(str(self.folder))

    async def nothing_lives(self) -> None:
        """Wait until no process of this test lives."""
        await until(lambda: not self.living(), "all processes to be gone")


class Log:
    """What the servers of one test have written down."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def entries(self) -> list[Message]:
        if not self.path.exists():
            return []
        # A reader can see a part of a line that is being written.
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @property
    def pids(self) -> list[int]:
        """The processes that have served, in the order of their starts."""
        return [entry["pid"] for entry in self.entries if entry.get("event") == "started"]

    def children(self) -> list[int]:
        """The processes that servers have started."""
        return [entry["pid"] for entry in self.entries if entry.get("event") in ("child", "daemon")]

    def events(self, pid: int | None = None) -> list[str]:
        """What happened to the servers, beside the messages."""
        return [entry["event"] for entry in self.entries if "event" in entry and pid in (None, entry["pid"])]

    def messages(self, pid: int | None = None) -> list[Message]:
        """The messages that came, to all of them or to one."""
        return [
            read_strictly(entry["line"]) for entry in self.entries if "line" in entry and pid in (None, entry["pid"])
        ]

    def methods(self, pid: int | None = None) -> list[str]:
        """The methods of these messages; ``answer`` for what has none."""
        return [message.get("method", "answer") for message in self.messages(pid)]

    def find(self, method: str, pid: int | None = None) -> list[Message]:
        """The messages of this method."""
        return [message for message in self.messages(pid) if message.get("method") == method]

    def calls(self, tool: str) -> list[Message]:
        """The calls of this tool."""
        return [message for message in self.find("tools/call") if message["params"]["name"] == tool]

    async def wait_for(self, method: str, count: int = 1) -> list[Message]:
        """Wait until so many messages of this method have come."""
        await until(lambda: len(self.find(method)) >= count, f"{count} of {method} at the server")
        return self.find(method)

    async def wait_for_calls(self, tool: str, count: int = 1) -> list[Message]:
        """Wait until so many calls of this tool have come."""
        await until(lambda: len(self.calls(tool)) >= count, f"{count} calls of {tool} at the server")
        return self.calls(tool)

    async def wait_for_event(self, event: str, count: int = 1) -> None:
        """Wait until this has happened so often."""
        await until(lambda: self.events().count(event) >= count, f"{event!r} at the server")


def read_strictly(line: str) -> Message:
    """One line that a server received, which has to be a message that a client may send."""
    data = line.encode("latin-1")
    message = json.loads(data.decode("utf-8"), parse_constant=_refuse)
    assert isinstance(message, dict), line
    assert message["jsonrpc"] == "2.0", line
    assert not data.startswith(b"\xef\xbb\xbf"), line
    assert not data.endswith(b"\r"), line
    if "id" in message:
        assert type(message["id"]) in (int, str), line
    if "method" in message:
        assert isinstance(message["method"], str), line
        assert set(message) <= {"jsonrpc", "id", "method", "params"}, line
        assert isinstance(message.get("params", {}), dict), line
    else:
        assert "id" in message, line
        assert ("result" in message) != ("error" in message), line
    return message


async def say(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool, and wait for its text."""
    return text_of(await client.call_tool(tool, arguments))


def _refuse(constant: str) -> None:
    raise ValueError(f"JSON has no {constant}")
