from __future__ import annotations

import msgspec
import pytest

from mcplumb.client.input_handlers import Inputs
from mcplumb.client.options import ClientStats, Settings
from mcplumb.errors import UsageError
from mcplumb.transports.connection import Stats


def test_the_defaults_bound_every_wait() -> None:
    settings = Settings(inputs=Inputs())
    assert (settings.timeout, settings.max_timeout) == (60.0, 600.0)


@pytest.mark.parametrize("wait", [None, 0, 0.5, 10_000])
def test_a_timeout_is_a_number_of_seconds_or_none(wait: float | None) -> None:
    settings = Settings(inputs=Inputs(), timeout=wait, max_timeout=wait)
    assert (settings.timeout, settings.max_timeout) == (wait, wait)


@pytest.mark.parametrize("wait", [-1, float("inf"), float("nan")])
def test_other_numbers_are_refused(wait: float) -> None:
    with pytest.raises(UsageError, match="give it a number of seconds, or None"):
        Settings(inputs=Inputs(), timeout=wait)
    with pytest.raises(UsageError, match="give it a number of seconds, or None"):
        Settings(inputs=Inputs(), max_timeout=wait)


def test_the_stats_of_a_client_have_those_of_its_connection() -> None:
    assert set(Stats.__struct_fields__) <= set(ClientStats.__struct_fields__)
    assert msgspec.structs.asdict(Stats()).items() <= dict.fromkeys(ClientStats.__struct_fields__, 0).items()
