"""The ledger of requirements and the tests' marks agree, and what is left to do can only become less."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.repo.source import ROOT, parsed

# How many rows each group has: a row that disappears would otherwise be missed by nobody.
GROUPS = {
    "FRM": 10, "DIR": 4, "META": 7, "ERA": 11, "CAN": 7, "PRG": 2, "SUB": 6, "MRT": 5, "LIF": 16, "LEG": 6,
    "STR": 5, "HTP": 8, "SSE": 3, "AUT": 14, "GRP": 1, "BRG": 7, "TAP": 4, "VIW": 2, "SCL": 5,
}  # fmt: skip

# The rows that nothing proves yet. Take an id out when its row is done; none is ever added.
NOT_YET: set[str] = set()
# The rows that are proven with real processes or sockets. Put an id in when its row gets there; none is ever taken out.
PROVEN = {
    "FRM-2", "FRM-3", "FRM-4", "FRM-5", "FRM-6", "FRM-7", "FRM-8", "FRM-9", "DIR-1", "DIR-2", "DIR-3",
    "DIR-4", "META-1", "META-2", "META-3", "META-4", "META-5", "META-7", "ERA-1", "ERA-2", "ERA-3", "ERA-4",
    "ERA-5", "ERA-6", "ERA-7", "ERA-8", "ERA-9", "ERA-10", "ERA-11", "CAN-1", "CAN-2", "CAN-3", "CAN-4",
    "CAN-5", "CAN-6", "CAN-7", "PRG-1", "SUB-1", "SUB-2", "SUB-3", "SUB-4", "SUB-5", "SUB-6", "MRT-1",
    "MRT-2", "MRT-3", "MRT-4", "MRT-5", "LIF-1", "LIF-2", "LIF-3", "LIF-4", "LIF-5", "LIF-6", "LIF-7",
    "LIF-8", "LIF-9", "LIF-10", "LIF-11", "LIF-12", "LIF-13", "LIF-14", "LIF-15", "LIF-16", "LEG-1", "LEG-2",
    "LEG-3", "LEG-4", "STR-1", "STR-2", "STR-3", "STR-4", "STR-5", "HTP-1", "HTP-2", "HTP-3", "HTP-4",
    "HTP-5", "HTP-6", "HTP-7", "HTP-8", "SSE-1", "SSE-2", "SSE-3", "AUT-1",
    "AUT-2", "AUT-3", "AUT-4", "AUT-6", "AUT-7", "AUT-8", "AUT-9", "AUT-10", "AUT-11", "AUT-12", "AUT-13", "AUT-14",
    "GRP-1", "BRG-1", "BRG-2", "BRG-3", "BRG-5", "BRG-6", "BRG-7", "TAP-1", "TAP-2", "TAP-3", "VIW-1", "VIW-2",
    "SCL-1", "SCL-2", "SCL-3", "SCL-4", "SCL-5",
}  # fmt: skip

Ledger = dict[str, dict[str, str]]


def ledger() -> Ledger:
    return tomllib.loads((ROOT / "requirements.toml").read_text(encoding="utf-8"))


def is_mark(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr == "req" and ast.unparse(function).endswith("mark.req")


def is_thorough(marks: ast.expr) -> bool:
    return "mark.thorough" in ast.unparse(marks)


def thorough_marks(tree: ast.Module) -> set[int]:
    """The nodes of the marks of tests that the default run leaves out."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark" and is_thorough(node.value):
            return {id(each) for each in ast.walk(tree)}
    return {
        id(decorator)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(is_thorough, node.decorator_list))
        for decorator in node.decorator_list
    }


@cache
def marks(path: Path) -> list[tuple[str, str, bool]]:
    """Each id that a mark in a test file names, where, and whether the default run has that test.

    A mark that proves nothing has no id.
    """
    return list(_marks(path)) if "mark.req" in path.read_text(encoding="utf-8") else []


