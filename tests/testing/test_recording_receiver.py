"""One end of a pair: it keeps what it is told, and notes what it must not be."""

from __future__ import annotations

import asyncio

import pytest

from mcplumb.errors import Closed
from mcplumb.testing import End, memory_pair
from mcplumb.wire.messages import Notification


def make_end(patience: float = 60.0) -> End:
    connection, _ = memory_pair()
    return End("first", connection, patience, lambda: None)


async def test_what_is_told_is_kept() -> None:
    end = make_end()
    error, failure = BrokenPipeError(), Closed("No.")
    end.received(Notification("a"))
    assert not end.is_told_of_the_end
    end.hung_up()
    end.ended(clean=True)
    end.broke(error)
    end.failed(7, failure)
    assert (end.names, end.ends, end.hang_ups, end.errors) == (["a"], [True], 1, [error])
    assert end.failures == {7: failure}
    assert end.is_told_of_the_end
    assert end.faults == []
    assert repr(end) == "the first end, which has received 1 messages, 1 ends and 1 errors"


async def test_what_must_not_be_told_is_noted() -> None:
    end = make_end()
    for _ in range(2):
        end.hung_up()
        end.broke(BrokenPipeError())
        end.ended(clean=True)
    end.received(Notification("late"))
    assert end.faults == [
        "The first end got the report that the peer hung up more than once.",
        "The first end got the report that the peer hung up after its end was reported.",
        "The first end got the report that nothing can be sent more than once.",
        "The first end got the report of its end more than once.",
        "The first end received a message after its end was reported.",
    ]


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_who_has_closed_is_told_nothing(how: str) -> None:
    end = make_end()
    if how == "close":
        await end.close()
        end.abort()
    else:
        end.abort()
        await end.close()
    end.failed(1, Closed("No."))
    assert end.faults == [f"The first end had failed called after its own {how}."]


async def test_another_thread_is_noted() -> None:
    end = make_end()
    await asyncio.to_thread(end.hung_up)
    assert end.faults == ["The first end had hung_up called by a thread that is not its event loop's."]


async def test_what_does_not_happen_is_told_in_a_sentence() -> None:
    end = make_end(0.01)
    said = r"^3 messages arrive: that did not happen within 0\.01 seconds at the first end, which has received 0"
    with pytest.raises(AssertionError, match=said):
        await end.until_count(3)
    with pytest.raises(AssertionError, match=r"^the sun rises: that did not happen within 0\.01 seconds"):
        await end.within(asyncio.Event().wait(), "the sun rises")
    end.abort()
