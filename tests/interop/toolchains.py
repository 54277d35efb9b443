"""Our programs for the SDKs of compiled languages: each project is built once below ``.interop``, from exact versions.

A project is a folder beside this file with a server and a client, its manifest and its lock file. It is built again
when one of its files changes. On a machine without its toolchain, what needs it is skipped.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from tests.interop.environments import CACHE, NotInstalled, NoToolchain, run, say

HERE = Path(__file__).parent

Program: TypeAlias = Literal["server", "client"]


class Toolchain(NamedTuple):
    """A program that has to be there, and how it says its version."""

    version: tuple[str, ...]
    oldest: tuple[int, int]

    def check(self, title: str) -> None:
        """Fail unless the program is there and new enough."""
        needed = f"{title} needs {self.version[0]!r} {'.'.join(map(str, self.oldest))} or newer on the PATH"
        if shutil.which(self.version[0]) is None:
            raise NoToolchain(f"{needed}, and there is none.")
        said = run(*self.version)
        found = re.search(r"(\d+)\.(\d+)", said)
        if found is None or (int(found[1]), int(found[2])) < self.oldest:
            raise NoToolchain(f"{needed}, and it is {said.strip()!r}.")


class Project(NamedTuple):
    name: str
    title: str
    #: The manifest, and where in it the version of the SDK is.
    manifest: str
    version_pattern: str
    #: The eras that the SDK knows.
    eras: tuple[Literal["legacy", "modern"], ...]
    toolchains: tuple[Toolchain, ...]
    #: Builds the project of this source folder into a folder; a third one may keep what builds share.
    build: Callable[[Path, Path, Path], None]
    #: Returns the command of a program in the folder that it was built into.
    start: Callable[[Path, Program], list[str]]

    def __str__(self) -> str:
        return f"{self.title} {self.version}"

    @property
    def source(self) -> Path:
        return HERE / self.name

    @property
    def version(self) -> str:
        """The version of the SDK that the manifest asks for."""
        found = re.search(self.version_pattern, (self.source / self.manifest).read_text(encoding="utf-8"))
        if found is None:
            raise LookupError(f"{self.source / self.manifest} has no version of the SDK.")
        return found[1]

    def command(self, program: Program, cache: Path = CACHE) -> list[str]:
        """Build the project if need be, and return the command of one of its programs."""
        return self.start(self.made(cache), program)

    def made(self, cache: Path = CACHE) -> Path:
        """Return the folder of what was built, complete."""
        key = hashlib.sha256()
        for path in sorted(self.source.rglob("*")):
            if path.is_file():
                key.update(f"{path.relative_to(self.source)}\n".encode() + path.read_bytes())
        folder = cache / f"{self.name}-{key.hexdigest()[:12]}"
        complete = folder / "complete"
        cache.mkdir(exist_ok=True)
        with (cache / f"{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete.exists():
                for toolchain in self.toolchains:
                    toolchain.check(self.title)
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                say(f"{self}: building into {folder.name}")
                started = time.monotonic()
                self.build(self.source, folder, cache / f"{self.name}-shared")
                complete.touch()
                say(f"{self}: built in {time.monotonic() - started:.0f} s")
        return folder


def build_go(source: Path, folder: Path, _shared: Path) -> None:
    # The toolchain that is there: Go would download the one that a dependency asks for.
    run(
        "env",
        "GOTOOLCHAIN=local",
        "GOFLAGS=-mod=readonly",
        "go",
        "-C",
        str(source),
        "build",
        "-o",
        f"{folder}/",
        "./...",
    )


def build_rust(source: Path, folder: Path, shared: Path) -> None:
    # What the dependencies were compiled to is kept for the next build.
    cargo = ("cargo", "build", "--locked", "--bins", "--manifest-path", str(source / "Cargo.toml"))
    run(*cargo, "--target-dir", str(shared))
    for program in ("server", "client"):
        shutil.copy2(shared / "debug" / program, folder)


def build_java(source: Path, folder: Path, _shared: Path) -> None:
    goals = ("compiler:compile", "dependency:copy-dependencies", "-DincludeScope=runtime")
    maven = ("mvn", "--quiet", "--batch-mode", "--file", str(source / "pom.xml"), f"-Doutput={folder}")
    run(*maven, *goals, f"-DoutputDirectory={folder / 'lib'}")


def java(folder: Path, program: Program) -> list[str]:
    # It runs for seconds: what counts is that it starts fast.
    machine = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
    return [*machine, "-cp", f"{folder / 'classes'}:{folder / 'lib'}/*", f"interop.{program.capitalize()}"]


def native(folder: Path, program: Program) -> list[str]:
    return [str(folder / program)]


GO = Project(
    "go",
    "Go SDK",
    "go.mod",
    r"modelcontextprotocol/go-sdk v(\S+)",
    ("legacy", "modern"),
    (Toolchain(("go", "version"), (1, 25)),),
    build_go,
    native,
)
RUST = Project(
    "rust",
    "Rust SDK",
    "Cargo.toml",
    r'rmcp = \{ version = "=(\S+)"',
    ("legacy", "modern"),
    (Toolchain(("cargo", "--version"), (1, 88)),),
    build_rust,
    native,
)
JAVA = Project(
    "java",
    "Java SDK",
    "pom.xml",
    r"<mcp\.version>(\S+)</mcp\.version>",
    ("legacy",),
    # A runtime alone has no compiler.
    (Toolchain(("javac", "--version"), (17, 0)), Toolchain(("mvn", "--version"), (3, 6))),
    build_java,
    java,
)

PROJECTS = (GO, RUST, JAVA)


def make(project: Project) -> None:
    try:
        project.made()
    except NoToolchain as error:
        say(f"{project}: skipped. {error}")


def main() -> None:
    try:
        for project in PROJECTS:
            make(project)
    except NotInstalled as error:
        sys.exit(f"interop: {error}")


if __name__ == "__main__":
    main()
