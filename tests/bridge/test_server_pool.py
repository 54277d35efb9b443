from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcplumb.bridge.server_instance import FrontClient
from mcplumb.bridge.server_pool import ServerPool
from mcplumb.client.connector import connect
from mcplumb.errors import Closed, ConnectError, McplumbError, ServerDown
from mcplumb.protocol.restart import RestartPolicy
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from mcplumb.types import ClientCapabilities, Implementation, RootsCapability
from tests.bridge.ends import Backs
from tests.client.peers import skip
from tests.kit.loop import turns, until

QUIET = ClientCapabilities()
ROOTS = ClientCapabilities(roots=RootsCapability())

both_eras = pytest.mark.parametrize("revision", [LATEST, LATEST_LEGACY], ids=str)


def client(
    capabilities: ClientCapabilities = QUIET, *, stays: bool = True, principal: str | None = None, name: str = "front"
) -> FrontClient:
    return FrontClient(capabilities, Implementation(name, "1"), principal, None, stays=stays)


def pool_of(backs: Backs, **options: Any) -> ServerPool:
    settings = {"share": "auto", "idle": 300.0, "max_instances": 10, **options}
    target = settings.pop("target", backs)
    return ServerPool("it", lambda: connect(target, revisions=[str(backs.revision)]), **settings)


@pytest.mark.req("BRG-3")
@both_eras
@pytest.mark.parametrize("share", ["auto", "always", "never"])
@pytest.mark.parametrize("capabilities", [QUIET, ROOTS], ids=["quiet", "askable"])
@pytest.mark.parametrize("stays", [True, False])
async def test_who_shares_a_server(
    revision: Revision, share: str, capabilities: ClientCapabilities, stays: bool
) -> None:
    pool = pool_of(Backs(revision), share=share)
    leases = [await pool.lease(client(capabilities, stays=stays)) for _ in range(2)]
    is_shared = share == "always" or (share == "auto" and (revision.is_modern or capabilities is QUIET))
    assert (leases[0] is leases[1]) is is_shared
    assert all((lease.owner is None) is is_shared for lease in leases)
    await pool.close()


@pytest.mark.req("BRG-3")
@both_eras
@pytest.mark.parametrize("share", ["auto", "always"])
async def test_the_first_clients_at_once_start_one_server(revision: Revision, share: str) -> None:
    backs = Backs(revision)
    pool = pool_of(backs, share=share)
    leases = await asyncio.gather(*(pool.lease(client()) for _ in range(5)))
    assert len(set(leases)) == len(backs.all) == 1
    assert leases[0].users == 5
    await pool.close()


@pytest.mark.req("BRG-3")
async def test_clients_that_share_a_known_legacy_server_start_one() -> None:
    backs = Backs()
    pool = pool_of(backs)
    own = await pool.lease(client(ROOTS))  # now it is known to be legacy
    leases = await asyncio.gather(*(pool.lease(client()) for _ in range(5)))
    assert len(set(leases)) == 1
    assert leases[0] is not own
    await pool.close()


@pytest.mark.req("BRG-3")
async def test_clients_that_cannot_share_do_not_start_one_after_the_other() -> None:
    backs = Backs()
    pool = pool_of(backs)
    pool.release(await pool.lease(client(ROOTS)))
    backs.starts = asyncio.Event()
    leasing = [asyncio.create_task(pool.lease(client(ROOTS))) for _ in range(3)]
    await backs.until(lambda: len(backs.open) == 3)
    backs.starts.set()
    leases = await asyncio.gather(*leasing)
    assert len(set(leases)) == 3
    await pool.close()


@pytest.mark.req("BRG-3")
async def test_a_legacy_server_with_tasks_is_not_shared() -> None:
    backs = Backs(tasks={"list": {}})
    pool = pool_of(backs)
    leases = [await pool.lease(client()) for _ in range(2)]
    assert leases[0] is not leases[1]
    await pool.close()


@pytest.mark.req("BRG-3")
async def test_a_shared_server_is_told_nothing_of_the_client_that_started_it() -> None:
    backs = Backs(LATEST)
    pool = pool_of(backs)
    lease = await pool.lease(client(ROOTS, name="the first"))
    await lease.client.call_tool("echo")
    assert b"the first" not in str(backs.all[0].seen[-1]).encode()
    assert "roots" not in str(backs.all[0].seen[-1])
    await pool.close()


