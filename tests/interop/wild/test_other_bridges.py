"""What crosses the bridges of third parties, compared with the table of the docs."""

from __future__ import annotations

import pytest

from tests.interop.bridge.fidelity import PASS, Cell, cells, outcomes, visits
from tests.interop.bridge.products import OTHERS
from tests.interop.bridge.table import load, merged
from tests.interop.environments import NotInstalled

CELLS = [cell for product in OTHERS for cell in cells(product)]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_the_same_features_cross_as_the_table_says(cell: Cell) -> None:
    assert cell.product.environment is not None
    try:
        cell.product.environment.made()
    except NotInstalled as error:
        pytest.skip(f"{cell.product} cannot be installed: {error}")
    [row] = [row for row in load()[cell.product.name] if row[:4] == cell[1:]]
    seen = merged(outcomes(visit) for visit in visits(cell))
    crossed = {feature for feature, outcome in seen.items() if outcome == PASS}
    # Why a feature does not cross differs in its words.
    assert crossed == {feature for feature, outcome in row.outcomes.items() if outcome == PASS}, seen
