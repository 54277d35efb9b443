"""The environments of the SDKs and servers of others: each is made once below ``.interop``, with exact versions.

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

OLDEST_NODE = 20
#: A busy machine takes long to compile what the Rust SDK needs.
INSTALL_SECONDS = 1800


class NotInstalled(Exception):
    """An environment cannot be made; the message says what is needed."""


class NoToolchain(NotInstalled):
    """A program is not on this machine, or too old: tests that need it are skipped."""


class NoNode(NoToolchain):
    """There is no Node.js, or one that is too old."""


class Environment(NamedTuple):
    """Packages of a registry that can live together: npm's if they are for TypeScript, else PyPI's."""

    #: ``typescript`` or ``npm`` at its start says that the packages are npm's.
    name: str
    packages: tuple[str, ...]
    #: These are put over the others as they are, whatever they say that they need.
    without_dependencies: tuple[str, ...] = ()

    @property
    def is_python(self) -> bool:
        return not self.name.startswith(("typescript", "npm"))

    def command(self, program: Path, scratch: Path, cache: Path = CACHE) -> list[str]:
        """Makes the environment if need be, and gives the command that runs a program of ours in it."""
        folder = self.made(cache)
        if self.is_python:
            return [str(folder / "bin" / "python"), str(program)]
        # Node looks for packages beside the program.
        shutil.copy(program, scratch)
        packages = scratch / "node_modules"
        if not packages.is_symlink():
            packages.symlink_to(folder / "node_modules")
        return ["node", str(scratch / program.name)]

    def executable(self, name: str, cache: Path = CACHE) -> str:
        """Makes the environment if need be, and gives the path of a program that was installed in it."""
        return str(self.made(cache) / ("bin" if self.is_python else "node_modules/.bin") / name)

    def made(self, cache: Path = CACHE) -> Path:
        """The folder of the environment, complete."""
        base = f"Python {sys.version} in {sys.base_prefix}" if self.is_python else "Node"
        key = hashlib.sha256(f"{base}\n{self}".encode()).hexdigest()[:12]
        folder = cache / f"{self.name}-{key}"
        complete = folder / "complete"
        cache.mkdir(exist_ok=True)
        with folder.with_name(f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete.exists():
                if not self.is_python:
                    check_node()
                shutil.rmtree(folder, ignore_errors=True)
                say(f"{self}: installing into {folder.name}")
                started = time.monotonic()
                self.install(folder)
                complete.touch()
                say(f"{self}: installed in {time.monotonic() - started:.0f} s")
        return folder

    def install(self, folder: Path) -> None:
        if self.is_python:
            run(sys.executable, "-m", "venv", "--without-pip", str(folder))
            python = str(folder / "bin" / "python")
            # Most modules are never imported, so none is compiled before it is.
            pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
            install = (*pip, "install", "--quiet", "--no-compile")
            run(*install, *self.packages)
            if self.without_dependencies:
                run(*install, "--no-deps", *self.without_dependencies)
        else:
            folder.mkdir()
            npm = ("npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--loglevel=error")
            run(*npm, *self.packages)

    def __str__(self) -> str:
        return ", ".join(self.packages + self.without_dependencies)


PYTHON_V1 = Environment("python_v1", ("mcp==1.30.0",))
PYTHON_V2 = Environment("python_v2", ("mcp==2.3.0", "mcp-server-time==2026.10.19", "mcp-server-git==2026.10.19"))
FASTMCP_3 = Environment("fastmcp_3", ("fastmcp==3.4.10", "mcp==1.30.0"))
# It asks for a release of certifi that the registries do not have. An older release of it needs the same otherwise.
FASTMCP_4 = Environment("fastmcp_4", ("fastmcp==4.1.2", "mcp==2.3.0"), ("fastmcp==4.1.4", "fastmcp-slim==4.1.4"))
TYPESCRIPT_V1 = Environment(
    "typescript_v1",
    (
        "@modelcontextprotocol/sdk@1.32.2",
        "@modelcontextprotocol/server-everything@2026.8.31",
        "@modelcontextprotocol/server-filesystem@2026.8.31",
        "@modelcontextprotocol/server-memory@2026.8.31",
    ),
)
TYPESCRIPT_V2 = Environment(
    "typescript_v2", ("@modelcontextprotocol/client@2.4.0", "@modelcontextprotocol/server@2.4.0")
)
UV = Environment("uv", ("uv==0.13.7",))
#: An authorization server, certified by the OpenID Foundation. It asks for Node.js 22, and runs on 20 with a warning.
OIDC_PROVIDER = Environment("npm_oidc_provider", ("oidc-provider@9.13.3",))

#: Those that take longest come first.
ENVIRONMENTS = (FASTMCP_3, FASTMCP_4, TYPESCRIPT_V1, PYTHON_V2, PYTHON_V1, TYPESCRIPT_V2, OIDC_PROVIDER, UV)


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
    needed = f"The packages of npm need Node.js {OLDEST_NODE} or newer with npm on the PATH"
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise NoNode(f"{needed}, and there is no {program!r}.")
    version = run("node", "--version").strip()
    if int(version.lstrip("v").split(".")[0]) < OLDEST_NODE:
        raise NoNode(f"{needed}, and 'node' is {version}.")


def make(environment: Environment) -> None:
    try:
        environment.made()
    except NoNode as error:
        say(f"{environment}: skipped. {error}")


def main() -> None:
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(make, ENVIRONMENTS))
    except NotInstalled as error:
        sys.exit(f"interop: {error}")


if __name__ == "__main__":
    main()
