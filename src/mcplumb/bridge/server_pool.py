"""The running instances of one server behind a bridge: which client gets which, when they start, and when they stop.

Clients share an instance where that is safe: always if the server is modern, because each of its requests stands alone,
and if it is legacy among the clients that cannot be asked anything. Every other client gets an instance of its own: for
as long as it is connected, or, over modern HTTP, for one call at a time.

A start belongs to the pool, and not to the request that needs it. So a request over modern HTTP may give up waiting for
a server that starts slowly, and the next one finds it started.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

import msgspec

from mcplumb.bridge.server_instance import FrontClient, ServerInstance, can_be_asked
from mcplumb.client.connector import Connecting
from mcplumb.errors import Closed, McplumbError, ServerDown
from mcplumb.types.lifecycle import ClientCapabilities

__all__ = ["ServerPool", "Share"]

#: Whether clients share a server: where it is safe, always, or never.
Share: TypeAlias = Literal["auto", "always", "never"]

_logger = logging.getLogger("mcplumb.bridge")

#: Seconds in which a server that could not be started is not tried again: after the first failure, and at most.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0


class _Start:
    """An instance that is being started for a client."""

    def __init__(self, client: FrontClient) -> None:
        self.client = client
        self.task: asyncio.Task[ServerInstance]
        #: Whether the client that it is for waits, and how many others wait to see whether they may share it.
        self.is_awaited = False
        self.others = 0


class ServerPool:
    """The instances of one server. ``open_connection`` returns what `mcplumb.connect` does, not yet entered."""

    def __init__(
        self,
        name: str,
        open_connection: Callable[[], Connecting],
        *,
        share: Share,
        idle: float,
        max_instances: int,
    ) -> None:
        self.name = name
        self._open = open_connection
        self._share = share
        self._idle = idle
        self._max_instances = max_instances
        self._instances: set[ServerInstance] = set()
        #: The instance that clients share, once there is one.
        self._shared: ServerInstance | None = None
        #: Instances that no call uses at the moment, by the principal and the capabilities of the client.
        self._spare: dict[tuple[str | None, bytes], list[ServerInstance]] = {}
        self._timers: dict[ServerInstance, asyncio.TimerHandle] = {}
        #: The tasks that wait for the last calls of an instance, and those that close one.
        self._stopping: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        #: None until it has run once.
        self.is_legacy: bool | None = None
        self._has_tasks = False
        #: The instances that are being started, and the one among them that clients may share.
        self._starts: dict[ServerInstance, _Start] = {}
        self._shared_start: _Start | None = None
        #: Called whenever an instance has started.
        self.on_started: Callable[[], None] = _nothing
        self.has_closed = False
        self._failures = 0
        self._retry_at = 0.0
        #: Why the last start failed; None if it did not.
        self.failure: McplumbError | None = None

    @property
    def state(self) -> Literal["running", "starting", "failed", "idle"]:
        """Whether the server runs, is being started, could not be started the last time, or is not needed."""
        if len(self._instances) > len(self._starts):
            return "running"
        if self._starts:
            return "starting"
        return "idle" if self.failure is None else "failed"

    async def lease(self, client: FrontClient) -> ServerInstance:
        """Return an instance for a client, and start one if necessary. ``release`` gives it back."""
        while (instance := self._available(client)) is None:
            is_shared, start = self._might_share(client), self._shared_start
            # One that is done has not been cleared yet, and there is nothing to wait for.
            if is_shared and start is not None and not start.task.done():
                # It may show that the client cannot share the server.
                await self._watch(start)
                continue
            start = self._start(client)
            if is_shared:
                self._shared_start = start
            instance = await self._await(start)
            break
        self._use(instance)
        return instance

    def release(self, instance: ServerInstance) -> None:
        """Give back an instance that ``lease`` returned. It is stopped if it stays unused."""
        instance.users -= 1
        if not instance.users and instance in self._instances:
            self._offer(instance)

    async def join(self, client: FrontClient) -> ServerInstance:
        """Return an instance for what no question belongs to, such as a subscription. ``leave`` gives it back.

        Calls may use the instance meanwhile: otherwise they would get another one, whose changes nobody hears of.
        """
        instance = self._known_to(client)
        if instance is None:
            instance = await self.lease(client)
            instance.guests += 1
            self.release(instance)
        else:
            instance.guests += 1
            self._keep(instance)
        return instance

    def leave(self, instance: ServerInstance) -> None:
        """Give back an instance that ``join`` returned."""
        instance.guests -= 1
        self._stop_if_unused(instance)

    async def retire(self, within: float) -> None:
        """Start nothing more, let the calls in flight end within so many seconds, and stop all instances."""
        self.has_closed = True
        idle = [asyncio.create_task(instance.wait_idle()) for instance in self._instances]
        if idle:
            _, late = await asyncio.wait(idle, timeout=within)
            for task in late:
                task.cancel()
        await self.close()

    async def close(self) -> None:
        """Stop all instances, at the same time."""
        self.has_closed = True
        for stopping in self._stopping:
            stopping.cancel()
        starting = {start.task for start in self._starts.values()}
        for instance in list(self._instances):
            self._stop(instance)
        if ending := self._closing | starting:
            await asyncio.wait(ending)

    def _available(self, client: FrontClient) -> ServerInstance | None:
        """Return a running instance that the client may use; None if there is none."""
        shared = self._shared
        if shared is not None and shared.is_over:
            self._stop(shared)
            shared = None
        if shared is not None and self._may_share(client, is_legacy=not shared.revision.is_modern):
            return shared
        if not client.stays:
            for spare in reversed(self._spare.get(_spare_key(client), ())):
                if not spare.is_over:
                    self._unspare(spare)
                    return spare
        return None

    def _might_share(self, client: FrontClient) -> bool:
        """Return whether an instance that is started for the client may be one that clients share."""
        if self.is_legacy is None:
            return self._share != "never"
        return self._may_share(client, is_legacy=self.is_legacy)

    def _known_to(self, client: FrontClient) -> ServerInstance | None:
        """Return a running instance for clients like this one, whether a call uses it or not."""
        shared = self._shared
        if shared is not None and self._may_share(client, is_legacy=not shared.revision.is_modern):
            return shared
        key = _spare_key(client)
        spare = reversed(self._spare.get(key, ()))  # the one that the next call gets comes first
        used = [instance for instance in self._instances if instance.users]
        for instance in (*spare, *used):
            owner = instance.owner
            is_like_it = owner is not None and not owner.stays and _spare_key(owner) == key
            if is_like_it and not instance.is_over and not instance.has_abandoned:
                return instance
        return None

    def _may_share(self, client: FrontClient, *, is_legacy: bool) -> bool:
        if self._share == "auto":
            # A legacy server does not know whose tasks are whose.
            return not is_legacy or not (self._has_tasks or can_be_asked(client.capabilities))
        return self._share == "always"

    # --- Starting ---

    def _start(self, client: FrontClient) -> _Start:
        """Begin to start an instance for a client; raise an error if that is not possible now."""
        self._check_open()
        if len(self._instances) >= self._max_instances and self._timers:
            self._stop(next(iter(self._timers)))  # it has been unused for the longest time
        if len(self._instances) >= self._max_instances:
            raise ServerDown(
                f"The server {self.name!r} already runs {self._max_instances} times, which is the limit. "
                "Try again when another client has gone, or share the server."
            )
        loop = asyncio.get_running_loop()
        if self.failure is not None and (wait := self._retry_at - loop.time()) > 0:
            raise ServerDown(
                f"The server {self.name!r} could not be started, and is not tried again for {wait:.1f} s. "
                f"The last time: {self.failure}"
            ) from self.failure
        instance = ServerInstance(self.name, self._open(), None if self._share == "always" else client)
        self._instances.add(instance)
        start = self._starts[instance] = _Start(client)
        start.task = loop.create_task(self._run_start(start, instance))
        start.task.add_done_callback(partial(self._start_ended, start, instance))
        return start

    async def _run_start(self, start: _Start, instance: ServerInstance) -> ServerInstance:
        loop = asyncio.get_running_loop()
        try:
            await instance.start()
            self._check_open()  # it may have been closed meanwhile
        except McplumbError as error:
            if self.has_closed:
                raise  # it was stopped, and did not fail
            self.failure = error
            _logger.warning("The server %r could not be started. %s", self.name, error)
            self._retry_at = loop.time() + min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(self._failures, 10))
            self._failures += 1
            raise
        self.failure = None
        self._failures = 0
        self.is_legacy = not instance.revision.is_modern
        self._has_tasks = instance.known.capabilities.tasks is not None
        _logger.info("Started the server %r, which speaks %s.", self.name, instance.revision)
        if self._shared is None and self._may_share(start.client, is_legacy=self.is_legacy):
            instance.share()
            self._shared = instance
        if not start.is_awaited:
            self._offer(instance)
        self.on_started()
        return instance

    def _start_ended(self, start: _Start, instance: ServerInstance, task: asyncio.Task[ServerInstance]) -> None:
        # Here, because a task that is cancelled at once does nothing at all.
        del self._starts[instance]
        if self._shared_start is start:
            self._shared_start = None
        if task.cancelled() or task.exception() is not None:
            self._stop(instance)

    async def _await(self, start: _Start) -> ServerInstance:
        """Wait for the instance that is started for a client, and return it."""
        start.is_awaited = True
        try:
            return await asyncio.shield(start.task)
        except asyncio.CancelledError:
            start.is_awaited = False
            if not start.task.done():
                self._cancel_if_unneeded(start)
            elif not start.task.cancelled() and start.task.exception() is None:
                self._offer(start.task.result())
            raise

    async def _watch(self, start: _Start) -> None:
        """Wait until an instance that was started for another client runs."""
        start.others += 1
        try:
            await asyncio.shield(start.task)
        except asyncio.CancelledError:
            if not start.task.cancelled():
                raise  # otherwise, the client that it was for has gone
        finally:
            start.others -= 1
            self._cancel_if_unneeded(start)

    def _cancel_if_unneeded(self, start: _Start) -> None:
        """Give up a start for a client that has gone. One whose requests stand alone will need it for the next."""
        if start.client.stays and not start.is_awaited and not start.others:
            start.task.cancel()

    def _check_open(self) -> None:
        if self.has_closed:
            raise Closed(f"The server {self.name!r} is not started any more: it was removed, or the bridge stops.")

    # --- Use ---

    def _offer(self, instance: ServerInstance) -> None:
        """Let others use an instance without users, or stop it."""
        owner = instance.owner
        if owner is not None:
            if owner.stays or instance.has_abandoned:
                # Nobody else gets it: what it still sends would reach another client.
                self._stop_when_idle(instance)
                return
            self._spare.setdefault(_spare_key(owner), []).append(instance)
        self._stop_if_unused(instance)

    def _use(self, instance: ServerInstance) -> None:
        instance.users += 1
        self._keep(instance)

    def _keep(self, instance: ServerInstance) -> None:
        """Do not stop an instance for being idle."""
        timer = self._timers.pop(instance, None)
        if timer is not None:
            timer.cancel()

    def _stop_if_unused(self, instance: ServerInstance) -> None:
        """Stop an instance after a while unless somebody uses it again."""
        if instance.users == instance.guests == 0 and instance in self._instances:
            loop = asyncio.get_running_loop()
            self._timers[instance] = loop.call_later(self._idle, self._stop, instance)

    def _unspare(self, instance: ServerInstance) -> None:
        """Take an instance from those that no call uses, if it is among them."""
        if instance.owner is None:
            return
        key = _spare_key(instance.owner)
        spare = self._spare.get(key, [])
        if instance in spare:
            spare.remove(instance)
            if not spare:
                del self._spare[key]

    def _stop_when_idle(self, instance: ServerInstance) -> None:
        """Stop an instance that nobody gets any more, once its last calls have ended."""
        if not instance.is_busy:
            self._stop(instance)
            return

        async def stop() -> None:
            await instance.wait_idle()
            self._stop(instance)

        stopping = asyncio.get_running_loop().create_task(stop())
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    def _stop(self, instance: ServerInstance) -> None:
        if instance not in self._instances:
            return
        self._instances.discard(instance)
        self._keep(instance)  # its timer is not needed any more
        if instance is self._shared:
            self._shared = None
        self._unspare(instance)
        _logger.info("Stopping the server %r.", self.name)
        closing = asyncio.get_running_loop().create_task(instance.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _nothing() -> None:
    """Do nothing."""


def _spare_key(client: FrontClient) -> tuple[str | None, bytes]:
    return client.principal, _written(client.capabilities)


def _written(capabilities: ClientCapabilities) -> bytes:
    return msgspec.json.encode(capabilities)
