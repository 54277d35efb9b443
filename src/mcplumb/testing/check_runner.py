"""One check of a transport: the record that describes it, how it runs, and what it must not leave behind."""

from __future__ import annotations

import asyncio
import gc
import os
import stat
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Literal, NoReturn, TypeAlias

import msgspec

from mcplumb.testing.recording_receiver import End, require, settle
from mcplumb.transports.connection import Connection

__all__ = ["PATIENCE", "Check", "MakePair", "Pair", "Trait", "each_way", "no_leaks", "once"]

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


_FOLDER = "/dev/fd"
#: Seconds between two checks of the open descriptors.
_POLL_INTERVAL = 0.005
#: Python's warnings about objects that were dropped instead of closed, and coroutines that were never awaited.
_DROPPED = (ResourceWarning, RuntimeWarning)


@asynccontextmanager
async def no_leaks(patience: float) -> AsyncIterator[None]:
    """Fail if the block leaves tasks or descriptors behind, drops open objects, or causes unhandled errors.

    Pending cleanup has ``patience`` seconds to finish. Other tasks must not open or close anything meanwhile.
    """
    tasks = asyncio.all_tasks()
    descriptors = _descriptors()
    with _loop_errors() as loop_errors, _warnings() as recorded:
        try:
            yield
        except AssertionError as error:
            for loop_error in loop_errors:
                error.add_note(f"The event loop reported an unhandled error: {loop_error}.")
            raise
        left = asyncio.all_tasks() - tasks
        if left:
            _, left = await asyncio.wait(left, timeout=patience)
        require(not left, f"Tasks are left behind: {', '.join(repr(task.get_coro()) for task in left)}.")
        deadline = asyncio.get_running_loop().time() + patience
        # There is no event for the closing of a descriptor.
        while (opened := _descriptors() - descriptors) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_INTERVAL)
        require(
            not opened, f"{len(opened)} descriptors are left open: {', '.join(kind for _, kind in sorted(opened))}."
        )
        gc.collect()
    dropped = [str(warning.message) for warning in recorded if issubclass(warning.category, _DROPPED)]
    require(not dropped, f"Something was dropped instead of closed: {'; '.join(dropped)}.")
    require(not loop_errors, f"The event loop reported unhandled errors: {'; '.join(loop_errors)}.")


@contextmanager
def _loop_errors() -> Iterator[list[str]]:
    """Collect the errors that reach the event loop's exception handler: from callbacks and tasks not awaited."""
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    found: list[str] = []

    def keep(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        found.append(context["message"] if error is None else f"{context['message']}: {error!r}")

    loop.set_exception_handler(keep)
    try:
        yield found
    finally:
        loop.set_exception_handler(before)


@contextmanager
def _warnings() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as recorded:
        for category in _DROPPED:
            warnings.simplefilter("always", category)
        yield recorded
    for warning in recorded:
        if not issubclass(warning.category, _DROPPED):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def _descriptors() -> set[tuple[int, str]]:
    """Return the open descriptors of the process with a description; empty if the system cannot list them."""
    try:
        names = os.listdir(_FOLDER)  # noqa: PTH208 - a Path would be one more module to load
    except OSError:
        return set()
    found = set()
    for name in names:
        try:
            status = os.fstat(int(name))
        except OSError:
            continue  # the descriptor of the listing itself
        found.add((int(name), f"{name} ({_kind(status.st_mode)}, inode {status.st_ino})"))
    return found


def _kind(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFREG: "a file", stat.S_IFCHR: "a device"}
    return kinds.get(stat.S_IFMT(mode), "something else")
