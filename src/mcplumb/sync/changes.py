"""What a blocking client hears of when it listens."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Self

from mcplumb.client import changes as async_changes
from mcplumb.errors import Closed, McplumbError
from mcplumb.protocol.listening import Change, Missed
from mcplumb.sync.leases import Lease
from mcplumb.types.subscriptions import SubscriptionFilter

__all__ = ["Changes"]


class Changes:
    """A context manager, and within it an iterator over `Change` and `Missed`, which waits for each of them.

    It ends when the server ends the subscription, or when any thread calls ``close``, and raises when the server is
    gone for good. Several threads may iterate: each change goes to one of them.
    """

    def __init__(self, changes: async_changes.Changes, lease: Lease) -> None:
        self._changes = changes
        self._lease = lease
        self._is_closed = False

    @property
    def wanted(self) -> SubscriptionFilter:
        """What was asked for."""
        return self._changes.wanted

    @property
    def timeout(self) -> float | None:
        """Seconds that the server has for each of its answers."""
        return self._changes.timeout

    @property
    def honoured(self) -> SubscriptionFilter | None:
        """What the server agreed to tell, which may be less than what is wanted; None until it has."""
        return self._changes.honoured

    @property
    def dropped(self) -> int:
        """How many changes the consumer was too slow for."""
        return self._changes.dropped

    @property
    def error(self) -> McplumbError | None:
        """Why nothing comes any more, if something went wrong."""
        return self._changes.error

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes."""
        return self._changes.has_ended

    def __enter__(self) -> Self:
        self._lease.errand().run(self._changes.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change | Missed:
        try:
            return self._lease.errand().run(self._changes.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
        except Closed:
            if self._is_closed:
                raise StopIteration from None
            raise

    def close(self) -> None:
        """Hear no more: whoever iterates comes to the end. From any thread, as often as you like."""
        self._is_closed = True
        if not self._lease.is_over:
            with suppress(Closed):  # with the client
                self._lease.errand().run(self._changes.__aexit__(None, None, None))
