"""How a run of the suite is judged, with a stand-in for the suite: a program that writes the checks it is told to."""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conformance.run import Verdict, chosen, expected_failures, main, run_all, serving, totals
from conformance.suite import HERE, Leg, Outcome, Scenario, Suite, SuiteError

PLAIN = Scenario("server", "2026-07-28", "tools-list", is_scored=True)

STAND_IN = """
import json, pathlib, sys
arguments = sys.argv[1:]
if arguments[0] == "list":
    print({listing!r})
else:
    folder = pathlib.Path(arguments[arguments.index("-o") + 1]) / "server-tools-list-2026"
    folder.mkdir()
    (folder / "checks.json").write_text(json.dumps({checks!r}))
    print(arguments)
    sys.exit({code})
"""

LISTING = """\
Required for 2026-07-28 (3 scenarios, frozen):

Server scenarios (test against a server):
  - ping
  - tools-list

Client scenarios (test against a client):
  - auth/metadata-default

Run and reported, but never scored:
  pending (2):
    - json-schema-2020-12 [server]
    - tasks-lifecycle [server]
"""


def suite(folder: Path, *statuses: str, code: int = 0) -> Suite:
    checks = [{"id": f"check-{number}", "status": each, "description": "d"} for number, each in enumerate(statuses)]
    program = folder / "suite.py"
    program.write_text(STAND_IN.format(listing=LISTING, checks=checks, code=code))
    return Suite([sys.executable, str(program)], folder / "results")


@pytest.mark.parametrize(
    ("statuses", "code", "word"),
    [
        (["SUCCESS", "INFO", "SKIPPED"], 0, "passed"),
        (["SUCCESS", "FAILURE"], 1, "failed"),
        (["SUCCESS", "WARNING"], 0, "warned"),
        (["INFO", "SKIPPED"], 0, "empty"),
        ([], 0, "empty"),
        (["SUCCESS"], 1, "bad exit"),
    ],
)
def test_a_scenario_passes_only_without_any_complaint(
    tmp_path: Path, statuses: list[str], code: int, word: str
) -> None:
    outcome = suite(tmp_path, *statuses, code=code).run(PLAIN, "http://127.0.0.1:1/mcp")
    assert outcome.word == word
    assert outcome.counts == Counter(statuses)
    assert outcome.exit_code == code
    assert len(outcome.complaints) == sum(each in ("FAILURE", "WARNING") for each in statuses)


def test_the_suite_is_told_what_to_run(tmp_path: Path) -> None:
    suite(tmp_path, "SUCCESS").run(PLAIN, "http://127.0.0.1:1/mcp")
    said = (tmp_path / "results" / "server-2026-07-28" / "tools-list" / "suite.log").read_text()
    arguments = ast.literal_eval(said)
    assert arguments[:3] == ["server", "--url", "http://127.0.0.1:1/mcp"]
    assert arguments[3:8] == ["--scenario", "tools-list", "--spec-version", "2026-07-28", "--force"]


def test_scenarios_are_read_from_the_listing(tmp_path: Path) -> None:
    assert suite(tmp_path).scenarios("2026-07-28") == [
        Scenario("server", "2026-07-28", "ping", is_scored=True),
        Scenario("server", "2026-07-28", "tools-list", is_scored=True),
        Scenario("client", "2026-07-28", "auth/metadata-default", is_scored=True),
        Scenario("server", "2026-07-28", "json-schema-2020-12", is_scored=False),
        Scenario("server", "2026-07-28", "tasks-lifecycle", is_scored=False),
    ]


def asked_for(**options: Any) -> argparse.Namespace:
    return argparse.Namespace(**({"patterns": [], "leg": None, "revision": None, "bridge": False} | options))


def test_what_runs_is_what_is_scored_and_some_more(tmp_path: Path) -> None:
    names = {scenario.name for scenario in chosen(suite(tmp_path), asked_for(), [])}
    of_older = {f"auth/2025-03-26-oauth-{name}" for name in ("metadata-backcompat", "endpoint-fallback")}
    assert names == {"ping", "tools-list", "auth/metadata-default", "json-schema-2020-12"} | of_older
    some = chosen(suite(tmp_path), asked_for(patterns=["*-*"], leg="server", revision="2026-07-28"), [])
    assert [scenario.name for scenario in some] == ["tools-list", "json-schema-2020-12"]


def test_a_choice_of_nothing_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="No scenario"):
        chosen(suite(tmp_path), asked_for(patterns=["typo"]), [])


def test_what_a_bridge_does_not_pass_on_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.run.NOT_BRIDGED", {"ping"})
    some = chosen(suite(tmp_path), asked_for(leg="server", revision="2026-07-28", bridge=True), [])
    assert [scenario.name for scenario in some] == ["tools-list", "json-schema-2020-12"]


def test_an_excuse_for_a_scenario_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    excuses: list[tuple[Leg, str]] = [("client", "auth/gone")]
    with pytest.raises(SuiteError, match="auth/gone"):
        chosen(suite(tmp_path), asked_for(), excuses)


def outcome(word: str, scenario: Scenario = PLAIN) -> Outcome:
    status = {"passed": "SUCCESS", "failed": "FAILURE"}[word]
    return Outcome(scenario, Counter([status]), ["check: no" for _ in range(status == "FAILURE")], 0)


