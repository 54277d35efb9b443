"""An environment for each library that takes part, with nothing else in it, made once and kept."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

__all__ = ["CONTENDERS", "ROOT", "pin", "python_with"]

ROOT = Path(__file__).parent.parent
CONTENDERS = ROOT / "bench" / "contenders"
HOME = ROOT / ".bench"


def python_with(name: str) -> str | None:
    """An interpreter that has what ``contenders/<name>.txt`` lists, or None if that cannot be installed."""
    pins = CONTENDERS / f"{name}.txt"
    place = HOME / f"{name}-py{platform.python_version()}"
    if not _is_complete(place, pins):
        print(f"==> {place.relative_to(ROOT)}: installing {name} and what it needs", flush=True)
        HOME.mkdir(exist_ok=True)
        # Made elsewhere and moved when it is complete, so that a run that is interrupted leaves nothing half made.
        with tempfile.TemporaryDirectory(prefix="draft-", dir=HOME) as parent:
            draft = Path(parent) / name
            if not _install(draft, pins):
                print(f"==> {name} could not be installed")
                return None
            shutil.copy(pins, draft)
            shutil.rmtree(place, ignore_errors=True)
            draft.rename(place)
    return str(place / "bin" / "python")


def pin(name: str, package: str) -> str:
    """A package that an environment has, with its version."""
    lines = (CONTENDERS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith(f"{package}==")).replace("==", " ")


def _is_complete(place: Path, pins: Path) -> bool:
    installed = place / pins.name
    return installed.exists() and installed.read_bytes() == pins.read_bytes()


def _install(place: Path, pins: Path) -> bool:
    venv.create(place, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python")]
    return subprocess.run([*pip, "install", "-qq", "-r", str(pins)], cwd=ROOT, check=False).returncode == 0
