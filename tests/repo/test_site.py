"""The site that ``make docs`` makes has every page, and no link that leads out of it to nowhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.repo.source import ROOT

DOCS = ROOT / "docs"
DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = DOCS / "topics" / "wire.md"
OTHERS = "[c](../../src/mcplumb/limits.py) [d](../../README.md#how)"
TEXT = f"[a](wire.md) [b](../README.md#x) {OTHERS}\n```\n[e](../../x)\n```\n"


def settings() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_settings", DOCS / "conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    listed = [line for toctree in settings().tree(index) for line in toctree.splitlines() if "/" in line]
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.glob("*/*.md")}
    assert sorted(listed) == sorted(pages)


def test_the_navigation_has_the_groups_of_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    captions = [
        line.removeprefix(":caption: ") for line in "".join(settings().tree(index)).splitlines() if "caption" in line
    ]
    groups = re.findall(r"^(\w.*):$", index.partition("**How-to**")[2].partition("**Topics**")[0], re.MULTILINE)
    assert len(groups) > 3
    assert captions == ["Tutorial", *groups, "Topics", "Reference"]


def test_links_to_other_files_become_text_where_there_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MCPLUMB_REPOSITORY", raising=False)
    assert settings().inside(PAGE, TEXT) == "[a](wire.md) [b](../README.md#x) c d\n```\n[e](../../x)\n```\n"


def test_links_to_other_files_go_to_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPLUMB_REPOSITORY", "https://example.com/blob/main/")
    changed: str = settings().inside(PAGE, TEXT)
    assert "[c](https://example.com/blob/main/src/mcplumb/limits.py)" in changed
    assert "[d](https://example.com/blob/main/README.md#how)" in changed


def test_no_statement_of_a_diagram_ends_in_the_middle_of_its_text() -> None:
    # For mermaid a semicolon ends a statement, and the rest of the line is an error in place of the whole diagram.
    diagrams = {page.name: DIAGRAM.findall(page.read_text(encoding="utf-8")) for page in DOCS.glob("*/*.md")}
    assert sum(map(len, diagrams.values())) > 5
    assert {name: blocks for name, blocks in diagrams.items() if any(";" in block for block in blocks)} == {}


def test_the_settings_lead_to_files_that_exist() -> None:
    assert Path(DOCS / f"{settings().root_doc}.md").exists()
