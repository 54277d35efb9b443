"""What the kernel sees of a call, with a server and a client as they are."""

from __future__ import annotations

import pytest

from tests.costs.ceilings import check
from tests.costs.kernel import BUSY, client_seen, server_seen

# The ceilings are those of the fast mode.
pytestmark = pytest.mark.tricks


@pytest.mark.parametrize("subject", BUSY)
def test_a_call_takes_few_system_calls_of_a_server(subject: str) -> None:
    check(subject, server_seen(*BUSY[subject]))


@pytest.mark.parametrize("subject", BUSY)
def test_a_call_takes_few_system_calls_of_a_client(subject: str) -> None:
    check(subject, client_seen(*BUSY[subject]))
