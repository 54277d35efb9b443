"""Every row of the matrix is as the page says."""

from __future__ import annotations

import pytest

from tests.interop.bridge.fidelity import FEATURES, Visit, outcomes
from tests.interop.matrix.known import KNOWN, known
from tests.interop.matrix.page import load, row_of
from tests.interop.matrix.pairs import VISITS

#: One of each part, with the SDK that is built fastest, over different bindings: `make interop-short` makes these.
SHORT = {
    "none-modern-http-modern-http-own-go",
    "none-modern-stdio-modern-stdio-go-own",
    "mcplumb-modern-http-legacy-stdio-own-go",
    "mcplumb-legacy-stdio-modern-http-go-own",
}


def parameter(visit: Visit) -> object:
    return pytest.param(visit, id=f"short-{visit}" if str(visit) in SHORT else str(visit))


def test_the_short_visits_exist() -> None:
    assert {str(visit) for visit in VISITS} >= SHORT


@pytest.mark.parametrize("visit", [parameter(visit) for visit in VISITS])
def test_a_pair_is_as_the_page_says(visit: Visit) -> None:
    found = row_of(visit, outcomes(visit))
    assert found.verdicts == load().rows[str(visit)].verdicts, found.observed


def test_what_fails_is_explained() -> None:
    for visit in VISITS:
        for feature, verdict in load().rows[str(visit)].verdicts.items():
            why = known(visit, feature)
            assert verdict == ("pass" if why is None else why.verdict), f"{visit}: {feature}"


def test_what_is_explained_fails_somewhere() -> None:
    explained = {id(known(visit, feature)) for visit in VISITS for feature in FEATURES}
    assert all(id(each) in explained for each in KNOWN)
    assert all(each.why.endswith(".") for each in KNOWN)
    assert all(each.messages.strip() for each in KNOWN if each.verdict == "fail" or each.evidence is not None)
