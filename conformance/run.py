"""Hold mcplumb to the official conformance suite: ``python -m conformance.run``, or ``make conformance``.

Runs the scenarios of both current revisions, and two of an older one, each alone, against the server and the client of
this folder. What must pass is everything that the suite scores, and some more; what may fail, and then has to, is in
expected-failures.yaml.
Patterns for names run less: ``python -m conformance.run 'tools-*' --leg server --revision 2026-07-28``.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from conformance.suite import HERE, ROOT, Leg, Outcome, Scenario, Suite, SuiteError

REVISIONS = ("2025-11-25", "2026-07-28")
LEGS: tuple[Leg, ...] = ("server", "client")

#: What the suite does not score and mcplumb passes all the same. The rest of what is not scored are extensions.
ALSO = frozenset(
    {
        "http-custom-header-server-validation",
        "http-header-validation",
        "json-schema-2020-12",
        "json-schema-2020-12-preservation",
        "auth/client-credentials-basic",
        "auth/client-credentials-jwt",
        "auth/dpop",
        "auth/dpop-nonce",
        "auth/enterprise-managed-authorization",
        "auth/wif-jwt-bearer",
        "server-session-lifecycle",
        "server-sse-polling",
    }
)

#: What a bridge does not pass on: how a server uses the streams of its own HTTP transport.
NOT_BRIDGED = frozenset({"server-sse-polling"})
#: The suite has no set of scenarios for this revision, but these: there, a server is its own authorization server.
OLDER = tuple(
    Scenario("client", "2025-03-26", f"auth/2025-03-26-oauth-{name}", is_scored=False)
    for name in ("metadata-backcompat", "endpoint-fallback")
)

#: Seconds for what is served to end: three replicas and their proxy, on a machine that is busy with other things.
_STOP_SECONDS = 120

SERVED = [sys.executable, str(HERE / "server.py"), "--port", "0"]
_BRIDGE = """
import sys
from mcplumb import Bridge

Bridge(sys.argv[1:]).run("http://127.0.0.1:0/mcp", on_ready=lambda url: print(url, flush=True))
"""
#: The same server over stdio, with a bridge before it.
BRIDGED = [sys.executable, "-c", _BRIDGE, sys.executable, str(HERE / "server.py"), "--stdio"]
#: Three replicas of it, with a proxy before them that sends every request to another one.
REPLICAS = [
    *(sys.executable, "-m", "tests.kit.replicas", "--"),
    *(sys.executable, str(HERE / "server.py"), "--port", "PORT", "--shared", "SHARED"),
]


class Verdict(NamedTuple):
    """How a scenario went, and whether that is as it should be."""

    outcome: Outcome
    #: Why it may fail; None if it may not.
    excuse: str | None

    @property
    def is_good(self) -> bool:
        """Whether it passed, or failed as it was expected to."""
        return (self.outcome.word == "passed") is (self.excuse is None)

    def lines(self) -> Iterator[str]:
        """This row of the table, and below it what is wrong."""
        leg, revision, name, is_scored = self.outcome.scenario
        counts = self.outcome.counts
        mark = " " if self.is_good else "!"
        word = self.outcome.word if self.excuse is None else f"{self.outcome.word}*"
        kind = "" if is_scored else "  not scored"
        yield f"{mark} {word:<9} {leg:<6}  {revision}  {name:<45} {counts['SUCCESS']:>3} checks{kind}"
        if self.excuse is not None and not self.is_good:
            yield f"      It passed, so it has no place in expected-failures.yaml any more ({self.excuse})."
        elif not self.is_good:
            yield from (f"      {' '.join(complaint.split())[:300]}" for complaint in self.outcome.complaints)
            if self.outcome.word == "bad exit":
                yield f"      Every check succeeded, but the suite ended with exit code {self.outcome.exit_code}."


def expected_failures(path: Path) -> dict[tuple[Leg, str], str]:
    """The scenarios that may fail, and why: the suite's own format, in which each entry has a comment here."""
    found: dict[tuple[Leg, str], str] = {}
    leg: Leg | None = None
    for line in path.read_text("utf-8").splitlines():
        text, _, reason = (part.strip() for part in line.partition("#"))
        if text in ("server:", "client:"):
            leg = "server" if text == "server:" else "client"
        elif text.startswith("- ") and leg is not None and reason:
            found[leg, text.removeprefix("- ")] = reason
        elif text:
            raise SuiteError(f"{path.name} has a line that is no entry with its reason: {line.strip()!r}")
    return found


