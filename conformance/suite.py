"""The official conformance suite: installed in exact versions, asked for its scenarios, run one scenario at a time."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

HERE = Path(__file__).parent
ROOT = HERE.parent
FOLDER = ROOT / ".conformance"

#: What is tested.
Leg: TypeAlias = Literal["server", "client"]

#: What npm is told to install: the suite, its dependencies, and a Node.js that is new enough for it.
_PACKAGES = ("package.json", "package-lock.json")
_INSTALL_SECONDS = 600
#: For one scenario. The suite's own limit comes first, so that it can say what it has waited for.
_SCENARIO_SECONDS = 60
_LAST_SECONDS = 30


class SuiteError(Exception):
    """The suite cannot be installed or run; the message says what is needed."""


class Scenario(NamedTuple):
    """One scenario of the suite, under one revision."""

    leg: Leg
    revision: str
    name: str
    #: Whether conformance to the revision depends on it.
    is_scored: bool


class Outcome(NamedTuple):
    """How a scenario went."""

    scenario: Scenario
    #: How many checks have which status.
    counts: Counter[str]
    #: What the checks that did not succeed say.
    complaints: list[str]
    exit_code: int

    @property
    def word(self) -> str:
        """``passed``, or what is wrong: no check may fail or warn, one must succeed, the program must end well."""
        if self.counts["FAILURE"]:
            return "failed"
        if self.counts["WARNING"]:
            return "warned"
        if not self.counts["SUCCESS"]:
            return "empty"
        return "passed" if self.exit_code == 0 else "bad exit"


class Suite:
    """The suite, installed."""

    def __init__(self, command: list[str], results: Path) -> None:
        self._command = command
        self._results = results

    @classmethod
    def installed(cls, folder: Path = FOLDER) -> Suite:
        """The suite below this folder, where npm puts it if it is not there yet. Older results are removed."""
        packages, results = folder / "suite", folder / "results"
        with _alone(folder):
            if not all(_same(HERE / name, packages / name) for name in _PACKAGES):
                _install(packages)
        shutil.rmtree(results, ignore_errors=True)
        results.mkdir()
        modules = packages / "node_modules"
        node = modules / ".bin" / "node"
        if not node.exists():
            raise SuiteError(
                f"npm has no Node.js for this machine ({sys.platform}) that conformance/package.json names."
            )
        return cls([str(node), str(modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js")], results)

    @property
    def results(self) -> Path:
        """Where everything goes that is worth a look afterwards."""
        return self._results

    def scenarios(self, revision: str) -> list[Scenario]:
        """What the suite has for this revision, in its order."""
        listing = _run([*self._command, "list", "--requirements", revision], _LAST_SECONDS)
        found: list[Scenario] = []
        leg: Leg = "server"
        for line in listing.splitlines():
            match line.split():
                case ["Server", "scenarios", *_]:
                    leg = "server"
                case ["Client", "scenarios", *_]:
                    leg = "client"
                case ["-", name]:
                    found.append(Scenario(leg, revision, name, is_scored=True))
                case ["-", name, "[server]"]:
                    found.append(Scenario("server", revision, name, is_scored=False))
                case ["-", name, "[client]"]:
                    found.append(Scenario("client", revision, name, is_scored=False))
        return found

    def run(self, scenario: Scenario, target: str) -> Outcome:
        """Run one scenario alone: against the server with this URL, or the client with this command."""
        folder = self._results / f"{scenario.leg}-{scenario.revision}" / scenario.name
        folder.mkdir(parents=True)
        command = [*self._command, scenario.leg, "--url" if scenario.leg == "server" else "--command", target]
        command += ["--scenario", scenario.name, "--spec-version", scenario.revision, "--force"]
        command += ["--timeout", str(_SCENARIO_SECONDS * 1000), "-o", str(folder)]
        with (folder / "suite.log").open("w") as log:
            try:
                done = subprocess.run(
                    command,
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=_SCENARIO_SECONDS + _LAST_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise SuiteError(f"The suite itself hangs in {scenario.name}: see {folder}.") from None
        checks = [check for path in folder.rglob("checks.json") for check in json.loads(path.read_text("utf-8"))]
        complaints = [
            f"{check['id']}: {check.get('errorMessage') or check.get('description')}"
            for check in checks
            if check["status"] in ("FAILURE", "WARNING")
        ]
        return Outcome(scenario, Counter(check["status"] for check in checks), complaints, done.returncode)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Several runs at once install one after the other."""
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _same(one: Path, other: Path) -> bool:
    return other.exists() and one.read_bytes() == other.read_bytes()


def _install(packages: Path) -> None:
    if shutil.which("npm") is None:
        raise SuiteError("The suite is a package of npm, and there is no 'npm' on the PATH: install Node.js.")
    print("conformance: installing the suite", flush=True)
    shutil.rmtree(packages, ignore_errors=True)
    fresh = packages.with_name("fresh")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    for name in _PACKAGES:
        shutil.copy(HERE / name, fresh)
    _run(["npm", "ci", "--prefix", str(fresh), "--no-audit", "--no-fund", "--loglevel=error"], _INSTALL_SECONDS)
    fresh.rename(packages)


def _run(command: list[str], seconds: float) -> str:
    """Run a command to its end, and give what it printed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise SuiteError(f"This took longer than {seconds} s: {' '.join(command)}") from None
    if done.returncode != 0:
        raise SuiteError(f"This failed: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout
