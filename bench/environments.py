"""An environment for each library that takes part, with nothing else in it, made once below ``.bench`` and kept."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.interop.environments import NotInstalled, check_node, run

__all__ = [
    "CONTENDERS",
    "HOME",
    "ROOT",
    "NotInstalled",
    "build_go",
    "compiled",
    "go_program",
    "node_with",
    "pin",
    "python_with",
    "rust_program",
]

ROOT = Path(__file__).parent.parent
CONTENDERS = ROOT / "bench" / "contenders"
HOME = ROOT / ".bench"


def python_with(name: str) -> str:
    """An interpreter that has what ``contenders/<name>.txt`` lists; `NotInstalled` if that cannot be had."""
    place = HOME / f"{name}-py{platform.python_version()}"
    _made(place, [CONTENDERS / f"{name}.txt"], _install_python)
    return str(place / "bin" / "python")


def node_with(name: str, program: str) -> list[str]:
    """The command of a program for Node, with the packages that ``contenders/<name>`` names and locks."""
    source, place = CONTENDERS / name, HOME / name
    check_node()
    _made(place, [source / "package.json", source / "package-lock.json"], _install_node)
    # Node looks for packages, and for what else a program imports, beside the program.
    for each in CONTENDERS.glob("*.mjs"):
        shutil.copy(each, place)
    return ["node", str(place / program)]


def compiled(name: str, home: Path = HOME) -> str:
    """A program in C, built with the system's compiler; `NotInstalled` if there is none."""
    source, program = CONTENDERS / f"{name}.c", home / name
    if not (compiler := shutil.which("cc")):
        raise NotInstalled("There is no C compiler 'cc' on the PATH.")
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        home.mkdir(exist_ok=True)
        run(compiler, "-O2", "-o", str(program), str(source))
    return str(program)


def go_program(name: str) -> str:
    """The program of the Go module ``contenders/<name>``, as its authors would build it for a release."""
    return _built(name, "go", lambda source, place: build_go(source, place, "-ldflags=-s -w"))


def rust_program(name: str) -> str:
    """The program of the Rust package ``contenders/<name>``, as its authors would build it for a release."""
    return _built(name, "cargo", _build_rust)


def pin(name: str, package: str) -> str:
    """The version of a package that an environment for Python has."""
    lines = (CONTENDERS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{package}==")).partition("==")[2]


def _made(place: Path, lists: Sequence[Path], install: Callable[[Path, Sequence[Path]], None]) -> None:
    """A folder that has what is listed, with copies of the lists in it."""
    if all(_same(each, place / each.name) for each in lists):
        return
    print(f"==> installing into {place.relative_to(ROOT)}", flush=True)
    HOME.mkdir(exist_ok=True)
    # Made elsewhere and moved when it is complete, so that a run that is interrupted leaves nothing half made.
    with tempfile.TemporaryDirectory(prefix="draft-", dir=HOME) as parent:
        draft = Path(parent) / place.name
        draft.mkdir()
        install(draft, lists)
        for each in lists:
            shutil.copy(each, draft)
        shutil.rmtree(place, ignore_errors=True)
        draft.rename(place)


def _built(name: str, toolchain: str, build: Callable[[Path, Path], None]) -> str:
    """The program that a toolchain makes of ``contenders/<name>``; `NotInstalled` if there is no such toolchain."""
    source, place = CONTENDERS / name, HOME / name
    if not shutil.which(toolchain):
        raise NotInstalled(f"There is no {toolchain!r} on the PATH.")
    sources = sorted(each for each in source.rglob("*") if each.is_file())
    _made(place, sources, lambda draft, _: build(source, draft))
    return str(place / "bench")


def build_go(source: Path, place: Path, *options: str) -> None:
    """Build a Go module into a folder."""
    # The toolchain that is there: Go would download the one that a dependency asks for.
    settings = ["GOTOOLCHAIN=local", "GOFLAGS=-mod=readonly -trimpath"]
    run("env", *settings, "go", "-C", str(source), "build", *options, "-o", f"{place}/")


def _build_rust(source: Path, place: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="target-", dir=HOME) as target:
        manifest = ["--manifest-path", str(source / "Cargo.toml"), "--target-dir", target]
        run("cargo", "build", "--release", "--locked", "--quiet", *manifest)
        shutil.copy(Path(target) / "release" / "bench", place)


def _same(one: Path, other: Path) -> bool:
    return other.exists() and one.read_bytes() == other.read_bytes()


def _install_python(place: Path, lists: Sequence[Path]) -> None:
    """The lists are complete: what else a package says that it needs is not looked at."""
    venv.create(place, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "--disable-pip-version-check"]
    for pins in lists:
        # A list may name this folder as a package.
        command = [*pip, "install", "--quiet", "--no-deps", "--requirement", str(pins)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotInstalled(f"pip could not install {pins.name}:\n{done.stderr.strip()[-2000:]}")


def _install_node(place: Path, lists: Sequence[Path]) -> None:
    for each in lists:
        shutil.copy(each, place)
    run("npm", "ci", "--prefix", str(place), "--no-audit", "--no-fund", "--loglevel=error")
