from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mcplumb.errors import ConnectError, ConnectTimeout, NoCommonRevision, UsageError
from mcplumb.protocol.era import (
    ERA,
    Action,
    Agreed,
    EraFinder,
    EraWaits,
    Failed,
    SendInitialize,
    SendInitialized,
    SendProbe,
    StartAgain,
)
from mcplumb.revisions import LATEST, LATEST_LEGACY, LEGACY, MODERN, REVISIONS, Era, Revision
from mcplumb.wire.messages import INVALID_PARAMS, METHOD_NOT_FOUND, UNSUPPORTED_VERSION, ErrorDetail
from tests.protocol.walks import rows_taken

WAITS = EraWaits(quiet=1, quiet_modern=15, quiet_unseen=10, settle=0.1, ask=1, patience=60)
#: A modern revision of the future, to choose among several.
NEXT = msgspec.structs.replace(LATEST, name="2999-01-01")

UNKNOWN_METHOD = ErrorDetail(METHOD_NOT_FOUND, "Method not found")
NAMES = [revision.name for revision in REVISIONS]


def unsupported(*versions: str) -> ErrorDetail:
    data = {"supported": list(versions), "requested": str(LATEST)}
    return ErrorDetail(UNSUPPORTED_VERSION, "Unsupported", msgspec.Raw(msgspec.json.encode(data)))


def begin(allowed: tuple[Revision, ...] = REVISIONS, remembered: Era | None = None) -> EraFinder:
    finder = EraFinder(allowed, waits=WAITS, remembered=remembered)
    sent = finder.started(0)
    skips_probe = not any(r.is_modern for r in allowed) or (remembered == "legacy" and allowed != MODERN)
    assert sent == ((SendInitialize(LATEST_LEGACY),) if skips_probe else (SendProbe(LATEST),))
    finder.probe_read(0, is_known=True)
    return finder


def failure(actions: tuple[Action, ...]) -> ConnectError:
    (failed,) = actions
    assert isinstance(failed, Failed)
    return failed.error


# --- modern servers ---------------------------------------------------------------------------------------------


@pytest.mark.req("ERA-1", "ERA-2")
def test_a_discover_result_means_modern() -> None:
    finder = begin()
    assert finder.state == "probing"
    assert finder.probe_result([str(LATEST)], 0.1) == (Agreed(LATEST),)
    assert (finder.state, finder.ended, finder.deadline) == ("modern", True, None)


@pytest.mark.req("ERA-2")
def test_the_newest_common_version_is_chosen() -> None:
    assert begin().probe_result(["2999-01-01", *NAMES], 0.1) == (Agreed(LATEST),)


@pytest.mark.req("ERA-3")
def test_an_unsupported_version_is_tried_again_with_a_supported_one() -> None:
    finder = EraFinder((NEXT, *REVISIONS), waits=WAITS)
    assert finder.started(0) == (SendProbe(NEXT),)
    assert finder.probe_error(unsupported(str(LATEST), str(LATEST_LEGACY)), 0.1) == (SendProbe(LATEST),)
    assert finder.deadline == 60, "a server that said that it is modern is not sent initialize"
    assert finder.probe_result([str(LATEST)], 0.2) == (Agreed(LATEST),)


@pytest.mark.req("ERA-3")
def test_a_server_that_is_modern_and_refuses_again_never_falls_back() -> None:
    finder = EraFinder((NEXT, *REVISIONS), waits=WAITS)
    finder.started(0)
    finder.probe_error(unsupported(str(LATEST)), 0.1)
    assert isinstance(failure(finder.probe_error(UNKNOWN_METHOD, 0.2)), NoCommonRevision)


@pytest.mark.req("ERA-3")
@pytest.mark.parametrize("named", [LATEST, NEXT])
def test_a_server_that_is_modern_and_goes_on_refusing_what_it_names_never_falls_back(named: Revision) -> None:
    finder = EraFinder((NEXT, *REVISIONS), waits=WAITS)
    finder.started(0)
    finder.probe_error(unsupported(str(LATEST)), 0.1)
    assert finder.probe_error(unsupported(str(named)), 0.2) == (SendProbe(named),)
    assert isinstance(failure(finder.probe_error(unsupported(str(named)), 0.3)), NoCommonRevision)