@pytest.mark.req("BRG-6")
async def test_a_failed_start_is_not_repeated_at_once() -> None:
    backs = Backs()
    backs.failures = 1
    pool = pool_of(backs)
    with pytest.raises(ConnectError, match="It does not start"):
        await pool.lease(client())
    assert pool.state == "failed"
    with pytest.raises(
        ServerDown, match=r"'it' could not be started, and is not tried again for 0\..* It does not start"
    ):
        await pool.lease(client())
    assert backs.failures == 0
    skip(0.6)
    lease = await pool.lease(client())
    assert pool.state == "running"
    assert pool.failure is None
    pool.release(lease)
    await pool.close()


async def test_the_wait_after_many_failures_has_a_limit() -> None:
    backs = Backs()
    backs.failures = 2
    pool = pool_of(backs)
    with pytest.raises(ConnectError, match="It does not start"):
        await pool.lease(client())
    vars(pool)["_failures"] = 5000  # a week later
    for _ in range(2):
        skip(30.1)
        if backs.failures:
            with pytest.raises(ConnectError, match="It does not start"):
                await pool.lease(client())
    pool.release(await pool.lease(client()))
    await pool.close()


@pytest.mark.req("BRG-6")
@both_eras
async def test_an_idle_server_is_stopped(revision: Revision) -> None:
    backs = Backs(revision)
    pool = pool_of(backs, idle=5.0)
    lease = await pool.lease(client())
    other = await pool.lease(client())
    pool.release(lease)
    skip(6)
    await turns()
    assert len(backs.open) == 1  # the other client uses it
    pool.release(other)
    again = await pool.lease(client())
    assert again is lease
    skip(6)
    await turns()
    assert len(backs.open) == 1
    pool.release(again)
    skip(6)
    await until(lambda: not backs.open, "the server to stop")
    assert pool.state == "idle"
    assert await pool.lease(client()) is not lease
    await pool.close()


@pytest.mark.req("BRG-6")
async def test_the_server_of_one_client_stops_with_it() -> None:
    backs = Backs()
    pool = pool_of(backs)
    lease = await pool.lease(client(ROOTS))
    pool.release(lease)
    await until(lambda: not backs.open, "the server to stop")
    await pool.close()


@pytest.mark.req("BRG-3")
async def test_a_server_is_used_again_by_the_same_principal_only() -> None:
    backs = Backs()
    pool = pool_of(backs)
    lease = await pool.lease(client(ROOTS, stays=False, principal="a"))
    pool.release(lease)
    other = await pool.lease(client(ROOTS, stays=False, principal="b"))
    assert other is not lease
    assert await pool.lease(client(ROOTS, stays=False, principal="a")) is lease
    assert await pool.lease(client(ROOTS, stays=False, principal="a")) is not lease
    await pool.close()


async def test_there_is_a_limit_to_servers() -> None:
    backs = Backs()
    pool = pool_of(backs, max_instances=2)
    kept = await pool.lease(client(ROOTS, stays=False, principal="a"))
    spare = await pool.lease(client(ROOTS, stays=False, principal="b"))
    with pytest.raises(ServerDown, match="already runs 2 times, which is the limit"):
        await pool.lease(client(ROOTS))
    pool.release(spare)
    lease = await pool.lease(client(ROOTS))  # in place of the one that nobody uses
    assert lease not in (kept, spare)
    await until(lambda: len(backs.open) == 2, "the spare one to stop")
    await pool.close()


@pytest.mark.req("BRG-6")
async def test_closing_ends_a_start() -> None:
    backs = Backs()
    backs.starts = asyncio.Event()
    pool = pool_of(backs)
    leasing = [asyncio.create_task(pool.lease(client())) for _ in range(3)]
    await backs.until(lambda: backs.all)
    await pool.close()
    for lease in leasing:
        with pytest.raises(McplumbError):
            await lease
    assert not backs.open
    with pytest.raises(Closed, match="the bridge stops"):
        await pool.lease(client())


@pytest.mark.req("BRG-6")
@both_eras
async def test_a_start_goes_on_for_those_who_still_wait(revision: Revision) -> None:
    backs = Backs(revision)
    backs.starts = asyncio.Event()
    pool = pool_of(backs)
    first, second = (asyncio.create_task(pool.lease(client())) for _ in range(2))
    await backs.until(lambda: backs.all)
    assert pool.state == "starting"
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    backs.starts.set()
    lease = await second
    assert lease.users == len(backs.all) == 1
    assert pool.failure is None
    pool.release(lease)
    await pool.close()