@contextmanager
def serving(log: Path, command: Sequence[str] = SERVED) -> Iterator[str]:
    """The URL that a command prints: it serves until the end of the block, and must end well, without any fault."""
    with log.open("w") as stderr:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        if not url:
            raise SuiteError(f"The server does not start:\n{log.read_text('utf-8')}")
        yield url
        process.send_signal(signal.SIGTERM)
        code = process.wait(_STOP_SECONDS)
        if code != 0 or "Traceback" in log.read_text("utf-8"):
            raise SuiteError(f"The server ended with exit code {code}, and its log is not clean: see {log}.")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def run_all(
    suite: Suite, scenarios: Sequence[Scenario], excuses: dict[tuple[Leg, str], str], served: Sequence[str] = SERVED
) -> Iterator[Verdict]:
    """Run the scenarios, those of the server against what this command serves."""
    for_server = [scenario for scenario in scenarios if scenario.leg == "server"]
    for_client = [scenario for scenario in scenarios if scenario.leg == "client"]
    if for_server:
        with serving(suite.results / "server.log", served) as url:
            for scenario in for_server:
                yield Verdict(suite.run(scenario, url), excuses.get((scenario.leg, scenario.name)))
    command = shlex.join([sys.executable, str(HERE / "client.py")])
    for scenario in for_client:
        yield Verdict(suite.run(scenario, command), excuses.get((scenario.leg, scenario.name)))


def totals(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """One line for each leg and revision, and one for all."""
    for leg in LEGS:
        for revision in (OLDER[0].revision, *REVISIONS):
            here = [verdict for verdict in verdicts if verdict.outcome.scenario[:2] == (leg, revision)]
            if here:
                yield f"{leg} {revision}: {_counted(here)}"
    bad = sum(not verdict.is_good for verdict in verdicts)
    yield f"{len(verdicts)} scenarios, {bad} not as they should be" if bad else f"{len(verdicts)} scenarios, all well"


def _counted(verdicts: Sequence[Verdict]) -> str:
    wanted = [verdict for verdict in verdicts if verdict.excuse is None]
    parts = []
    for is_scored, kind in ((True, "scored"), (False, "other")):
        words = [each.outcome.word for each in wanted if each.outcome.scenario.is_scored is is_scored]
        if words:
            parts.append(f"{words.count('passed')} of {len(words)} {kind} scenarios")
    excused = [verdict for verdict in verdicts if verdict.excuse is not None]
    if excused:
        parts.append(f"{sum(verdict.is_good for verdict in excused)} of {len(excused)} fail as expected (*)")
    checks: Counter[str] = sum((verdict.outcome.counts for verdict in wanted), Counter())
    parts.append(f"{checks['SUCCESS']} checks passed, {checks['FAILURE']} failed, {checks['WARNING']} warned")
    return "; ".join(parts)


def chosen(suite: Suite, options: argparse.Namespace, excuses: Iterable[tuple[Leg, str]]) -> list[Scenario]:
    """The scenarios that the command line asks for, of all that must pass or are excused."""
    every = [*(scenario for revision in REVISIONS for scenario in suite.scenarios(revision)), *OLDER]
    stale = set(excuses) - {(scenario.leg, scenario.name) for scenario in every}
    if stale:
        raise SuiteError(f"expected-failures.yaml names scenarios that the suite does not have: {sorted(stale)}")
    found = [
        scenario
        for scenario in every
        if (scenario.is_scored or scenario.name in ALSO or scenario in OLDER)
        and not (options.bridge and scenario.name in NOT_BRIDGED)
        and options.leg in (None, scenario.leg)
        and options.revision in (None, scenario.revision)
        and (not options.patterns or any(fnmatch(scenario.name, pattern) for pattern in options.patterns))
    ]
    if not found:
        raise SuiteError("No scenario is chosen by this.")
    return found


def main() -> int:
    """Run what the command line asks for; 0 if all is as it should be."""
    parser = argparse.ArgumentParser(description="Run the official MCP conformance suite.")
    parser.add_argument("patterns", nargs="*", help="names of scenarios, with * and ?; all if there are none")
    parser.add_argument("--leg", choices=LEGS, help="test only the server, or only the client")
    parser.add_argument("--revision", choices=(OLDER[0].revision, *REVISIONS), help="test only under this revision")
    parser.add_argument("--bridge", action="store_true", help="test the server through a bridge, over stdio")
    parser.add_argument(
        "--replicas", action="store_true", help="test three replicas of the server (needs redis-server)"
    )
    options = parser.parse_args()
    if options.bridge or options.replicas:
        options.leg = "server"
    served = BRIDGED if options.bridge else REPLICAS if options.replicas else SERVED
    verdicts = []
    try:
        excuses = expected_failures(HERE / "expected-failures.yaml")
        suite = Suite.installed()
        for verdict in run_all(suite, chosen(suite, options, excuses), excuses, served):
            verdicts.append(verdict)
            print("\n".join(verdict.lines()), flush=True)
    except SuiteError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1
    print("", *totals(verdicts), f"What was said: {suite.results.relative_to(ROOT)}", sep="\n")
    return 0 if all(verdict.is_good for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