@pytest.mark.req("ERA-3", "ERA-5")
def test_a_server_that_is_modern_and_exits_is_probed_again() -> None:
    finder = EraFinder((NEXT, *REVISIONS), waits=WAITS)
    finder.started(0)
    finder.probe_error(unsupported(str(LATEST)), 0.1)
    assert finder.exited(0.2) == (StartAgain(),)
    assert finder.started(0.3) == (SendProbe(NEXT),)
    assert finder.deadline == 60


@pytest.mark.req("ERA-2", "ERA-8")
def test_a_discover_result_without_a_common_version_is_the_end() -> None:
    error = failure(begin().probe_result(["2031-01-01"], 0.1))
    assert isinstance(error, NoCommonRevision)
    assert str(error).endswith("and the server offers 2031-01-01.")


@pytest.mark.req("ERA-3", "ERA-8")
def test_a_modern_error_without_a_common_version_never_falls_back() -> None:
    finder = begin()
    error = failure(finder.probe_error(unsupported("2031-01-01"), 0.1))
    assert isinstance(error, NoCommonRevision)
    assert error.theirs == ("2031-01-01",)
    assert "2031-01-01" in str(error)
    assert str(LATEST) in str(error)


@pytest.mark.req("ERA-3")
def test_a_version_that_is_refused_and_named_is_tried_once_more() -> None:
    finder = begin()
    assert finder.probe_error(unsupported(str(LATEST)), 0.1) == (SendProbe(LATEST),)
    error = failure(finder.probe_error(unsupported(str(LATEST)), 0.2))
    assert isinstance(error, NoCommonRevision)
    assert "names itself" in str(error)


@pytest.mark.req("ERA-2", "ERA-3")
@pytest.mark.parametrize("by_error", [False, True])
def test_a_server_that_names_a_legacy_revision_as_the_best_gets_that_one(by_error: bool) -> None:
    finder = begin()
    named = ["2025-06-18", "2024-11-05"]
    actions = finder.probe_error(unsupported(*named), 0) if by_error else finder.probe_result(named, 0)
    (sent,) = actions
    assert isinstance(sent, SendInitialize)
    assert str(sent.revision) == "2025-06-18"
    assert finder.init_result("2024-11-05", 1) == (SendInitialized(), Agreed(REVISIONS[4])), "any allowed one will do"


# --- legacy servers ---------------------------------------------------------------------------------------------


@pytest.mark.req("ERA-4", "LEG-1")
@pytest.mark.parametrize("code", [METHOD_NOT_FOUND, INVALID_PARAMS, -32000, -1, 0, 7, -32603])
def test_any_other_error_means_legacy(code: int) -> None:
    finder = begin()
    assert finder.probe_error(ErrorDetail(code, "no"), 0.1) == (SendInitialize(LATEST_LEGACY),)
    assert finder.init_result("2025-03-26", 0.2) == (SendInitialized(), Agreed(REVISIONS[3]))
    assert finder.state == "legacy"


@pytest.mark.req("ERA-4")
@pytest.mark.parametrize(
    "data",
    [
        msgspec.UNSET,
        None,
        [],
        {},
        {"supported": []},
        {"supported": "2026-07-28"},
        {"supported": [1]},
        msgspec.Raw(b"[[["),
        msgspec.Raw(b'"\xff"'),
        msgspec.Raw(b"[" * 100_000),
    ],
)
def test_a_modern_code_without_versions_is_no_recognised_modern_error(data: Any) -> None:
    assert begin().probe_error(ErrorDetail(UNSUPPORTED_VERSION, "?", data), 0) == (SendInitialize(LATEST_LEGACY),)


@pytest.mark.req("ERA-4")
@pytest.mark.parametrize("versions", [None, [], "2026-07-28", {}, 3])
def test_a_result_that_names_no_versions_is_no_discover_result(versions: Any) -> None:
    assert begin().probe_result(versions, 0) == (SendInitialize(LATEST_LEGACY),)


