"""All checks of the kit, together and one by one."""

from __future__ import annotations

from collections.abc import Collection

from mcplumb.testing.check import PATIENCE, Check, MakePair, Trait
from mcplumb.testing.closing import CLOSING_CHECKS
from mcplumb.testing.messages import MESSAGE_CHECKS
from mcplumb.testing.pressure import PRESSURE_CHECKS

__all__ = ["check_transport", "checks"]


def checks(*, without: Collection[Trait] = ()) -> list[Check]:
    """Everything that a transport has to do, but for what it cannot do ``without`` these traits.

    Each check can be called by itself, for instance as the parameter of a test: ``await check(make_pair)``.
    """
    return [check for check in MESSAGE_CHECKS + PRESSURE_CHECKS + CLOSING_CHECKS if not check.needs & {*without}]


async def check_transport(make_pair: MakePair, *, without: Collection[Trait] = (), patience: float = PATIENCE) -> None:
    """Run all checks, each with a pair of its own: `AssertionError` at the first that fails, with a note of its rule.

    ``make_pair`` is an async context manager that gives a `Pair` of connections to each other. ``patience`` is how many
    seconds anything may take that has to happen. Nothing else should open or close things in this process meanwhile.
    """
    for check in checks(without=without):
        try:
            await check(make_pair, patience=patience)
        except AssertionError as error:
            error.add_note(f"The check {check} requires: {check.rule}")
            raise
