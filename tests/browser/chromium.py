"""Find Chromium, or install it where that is allowed; ``python -m tests.browser.chromium COMMAND...`` then runs one.

Playwright is told to use Debian's: its own browsers are not downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.kit.debian import find_program, install_package

__all__ = ["FLAGS", "find_chromium"]

#: No request of the browser itself leaves the machine. Without a sandbox, because root has none.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """Return the path of a Chromium, or None."""
    return os.environ.get("MCPLUMB_CHROMIUM") or find_program(*_NAMES)


def main() -> None:
    """Find or install it, and run a command; without it, say that the command is skipped."""
    if find_chromium() is None:
        install_package("chromium")
    found = find_chromium()
    if found is None:
        print("Skipped: there is no Chromium. Install it, or name it in MCPLUMB_CHROMIUM.", flush=True)
        return
    version = subprocess.run([found, "--version"], check=False, capture_output=True, text=True, timeout=60).stdout
    print(f"{found}: {version.strip()}", flush=True)
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