@pytest.mark.req("ERA-4", "ERA-6")
def test_a_silent_legacy_server_costs_the_quiet_time_only() -> None:
    finder = begin()
    assert finder.deadline == 1
    assert finder.due(0.5) == ()
    assert finder.due(1) == (SendInitialize(LATEST_LEGACY),)
    assert finder.init_result(str(LATEST_LEGACY), 1.2) == ()
    assert finder.deadline == pytest.approx(1.3)
    assert finder.due(1.3) == (SendInitialized(), Agreed(LATEST_LEGACY))


@pytest.mark.req("ERA-6")
def test_the_quiet_time_begins_when_the_server_has_read_the_probe() -> None:
    finder = EraFinder(REVISIONS, waits=WAITS)
    finder.started(0)
    assert finder.awaits_reading
    assert finder.deadline == 60
    assert finder.due(30) == ()
    finder.probe_read(40, is_known=True)
    assert not finder.awaits_reading
    finder.probe_read(45, is_known=True)
    assert finder.deadline == 41, "it is read once"
    assert finder.due(41) == (SendInitialize(LATEST_LEGACY),)


@pytest.mark.req("ERA-6")
@pytest.mark.parametrize(("remembered", "wait"), [(None, 10), ("modern", 15)])
def test_a_server_of_which_nobody_knows_what_it_has_read_gets_more_time(remembered: Era | None, wait: float) -> None:
    finder = EraFinder(REVISIONS, waits=WAITS, remembered=remembered)
    finder.started(0)
    finder.probe_read(0, is_known=False)
    assert finder.deadline == wait


@pytest.mark.req("ERA-6")
def test_a_server_that_never_reads_is_given_up_with_a_sentence_that_says_so() -> None:
    finder = EraFinder(REVISIONS, waits=WAITS)
    finder.started(0)
    error = failure(finder.due(60))
    assert isinstance(error, ConnectTimeout)
    assert "did not answer within 60 s, and has not read the first request." in str(error)


@pytest.mark.req("ERA-6")
def test_no_reading_is_awaited_where_nothing_depends_on_it() -> None:
    modern_only = EraFinder(MODERN, waits=WAITS)
    modern_only.started(0)
    legacy_only = EraFinder(LEGACY, waits=WAITS)
    legacy_only.started(0)
    for finder in (modern_only, legacy_only):
        assert not finder.awaits_reading
        finder.probe_read(1, is_known=True)
        assert finder.deadline == 60


@pytest.mark.req("ERA-6")
def test_a_slow_modern_server_is_not_taken_for_legacy() -> None:
    finder = begin()
    assert finder.due(1) == (SendInitialize(LATEST_LEGACY),)
    assert finder.deadline == 60
    assert finder.probe_result([str(LATEST)], 50) == (SendProbe(LATEST),)
    assert finder.init_error(UNKNOWN_METHOD, 50) == ()
    assert (finder.state, finder.deadline) == ("confirming", 60)
    assert finder.probe_result([str(LATEST)], 51) == (Agreed(LATEST),)
    assert (finder.state, finder.late) == ("modern", 1)


@pytest.mark.req("ERA-6", "ERA-10")
@pytest.mark.parametrize("says", ["error", "exit"])
def test_a_slow_server_that_initialize_has_turned_is_started_again_and_asked_alone(says: str) -> None:
    """It answered both questions, and took the second one for the client's choice."""
    finder = begin()
    finder.due(1)
    finder.probe_result([str(LATEST)], 20)
    assert finder.init_result(str(LATEST_LEGACY), 20) == ()
    turned = finder.exited(20) if says == "exit" else finder.probe_error(UNKNOWN_METHOD, 20)
    assert turned == (StartAgain(),)
    assert finder.started(21) == (SendProbe(LATEST),)
    assert finder.deadline == 60, "nothing is sent beside it"
    assert finder.due(50) == ()
    assert finder.probe_result([str(LATEST)], 51) == (Agreed(LATEST),)


@pytest.mark.req("ERA-6")
def test_a_slow_modern_server_may_deny_initialize_first() -> None:
    finder = begin()
    finder.due(1)
    assert finder.init_error(UNKNOWN_METHOD, 20) == ()
    assert finder.state == "waiting"
    assert finder.probe_result([str(LATEST)], 21) == (Agreed(LATEST),)


