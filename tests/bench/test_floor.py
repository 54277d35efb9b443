"""The floor in C, where there is a compiler."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench.driver import driven
from bench.environments import NotInstalled, compiled
from bench.traffic import ERAS, Calls


def test_the_server_in_c_serves_both_tools_in_both_eras(tmp_path: Path) -> None:
    if not shutil.which("cc"):
        return
    program = compiled("floor", tmp_path)
    assert compiled("floor", tmp_path) == program
    for era in ERAS.values():
        with driven([program], era) as process:
            process.in_flight(Calls.echo(era, range(1, 5001)), 5000)
            process.one_at_a_time(Calls.add(era, range(5001, 5100)))
            process.in_flight(Calls.echo(era, range(6000, 6003), size=3_000_000), 2)


def test_without_a_compiler_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotInstalled, match="There is no C compiler"):
        compiled("floor", tmp_path)
