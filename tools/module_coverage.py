"""Shows that each module is fully covered, branches too, by its own test file alone.

``python tools/module_coverage.py`` looks at all modules of layers 0 to 2, ``… wire/lines.py protocol`` at some.
The tests of src/mcplumb/a/b.py are in tests/a/test_b.py or, if there are several files, in the folder tests/a/b. Those
of a package's __init__.py, if it has code, are in tests/a/test_init.py.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "mcplumb"
TESTS = ROOT / "tests"
LAYERS = ("errors.py", "limits.py", "revisions.py", "wire", "types", "protocol")
AT_ONCE = 2


class Report(NamedTuple):
    module: Path
    faults: list[str]


def test_file(module: Path) -> Path:
    """Return the file or the folder that holds the tests of a module."""
    name = "init" if module.stem == "__init__" else module.stem
    home = TESTS / module.relative_to(SRC).parent
    return home / name if (home / name).is_dir() else home / f"test_{name}.py"


def has_code(module: Path) -> bool:
    """Whether there is more in a module than a docstring, imports and names with two underscores."""
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) if name.startswith("__"):
                pass
            case _:
                return True
    return False


def modules(wanted: list[str]) -> Iterator[Path]:
    for module in sorted(SRC.rglob("*.py")):
        relative = module.relative_to(SRC)
        if relative.parts[0] not in LAYERS and relative.name != "__init__.py":
            continue
        if wanted and not any(str(relative).startswith(start) for start in wanted):
            continue
        if relative.name != "__init__.py" or has_code(module):
            yield module


def covered(module: Path, folder: Path) -> Report:
    """Run the module's tests, and say what they did not reach."""
    tests = test_file(module)
    if not tests.exists():
        return Report(module, [f"has no tests: {tests.relative_to(ROOT)} is missing"])
    name = ".".join(module.relative_to(SRC).with_suffix("").parts)
    data, report = folder / f"{name}.data", folder / f"{name}.json"
    coverage = [sys.executable, "-m", "coverage"]
    run = [*coverage, "run", f"--data-file={data}", "--branch", f"--include={module}", "-m"]
    pytest = ["pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", str(tests)]
    done = subprocess.run([*run, *pytest], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return Report(module, ["its tests fail:", *done.stdout.splitlines()[-20:], *done.stderr.splitlines()[-20:]])
    export = [*coverage, "json", "-q", f"--data-file={data}", "-o", str(report)]
    done = subprocess.run(export, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return Report(module, [f"is not imported by {tests.relative_to(ROOT)}: {done.stdout.strip()}"])
    (file,) = json.loads(report.read_text(encoding="utf-8"))["files"].values()
    missing = [f"line {line} is not reached" for line in file["missing_lines"]]
    missing += [
        f"line {start} never leads to {f'line {end}' if end > 0 else 'the end of its block'}"
        for start, end in file["missing_branches"]
    ]
    return Report(module, missing)


def main(wanted: list[str]) -> int:
    found = list(modules(wanted))
    failed = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        for module, faults in pool.map(lambda module: covered(module, Path(folder)), found):
            failed += bool(faults)
            print(f"{'FAILED' if faults else 'ok':7}{module.relative_to(ROOT)}", flush=True)
            for fault in faults:
                print(f"       {fault}", flush=True)
    print(f"{len(found) - failed} of {len(found)} modules are fully covered by their own tests.")
    return 1 if failed or not found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
