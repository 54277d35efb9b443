"""`Sentinels`: the sentinels of a Redis, which know its primary, with the package ``redis``.

All are asked at once, and each once. The package would ask one after the other and repeat each question, so that one
machine that does not answer would take all the time that an operation has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Sentinel
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError
from redis.backoff import NoBackoff

__all__ = ["Sentinels"]


class Sentinels(Sentinel):
    """Clients of sentinels at these hosts and ports; the options are those of ``redis.asyncio.Redis``."""

    def __init__(self, places: Sequence[tuple[str, int]], options: dict[str, Any]) -> None:
        super().__init__(places, sentinel_kwargs={**options, "retry": Retry(NoBackoff(), 0)})  # type: ignore[no-untyped-call]

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return the host and port of the primary, from the first sentinel that names one.

        Raises `MasterNotFoundError`, from the failure of a sentinel if all of them failed.
        """
        asked = [asyncio.ensure_future(each.sentinel_masters()) for each in self.sentinels]
        failures: list[Exception] = []
        why = "No sentinel knows the name"
        try:
            for answer in asyncio.as_completed(asked):
                try:
                    masters: Any = await answer
                except Exception as error:  # noqa: BLE001 - another one may answer
                    failures.append(error)
                    continue
                state = masters.get(service_name)
                if state and self.check_master_state(state, service_name):
                    return state["ip"], state["port"]
                if state:
                    why = "The primary is down"
        finally:
            for each in asked:
                each.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        if len(failures) == len(asked):
            # A refusal says more than the lack of an answer.
            silent = "ConnectionError", "TimeoutError"
            raise MasterNotFoundError from min(failures, key=lambda each: type(each).__name__ in silent)
        raise MasterNotFoundError(why)