@pytest.mark.req("ERA-6")
def test_a_slow_dual_era_server_may_answer_initialize_first() -> None:
    finder = begin()
    finder.due(1)
    finder.init_result(str(LATEST_LEGACY), 20)
    assert finder.state == "settling"
    assert finder.probe_result([str(LATEST)], 20.05) == (SendProbe(LATEST),)
    assert finder.deadline == 60
    assert finder.probe_result([str(LATEST)], 20.1) == (Agreed(LATEST),)


def test_a_late_refusal_while_hedging_leaves_initialize_alone() -> None:
    finder = begin()
    finder.due(1)
    assert finder.probe_error(UNKNOWN_METHOD, 1.1) == ()
    assert (finder.state, finder.deadline) == ("initializing", 60)
    assert finder.init_result("2024-11-05", 1.2) == (SendInitialized(), Agreed(REVISIONS[4]))


def test_a_refusal_while_settling_ends_the_wait() -> None:
    finder = begin()
    finder.due(1)
    finder.init_result(str(LATEST_LEGACY), 1.2)
    assert finder.probe_error(UNKNOWN_METHOD, 1.21) == (SendInitialized(), Agreed(LATEST_LEGACY))


@pytest.mark.req("ERA-3")
@pytest.mark.parametrize("state", ["hedging", "settling", "waiting"])
def test_a_late_unsupported_version_is_still_tried_again(state: str) -> None:
    finder = EraFinder((NEXT, *REVISIONS), waits=WAITS)
    finder.started(0)
    finder.probe_read(0, is_known=True)
    finder.due(1)
    if state == "settling":
        finder.init_result(str(LATEST_LEGACY), 1.1)
    if state == "waiting":
        finder.init_error(UNKNOWN_METHOD, 1.1)
    assert finder.probe_error(unsupported(str(LATEST)), 1.15) == (SendProbe(LATEST),)
    assert (finder.state, finder.deadline) == (state, 60)
    if state != "waiting":
        assert finder.probe_result([str(LATEST)], 1.2) == (SendProbe(LATEST),)
    assert finder.probe_result([str(LATEST)], 1.2) == (Agreed(LATEST),)


def test_a_dual_era_server_that_contradicts_itself_is_taken_at_its_better_word() -> None:
    finder = EraFinder((NEXT, *REVISIONS), waits=WAITS)
    finder.started(0)
    finder.probe_read(0, is_known=True)
    finder.due(1)
    finder.probe_error(unsupported(str(LATEST)), 1.1)
    assert finder.init_result(str(LATEST_LEGACY), 1.2) == ()
    assert finder.deadline == 60
    assert finder.due(60) == (SendInitialized(), Agreed(LATEST_LEGACY))


# --- servers that exit ------------------------------------------------------------------------------------------


@pytest.mark.req("ERA-5", "ERA-7")
def test_a_server_that_was_modern_and_exits_is_asked_once_more() -> None:
    finder = begin(remembered="modern")
    assert finder.exited(0.1) == (StartAgain(),)
    assert finder.started(0.2) == (SendProbe(LATEST),)
    assert finder.exited(0.3) == (StartAgain(),), "the memory may be wrong"
    assert finder.started(0.4) == (SendInitialize(LATEST_LEGACY),)
    assert "ended before" in str(failure(finder.exited(0.5)))


@pytest.mark.req("ERA-5")
@pytest.mark.parametrize("state", ["probing", "hedging", "settling"])
def test_a_server_that_exits_on_the_probe_is_started_again_and_initialized(state: str) -> None:
    finder = begin()
    if state != "probing":
        finder.due(1)
    if state == "settling":
        finder.init_result(str(LATEST_LEGACY), 1.1)
    assert finder.state == state
    assert finder.exited(1.15) == (StartAgain(),)
    assert finder.deadline == 60
    assert finder.started(2) == (SendInitialize(LATEST_LEGACY),)
    assert finder.init_result("2024-11-05", 2.1) == (SendInitialized(), Agreed(REVISIONS[4]))


@pytest.mark.req("ERA-5")
@pytest.mark.parametrize("hedged", [False, True])
def test_a_server_that_refuses_the_probe_and_then_exits_is_started_again(hedged: bool) -> None:
    finder = begin()
    if hedged:
        finder.due(1)
    finder.probe_error(UNKNOWN_METHOD, 1.1)
    assert finder.state == "initializing"
    assert finder.exited(1.2) == (StartAgain(),)
    assert finder.started(1.3) == (SendInitialize(LATEST_LEGACY),)
    assert "refused both" in str(failure(finder.init_error(UNKNOWN_METHOD, 1.4))), "it refused the probe before"