@pytest.mark.req("BRG-6")
async def test_a_start_for_a_client_that_has_gone_is_of_no_use_to_others() -> None:
    backs = Backs()
    backs.starts = asyncio.Event()
    pool = pool_of(backs)
    first, second = (asyncio.create_task(pool.lease(client(ROOTS))) for _ in range(2))
    await backs.until(lambda: backs.all)
    first.cancel()
    await asyncio.wait([first])
    backs.starts.set()
    lease = await second
    assert len(backs.all) == 2
    await until(lambda: len(backs.open) == 1, "the first to be closed")
    pool.release(lease)
    await pool.close()


@pytest.mark.req("BRG-6")
@pytest.mark.parametrize("capabilities", [QUIET, ROOTS], ids=["shared", "own"])
async def test_a_cancelled_start_leaves_nothing(capabilities: ClientCapabilities) -> None:
    backs = Backs()
    backs.starts = asyncio.Event()
    pool = pool_of(backs)
    leasing = [asyncio.create_task(pool.lease(client(capabilities))) for _ in range(2)]
    await backs.until(lambda: backs.all)
    for lease in leasing:
        lease.cancel()
    await asyncio.wait(leasing)
    await until(lambda: pool.state == "idle" and not backs.open, "the server to stop")
    backs.starts.set()
    pool.release(await pool.lease(client(capabilities)))
    await pool.close()


@pytest.mark.req("BRG-6")
async def test_a_start_that_was_given_up_this_moment_is_not_waited_for() -> None:
    backs = Backs()
    backs.starts = asyncio.Event()
    pool = pool_of(backs)
    leasing = asyncio.create_task(pool.lease(client()))
    await backs.until(lambda: backs.all)
    start = vars(pool)["_shared_start"]
    leasing.cancel()
    await until(start.task.done, "the end of the start")
    vars(pool)["_shared_start"] = start  # as long as the callbacks of the task have not run
    backs.starts.set()
    pool.release(await pool.lease(client()))
    await pool.close()


@pytest.mark.req("BRG-6")
@pytest.mark.parametrize("capabilities", [QUIET, ROOTS], ids=["shared", "own"])
async def test_a_request_that_stands_alone_leaves_its_start_to_the_next(capabilities: ClientCapabilities) -> None:
    backs = Backs()
    backs.starts = asyncio.Event()
    pool = pool_of(backs, idle=5.0)
    for _ in range(3):
        leasing = asyncio.create_task(pool.lease(client(capabilities, stays=False)))
        await backs.until(lambda: backs.all)
        await turns()
        leasing.cancel()
        await asyncio.wait([leasing])
    assert len(backs.all) == 1
    backs.starts.set()
    await until(lambda: pool.state == "running", "the start")
    lease = await pool.lease(client(capabilities, stays=False))
    assert lease.users == len(backs.all) == 1
    pool.release(lease)
    skip(6)
    await until(lambda: not backs.open, "the server to stop")
    await pool.close()


@pytest.mark.req("BRG-6")
async def test_a_start_that_nobody_waits_for_fails_as_any_other() -> None:
    backs = Backs()
    backs.starts = asyncio.Event()
    pool = pool_of(backs)
    leasing = asyncio.create_task(pool.lease(client(stays=False)))
    await backs.until(lambda: backs.all)
    leasing.cancel()
    await asyncio.wait([leasing])
    await backs.all[0].crash()
    await until(lambda: pool.state == "failed", "the failure")
    with pytest.raises(ServerDown, match="is not tried again"):
        await pool.lease(client(stays=False))
    await pool.close()


@pytest.mark.req("BRG-6")
@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("capabilities", [QUIET, ROOTS], ids=["shared", "own"])
async def test_a_server_that_is_gone_for_good_is_replaced(capabilities: ClientCapabilities, stays: bool) -> None:
    backs = Backs()  # a server in memory is not connected to again
    pool = pool_of(backs)
    lease = await pool.lease(client(capabilities, stays=stays))
    pool.release(lease)
    if capabilities is ROOTS and stays:
        await pool.close()
        return
    await backs.all[0].crash()
    await until(lambda: lease.is_over, "the end of the connection")
    again = await pool.lease(client(capabilities, stays=stays))
    assert again is not lease
    assert not again.is_over
    pool.release(again)
    await pool.close()


