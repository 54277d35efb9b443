"""What the kernel counts of a process that nothing looks into.

Linux tells, and has to. The other systems do not tell reads and writes, so there is nothing to be said here; what
`counting` finds inside a process is the same everywhere.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from tests.costs.ceilings import Figures
from tests.costs.driving import driven
from tests.costs.measuring import run
from tests.costs.messages import call

__all__ = ["BUSY", "Seen", "client_seen", "seen", "server_seen"]

#: How many rounds of how many calls, by the name in the table.
BUSY = {"one at a time, to the kernel": (300, 1), "64 at once, to the kernel": (20, 64)}


class Seen(msgspec.Struct):
    """System calls that read or write, and how often the process gave up its core to wait."""

    reads: int = 0
    writes: int = 0
    switches: int = 0

    def since(self, before: Seen) -> Seen:
        return Seen(self.reads - before.reads, self.writes - before.writes, self.switches - before.switches)

    def per(self, calls: int) -> Figures:
        """Return the figures of one of so many calls, or none where the system does not tell."""
        if sys.platform != "linux":
            return {}
        return {name: number / calls for name, number in msgspec.structs.asdict(self).items()}


def seen(pid: int) -> Seen:
    """What was seen of a process so far."""
    if sys.platform != "linux":
        return Seen()
    fields: dict[str, str] = {}
    for file in ("io", "status"):
        lines = Path(f"/proc/{pid}/{file}").read_text(encoding="ascii").splitlines()
        fields |= {name: value for name, _, value in (line.partition(":") for line in lines)}
    return Seen(int(fields["syscr"]), int(fields["syscw"]), int(fields["voluntary_ctxt_switches"]))


def server_seen(rounds: int, at_once: int) -> Figures:
    """What one call takes of a server, with so many at once."""
    calls = b"".join([call("modern", number) for number in range(at_once)])
    with driven() as server:
        for _ in range(rounds):
            server.ask(calls, at_once)
        before = seen(server.pid)
        for _ in range(rounds):
            server.ask(calls, at_once)
        after = seen(server.pid)
    return after.since(before).per(rounds * at_once)


def client_seen(rounds: int, at_once: int) -> Figures:
    """What one call takes of a client, with so many at once."""
    told = run(["-m", "tests.costs.programs.busy_client", str(rounds), str(at_once)])
    return msgspec.json.decode(told, type=Seen).per(rounds * at_once)