@pytest.mark.parametrize(
    ("word", "excuse", "is_good"),
    [("passed", None, True), ("failed", None, False), ("failed", "why", True), ("passed", "why", False)],
)
def test_what_is_excused_has_to_fail(word: str, excuse: str | None, is_good: bool) -> None:
    verdict = Verdict(outcome(word), excuse)
    assert verdict.is_good is is_good
    row, *details = verdict.lines()
    assert row.startswith(" " if is_good else "!")
    assert bool(details) is not is_good


def test_a_bad_exit_is_told(tmp_path: Path) -> None:
    bad = Verdict(suite(tmp_path, "SUCCESS", code=3).run(PLAIN, "x"), None)
    assert "exit code 3" in list(bad.lines())[-1]


def test_totals() -> None:
    client = Scenario("client", "2025-11-25", "auth/metadata-default", is_scored=True)
    also = Scenario("server", "2026-07-28", "json-schema-2020-12", is_scored=False)
    verdicts = [
        Verdict(outcome("passed"), None),
        Verdict(outcome("failed", also), None),
        Verdict(outcome("failed", client), "why"),
    ]
    assert list(totals(verdicts)) == [
        "server 2026-07-28: 1 of 1 scored scenarios; 0 of 1 other scenarios; 1 checks passed, 1 failed, 0 warned",
        "client 2025-11-25: 1 of 1 fail as expected (*); 0 checks passed, 0 failed, 0 warned",
        "3 scenarios, 1 not as they should be",
    ]


def test_every_excuse_has_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "expected.yaml"
    path.write_text("# about\nserver:\n  - one  # because\nclient:\n  - auth/two  # so\n")
    assert expected_failures(path) == {("server", "one"): "because", ("client", "auth/two"): "so"}
    path.write_text("client:\n  - auth/two\n")
    with pytest.raises(SuiteError, match="auth/two"):
        expected_failures(path)


def test_nothing_but_authorization_is_excused() -> None:
    excuses = expected_failures(HERE / "expected-failures.yaml")
    assert all(leg == "client" and name.startswith("auth/") for leg, name in excuses)


def test_everything_that_npm_installs_is_pinned() -> None:
    wanted = json.loads((HERE / "package.json").read_text())
    lock = json.loads((HERE / "package-lock.json").read_text())["packages"]
    for name, version in (wanted["dependencies"] | wanted["optionalDependencies"] | wanted["overrides"]).items():
        assert lock[f"node_modules/{name}"]["version"] == version
    assert all("integrity" in package for place, package in lock.items() if place)
    assert not any("resolved" in package for package in lock.values())


@pytest.mark.parametrize("program", ["server.py", "client.py"])
def test_the_programs_use_the_public_interface_only(program: str) -> None:
    tree = ast.parse((HERE / program).read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module for module in modules if module is not None and module.startswith("mcplumb")} <= {
        "mcplumb",
        "mcplumb.client",
        "mcplumb.stores",
    }


def test_a_server_that_does_not_start_is_told(tmp_path: Path) -> None:
    missing = [sys.executable, str(tmp_path / "missing.py")]
    with pytest.raises(SuiteError, match="does not start"), serving(tmp_path / "log", missing):
        pass


def test_a_server_is_there_for_the_scenarios_and_ends_well(tmp_path: Path) -> None:
    stand_in = suite(tmp_path, "SUCCESS")
    stand_in.results.mkdir()
    scenarios = [PLAIN, Scenario("client", "2026-07-28", "tools_call", is_scored=True)]
    verdicts = list(run_all(stand_in, scenarios, {("client", "tools_call"): "why"}))
    assert [verdict.is_good for verdict in verdicts] == [True, False]
    url, command = (
        ast.literal_eval((stand_in.results / f"{leg}-2026-07-28" / name / "suite.log").read_text())[2]
        for leg, name in (("server", "tools-list"), ("client", "tools_call"))
    )
    assert url.startswith("http://127.0.0.1:")
    assert command.endswith("conformance/client.py")
    assert "Serving at" in (stand_in.results / "server.log").read_text()


@pytest.mark.parametrize(("status", "code"), [("SUCCESS", 0), ("WARNING", 1)])
def test_the_exit_code_says_whether_all_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: str, code: int
) -> None:
    stand_in = suite(tmp_path, status)
    stand_in.results.mkdir()
    monkeypatch.setattr("conformance.run.ROOT", tmp_path)
    monkeypatch.setattr("conformance.run.expected_failures", lambda path: {})
    monkeypatch.setattr(Suite, "installed", lambda: stand_in)
    monkeypatch.setattr(sys, "argv", ["run", "ping", "--leg", "server", "--revision", "2025-11-25"])
    assert main() == code
    assert "server 2025-11-25" in capsys.readouterr().out


def test_what_cannot_be_run_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in = suite(tmp_path)
    monkeypatch.setattr("conformance.run.expected_failures", lambda path: {})
    monkeypatch.setattr(Suite, "installed", lambda: stand_in)
    monkeypatch.setattr(sys, "argv", ["run", "typo"])
    assert main() == 1
    assert "No scenario" in capsys.readouterr().err
