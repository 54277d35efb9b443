"""``connect`` for code without ``await``."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from mcplumb.client import connecting as async_connecting
from mcplumb.protocol.stopping import StopLadder
from mcplumb.sync.callbacks import LineCarrier, carried
from mcplumb.sync.client import Client
from mcplumb.sync.leases import Lease

__all__ = ["Connecting", "connect"]

P = ParamSpec("P")
R = TypeVar("R")

#: What may be a function of the user's that is called with something and asked for something.
_ASKED = ("on_elicit", "on_sample", "on_log", "roots")
#: Seconds beyond the stop ladder's that closing may take when the process exits.
_GRACE = 2.0
#: Seconds in which a function for the lines of stderr has to take the last of them.
_LAST_LINES = 1.0


def _parameters_of(model: Callable[P, object]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Gives a function the parameters of another, for type checkers and editors as well as in the program."""

    def decorate(function: Callable[..., R]) -> Callable[P, R]:
        own, others = signature(function), signature(model)
        function.__signature__ = others.replace(return_annotation=own.return_annotation)  # type: ignore[attr-defined]
        return function

    return decorate


@_parameters_of(async_connecting.connect)
def connect(target: Any, **options: Any) -> Connecting:
    """Connect to a server: ``with connect(["python", "weather.py"]) as client``.

    The target and the options are those of ``mcplumb.connect``, but the functions among them must be plain ones. They
    are called in threads of their own, may block, and may use the client.
    """
    return Connecting(target, options)


class Connecting:
    """A connection to be: enter it with ``with``, or ``open`` it and close the client yourself.

    What is still open when the process exits is closed then.
    """

    def __init__(self, target: Any, options: dict[str, Any]) -> None:
        stop: StopLadder = options.get("stop") or StopLadder()
        self._lease = lease = Lease(self._close, stop.total + _GRACE)
        for name in _ASKED:
            if callable(options.get(name)):
                options[name] = carried(options[name], name, lease.have_done)
        self._stderr: LineCarrier | None = None
        if callable(options.get("stderr")):
            self._stderr = LineCarrier(options["stderr"], lease.have_done)
            options["stderr"] = self._stderr.bring
        self._connecting = async_connecting.connect(target, **options)

    def open(self) -> Client:
        """Connect, and wait until that is done. If it fails or is interrupted, everything is closed again."""
        self._lease.begin()
        try:
            client = self._lease.errand().run(self._connecting.__aenter__())
        except BaseException:
            self._lease.end()
            raise
        return Client(client, self._lease)

    def __enter__(self) -> Client:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lease.close()

    async def _close(self) -> None:
        await self._connecting.__aexit__(None, None, None)
        if self._stderr is not None:
            await self._stderr.finish(_LAST_LINES)