@pytest.mark.req("ERA-5")
def test_it_is_started_again_only_once() -> None:
    finder = begin()
    finder.exited(0.1)
    finder.started(0.2)
    assert "ended" in str(failure(finder.exited(0.3)))


@pytest.mark.req("ERA-5")
def test_a_modern_server_that_crashed_once_is_still_found() -> None:
    finder = begin()
    finder.exited(0.1)
    finder.started(0.2)
    assert finder.init_error(UNKNOWN_METHOD, 0.3) == (SendProbe(LATEST),)
    assert finder.deadline == 60, "a server that denied initialize is not sent another one"
    assert finder.probe_result([str(LATEST)], 0.4) == (Agreed(LATEST),)


def test_a_modern_only_client_does_not_start_it_again() -> None:
    assert "ended" in str(failure(begin(MODERN).exited(0.1)))


def test_an_exit_after_both_questions_are_closed_is_a_failure() -> None:
    finder = begin()
    finder.due(1)
    finder.init_error(UNKNOWN_METHOD, 1.1)
    assert "ended" in str(failure(finder.exited(1.2)))


def test_the_second_start_may_fail() -> None:
    finder = begin()
    finder.exited(0.1)
    assert "ended" in str(failure(finder.exited(0.2)))


# --- memory -----------------------------------------------------------------------------------------------------


@pytest.mark.req("ERA-7")
def test_a_remembered_legacy_server_is_initialized_at_once() -> None:
    finder = begin(remembered="legacy")
    assert finder.init_result(str(LATEST_LEGACY), 0.1) == (SendInitialized(), Agreed(LATEST_LEGACY))


@pytest.mark.req("ERA-7")
@pytest.mark.parametrize("error", [UNKNOWN_METHOD, unsupported(str(LATEST))])
def test_a_wrong_memory_of_legacy_is_noticed(error: ErrorDetail) -> None:
    finder = begin(remembered="legacy")
    assert finder.init_error(error, 0.1) == (SendProbe(LATEST),)
    assert finder.probe_result([str(LATEST)], 0.2) == (Agreed(LATEST),)


@pytest.mark.req("ERA-7")
def test_a_server_that_exits_on_a_remembered_initialize_is_probed() -> None:
    finder = begin(remembered="legacy")
    assert finder.exited(0.1) == (StartAgain(),)
    assert finder.started(0.2) == (SendProbe(LATEST),)


@pytest.mark.req("ERA-7", "ERA-6")
def test_a_remembered_modern_server_may_take_its_time() -> None:
    finder = begin(remembered="modern")
    assert finder.deadline == 15
    assert finder.due(14) == ()


@pytest.mark.req("ERA-7", "ERA-6")
def test_a_wrong_memory_of_modern_is_noticed_in_silence_too() -> None:
    finder = begin(remembered="modern")
    assert finder.due(15) == (SendInitialize(LATEST_LEGACY),)


@pytest.mark.req("ERA-7")
def test_a_wrong_memory_of_modern_is_noticed() -> None:
    assert begin(remembered="modern").probe_error(UNKNOWN_METHOD, 0.1) == (SendInitialize(LATEST_LEGACY),)


# --- no agreement -----------------------------------------------------------------------------------------------


@pytest.mark.req("ERA-8")
def test_a_modern_only_client_names_the_legacy_servers_version() -> None:
    finder = begin(MODERN)
    assert finder.deadline == 60
    assert finder.probe_error(UNKNOWN_METHOD, 0.1) == (SendInitialize(LATEST_LEGACY),)
    assert finder.state == "asking"
    error = failure(finder.init_result("2025-03-26", 0.2))
    assert isinstance(error, NoCommonRevision)
    assert (error.ours, error.theirs) == ((str(LATEST),), ("2025-03-26",))
    assert "Method not found" in str(error)


