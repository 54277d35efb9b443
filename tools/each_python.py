"""Runs a command once for every Python of 3.11 and newer on this machine: ``python tools/each_python.py make test``.

The command gets ``PYTHON=<path>`` as its last argument. Interpreters are looked for as the one that runs this program,
as ``python3.X`` on the PATH, and among pyenv's versions; of each minor version the first that works is used.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

OLDEST = (3, 11)

# Prints what decides: a final CPython with the means to make virtual environments. A shim of pyenv for a version that
# is not selected exists, but fails here.
QUESTION = """
import importlib.util, sys
fit = sys.implementation.name == "cpython" and sys.version_info.releaselevel == "final"
fit = fit and importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")
print(*sys.version_info[:3], bool(fit), sys.executable)
"""


def candidates() -> Iterator[Path]:
    """Files that may be interpreters, the preferred ones first."""
    yield Path(sys.executable)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        yield from sorted(Path(folder).glob("python3.[0-9]*"))
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob("versions/*/bin/python3"), reverse=True)


def asked(candidate: Path) -> tuple[tuple[int, int, int], str] | None:
    """The version and the path of a usable interpreter, or None."""
    try:
        done = subprocess.run(
            [candidate, "-I", "-c", QUESTION], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.split(maxsplit=4)
    if done.returncode or len(words) != 5 or words[3] != "True":
        return None
    return (int(words[0]), int(words[1]), int(words[2])), words[4].strip()


def interpreters() -> dict[tuple[int, int], tuple[str, str]]:
    """Full version and path of one interpreter for each minor version, oldest first."""
    found: dict[tuple[int, int], tuple[str, str]] = {}
    tried: set[Path] = set()
    for candidate in candidates():
        name = candidate.name
        if candidate in tried or name.endswith(("-config", "t", "d")):
            continue
        tried.add(candidate)
        answer = asked(candidate)
        if answer and answer[0][:2] >= OLDEST:
            found.setdefault(answer[0][:2], (".".join(map(str, answer[0])), answer[1]))
    return dict(sorted(found.items()))


def main(command: list[str]) -> int:
    if not command:
        print("Usage: python tools/each_python.py COMMAND [ARGUMENT…]", file=sys.stderr)
        return 2
    found = interpreters()
    if not found:
        print("No Python of 3.11 or newer was found that can make virtual environments.", file=sys.stderr)
        return 1
    summary = []
    for version, path in found.values():
        print(f"==> Python {version} ({path})", flush=True)
        began = time.monotonic()
        code = subprocess.run([*command, f"PYTHON={path}"], check=False).returncode
        result = "passed" if code == 0 else f"FAILED with exit code {code}"
        summary.append((code, f"Python {version:8} {result} in {time.monotonic() - began:.0f} s"))
    print("\n".join(["==> Summary", *(line for _, line in summary)]))
    return 1 if any(code for code, _ in summary) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
