"""Readiness checks: whether a server can take requests, as ``/ready`` reports."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from mcplumb.rpc.thread_pool import ThreadPool, value_of

__all__ = ["Readiness", "ReadyCheck"]

#: Raises an exception, whose text says why, if the server cannot serve at present.
ReadyCheck: TypeAlias = Callable[[], Awaitable[None] | None]

_logger = logging.getLogger("mcplumb.server")

#: Seconds for each check. Most probes wait for one second.
_CHECK_WITHIN = 0.8
_LONGEST_REASON = 200


class Readiness:
    """The readiness checks of a server, by name."""

    def __init__(self, thread_pool: ThreadPool) -> None:
        self._thread_pool = thread_pool
        self.checks: dict[str, ReadyCheck] = {}
        self._failing: set[str] = set()

    async def failures(self) -> dict[str, str]:
        """Run all checks at the same time, and return the reason of each failure, by the name of its check."""
        names = list(self.checks)
        reasons = await asyncio.gather(*(self._reason(self.checks[name]) for name in names))
        failures = {name: reason for name, reason in zip(names, reasons, strict=True) if reason is not None}
        for name in failures.keys() - self._failing:
            _logger.warning("The server is not ready: the check %r fails. %s", name, failures[name])
        for name in self._failing - failures.keys():
            _logger.info("The check %r passes again.", name)
        self._failing = set(failures)
        return failures

    async def _reason(self, check: ReadyCheck) -> str | None:
        try:
            await asyncio.wait_for(self._run(check), _CHECK_WITHIN)
        except TimeoutError:
            return f"It took longer than {_CHECK_WITHIN:g} s."
        except Exception as error:  # noqa: BLE001 - it is the author's, and any failure is an answer
            return (str(error) or type(error).__name__)[:_LONGEST_REASON]
        return None

    async def _run(self, check: Any) -> None:
        if inspect.iscoroutinefunction(check):
            await check()
        else:
            outcome = value_of(await self._thread_pool.run(check, {}))
            if inspect.isawaitable(outcome):
                await outcome