@pytest.mark.req("ERA-8")
@pytest.mark.parametrize("how", ["denied", "exited", "silent"])
def test_a_legacy_server_that_does_not_tell_gets_a_clear_error_too(how: str) -> None:
    finder = begin(MODERN)
    finder.probe_error(UNKNOWN_METHOD, 0.1)
    assert finder.deadline == pytest.approx(1.1)
    if how == "denied":
        actions = finder.init_error(ErrorDetail(-32000, "go away"), 0.2)
    elif how == "exited":
        actions = finder.exited(0.2)
    else:
        actions = finder.due(1.1)
    error = failure(actions)
    assert isinstance(error, NoCommonRevision)
    assert "the server named none" in str(error)


@pytest.mark.req("ERA-8")
def test_a_legacy_only_client_names_the_modern_servers_versions_from_the_error() -> None:
    finder = begin(LEGACY)
    error = failure(finder.init_error(unsupported(str(LATEST)), 0.1))
    assert isinstance(error, NoCommonRevision)
    assert error.theirs == (str(LATEST),)
    assert "answered initialize" in str(error)


@pytest.mark.req("ERA-8")
@pytest.mark.parametrize("answer", ["result", "error", "none"])
def test_a_legacy_only_client_asks_a_modern_server_for_its_versions(answer: str) -> None:
    finder = begin(LEGACY)
    assert finder.init_error(UNKNOWN_METHOD, 0.1) == (SendProbe(LATEST),)
    if answer == "result":
        actions = finder.probe_result([str(LATEST)], 0.2)
    elif answer == "error":
        actions = finder.probe_error(unsupported(str(LATEST)), 0.2)
    else:
        actions = finder.probe_result(None, 0.2)
    error = failure(actions)
    assert isinstance(error, NoCommonRevision)
    assert error.theirs == (() if answer == "none" else (str(LATEST),))


@pytest.mark.req("ERA-8")
@pytest.mark.parametrize("version", ["1999-01-01", None, 5])
def test_a_server_that_insists_on_a_strange_revision_is_refused(version: Any) -> None:
    finder = begin(LEGACY)
    actions = finder.init_result(version, 0.1)
    if not isinstance(version, str):
        assert actions == (SendProbe(LATEST),), "it named nothing"
        actions = finder.due(1.1)
    error = failure(actions)
    assert isinstance(error, NoCommonRevision)
    assert error.theirs == ((version,) if isinstance(version, str) else ())


@pytest.mark.req("ERA-2", "ERA-7")
@pytest.mark.parametrize("remembered", [None, "legacy"])
def test_a_strange_legacy_revision_does_not_hide_a_common_modern_one(remembered: Era | None) -> None:
    finder = EraFinder((LATEST, LATEST_LEGACY), waits=WAITS, remembered=remembered)
    finder.started(0)
    if remembered is None:
        finder.probe_read(0, is_known=True)
        finder.due(1)
        assert finder.init_result("2025-06-18", 1.1) == ()
        assert finder.state == "waiting"
    else:
        assert finder.init_result("2025-06-18", 1.1) == (SendProbe(LATEST),)
    assert finder.probe_result([str(LATEST)], 1.2) == (Agreed(LATEST),)


@pytest.mark.req("ERA-8")
@pytest.mark.parametrize("then", ["refused", "silent"])
def test_a_strange_legacy_revision_is_named_when_nothing_else_is_common(then: str) -> None:
    finder = EraFinder((LATEST, LATEST_LEGACY), waits=WAITS)
    finder.started(0)
    finder.probe_read(0, is_known=True)
    finder.due(1)
    finder.init_result("2025-06-18", 1.1)
    error = failure(finder.probe_error(UNKNOWN_METHOD, 1.2) if then == "refused" else finder.due(60))
    assert isinstance(error, NoCommonRevision)
    assert error.theirs == ("2025-06-18",)


@pytest.mark.parametrize("size", [1, 100_000])
def test_what_a_server_says_is_quoted_briefly(size: int) -> None:
    finder = begin(LEGACY)
    finder.init_error(ErrorDetail(-1, "no" * size), 0.1)
    error = failure(finder.probe_result(["v" * size, 5, *map(str, range(size))], 0.2))
    assert isinstance(error, NoCommonRevision)
    assert len(error.theirs) <= 20
    assert len(str(error)) < 3000


