"""The rules that `tools/mutation.py` breaks are in the source, and the tests that should notice exist."""

from __future__ import annotations

import ast

import pytest

from tests.repo.source import ROOT
from tests.repo.test_ledger import ledger
from tools.mutation import FAILED, SHORTER_WAIT, Mutation, load

MUTATIONS = load()


def test_the_rules_do_not_become_fewer() -> None:
    assert len(MUTATIONS) >= 60


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_a_rule_can_be_broken(mutation: Mutation) -> None:
    broken = mutation.broken((ROOT / mutation.path).read_text(encoding="utf-8"))
    assert broken is not None, "adapt tools/mutations.toml: its old text must stand in the file exactly once"
    assert mutation.old != mutation.new
    ast.parse(broken)
    assert mutation.req is None or mutation.req in ledger()
    assert mutation.tests
    assert [test for test in mutation.tests if not (ROOT / test.partition("::")[0]).exists()] == []


def test_an_old_text_must_be_there_once() -> None:
    mutation = Mutation(rule="", file="x.py", old="a", new="b", tests=())
    assert mutation.broken("cad") == "cbd"
    assert mutation.broken("aa") is None
    assert mutation.broken("c") is None


def test_the_kit_s_patience_can_be_shortened() -> None:
    kit, old, _ = SHORTER_WAIT
    assert (ROOT / kit).read_text(encoding="utf-8").count(f"\n{old}\n") == 1


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("FAILED tests/a/test_b.py::test_c - assert 1 == 2", "tests/a/test_b.py::test_c"),
        ("FAILED tests/a/test_b.py::test_c", "tests/a/test_b.py::test_c"),
        ("FAILED tests/a/test_b.py::test_c[x - y] - assert False", "tests/a/test_b.py::test_c[x - y]"),
        ("ERROR tests/a/test_b.py - ImportError: no", "tests/a/test_b.py"),
    ],
)
def test_the_first_failure_is_read_from_the_summary(line: str, name: str) -> None:
    found = FAILED.search(f"..F\n=== short test summary info ===\n{line}\n1 failed in 1 s\n")
    assert found is not None
    assert found[1] == name
