from __future__ import annotations

import pytest

from mcplumb import types as t
from mcplumb.errors import DecodeError


def test_levels_are_in_order() -> None:
    assert t.LOGGING_LEVELS[0] == "debug"
    assert t.LOGGING_LEVELS[-1] == "emergency"
    assert t.LOGGING_LEVELS.index("info") < t.LOGGING_LEVELS.index("warning") < t.LOGGING_LEVELS.index("error")


def test_data_may_be_anything() -> None:
    assert t.read(t.LogMessageParams, b'{"level":"info","data":null}') == t.LogMessageParams("info", None)
    assert t.read(t.LogMessageParams, b'{"level":"info","data":[1],"logger":"x"}').data == [1]


def test_a_level_must_be_one_of_the_eight() -> None:
    with pytest.raises(DecodeError, match="Invalid enum value 'loud'"):
        t.read(t.SetLevelParams, b'{"level":"loud"}')
