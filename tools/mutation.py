"""Shows that the tests notice: breaks the rules of tools/mutations.toml one by one, and runs the tests named for each.

``python tools/mutation.py`` breaks all of them, ``… breaker host-check`` some. Nothing is changed in the working tree:
each worker has a copy of it, and an environment in which every process imports the package from that copy. A rule
counts as noticed if a test fails with the change and passes without it. Exits with 1 if a rule survived, or could not
be broken because its text is not in the source.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import tomllib
import venv
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tools" / "mutations.toml"
AT_ONCE = 2
#: Seconds for the tests of one rule. Tests that hang because of a change have not told what is wrong.
PATIENCE = 120.0
#: A test that waits in vain because of a change must fail well within that time, so the copies' tests wait less.
SHORTER_WAIT = (Path("tests", "kit", "loop.py"), "PATIENCE = 60.0", "PATIENCE = 15.0")
#: Made by tools, and not needed by tests.
UNNEEDED = shutil.ignore_patterns(
    ".git", ".venv", ".site", ".fuzz", ".bench", ".interop", ".conformance", ".*_cache", ".hypothesis", "dist"
)
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?::\S+?(?:\[.*?\])?|\S+)(?: - .*)?$", re.MULTILINE)


class Mutation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule, and a change of the source that breaks it."""

    rule: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    req: str | None = None

    @property
    def path(self) -> Path:
        return Path("src", "mcplumb", self.file)

    def broken(self, text: str) -> str | None:
        """Return the file's text with the rule broken; None if there is not exactly one place to do so."""
        return text.replace(self.old, self.new) if text.count(self.old) == 1 else None


def load(names: Sequence[str] = ()) -> dict[str, Mutation]:
    """Return the mutations of these names, or all of them."""
    table = msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), dict[str, Mutation])
    if unknown := set(names) - set(table):
        sys.exit(f"There is no mutation {', '.join(sorted(unknown))} in {TABLE.relative_to(ROOT)}.")
    return {name: mutation for name, mutation in table.items() if not names or name in names}


class Tree:
    """A copy of the working tree, and an environment that imports the package from it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        # With the times of the files, so that what was compiled stays good.
        shutil.copytree(ROOT, self.root, ignore=UNNEEDED)
        kit, old, new = SHORTER_WAIT
        (self.root / kit).write_text((ROOT / kit).read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        # Beside the installed packages, but before the package that is installed with them: a path file inside a
        # folder that another path file names is not read, and so the editable installation is not found.
        venv.create(folder / "venv", with_pip=False)
        self._python = folder / "venv" / "bin" / "python"
        found = folder / "venv" / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
        paths = [self.root / "src", sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        (found / "mutated.pth").write_text("".join(f"{path}\n" for path in dict.fromkeys(map(str, paths))))

    @contextmanager
    def changed(self, file: Path, text: str, moment: int) -> Iterator[None]:
        """Put this text in the place of a file, with a time of its own: Python tells versions by time and size."""
        path = self.root / file
        path.write_text(text, encoding="utf-8")
        os.utime(path, (moment, moment))
        try:
            yield
        finally:
            shutil.copy2(ROOT / file, path)

    def first_failure(self, tests: Sequence[str]) -> str | None:
        """Run the tests until one fails, and return its name; None if none does. `TimeoutExpired` if they hang."""
        options = ["-q", "-x", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not thorough"]
        environment = {**os.environ, "CI": "true"}
        environment.pop("PYTHONPATH", None)
        with subprocess.Popen(
            [self._python, "-m", "pytest", *options, *tests],
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if process.returncode == 0:
            return None
        found = FAILED.search(output)
        return found[1] if found else f"pytest, which says: {output.strip()[-500:]}"


def verdict(mutation: Mutation, tree: Tree, moment: int) -> tuple[bool, str]:
    """Break a rule, and return whether the tests noticed, and what to say about it."""
    text = mutation.broken((ROOT / mutation.path).read_text(encoding="utf-8"))
    if text is None:
        return False, f"NOT FOUND: the old text does not stand in {mutation.path} exactly once"
    try:
        with tree.changed(mutation.path, text, moment):
            failed = tree.first_failure(mutation.tests)
        if failed is None:
            return False, f"SURVIVED: {', '.join(mutation.tests)} pass"
        if "::" not in failed:
            return False, f"UNDECIDED: the tests cannot be loaded with the change: {failed}"
        if tree.first_failure([failed]) is not None:
            return False, f"UNDECIDED: {failed} fails without the change, too"
    except subprocess.TimeoutExpired:
        return False, f"HANGS: {', '.join(mutation.tests)} take more than {PATIENCE:g} s"
    return True, f"caught by {failed}"


def main(names: Sequence[str]) -> int:
    mutations = load(names)
    started = time.monotonic()
    print(f"==> breaking {len(mutations)} rules, {AT_ONCE} at a time", flush=True)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        own = threading.local()

        def judge(name: str, moment: int) -> tuple[bool, str]:
            if not hasattr(own, "tree"):
                own.tree = Tree(Path(folder, threading.current_thread().name))
            return verdict(mutations[name], own.tree, moment)

        # A second apart, and long ago: no other version of a file has such a time.
        waiting = {name: pool.submit(judge, name, 1_000_000 + number) for number, name in enumerate(mutations)}
        missed = sum(not show(name, mutations[name], waiting[name].result) for name in mutations)
    seconds = time.monotonic() - started
    print(f"{len(mutations) - missed} of {len(mutations)} broken rules were noticed, in {seconds:.0f} s.")
    return 1 if missed else 0


def show(name: str, mutation: Mutation, result: Callable[[], tuple[bool, str]]) -> bool:
    is_caught, text = result()
    rule = f"{mutation.rule} ({mutation.req})" if mutation.req else mutation.rule
    print(f"{'ok' if is_caught else 'MISSED':7}{name}: {rule}\n       {text}", flush=True)
    return is_caught


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
