"""Find Chromium, or install it where that is allowed; ``python -m tests.browser.chromium COMMAND...`` then runs one.

Playwright is told to use Debian's: its own browsers are not downloaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

__all__ = ["FLAGS", "find_chromium", "install_chromium"]

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
    named = os.environ.get("MCPLUMB_CHROMIUM")
    return named or next(filter(None, map(shutil.which, _NAMES)), None)


def install_chromium() -> str | None:
    """Install Chromium with apt, if this is root on a Debian; return its path, or None."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
            command = [shutil.which("apt-get") or "apt-get", *words]
            subprocess.run(command, check=False, env=environment, timeout=600, capture_output=True)
    return find_chromium()


def main() -> None:
    """Find or install it, and run a command; without it, say that the command is skipped."""
    found = find_chromium() or install_chromium()
    if found is None:
        print("Skipped: there is no Chromium. Install it, or name it in MCPLUMB_CHROMIUM.", flush=True)
        return
    version = subprocess.run([found, "--version"], check=False, capture_output=True, text=True, timeout=60).stdout
    print(f"{found}: {version.strip()}", flush=True)
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
