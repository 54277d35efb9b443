"""Runs a server with its own standard streams, and writes down how it ended, which no client tells.

witness.py FOLDER COMMAND [ARGUMENT ...] leaves one record a run in the folder, and their names sort by the start.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

LONGEST_SECONDS = 60


def main() -> None:
    folder, *command = sys.argv[1:]
    record = Path(folder) / f"{time.time_ns()}.json"
    record.write_text(json.dumps({"status": None, "signals": []}))
    signals: list[str] = []
    server = subprocess.Popen(command)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        signals.append(signal.Signals(number).name)
        server.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    try:
        server.wait(LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
    record.write_text(json.dumps({"status": server.wait(), "signals": signals}))


if __name__ == "__main__":
    main()