@pytest.mark.req("BRG-6")
async def test_a_server_that_is_gone_for_good_is_replaced_for_guests() -> None:
    backs = Backs(LATEST)  # a server in memory is not connected to again
    pool = pool_of(backs)
    gone = await pool.join(client(stays=False))
    pool.leave(gone)
    await backs.all[0].crash()
    await until(lambda: gone.is_over, "the end of the connection")
    again = await pool.join(client(stays=False))
    assert not again.is_over
    pool.leave(again)
    await pool.close()


@pytest.mark.req("BRG-6")
async def test_retiring_lets_nothing_start() -> None:
    backs = Backs(LATEST)
    pool = pool_of(backs)
    lease = await pool.lease(client())
    await pool.retire(5.0)
    assert not backs.open
    pool.release(lease)
    with pytest.raises(Closed):
        await pool.lease(client())


async def test_a_server_that_changed_its_era_is_shared_once() -> None:
    backs = Backs()
    pool = ServerPool("it", lambda: connect(backs, restart=RestartPolicy()), share="auto", idle=300.0, max_instances=10)
    pool.release(await pool.lease(client(ROOTS)))
    backs.revision = LATEST
    leases = await asyncio.gather(*(pool.lease(client(ROOTS)) for _ in range(2)))
    assert [lease.owner is None for lease in leases].count(True) == 1
    assert await pool.lease(client(ROOTS)) in leases
    await pool.close()


# --- Calls that are passed on at once ---


@pytest.mark.req("BRG-3")
@both_eras
@pytest.mark.parametrize("share", ["auto", "always", "never"])
@pytest.mark.parametrize("capabilities", [QUIET, ROOTS], ids=["quiet", "askable"])
async def test_only_what_clients_share_is_borrowed(
    revision: Revision, share: str, capabilities: ClientCapabilities
) -> None:
    pool = pool_of(Backs(revision), share=share)
    assert pool.borrow(client(capabilities, stays=False)) is None  # it does not run
    lease = await pool.lease(client(capabilities, stays=False))
    is_shared = share == "always" or (share == "auto" and (revision.is_modern or capabilities is QUIET))
    assert pool.borrow(client(capabilities, stays=False)) is (lease if is_shared else None)
    await pool.close()
    assert pool.borrow(client(capabilities, stays=False)) is None


@pytest.mark.req("BRG-6")
async def test_a_server_with_borrowed_calls_is_not_idle() -> None:
    backs = Backs(LATEST)
    pool = pool_of(backs, idle=5.0)
    instance = await pool.lease(client(stays=False))
    pool.release(instance)
    call: Any = object()
    instance.calls[call] = None  # as if one were passed on
    skip(6)
    await turns()
    assert len(backs.open) == 1
    instance.has_ended(call)
    instance.used_at = asyncio.get_running_loop().time()
    skip(4)
    await turns()
    assert len(backs.open) == 1  # not yet for long enough
    skip(2)
    await until(lambda: not backs.open, "the server to stop")
    await pool.close()


@pytest.mark.req("BRG-6")
@pytest.mark.parametrize("idle", [0, 5.0])
async def test_an_unused_server_finishes_its_borrowed_calls(idle: float) -> None:
    backs = Backs(LATEST)
    pool = pool_of(backs, idle=idle)
    instance = await pool.lease(client(stays=False))
    call: Any = object()
    assert pool.borrow(client(stays=False)) is instance
    instance.calls[call] = None  # as if one were passed on
    pool.release(instance)
    skip(idle + 1)
    await turns()
    assert len(backs.open) == 1
    instance.has_ended(call)
    await turns()
    skip(idle + 1)
    await until(lambda: not backs.open, "the server to stop")
    await pool.close()


@pytest.mark.req("BRG-6")
async def test_a_server_with_borrowed_calls_makes_no_room_for_another() -> None:
    backs = Backs(LATEST)
    pool = pool_of(backs, max_instances=1)
    instance = await pool.lease(client(stays=False))
    pool.release(instance)
    call: Any = object()
    instance.calls[call] = None
    pool._share = "never"
    with pytest.raises(ServerDown, match="already runs 1 times"):
        await pool.lease(client(ROOTS))
    instance.has_ended(call)
    assert await pool.lease(client(ROOTS)) is not instance
    await pool.close()


@pytest.mark.req("BRG-6")
async def test_a_server_may_be_stopped_at_once() -> None:
    backs = Backs(LATEST)
    pool = pool_of(backs, idle=0)
    pool.release(await pool.lease(client()))
    await until(lambda: not backs.open, "the server to stop")
    await pool.close()
