"""The lifespan opens with its first user and closes after the last one, in a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

import pytest

from mcplumb import Context, Server, connect
from mcplumb.errors import UsageError
from mcplumb.server.active_sessions import LifespanRunner
from tests.client.peers import LOOPS
from tests.kit.loop import run, turns
from tests.kit.results import text_of


class Resource:
    """A lifespan that keeps a record of what is done with it."""

    def __init__(self, *, fails_at: str = "", held_at: str = "") -> None:
        self.events: list[str] = []
        self.tasks: set[asyncio.Task[Any] | None] = set()
        self.go = asyncio.Event()
        self._fails_at = fails_at
        self._held_at = held_at

    async def _reach(self, place: str) -> None:
        self.tasks.add(asyncio.current_task())
        if self._held_at == place:
            self.events.append(f"held at {place}")
            await self.go.wait()
        if self._fails_at == place:
            raise ConnectionError(place)
        self.events.append(place)

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[str]:
        try:
            await self._reach("open")
            yield "value"
            await self._reach("close")
        except asyncio.CancelledError:
            self.events.append("cancelled")
            raise


def never() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


async def test_without_a_lifespan_there_is_no_value() -> None:
    async with LifespanRunner(None).running(never()) as value:
        assert value is None


async def test_it_is_open_while_someone_needs_it() -> None:
    resource = Resource()
    lifespans = LifespanRunner(resource)
    assert resource.events == []
    async with lifespans.running(never()) as value:
        assert value == "value"
        assert resource.events == ["open"]
    assert resource.events == ["open", "close"]
    async with lifespans.running(never()):
        assert resource.events == ["open", "close", "open"]
    assert len(resource.events) == 4


async def test_all_users_share_it_and_the_last_one_closes_it() -> None:
    resource = Resource(held_at="open")
    lifespans = LifespanRunner(resource)
    leave = [asyncio.Event() for _ in range(3)]
    entered: list[int] = []

    async def use(number: int) -> None:
        async with lifespans.running(never()) as value:
            assert value == "value"
            entered.append(number)
            await leave[number].wait()

    users = [asyncio.create_task(use(number)) for number in range(3)]
    await turns()
    assert entered == []
    resource.go.set()
    await turns()
    assert sorted(entered) == [0, 1, 2]
    for number in (0, 1):  # the one that opened it, too
        leave[number].set()
        await users[number]
    assert resource.events == ["held at open", "open"]
    leave[2].set()
    await users[2]
    assert resource.events == ["held at open", "open", "close"]
    # It was left by the task that entered it, which is nobody's but its own.
    assert len(resource.tasks) == 1
    assert resource.tasks.isdisjoint({*users, asyncio.current_task()})


async def test_users_may_leave_from_another_task() -> None:
    resource = Resource()
    stack = AsyncExitStack()
    await asyncio.create_task(stack.enter_async_context(LifespanRunner(resource).running(never())))
    await asyncio.create_task(stack.aclose())
    assert resource.events == ["open", "close"]


async def test_all_users_get_what_it_raises_on_the_way_in() -> None:
    resource = Resource(fails_at="open")
    lifespans = LifespanRunner(resource)

    async def use() -> None:
        async with lifespans.running(never()):
            raise AssertionError("there is nothing to use")

    results = await asyncio.gather(use(), use(), return_exceptions=True)
    assert [str(result) for result in results] == ["open", "open"]
    assert all(isinstance(result, ConnectionError) for result in results)
    # The next one tries again.
    with pytest.raises(ConnectionError):
        await use()


async def test_the_last_user_gets_what_it_raises_on_the_way_out() -> None:
    lifespans = LifespanRunner(Resource(fails_at="close"))
    stay = asyncio.Event()

    async def use() -> str:
        async with lifespans.running(never()):
            await stay.wait()
        return "left"

    first, last = asyncio.create_task(use()), lifespans.running(never())
    await turns()
    await last.__aenter__()
    stay.set()
    assert await first == "left"
    with pytest.raises(ConnectionError, match="close"):
        await last.__aexit__(None, None, None)


async def test_an_error_of_the_user_s_own_is_not_lost() -> None:
    resource = Resource()
    with pytest.raises(KeyError):
        async with LifespanRunner(resource).running(never()):
            raise KeyError
    assert resource.events == ["open", "close"]


@pytest.mark.parametrize("how", ["cancelled", "given up"])
async def test_nobody_waits_for_what_is_not_wanted_any_more(how: str) -> None:
    resource = Resource(held_at="open")
    given_up = never()
    values: list[Any] = []

    async def use() -> None:
        async with LifespanRunner(resource).running(given_up) as value:
            values.append(value)

    user = asyncio.create_task(use())
    await turns()
    if how == "cancelled":
        user.cancel()
        with pytest.raises(asyncio.CancelledError):
            await user
        assert values == []
    else:
        given_up.set_result(None)
        await user
        assert values == [None]
    assert resource.events == ["held at open", "cancelled"]


async def test_others_go_on_waiting_when_one_gives_up() -> None:
    resource = Resource(held_at="open")
    lifespans = LifespanRunner(resource)
    given_up = never()

    async def use(gives_up: asyncio.Future[Any]) -> Any:
        async with lifespans.running(gives_up) as value:
            return value

    users = [asyncio.create_task(use(each)) for each in (given_up, never(), never())]
    await turns()
    given_up.set_result(None)
    assert await users[0] is None
    users[1].cancel()
    await turns()
    resource.go.set()
    assert await users[2] == "value"
    assert resource.events == ["held at open", "open", "close"]


async def test_a_user_that_is_cancelled_while_it_closes_leaves_it_to_itself() -> None:
    resource = Resource(held_at="close")

    async def use() -> None:
        async with LifespanRunner(resource).running(never()):
            pass

    user = asyncio.create_task(use())
    await turns()
    user.cancel()
    with pytest.raises(asyncio.CancelledError):
        await user
    resource.go.set()
    await turns()
    assert resource.events == ["open", "held at close", "close"]


async def test_the_next_user_waits_for_the_end_that_a_cancelled_one_has_left() -> None:
    resource = Resource(held_at="close")
    lifespans = LifespanRunner(resource)

    async def use() -> Any:
        async with lifespans.running(never()) as value:
            return value

    user = asyncio.create_task(use())
    await turns()
    user.cancel()
    with pytest.raises(asyncio.CancelledError):
        await user
    following = asyncio.create_task(use())
    await turns()
    assert resource.events == ["open", "held at close"]
    resource.go.set()
    assert await following == "value"
    assert resource.events == ["open", "held at close", "close"] * 2


@pytest.mark.parametrize("eager", LOOPS)
def test_one_that_fails_while_nobody_has_time_may_be_opened_again(eager: bool) -> None:
    async def main() -> None:
        lifespans = LifespanRunner(Resource(fails_at="open"))
        for _ in range(2):
            with pytest.raises(ConnectionError, match="open"):
                async with lifespans.running(never(), within=0):
                    pass

    run(main(), eager=eager)


def test_a_lifespan_that_does_not_want_to_be_cancelled_is_closed() -> None:
    events = []

    @asynccontextmanager
    async def stubborn() -> AsyncIterator[None]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            events.append("ignored")
        yield
        events.append("close")

    async def main() -> None:
        given_up = never()
        given_up.set_result(None)
        async with LifespanRunner(stubborn).running(given_up):
            await turns()

    run(main())
    assert events == ["ignored", "close"]


@pytest.mark.parametrize("eager", LOOPS)
def test_the_next_one_begins_when_the_last_one_has_ended(eager: bool) -> None:
    """It may need what that one has not let go yet."""

    async def main() -> None:
        resource = Resource(held_at="close")
        lifespans = LifespanRunner(resource)

        async def use() -> Any:
            async with lifespans.running(never()) as value:
                return value

        first = asyncio.create_task(use())
        await turns()
        others = [asyncio.create_task(use()) for _ in range(2)]
        await turns()
        assert resource.events == ["open", "held at close"]
        resource.go.set()
        assert await asyncio.gather(first, *others) == ["value"] * 3
        # Where tasks start at once, the second one has gone before the third one comes.
        assert resource.events == ["open", "held at close", "close"] * (3 if eager else 2)

    run(main(), eager=eager)


async def test_who_gives_up_does_not_wait_for_the_last_one_either() -> None:
    resource = Resource(held_at="close")
    lifespans = LifespanRunner(resource)

    async def use(given_up: asyncio.Future[Any]) -> Any:
        async with lifespans.running(given_up) as value:
            return value

    first = asyncio.create_task(use(never()))
    await turns()
    given_up = never()
    second = asyncio.create_task(use(given_up))
    await turns()
    given_up.set_result(None)
    assert await second is None
    assert resource.events == ["open", "held at close"]
    resource.go.set()
    assert await first == "value"


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_an_end_that_takes_too_long_is_cut_short(is_stubborn: bool, caplog: pytest.LogCaptureFixture) -> None:
    go = asyncio.Event()
    events = []

    @asynccontextmanager
    async def slow() -> AsyncIterator[str]:
        yield "value"
        try:
            await go.wait()
        except asyncio.CancelledError:
            events.append("cancelled")
            if not is_stubborn:
                raise
            await go.wait()

    async def main() -> None:
        lifespans = LifespanRunner(slow)
        for _ in range(2):  # the next one does not wait for ever, either
            async with lifespans.running(never(), within=0) as value:
                assert value == "value"
        assert events == ["cancelled", "cancelled"]
        go.set()
        await turns()

    run(main())
    assert ("does not end and is abandoned" in caplog.text) == is_stubborn


@pytest.mark.parametrize("when", ["opening", "open"])
def test_it_is_closed_when_the_event_loop_ends(when: str) -> None:
    resources = []

    async def main() -> None:
        resource = Resource(held_at="open" if when == "opening" else "")
        resources.append(resource)
        lifespans = LifespanRunner(resource)
        manager: AbstractAsyncContextManager[Any] = lifespans.running(never())
        entering = asyncio.ensure_future(manager.__aenter__())
        await turns()
        assert entering.done() == (when == "open")

    asyncio.run(main())
    assert resources[0].events == (["held at open", "cancelled"] if when == "opening" else ["open", "cancelled"])


async def test_a_lifespan_is_anything_that_makes_a_context_manager() -> None:
    class Manager:
        async def __aenter__(self) -> int:
            return 5

        async def __aexit__(self, *_: object) -> None: ...

    make: Callable[[], AbstractAsyncContextManager[int]] = Manager
    async with LifespanRunner(make).running(never()) as value:
        assert value == 5


async def test_when_the_event_loop_ends_it_closes_after_its_users_have_left() -> None:
    resource = Resource()
    lifespans = LifespanRunner(resource)
    opened = asyncio.Event()

    async def use() -> None:
        async with lifespans.running(never()):
            opened.set()
            try:
                await asyncio.Event().wait()
            finally:
                await turns()
                resource.events.append("user left")

    using = asyncio.create_task(use())
    await opened.wait()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:  # as asyncio.run does it
        task.cancel()
    await asyncio.wait((using,))
    assert resource.events == ["open", "user left", "close"]


# What can be a lifespan


@asynccontextmanager
async def plain() -> AsyncIterator[str]:
    yield "plain"


@asynccontextmanager
async def with_server(server: Server) -> AsyncIterator[str]:
    yield server.name


class AsClass:
    def __init__(self, server: Server, *, timeout: float = 1.0) -> None:
        self.server = server

    async def __aenter__(self) -> str:
        return self.server.name

    async def __aexit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(("lifespan", "value"), [(plain, "plain"), (with_server, "named"), (AsClass, "named")])
async def test_a_lifespan_takes_nothing_or_the_server(lifespan: Any, value: str) -> None:
    server = Server("named", lifespan=lifespan)

    @server.tool
    async def look(ctx: Context) -> str:
        return str(ctx.lifespan)

    async with connect(server) as client:
        assert text_of(await client.call_tool("look")) == value


async def generates() -> AsyncIterator[None]:
    yield


async def only_async() -> None: ...


def takes_two(first: object, second: object) -> Any: ...


@contextmanager
def not_async(server: Server) -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("lifespan", "reason"),
    [
        (generates, "put @contextlib.asynccontextmanager above it"),
        (only_async, "must be an async context manager"),
        (not_async, "must be an async context manager"),
        (takes_two, "is called without arguments, or with the server"),
        ({}, "without calling it"),
    ],
)
def test_anything_else_is_refused_when_the_server_is_made(lifespan: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Server("refused", lifespan=lifespan)


async def test_a_lifespan_that_returns_something_else_is_named() -> None:
    async with AsyncExitStack() as stack:
        with pytest.raises(UsageError, match="type 'int', not an async context manager"):
            await stack.enter_async_context(LifespanRunner(lambda: 5).running(never()))  # type: ignore[arg-type, return-value]
