"""The running instances of one server behind a bridge: which client uses which, when they start and when they stop.

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
from mcplumb.wire.messages import Notification

__all__ = ["PoolClosed", "ServerPool", "Share"]

#: Whether clients share a server: where it is safe, always, or never.
Share: TypeAlias = Literal["auto", "always", "never"]

_logger = logging.getLogger("mcplumb.bridge")

#: Seconds in which a server that could not be started is not tried again: after the first failure, and at most.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
#: How many notifications that came alone may wait for a server.
_MAX_NOTIFYING = 100


class PoolClosed(Closed):
    """A server was removed or replaced, or the bridge stops, before anything was sent to it."""


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
        #: What stops an instance without users: a timer, or a task that waits for its last calls first.
        self._timers: dict[ServerInstance, asyncio.TimerHandle | asyncio.Task[None]] = {}
        #: The tasks that wait for the last calls of an instance, and those that close one.
        self._stopping: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        #: The tasks that send notifications which came alone.
        self._notifying: set[asyncio.Task[None]] = set()
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
        """The state of the server: *running*, *starting*, *failed* at the last start, or *idle*."""
        if len(self._instances) > len(self._starts):
            return "running"
        if self._starts:
            return "starting"
        return "idle" if self.failure is None else "failed"

    def check_open(self) -> None:
        """Raise `PoolClosed` if no instance is given out any more."""
        if self.has_closed:
            raise PoolClosed(f"The server {self.name!r} is not started any more: it was removed, or the bridge stops.")

    async def lease(self, client: FrontClient) -> ServerInstance:
        """Return an instance for a client, and start one if necessary. ``release`` gives it back.

        Raises `PoolClosed` if none is given out any more.
        """
        self.check_open()
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
        """Return a leased instance. It is stopped if it stays unused."""
        instance.users -= 1
        if not instance.users and instance in self._instances:
            self._offer(instance)

    def borrow(self, client: FrontClient) -> ServerInstance | None:
        """Return the instance that clients share, for one call to be passed on at once; None if there is none.

        It is not given back: an instance with calls in flight is not stopped.
        """
        shared = self._shared
        if shared is None or shared.is_over or self.has_closed:
            return None
        if not self._may_share(client, is_legacy=not shared.revision.is_modern):
            return None
        shared.lend()
        return shared

    async def join(self, client: FrontClient) -> ServerInstance:
        """Return an instance for a use without questions, such as a subscription. ``leave`` gives it back.

        Calls may use the instance meanwhile: otherwise they would get another one, whose changes are not watched.
        """
        self.check_open()
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

    def notify(self, notification: Notification, client: FrontClient) -> None:
        """Send a notification that arrived alone to an instance for clients like its sender, if that is modern."""
        if self.is_legacy or self.has_closed:
            return
        if len(self._notifying) >= _MAX_NOTIFYING:
            _logger.warning("%s was dropped: too many wait for the server %r.", notification.method[:80], self.name)
            return
        task = asyncio.get_running_loop().create_task(self._notify(notification, client))
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)

    async def _notify(self, notification: Notification, client: FrontClient) -> None:
        try:
            instance = await self.join(client)
            try:
                if instance.revision.is_modern:
                    await instance.notify(notification)
            finally:
                self.leave(instance)
        except McplumbError as error:
            _logger.info("%s did not reach the server %r. %s", notification.method[:80], self.name, error)

    async def retire(self, within: float) -> None:
        """Start no more instances, let the calls in flight end within this many seconds, and stop all instances."""
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
        for task in (*self._stopping, *self._notifying):
            task.cancel()
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
        """Return whether an instance started for the client may turn out to be shareable."""
        if self.is_legacy is None:
            return self._share != "never"
        return self._may_share(client, is_legacy=self.is_legacy)

    def _known_to(self, client: FrontClient) -> ServerInstance | None:
        """Return a running instance for clients like this one, whether a call uses it or not."""
        shared = self._shared
        if (
            shared is not None
            and not shared.is_over
            and self._may_share(client, is_legacy=not shared.revision.is_modern)
        ):
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
        """Start an instance for a client, in the background; raise an error if that is not possible now."""
        self.check_open()
        if len(self._instances) >= self._max_instances:
            unused = next((each for each in self._timers if not each.is_busy), None)
            if unused is not None:
                self._stop(unused)  # it has been unused for the longest time
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
        try:
            connecting = self._open()
        except McplumbError as error:
            self._failed(error)
            raise
        instance = ServerInstance(self.name, connecting, None if self._share == "always" else client)
        self._instances.add(instance)
        start = self._starts[instance] = _Start(client)
        start.task = loop.create_task(self._run_start(start, instance))
        start.task.add_done_callback(partial(self._start_ended, start, instance))
        return start

    async def _run_start(self, start: _Start, instance: ServerInstance) -> ServerInstance:
        try:
            await instance.start()
            self.check_open()  # it may have been closed meanwhile
        except McplumbError as error:
            self.check_open()  # then it was stopped, and did not fail
            self._failed(error)
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

    def _failed(self, error: McplumbError) -> None:
        """Record that a start failed: it is not tried again for a while."""
        self.failure = error
        _logger.warning("The server %r could not be started. %s", self.name, error)
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(self._failures, 10))
        self._retry_at = asyncio.get_running_loop().time() + wait
        self._failures += 1

    def _start_ended(self, start: _Start, instance: ServerInstance, task: asyncio.Task[ServerInstance]) -> None:
        # Here, because a task that is cancelled at once does nothing at all.
        del self._starts[instance]
        if self._shared_start is start:
            self._shared_start = None
        if task.cancelled() or task.exception() is not None:
            self._stop(instance)

    async def _await(self, start: _Start) -> ServerInstance:
        """Wait for the instance that is being started for a client, and return it."""
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
        """Wait until an instance that is being started for another client runs."""
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
        """Cancel a start for a client that is gone. A stateless client will need it for its next request."""
        if start.client.stays and not start.is_awaited and not start.others:
            start.task.cancel()

    # --- Use ---

    def _offer(self, instance: ServerInstance) -> None:
        """Make an unused instance available to others, or stop it."""
        owner = instance.owner
        if owner is not None:
            if owner.stays or instance.has_abandoned:
                # No other client gets it, because that would receive what it still sends.
                self._stop_when_idle(instance)
                return
            self._spare.setdefault(_spare_key(owner), []).append(instance)
        self._stop_if_unused(instance)

    def _use(self, instance: ServerInstance) -> None:
        instance.users += 1
        self._keep(instance)

    def _keep(self, instance: ServerInstance) -> None:
        """Cancel the stop of an idle instance."""
        timer = self._timers.pop(instance, None)
        if timer is not None:
            timer.cancel()

    def _stop_if_unused(self, instance: ServerInstance) -> None:
        """Stop an instance after a while unless it is used again."""
        if instance.users == instance.guests == 0 and instance in self._instances:
            loop = asyncio.get_running_loop()
            self._timers[instance] = loop.call_later(self._idle, self._stop_idle, instance)

    def _stop_idle(self, instance: ServerInstance) -> None:
        """Stop an instance without users, unless calls have borrowed it meanwhile."""
        loop = asyncio.get_running_loop()
        if instance.is_busy:
            self._timers[instance] = self._when_idle(instance, self._stop_if_unused)
        elif (left := instance.used_at + self._idle - loop.time()) > 0:
            self._timers[instance] = loop.call_later(left, self._stop_idle, instance)
        else:
            self._stop(instance)

    def _unspare(self, instance: ServerInstance) -> None:
        """Remove an instance from the unused ones, if it is among them."""
        if instance.owner is None:
            return
        key = _spare_key(instance.owner)
        spare = self._spare.get(key, [])
        if instance in spare:
            spare.remove(instance)
            if not spare:
                del self._spare[key]

    def _stop_when_idle(self, instance: ServerInstance) -> None:
        """Stop an instance that is no longer given out, once its last calls have ended."""
        if instance.is_busy:
            self._when_idle(instance, self._stop)
        else:
            self._stop(instance)

    def _when_idle(self, instance: ServerInstance, then: Callable[[ServerInstance], None]) -> asyncio.Task[None]:
        """Call this function once the last calls of an instance have ended."""

        async def wait() -> None:
            await instance.wait_idle()
            then(instance)

        waiting = asyncio.get_running_loop().create_task(wait())
        self._stopping.add(waiting)
        waiting.add_done_callback(self._stopping.discard)
        return waiting

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
