"""Without a toolchain, every test that needs it is skipped, and says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.interop.environments import ROOT

TESTS = """
import pytest
from tests.interop.environments import NoToolchain

@pytest.fixture(scope="module")
def built():
    raise NoToolchain("It needs 'go' on the PATH, and there is none.")

def test_one(built): ...
def test_another(built): ...
def test_one_that_builds():
    raise NoToolchain("It needs 'go' on the PATH, and there is none.")
"""


def test_all_tests_that_share_what_cannot_be_built_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "test_built.py").write_text(TESTS)
    (tmp_path / "pytest.ini").touch()
    options = ["-q", "-rs", "-p", "no:cacheprovider", "-p", "tests.interop.conftest"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "3 skipped" in done.stdout, done.stdout + done.stderr
    assert "It needs 'go' on the PATH, and there is none." in done.stdout
