"""The environments of the official clients: each is made once below ``.interop`` and named by what is pinned in it.

``python -m tests.interop.environments`` makes all of them. Parallel test workers may ask for the same one.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".interop"
CLIENTS = Path(__file__).parent / "clients"

OLDEST_NODE = 20
INSTALL_SECONDS = 180


class NotInstalled(Exception):
    """An environment cannot be made; the message says what is needed."""


class Environment(NamedTuple):
    """A client program, and the exact package of the registry that it is written with."""

    program: str
    package: str

    @property
    def is_python(self) -> bool:
        return self.program.endswith(".py")

    def command(self, scratch: Path, cache: Path = CACHE) -> list[str]:
        """Makes the environment if need be, and gives the command that runs the program in it."""
        folder = self.made(cache)
        program = CLIENTS / self.program
        if self.is_python:
            return [str(folder / "bin" / "python"), str(program)]
        # Node looks for packages beside the program.
        shutil.copy(program, scratch)
        (scratch / "node_modules").symlink_to(folder / "node_modules")
        return ["node", str(scratch / self.program)]

    def made(self, cache: Path = CACHE) -> Path:
        """The folder of the environment, complete."""
        base = f"Python {sys.version} in {sys.base_prefix}" if self.is_python else "Node"
        key = hashlib.sha256(f"{base}\n{self.package}".encode()).hexdigest()[:12]
        folder = cache / f"{Path(self.program).stem}-{key}"
        complete = folder / "complete"
        cache.mkdir(exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete.exists():
                shutil.rmtree(folder, ignore_errors=True)
                say(f"{self.package}: installing into {folder.name}")
                started = time.monotonic()
                self.install(folder)
                complete.touch()
                say(f"{self.package}: installed in {time.monotonic() - started:.0f} s")
        return folder

    def install(self, folder: Path) -> None:
        if self.is_python:
            run(sys.executable, "-m", "venv", "--without-pip", str(folder))
            pip = (
                sys.executable,
                "-m",
                "pip",
                "--python",
                str(folder / "bin" / "python"),
                "--disable-pip-version-check",
            )
            run(*pip, "install", "--quiet", self.package)
        else:
            check_node()
            folder.mkdir()
            run("npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error", self.package)


PYTHON_V1 = Environment("python_v1.py", "mcp==1.30.0")
PYTHON_V2 = Environment("python_v2.py", "mcp==2.3.0")
TYPESCRIPT_V1 = Environment("typescript_v1.mjs", "@modelcontextprotocol/sdk@1.32.2")
TYPESCRIPT_V2 = Environment("typescript_v2.mjs", "@modelcontextprotocol/client@2.4.0")
ENVIRONMENTS = (PYTHON_V1, PYTHON_V2, TYPESCRIPT_V1, TYPESCRIPT_V2)


def say(line: str) -> None:
    print(f"interop: {line}", flush=True)


def run(*command: str) -> str:
    """Runs a command to its end, and gives what it printed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"This took longer than {INSTALL_SECONDS} s: {' '.join(command)}") from None
    if done.returncode != 0:
        raise NotInstalled(f"This failed: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def check_node() -> None:
    needed = f"The TypeScript clients need Node.js {OLDEST_NODE} or newer with npm on the PATH"
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise NotInstalled(f"{needed}, and there is no {program!r}.")
    version = run("node", "--version").strip()
    if int(version.lstrip("v").split(".")[0]) < OLDEST_NODE:
        raise NotInstalled(f"{needed}, and 'node' is {version}.")


def main() -> None:
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(Environment.made, ENVIRONMENTS))
    except NotInstalled as error:
        sys.exit(f"interop: {error}")


if __name__ == "__main__":
    main()
