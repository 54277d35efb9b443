from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.interop.environments import Environment
from tests.interop.wild.software import (
    CLIENTS,
    SERVERS,
    ThirdPartyClient,
    ThirdPartyServer,
    environments,
    install,
    version,
)


def test_every_row_has_an_exact_version() -> None:
    rows: list[ThirdPartyServer | ThirdPartyClient] = [*SERVERS, *CLIENTS]
    assert len(SERVERS) >= 12
    assert len(CLIENTS) == 7
    for row in rows:
        assert re.fullmatch(r"\d+(\.\d+)+", version(row)), row
    for environment in environments():
        assert all(re.search(r"(==|.@)\d+(\.\d+)+$", package) for package in environment.packages), environment


def test_what_cannot_be_installed_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    install(Environment("npm_some-server", ("some-server@1.0.0",)), tmp_path)
    assert "some-server@1.0.0 cannot be installed, and its tests are skipped: " in capsys.readouterr().out
