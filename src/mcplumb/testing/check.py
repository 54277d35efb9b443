"""What a check of the kit is, and how one is run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Literal, NoReturn, TypeAlias

import msgspec

from mcplumb.testing.leaks import nothing_left
from mcplumb.testing.recording_end import End, require, settle
from mcplumb.transports.connection import Connection

__all__ = ["PATIENCE", "Check", "MakePair", "Pair", "Trait", "each_way", "once"]

#: Seconds in which something that has to happen must: enough for the slowest machine, and waited for only in vain.
PATIENCE = 60.0

#: What not every transport has:
#:
#: * "batches": several messages can be sent as one.
#: * "both": either end can send what it likes. Without it only the second can: what belongs to a request of the first.
#: * "notice": the second end is told when the first has aborted. Without it, only when it has closed.
#: * "order": messages arrive in the order in which they were sent.
#: * "spoil": something can come that is no message, and ``Pair.spoil`` makes it come.
Trait: TypeAlias = Literal["batches", "both", "notice", "order", "spoil"]


class Pair(msgspec.Struct, frozen=True):
    """Two connections to each other, not started yet: the first as a client has it, the second as a server does.

    ``spoil`` puts something on the way from the first to the second that is no message.
    """

    first: Connection
    second: Connection
    spoil: Callable[[], None] | None = None


#: Connects a pair. Leaving the block lets everything go that is not let go by closing both ends.
MakePair: TypeAlias = Callable[[], AbstractAsyncContextManager[Pair]]

_Body: TypeAlias = Callable[[End, End], Awaitable[None]]


class Check(msgspec.Struct, frozen=True):
    """One thing that a transport has to do: call it with what makes a pair, in a running event loop.

    It connects a pair of its own, and raises `AssertionError`, with a sentence, if the transport does not do it, breaks
    another rule on the way, or leaves something behind: tasks, descriptors, warnings, or errors that nobody saw.
    """

    name: str
    #: What is required, in a sentence.
    rule: str
    #: A transport without one of these need not do it.
    needs: frozenset[Trait]
    body: _Body
    #: Whether the second end takes the part of the first.
    is_turned: bool = False

    def __str__(self) -> str:
        return self.name

    async def __call__(self, make_pair: MakePair, *, patience: float = PATIENCE) -> None:
        """Run it. ``patience`` is how many seconds anything may take that has to happen."""
        async with nothing_left(patience), make_pair() as pair:
            first = End("first", pair.first, patience, pair.spoil or _no_spoil)
            second = End("second", pair.second, patience, _no_spoil)
            try:
                await self.body(*((second, first) if self.is_turned else (first, second)))
                await settle()
                _require_no_faults(first, second)
            except AssertionError:
                # What follows from a rule that was broken is not worth telling.
                _require_no_faults(first, second)
                raise
            finally:
                pair.first.abort()
                pair.second.abort()


def once(body: _Body, *needs: Trait) -> Check:
    """A check in which both ends do the same."""
    return Check(body.__name__.lstrip("_"), _rule(body), frozenset((*needs, "both")), body)


def each_way(body: _Body, *needs: Trait, leaver: Literal["one", "other"] | None = None) -> tuple[Check, Check]:
    """The same check twice: with the first end in the part of the one, who sends, and with the second.

    ``leaver`` is who aborts, if the other has to be told of it.
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
