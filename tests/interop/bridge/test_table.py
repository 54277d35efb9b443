from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.bridge.fidelity import FEATURES, PASS, cells
from tests.interop.bridge.products import MCPLUMB, PRODUCTS
from tests.interop.bridge.table import NO_SSE, PAGE, Row, load, merged, page, save

PASSED = dict.fromkeys(FEATURES, PASS)


def test_the_page_says_what_the_file_does() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(load()), "run make docs"


def test_the_file_has_every_cell_of_every_product() -> None:
    table = load()
    for product in PRODUCTS:
        assert [row[:4] for row in table[product.name]] == [cell[1:] for cell in cells(product)]
        assert all(row.outcomes.keys() == FEATURES.keys() for row in table[product.name])


@pytest.mark.req("BRG-1")
def test_every_feature_crosses_our_own_bridge_in_every_cell() -> None:
    assert all(row.outcomes == PASSED for row in load()[MCPLUMB.name])


def test_no_entry_of_a_table_is_empty() -> None:
    for line in page(load()).splitlines():
        if line.startswith("|"):
            assert all(entry.strip() for entry in line.strip("|").split("|")), line


def test_a_feature_crosses_if_it_does_in_all_visits() -> None:
    assert merged([{"calls": PASS, "logs": "lost"}, {"calls": "late", "logs": PASS}]) == {
        "calls": "late",
        "logs": "lost",
    }


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    table = {"some": [Row("modern", "legacy", "http", "sse", PASSED | {"logs": "„nothing“"})]}
    save(table, tmp_path / "table.json")
    assert load(tmp_path / "table.json") == table


def test_a_failure_is_on_the_page() -> None:
    rows = [Row(*cell[1:], dict(PASSED)) for cell in cells(MCPLUMB)]
    rows[0].outcomes["logs"] = "nothing came"
    text = page({MCPLUMB.name: rows})
    assert f"{len(rows) * len(FEATURES) - 1:,} of {len(rows) * len(FEATURES):,} cells pass" in text
    assert "| logs | not with stdio | pass, 5 of 5 |" in text
    assert NO_SSE in text