def test_a_server_that_refuses_both_questions_is_named_so() -> None:
    finder = begin()
    finder.probe_error(UNKNOWN_METHOD, 0.1)
    assert "refused both" in str(failure(finder.init_error(ErrorDetail(-1, "never"), 0.2)))
    finder = begin()
    finder.due(1)
    finder.init_error(ErrorDetail(-1, "never"), 1.1)
    error = str(failure(finder.probe_error(UNKNOWN_METHOD, 1.2)))
    assert "never" in error
    assert "Method not found" in error


PATIENT = ["probing", "hedging", "confirming", "waiting", "initializing", "restarting", "asking"]


@pytest.mark.parametrize("state", PATIENT)
def test_patience_ends_in_every_state(state: str) -> None:
    finder = EraFinder(MODERN if state == "asking" else REVISIONS, waits=EraWaits(ask=100))
    finder.started(1000)
    if state in ("hedging", "confirming", "waiting"):
        finder.probe_read(1000, is_known=True)
        finder.due(1001)
    if state == "confirming":
        finder.probe_result([str(LATEST)], 1002)
    if state == "waiting":
        finder.init_error(UNKNOWN_METHOD, 1002)
    if state in ("initializing", "asking"):
        finder.probe_error(UNKNOWN_METHOD, 1002)
    if state == "restarting":
        finder.exited(1002)
    assert finder.state == state
    assert finder.deadline is not None
    if state != "probing":
        assert finder.due(1059.9) == ()
    error = failure(finder.due(1060))
    assert type(error) is ConnectTimeout
    assert "60 s" in str(error)
    assert str(LATEST) in str(error)


