"""One check of a transport: the record that describes it, and how it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Literal, NoReturn, TypeAlias

import msgspec

from mcplumb.testing.leaks import no_leaks
from mcplumb.testing.recording_receiver import End, require, settle
from mcplumb.transports.connection import Connection

__all__ = ["PATIENCE", "Check", "MakePair", "Pair", "Trait", "each_way", "once"]

#: Seconds that an expected event may take: enough for the slowest machine, and only a failing check waits that long.
PATIENCE = 60.0

#: Properties that not every transport has:
#:
#: * "batches": several messages can be sent as a batch.
#: * "both": either end can send any message. Without it, only the second can, within a request of the first.
#: * "notice": the second end is notified when the first aborts. Without it, only when the first closes.
#: * "order": messages arrive in the order in which they were sent.
#: * "spoil": input that is not a message can arrive, and ``Pair.spoil`` produces some.
Trait: TypeAlias = Literal["batches", "both", "notice", "order", "spoil"]


class Pair(msgspec.Struct, frozen=True):
    """Two connected ends that are not started yet: the first is the client's, the second the server's.

    ``spoil`` sends input that is not a message from the first to the second.
    """

    first: Connection
    second: Connection
    spoil: Callable[[], None] | None = None


#: Connects a pair. Leaving the block releases everything that closing both ends does not release.
MakePair: TypeAlias = Callable[[], AbstractAsyncContextManager[Pair]]

_Body: TypeAlias = Callable[[End, End], Awaitable[None]]


class Check(msgspec.Struct, frozen=True):
    """One requirement on a transport: await it with a `MakePair` in a running event loop.

    It connects its own pair, and raises `AssertionError` with a sentence if the transport violates the requirement or
    any other rule meanwhile, or leaves something behind: tasks, descriptors, warnings or unhandled errors.
    """

    name: str
    #: The requirement, in a sentence.
    rule: str
    #: The traits that the check needs.
    needs: frozenset[Trait]
    body: _Body
    #: Whether the ends swap their roles.
    is_turned: bool = False

    def __str__(self) -> str:
        return self.name

    async def __call__(self, make_pair: MakePair, *, patience: float = PATIENCE) -> None:
        """Run the check. ``patience`` is how many seconds an expected event may take."""
        async with no_leaks(patience), make_pair() as pair:
            first = End("first", pair.first, patience, pair.spoil or _no_spoil)
            second = End("second", pair.second, patience, _no_spoil)
            try:
                await self.body(*((second, first) if self.is_turned else (first, second)))
                await settle()
                _require_no_faults(first, second)
            except AssertionError:
                # A violated rule is the cause: report it instead of its consequence.
                _require_no_faults(first, second)
                raise
            finally:
                pair.first.abort()
                pair.second.abort()


def once(body: _Body, *needs: Trait) -> Check:
    """Make a check in which both ends have the same role."""
    return Check(body.__name__.lstrip("_"), _rule(body), frozenset((*needs, "both")), body)


def each_way(body: _Body, *needs: Trait, leaver: Literal["one", "other"] | None = None) -> tuple[Check, Check]:
    """Make two checks of one body: one with the first end as ``one``, its sender, and one with the second.

    ``leaver`` is the end that aborts, if the check requires that the other is notified.
    """
    name, rule = body.__name__.lstrip("_"), _rule(body)
    first: list[Trait] = ["both", *needs]
    second = [*needs]
    if leaver is not None:
        (first if leaver == "one" else second).append("notice")
    return (
        Check(f"{name}_from_first", rule, frozenset(first), body),
        Check(f"{name}_from_second", rule, frozenset(second), body, is_turned=True),
    )


def _rule(body: _Body) -> str:
    return (body.__doc__ or "").partition("\n")[0]


def _require_no_faults(first: End, second: End) -> None:
    require(not first.faults and not second.faults, " ".join(first.faults + second.faults))


def _no_spoil() -> NoReturn:
    raise AssertionError("The pair has no spoil: give it one, or leave out the checks that need it.")
