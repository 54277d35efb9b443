"""One call goes a straight way: few functions in few files at each end."""

from __future__ import annotations

import pytest

from tests.costs.ceilings import check
from tests.costs.walk import WALKS, walk


@pytest.mark.parametrize("subject", WALKS)
def test_a_call_passes_few_functions_in_few_files(subject: str) -> None:
    found = walk(WALKS[subject])
    assert len(found.steps) <= found.functions  # a function is listed once, and counts each time it is entered
    check(subject, found.figures())
