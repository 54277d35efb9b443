"""A tap in each pipe: ``MCPLUMB_INTEROP_TAP=FOLDER make interop`` records all sessions over stdio to a folder.

The results have to be the same. ``python -m tests.interop.tapping FOLDER`` says what breaks the rules in them.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "MCPLUMB_INTEROP_TAP"


def tapped(command: Sequence[str]) -> list[str]:
    """The command, with a tap before it if that is wanted."""
    folder = os.environ.get(VARIABLE)
    return [*command] if not folder else tap_command(Path(folder), command)


def tap_command(place: Path, command: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "mcplumb", "tap", "--record", str(place), "--", *command]


def main() -> int:
    from mcplumb.recording.recordings_folder import find_recordings
    from mcplumb.tap.read_session import SessionReader

    found: Counter[str] = Counter()
    paths = find_recordings(Path(sys.argv[1]))
    for path in paths:
        session = SessionReader(path).read_all()
        for finding in session.findings.found:
            server = session.transcript.server
            found[f"{finding.severity} {finding.requirement} {finding.rule}: {finding.message} [{server.name}]"] += 1
            print(f"{path.name} line {finding.lines[0]}: {finding.rule}: {finding.message}")
    print(f"{len(paths)} sessions")
    for words, count in found.most_common():
        print(f"{count:>5}  {words}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
