"""Programs of the system that tests use where they are there, and that root gets from Debian.

``python -m tests.kit.debian nginx`` makes sure that there is one, for `.ci/run`, or says that there is none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress

__all__ = ["find_program", "install_package"]


def find_program(*names: str) -> str | None:
    """The path of the first of these programs that there is; servers are not on everybody's PATH."""
    places = (None, "/usr/sbin")
    return next(filter(None, (shutil.which(name, path=place) for name in names for place in places)), None)


def install_package(package: str) -> None:
    """Install a package with apt, if this is root on a Debian. A server in it is not started."""
    apt = shutil.which("apt-get")
    if os.geteuid() == 0 and apt is not None:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        # Without a way to the packages, the tests are skipped, and not late.
        options = ["-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=20", "-o", "DPkg::Lock::Timeout=60"]
        for words in (["update"], ["install", "--yes", "--no-install-recommends", package]):
            with suppress(subprocess.TimeoutExpired):
                subprocess.run([apt, *options, *words], check=False, env=environment, timeout=300, capture_output=True)


def main(name: str) -> None:
    """Find or install a program, and say where it is."""
    if find_program(name) is None:
        install_package(name)
    found = find_program(name)
    print(f"The tests of {name} use {found}." if found else f"The tests of {name} are skipped: there is none.")


if __name__ == "__main__":
    main(*sys.argv[1:])
