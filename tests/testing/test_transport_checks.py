"""The kit finds faults: each of these transports has one, and is otherwise sound."""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from mcplumb.testing import Check, check_transport, checks
from tests.kit.loop import PATIENCE
from tests.testing import faulty
from tests.testing.faulty import Sound, faulty_pair

#: For what is waited for in vain.
HASTE = 2.0

FAULTS: list[tuple[type[Sound], str, str]] = [
    (faulty.Loses, "none_is_lost_from_first", "2000 messages arrive: that did not happen"),
    (faulty.Doubles, "none_is_lost_from_second", "Some messages arrived more than once"),
    (faulty.Adds, "a_large_message_from_first", "This arrived and was not sent: .*one more"),
    (faulty.Mixes, "order_from_first", "not arrive in the order"),
    (faulty.Miscounts, "none_is_lost_from_first", "2000 messages were sent, and the stats"),
    (faulty.Forges, "a_large_message_from_first", "was sent, and what arrived is"),
    (faulty.Forges, "large_messages_both_ways_at_once", "was sent, and what arrived is"),
    (faulty.Unpacks, "a_batch_from_second", "A batch was sent, and Notification"),
    (faulty.Swallows, "what_cannot_be_written_from_first", "EncodeError not raised"),
    (faulty.PassesJunk, "input_that_is_no_message", "An invalid message was received as Notification"),
    (faulty.Hurries, "answering_within_a_message", "had received called from within its own call of send"),
    (faulty.Strays, "every_kind_of_message", "called by a thread that is not its event loop's"),
    (faulty.NeverClogged, "a_clogged_connection_drains_from_first", "nothing bounds its memory"),
    (faulty.NeverPauses, "a_clogged_connection_drains_from_first", "nothing bounds its memory"),
    (faulty.NeverWaits, "a_clogged_connection_drains_from_first", "drained has returned, and the connection is still"),
    (faulty.NeverWaits, "giving_up_on_draining_from_second", "drained has returned, and the connection is still"),
    (faulty.WaitsForEver, "a_clogged_connection_drains_from_first", "drained returns when the peer reads again: that"),
    (faulty.WaitsForEver, "draining_ends_with_close_from_first", "drained returns when the connection is closed: that"),
    (faulty.WaitsForEver, "draining_ends_with_abort_from_first", "drained returns when the connection is aborted: th"),
    (faulty.WaitsForEver, "draining_ends_when_the_peer_is_gone_from_first", "drained returns when the peer is gone: t"),
    (faulty.WaitsForEver, "a_peer_that_reads_now_and_then_from_first", "messages arrive: that did not happen"),
    (faulty.LosesInPauses, "pauses_lose_nothing_from_first", "100 messages arrive: that did not happen"),
    (faulty.LosesInPauses, "an_end_that_comes_during_a_pause_from_second", "was lost during a pause|before the last"),
    (faulty.EndsTwice, "close_writes_what_is_queued_from_first", "the report of its end more than once"),
    (faulty.EndsEarly, "close_writes_what_is_queued_from_first", "received a message after its end was reported"),
    (faulty.EndsDirty, "close_writes_what_is_queued_from_second", "as an end in the middle of one"),
    (faulty.EndsDirty, "an_end_that_comes_during_a_pause_from_second", "not told as clean"),
    (faulty.EndsClean, "a_message_that_is_cut_off_from_first", "cut off, and the end is reported as clean"),
    (faulty.Mends, "a_message_that_is_cut_off_from_second", "received as if it were whole"),
    (faulty.NeverEnds, "closing_while_paused_from_first", "the peer is notified that a paused end was closed: that"),
    (faulty.NeverEnds, "a_peer_that_is_gone_from_first", "an end is notified that its peer is gone: that did not"),
    (faulty.NeverEnds, "closing_what_was_never_started_from_first", "the end is reported: that did not happen"),
    (faulty.GoesOn, "close_writes_what_is_queued_from_first", "The first end had received called after its own close"),
    (faulty.ClosesAtOnce, "close_writes_what_is_queued_from_first", "did not arrive, once each"),
    (faulty.ClosesAtOnce, "close_waits_for_a_slow_peer_from_second", "not each of them arrived once"),
    (faulty.ClosesBehindOnesBack, "close_waits_for_a_slow_peer_from_first", "not each of them arrived once"),
    (faulty.ClosesOnRegardless, "a_cancelled_close_aborts_from_first", "that did not happen"),
    (faulty.NeverAborts, "abort_cuts_a_close_short_from_first", "close returns when the connection is aborted: that"),
    (faulty.NeverAborts, "aborting_within_a_message_from_first", "received called after its own abort"),
    (faulty.NeverAborts, "both_abort_at_once", "received called after its own abort"),
    (faulty.RaisesAtTheEnd, "both_close_at_once", "unhandled errors: .*ValueError"),
    (faulty.LeavesTask, "every_kind_of_message", "Tasks are left behind: .*sleep"),
    (faulty.LeavesDescriptors, "every_kind_of_message", "4 descriptors are left open: .*a pipe"),
    (faulty.LeavesFile, "every_kind_of_message", "Something was dropped instead of closed: unclosed file"),
]

#: The kit waits until nothing is left behind, or nothing more comes.
WAIT_IN_VAIN = {faulty.Hurries, faulty.LeavesDescriptors, faulty.LeavesTask}


def named(name: str) -> Check:
    (check,) = (check for check in checks() if check.name == name)
    return check


def run(check: Check, kind: type[Sound], patience: float) -> None:
    async def main() -> None:
        await check(lambda: faulty_pair(kind), patience=patience)

    try:
        asyncio.run(main())
    finally:
        while faulty.LEFT:
            os.close(faulty.LEFT.pop())


@pytest.mark.req("STR-5")
@pytest.mark.parametrize(("kind", "name", "said"), FAULTS, ids=[f"{fault[0].__name__}-{fault[1]}" for fault in FAULTS])
def test_a_fault_is_found(kind: type[Sound], name: str, said: str) -> None:
    waits_in_vain = kind in WAIT_IN_VAIN or said.endswith((": that", ": th", ": t", "that did not", "did not happen"))
    with pytest.raises(AssertionError) as caught:
        run(named(name), kind, HASTE if waits_in_vain else PATIENCE)
    assert re.search(said, str(caught.value)), caught.value


# The page about transports of one's own does the same in every run.
@pytest.mark.thorough
def test_a_sound_transport_passes_everything() -> None:
    asyncio.run(check_transport(lambda: faulty_pair(Sound)))


def test_the_first_fault_ends_it_and_is_explained() -> None:
    with pytest.raises(AssertionError) as caught:
        asyncio.run(check_transport(lambda: faulty_pair(faulty.Unpacks), without={"spoil"}))
    assert caught.value.__notes__ == [
        "The check a_batch_from_first requires: Messages that are sent as a batch arrive as a batch."
    ]


def test_what_a_transport_cannot_do_is_left_out() -> None:
    everything = checks()
    assert len({check.name for check in everything}) == len(everything)
    assert all(check.rule.endswith(".") for check in everything)
    for trait in ("batches", "both", "notice", "order", "spoil"):
        left = checks(without={trait})
        assert [check for check in everything if check not in left] == [c for c in everything if trait in c.needs] != []
    assert 20 < len(checks(without={"both"})) < len(everything)
