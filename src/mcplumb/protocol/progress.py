"""Progress of one request: it must grow, and a flood of it is thinned out."""

from __future__ import annotations

import math

from msgspec.structs import replace

from mcplumb.errors import UsageError
from mcplumb.types.base import Number
from mcplumb.types.notification_params import ProgressParams

__all__ = ["ProgressMeter"]

#: A wait until exactly ``deadline`` must be enough, whatever floating point makes of it.
_ROUNDING = 1e-6


class ProgressMeter:
    """Limits how often the progress of one request is reported: ``rate`` times a second, after a ``burst``.

    Values that come faster replace the one that is held back, so the newest value is never lost: it goes out when the
    rate allows it, or just before the response.
    """

    __slots__ = ("_allowance", "_asked_at", "_burst", "_held", "_highest", "_rate")

    def __init__(self, *, burst: int = 32, rate: float = 20.0) -> None:
        if burst < 1 or not rate > 0:
            raise UsageError(f"A burst of {burst} and a rate of {rate:g} per second would let no progress pass.")
        self._burst = float(burst)
        self._rate = rate
        self._allowance = self._burst
        self._asked_at: float | None = None
        self._highest: Number = -math.inf
        self._held: ProgressParams | None = None

    @property
    def deadline(self) -> float | None:
        """When to call ``due`` for the value that is held back; None if none is."""
        if self._held is None or self._asked_at is None:
            return None
        return self._asked_at + (1.0 - self._allowance) / self._rate

    def offer(self, progress: ProgressParams, now: float) -> ProgressParams | None:
        """Return the progress if it may go out now; None if it is held back, or dropped because it does not grow."""
        return self.due(now) if self.hold(progress) else None

    def hold(self, progress: ProgressParams) -> bool:
        """Hold the progress back, replacing an older one; False if it is dropped because it does not grow."""
        if not _is_finite(progress.progress) or progress.progress <= self._highest:
            return False
        if progress.total is not None and not _is_finite(progress.total):
            progress = replace(progress, total=None)
        self._highest = progress.progress
        self._held = progress
        return True

    def due(self, now: float) -> ProgressParams | None:
        """Return the value that is held back, if the rate allows it now."""
        elapsed = 0.0 if self._asked_at is None else max(0.0, now - self._asked_at)
        self._asked_at = now
        self._allowance = min(self._burst, self._allowance + elapsed * self._rate)
        if self._held is None or self._allowance < 1.0 - _ROUNDING:
            return None
        self._allowance -= 1.0
        return self.last()

    def last(self) -> ProgressParams | None:
        """Return the value that is held back regardless of the rate: the response is about to be sent."""
        held, self._held = self._held, None
        return held


def _is_finite(number: Number) -> bool:
    # Integers may have hundreds of digits, more than isfinite can take.
    return not isinstance(number, float) or math.isfinite(number)