def _marks(path: Path) -> Iterator[tuple[str, str, bool]]:
    tree = parsed(path)
    idle = {
        id(decorator): node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.lower().startswith("test")
        for decorator in node.decorator_list
    }
    thorough = thorough_marks(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and is_mark(node.func):
            where = f"{path.name}:{node.lineno}"
            if id(node) in idle or not node.args:
                yield "", f"{where} marks nothing that pytest runs", False
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value, where, id(node) not in thorough
                else:
                    yield "", f"{where} does not name its id literally", False


def marked(folder: Path, *, by_default: bool = False) -> dict[str, list[str]]:
    """The ids that marks name, and where: all of them, or those of tests that the default run has."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        for name, where, is_default in marks(path):
            if is_default or not by_default:
                found.setdefault(name, []).append(where)
    return found


def faults(rows: Ledger, proofs: dict[str, list[str]], not_yet: set[str], proven: set[str]) -> list[str]:
    said = [f"{where}." for where in proofs.get("", [])]
    for name, row in rows.items():
        state = row["state"]
        if state == "not yet" and name not in not_yet:
            said.append(f"{name} is 'not yet', and the list of such rows may only shrink.")
        if state != "not yet" and name in not_yet:
            said.append(f"{name} is done: take it out of NOT_YET, so that it stays done.")
        if state == "process" and name not in proven:
            said.append(f"{name} is proven: put it into PROVEN, so that it stays proven.")
        if state != "process" and name in proven:
            said.append(f"{name} was proven with processes and may not go back to {state!r}.")
        if state != "not yet" and name not in proofs:
            said.append(f"{name} is {state!r}, but no test is marked with it.")
    said += [f"{name} is marked at {proofs[name][0]}, but has no row." for name in proofs if name and name not in rows]
    return said


def test_the_ledger_and_the_tests_agree() -> None:
    assert faults(ledger(), marked(ROOT / "tests"), NOT_YET, PROVEN) == []


def test_the_default_run_proves_every_row() -> None:
    claimed = {name for name, row in ledger().items() if row["state"] != "not yet"}
    assert claimed - set(marked(ROOT / "tests", by_default=True)) == set()


def test_every_row_is_there_and_well_formed() -> None:
    rows = ledger()
    assert list(rows) == [f"{group}-{number}" for group, count in GROUPS.items() for number in range(1, count + 1)]
    for name, row in rows.items():
        assert list(row) == ["who", "strength", "rule", "state"], name
        assert row["who"] in ("client", "server", "both"), name
        assert row["strength"] in ("must", "should", "may", "promise"), name
        assert row["state"] in ("rules", "process", "not yet"), name
        assert re.fullmatch(r"\S.{5,70}[^\s.]", row["rule"]), name


@pytest.mark.parametrize(
    ("state", "proofs", "not_yet", "proven", "said"),
    [
        ("rules", {"A-1": ["x"]}, set(), set(), None),
        ("process", {"A-1": ["x"]}, set(), {"A-1"}, None),
        ("not yet", {}, {"A-1"}, set(), None),
        ("not yet", {"A-1": ["x"]}, {"A-1"}, set(), None),
        ("rules", {}, set(), set(), "A-1 is 'rules', but no test is marked with it."),
        ("not yet", {}, set(), set(), "A-1 is 'not yet', and the list of such rows may only shrink."),
        ("rules", {"A-1": ["x"]}, {"A-1"}, set(), "A-1 is done: take it out of NOT_YET, so that it stays done."),
        ("process", {"A-1": ["x"]}, set(), set(), "A-1 is proven: put it into PROVEN, so that it stays proven."),
        ("rules", {"A-1": ["x"]}, set(), {"A-1"}, "A-1 was proven with processes and may not go back to 'rules'."),
        ("rules", {"A-1": ["x"], "B-1": ["y"]}, set(), set(), "B-1 is marked at y, but has no row."),
        ("rules", {"A-1": ["x"], "": ["y is idle"]}, set(), set(), "y is idle."),
    ],
)
def test_the_guard_sees(
    state: str, proofs: dict[str, list[str]], not_yet: set[str], proven: set[str], said: str | None
) -> None:
    assert faults({"A-1": {"state": state}}, proofs, not_yet, proven) == ([said] if said else [])


def test_marks_are_read_from_the_source(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        '@pytest.mark.req("A-1", "A-2")\ndef test_a(): pass\n'
        'pytestmark = pytest.mark.req("A-3")\n'
        '@pytest.mark.req("A-4")\ndef helper(): pass\n'
        "@pytest.mark.req(NAME)\ndef test_b(): pass\n"
        "@pytest.mark.req()\ndef test_c(): pass\n"
        '@pytest.mark.parametrize("A-5", [])\ndef test_d(): pass\n'
    )
    found = marked(tmp_path)
    assert sorted(found) == ["", "A-1", "A-2", "A-3", "A-4"]
    assert sorted(found[""]) == [
        "test_x.py:4 marks nothing that pytest runs",
        "test_x.py:6 does not name its id literally",
        "test_x.py:8 marks nothing that pytest runs",
    ]


def test_marks_of_thorough_tests_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        '@pytest.mark.req("A-1")\n@pytest.mark.thorough\ndef test_a(): pass\n'
        '@pytest.mark.req("A-2")\nasync def test_b(): pass\n'
    )
    (tmp_path / "test_y.py").write_text(
        'pytestmark = [pytest.mark.thorough]\n@pytest.mark.req("A-3")\ndef test_c(): pass\n'
    )
    assert sorted(marked(tmp_path)) == ["A-1", "A-2", "A-3"]
    assert sorted(marked(tmp_path, by_default=True)) == ["A-2"]
