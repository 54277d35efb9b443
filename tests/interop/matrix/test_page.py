from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.interop.bridge.fidelity import FEATURES, PASS
from tests.interop.environments import Environment, NoToolchain
from tests.interop.matrix.page import PAGE, Matrix, available, load, page, row_of, save
from tests.interop.matrix.pairs import PEERS, TITLES, VISITS
from tests.interop.toolchains import Project

PASSED = dict.fromkeys(FEATURES, PASS)


def test_the_page_says_what_the_file_does() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(load()), "run make docs"


def test_the_file_has_every_row_with_every_feature() -> None:
    matrix = load()
    assert list(matrix.rows) == [str(visit) for visit in VISITS]
    assert all(row.verdicts.keys() == FEATURES.keys() for row in matrix.rows.values())


def test_the_file_is_of_the_versions_that_the_tests_use() -> None:
    assert load().peers == TITLES, "run make interop-matrix"


def test_every_cell_has_a_verdict_and_what_does_not_pass_has_a_note() -> None:
    text = page(load())
    notes = set(re.findall(r"^### Note (\d+)$", text, re.MULTILINE))
    rows = [line for line in text.splitlines() if re.match(r"\| .*\| (legacy|modern)", line)]
    assert len(rows) == len(VISITS)
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")][3:]
        assert len(cells) == len(FEATURES)
        for cell in cells:
            found = re.fullmatch(r"pass|(?:fail|none) \[(\d+)\]\(#note-(\d+)\)", cell)
            assert found is not None, cell
            assert cell == "pass" or {found[1], found[2]} <= notes


def test_a_failure_that_nobody_knows_is_a_failure() -> None:
    visit = next(visit for visit in VISITS if visit.server == "python_v2")
    row = row_of(visit, PASSED | {"logs": "nothing came"})
    assert row.verdicts == PASSED | {"logs": "fail"}
    assert row.observed == {"logs": "nothing came"}


def test_what_there_is_said_to_be_none_of_passes_if_it_works() -> None:
    visit = next(visit for visit in VISITS if visit.server == "java")
    assert row_of(visit, PASSED).verdicts == PASSED
    assert row_of(visit, PASSED | {"pagination": "one page"}).verdicts == PASSED | {"pagination": "none"}


def test_an_error_that_says_that_there_is_none_does_not_pass() -> None:
    visit = next(visit for visit in VISITS if visit.server == "python_v1")
    assert row_of(visit, PASSED).verdicts == PASSED | {"extension_methods": "none"}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    visit = VISITS[0]
    matrix = Matrix("2026-11-18", {"own": "mcplumb 1"}, {str(visit): row_of(visit, PASSED | {"logs": "„nothing“"})})
    save(matrix, tmp_path / "matrix.json")
    assert load(tmp_path / "matrix.json") == matrix


def test_each_peer_without_its_toolchain_is_left_out_with_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object) -> Path:
        raise NoToolchain("It needs a program on the PATH, and there is none.")

    monkeypatch.setattr(Environment, "made", missing)
    monkeypatch.setattr(Project, "made", missing)
    assert available(peer.name for peer in PEERS) == []
    why = "its rows stay as they are. It needs a program on the PATH, and there is none."
    assert capsys.readouterr().out.splitlines() == [f"interop: {peer.title}: {why}" for peer in PEERS]


def test_peers_with_their_toolchain_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Environment, "made", lambda *_: Path())
    monkeypatch.setattr(Project, "made", lambda *_: Path())
    names = [peer.name for peer in PEERS]
    assert available(names) == names