@pytest.mark.parametrize("wait", ["quiet", "quiet_modern", "quiet_unseen", "settle", "ask", "patience"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_waits_are_times(wait: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"The wait {wait} is"):
        EraWaits(**{wait: value})


def test_the_order_of_what_is_allowed_does_not_matter() -> None:
    assert EraFinder(REVISIONS[::-1]).started(0) == (SendProbe(LATEST),)
    assert EraFinder(LEGACY[::-1]).started(0) == (SendInitialize(LATEST_LEGACY),)


def test_before_the_start_there_is_nothing_to_wait_for() -> None:
    finder = EraFinder(REVISIONS)
    assert (finder.deadline, finder.due(1000)) == (None, ())


def test_somebody_must_be_allowed() -> None:
    with pytest.raises(UsageError, match="No protocol revision"):
        EraFinder(())


@pytest.mark.req("ERA-6", "CAN-4")
def test_after_the_end_everything_is_late() -> None:
    finder = begin()
    finder.probe_result([str(LATEST)], 0)
    assert finder.probe_result([str(LATEST)], 1) == ()
    assert finder.probe_error(UNKNOWN_METHOD, 1) == ()
    assert finder.init_result("2024-11-05", 1) == ()
    assert finder.init_error(UNKNOWN_METHOD, 1) == ()
    assert finder.exited(1) == ()
    assert finder.due(1000) == ()
    assert (finder.state, finder.late) == ("modern", 4)


@pytest.mark.req("CAN-4")
def test_an_answer_to_a_question_that_is_not_open_is_late() -> None:
    finder = begin()
    assert finder.init_result("2024-11-05", 0) == ()
    assert finder.init_error(UNKNOWN_METHOD, 0) == ()
    finder.probe_error(UNKNOWN_METHOD, 0)
    assert finder.probe_result([str(LATEST)], 0) == ()
    assert (finder.state, finder.late) == ("initializing", 3)


# --- bridges that stumble over the probe -----------------------------------------------------------------------


def fresh(remembered: Era | None = None) -> EraFinder:
    finder = EraFinder(REVISIONS, waits=WAITS, remembered=remembered, can_start_afresh=True)
    finder.started(0)
    finder.probe_read(0, is_known=True)
    return finder


@pytest.mark.req("ERA-5")
@pytest.mark.parametrize("first", ["probe", "initialize"])
def test_a_server_that_refuses_both_requests_gets_only_initialize_on_another_process(first: str) -> None:
    finder = fresh()
    if first == "probe":
        assert finder.probe_error(UNKNOWN_METHOD, 0.1) == (SendInitialize(LATEST_LEGACY),)
        actions = finder.init_error(ErrorDetail(-32600, "Already initialized"), 0.2)
    else:
        finder.due(1)
        assert finder.init_error(ErrorDetail(-32000, "Already started"), 1.1) == ()
        actions = finder.probe_error(UNKNOWN_METHOD, 1.2)
    assert actions == (StartAgain(),)
    assert finder.state == "restarting"
    assert finder.started(1.3) == (SendInitialize(LATEST_LEGACY),)
    assert finder.init_result(str(LATEST_LEGACY), 1.4) == (SendInitialized(), Agreed(LATEST_LEGACY))


@pytest.mark.req("ERA-5")
def test_a_server_that_refuses_initialize_and_exits_gets_only_initialize_on_another_process() -> None:
    finder = fresh()
    finder.due(1)
    finder.init_error(ErrorDetail(-32000, "Already started"), 1.1)
    assert finder.exited(1.2) == (StartAgain(),)
    assert finder.started(1.3) == (SendInitialize(LATEST_LEGACY),)
    assert finder.init_result(str(LATEST_LEGACY), 1.4) == (SendInitialized(), Agreed(LATEST_LEGACY))


@pytest.mark.req("ERA-5", "ERA-6")
def test_a_modern_server_that_refuses_initialize_and_exits_is_still_found_to_be_modern() -> None:
    finder = fresh()
    finder.due(1)
    finder.init_error(UNKNOWN_METHOD, 1.1)
    finder.exited(1.2)
    finder.started(1.3)
    assert finder.init_error(UNKNOWN_METHOD, 1.4) == (SendProbe(LATEST),)
    assert finder.probe_result([str(LATEST)], 1.5) == (Agreed(LATEST),)


@pytest.mark.req("ERA-5")
def test_a_server_that_goes_on_refusing_is_started_again_once() -> None:
    finder = fresh()
    finder.probe_error(UNKNOWN_METHOD, 0.1)
    assert finder.init_error(ErrorDetail(-1, "no"), 0.2) == (StartAgain(),)
    finder.started(0.3)
    assert "refused both" in str(failure(finder.init_error(ErrorDetail(-1, "never"), 0.4)))


def test_a_server_that_was_initialized_before_the_probe_is_not_started_again() -> None:
    finder = fresh("legacy")
    finder.init_error(ErrorDetail(-1, "no"), 0.1)
    assert "refused both" in str(failure(finder.probe_error(UNKNOWN_METHOD, 0.2)))


# --- the whole machine ------------------------------------------------------------------------------------------


def test_every_row_of_the_table_has_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    def examples() -> None:
        test_a_discover_result_means_modern()
        test_any_other_error_means_legacy(-1)
        test_a_silent_legacy_server_costs_the_quiet_time_only()
        test_a_slow_modern_server_is_not_taken_for_legacy()
        test_a_slow_server_that_initialize_has_turned_is_started_again_and_asked_alone("error")
        test_a_slow_modern_server_may_deny_initialize_first()
        test_a_slow_dual_era_server_may_answer_initialize_first()
        test_a_late_refusal_while_hedging_leaves_initialize_alone()
        test_a_refusal_while_settling_ends_the_wait()
        test_an_unsupported_version_is_tried_again_with_a_supported_one()
        for state in ("hedging", "settling", "waiting"):
            test_a_late_unsupported_version_is_still_tried_again(state)
        for state in ("probing", "hedging", "settling"):
            test_a_server_that_exits_on_the_probe_is_started_again_and_initialized(state)
        test_a_wrong_memory_of_legacy_is_noticed(UNKNOWN_METHOD)
        test_a_server_that_exits_on_a_remembered_initialize_is_probed()
        test_a_modern_only_client_names_the_legacy_servers_version()
        test_a_legacy_only_client_asks_a_modern_server_for_its_versions("result")
        for state in PATIENT:
            test_patience_ends_in_every_state(state)
        for first in ("probe", "initialize"):
            test_a_server_that_refuses_both_requests_gets_only_initialize_on_another_process(first)
        test_a_server_that_refuses_initialize_and_exits_gets_only_initialize_on_another_process()

    assert rows_taken(ERA, [examples], monkeypatch) == set(ERA.rows)
