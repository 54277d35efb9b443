from __future__ import annotations

import msgspec
import pytest

from mcplumb.client.client_settings import ClientSettings, ClientStats
from mcplumb.client.input_handlers import InputHandlers
from mcplumb.errors import UsageError
from mcplumb.transports.connection import Stats


def test_the_defaults_bound_every_wait() -> None:
    settings = ClientSettings(input_handlers=InputHandlers())
    assert (settings.timeout, settings.max_timeout) == (60.0, 600.0)


@pytest.mark.parametrize("wait", [None, 0, 0.5, 10_000])
def test_a_timeout_is_a_number_of_seconds_or_none(wait: float | None) -> None:
    settings = ClientSettings(input_handlers=InputHandlers(), timeout=wait, max_timeout=wait)
    assert (settings.timeout, settings.max_timeout) == (wait, wait)


@pytest.mark.parametrize("wait", [-1, float("inf"), float("nan")])
def test_other_numbers_are_refused(wait: float) -> None:
    with pytest.raises(UsageError, match="give it a number of seconds, or None"):
        ClientSettings(input_handlers=InputHandlers(), timeout=wait)
    with pytest.raises(UsageError, match="give it a number of seconds, or None"):
        ClientSettings(input_handlers=InputHandlers(), max_timeout=wait)


def test_the_stats_of_a_client_have_those_of_its_connection() -> None:
    assert set(Stats.__struct_fields__) <= set(ClientStats.__struct_fields__)
    assert msgspec.structs.asdict(Stats()).items() <= dict.fromkeys(ClientStats.__struct_fields__, 0).items()
