"""Every feature crosses the bridge, in every pair of eras, over every pair of bindings, with the official SDKs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.interop.bridge.fidelity import FEATURES, PASS, Visit, cells, observed_by, outcomes, visits
from tests.interop.bridge.products import MCPLUMB, NO_BRIDGE
from tests.interop.serving import HttpServer
from tests.interop.visiting import VISIT_SECONDS

#: One visit for each pair of eras, over different bindings: `make interop-short` makes these.
SHORT = {
    "mcplumb-legacy-http-legacy-stdio-typescript_v1-python_v1",
    "mcplumb-legacy-stdio-modern-http-python_v1-typescript_v2",
    "mcplumb-modern-http-legacy-stdio-python_v2-typescript_v1",
    "mcplumb-modern-stdio-modern-unix-typescript_v2-own",
}
VISITS = [visit for cell in cells(MCPLUMB) for visit in visits(cell)]


DIRECT = [visit for cell in cells(NO_BRIDGE) if cell.client_era == cell.server_era for visit in visits(cell)]


def parameter(visit: Visit) -> object:
    return pytest.param(visit, id=f"short-{visit}" if str(visit) in SHORT else str(visit))


def test_the_short_visits_exist() -> None:
    assert {str(visit) for visit in VISITS} >= SHORT


def test_a_client_that_somebody_ends_is_no_outcome(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended the client with SIGKILL"):
        observed_by([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"], tmp_path)


def test_a_server_that_ends_too_early_is_an_error(tmp_path: Path) -> None:
    program = "import signal; print('listening on 1', flush=True); signal.pause()"
    server = HttpServer([sys.executable, "-c", program], tmp_path)
    server.start()
    assert server._process is not None
    server._process.kill()
    server._process.wait(VISIT_SECONDS)
    with pytest.raises(AssertionError, match="ended before it was asked to, with the status -9"):
        server.stop()


@pytest.mark.parametrize("visit", DIRECT, ids=str)
def test_every_feature_is_there_without_a_bridge(visit: Visit) -> None:
    # Otherwise the table would say nothing about bridges.
    assert outcomes(visit) == dict.fromkeys(FEATURES, PASS)


@pytest.mark.req("BRG-1", "BRG-2", "BRG-4")
@pytest.mark.parametrize("visit", [parameter(visit) for visit in VISITS])
def test_every_feature_crosses(visit: Visit) -> None:
    assert outcomes(visit) == dict.fromkeys(FEATURES, PASS)
