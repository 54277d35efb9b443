"""A client that looks for an era against a server that admits requests, for every pair of revisions that they allow.

Whatever the two share, they find; and if they share nothing, both say so.
"""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.errors import NoCommonRevision
from mcplumb.protocol.era import Action, Agreed, EraFinder, Failed, SendInitialize, SendProbe, StartAgain
from mcplumb.protocol.version_negotiation import Admission, Admitted, InitializedSession, Refused
from mcplumb.revisions import LATEST, LEGACY, MODERN, REVISIONS, Era, Revision
from mcplumb.types.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from mcplumb.wire.messages import METHOD_NOT_FOUND, UNSUPPORTED_VERSION, ErrorDetail, Request

SUBSETS = list(chain.from_iterable(combinations(REVISIONS, size) for size in range(1, len(REVISIONS) + 1)))


class Server:
    """Answers the two questions as a server that serves these revisions does."""

    def __init__(self, served: tuple[Revision, ...]) -> None:
        self.admission = Admission(served)
        self.modern = [revision.name for revision in served if revision.is_modern]

    def ask(self, question: SendProbe | SendInitialize) -> list[str] | str | ErrorDetail:
        name = str(question.revision)
        params: dict[str, Any] = {"protocolVersion": name}
        if isinstance(question, SendProbe):
            params = {"_meta": {PROTOCOL_VERSION: name, CLIENT_CAPABILITIES: {}}}
        method = "server/discover" if isinstance(question, SendProbe) else "initialize"
        outcome = self.admission.request(Request(1, method, msgspec.Raw(msgspec.json.encode(params))))
        if isinstance(outcome, InitializedSession):
            return str(outcome.revision)
        if isinstance(outcome, Refused):
            data = msgspec.Raw(msgspec.json.encode(outcome.error.data)) if outcome.error.data else msgspec.UNSET
            return ErrorDetail(outcome.error.code, outcome.error.message, data)
        assert isinstance(outcome, Admitted)
        return self.modern


def tell(finder: EraFinder, question: SendProbe | SendInitialize, answer: Any, now: float) -> tuple[Action, ...]:
    is_error = isinstance(answer, ErrorDetail)
    if isinstance(question, SendProbe):
        return finder.probe_error(answer, now) if is_error else finder.probe_result(answer, now)
    return finder.init_error(answer, now) if is_error else finder.init_result(answer, now)


def agree(
    ours: tuple[Revision, ...],
    theirs: tuple[Revision, ...],
    *,
    slow: bool,
    backwards: bool,
    remembered: Era | None,
) -> Agreed | Failed:
    """Run the two against each other until the client knows.

    A ``slow`` server answers only once the client has become impatient and asked both questions, and ``backwards`` it
    answers the second one first.
    """
    finder, server = EraFinder(ours, remembered=remembered), Server(theirs)
    now = 0.0
    todo = list(finder.started(now))
    questions: list[SendProbe | SendInitialize] = []
    while True:
        for action in todo:
            if isinstance(action, Agreed | Failed):
                return action
            if isinstance(action, SendProbe | SendInitialize):
                questions.append(action)
        todo = []
        if slow and len(questions) == 1 and finder.state == "probing" and finder.deadline and finder.deadline < 60:
            now = finder.deadline
            todo += finder.due(now)
            continue
        if not questions:
            assert finder.deadline is not None
            now = finder.deadline
            todo += finder.due(now)
            continue
        question = questions.pop(-1 if backwards else 0)
        now += 0.01
        todo += tell(finder, question, server.ask(question), now)


@pytest.mark.req("ERA-1", "ERA-2", "ERA-3", "ERA-4", "ERA-6", "ERA-7", "ERA-8", "ERA-10", "ERA-11", "LEG-2")
@pytest.mark.parametrize("remembered", [None, "modern", "legacy"])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("slow", [False, True])
def test_what_two_sides_share_they_find(slow: bool, backwards: bool, remembered: Era | None) -> None:
    for ours in SUBSETS:
        for theirs in SUBSETS:
            end = agree(ours, theirs, slow=slow, backwards=backwards, remembered=remembered)
            common = [revision for revision in ours if revision in theirs]
            if isinstance(end, Agreed):
                assert end.revision in common
                continue
            # The old handshake names one version each way: a server that does not have the client's newest offers its
            # own newest, and older ones that both have stay unknown.
            offered = next((revision for revision in ours if not revision.is_modern), None)
            assert not any(revision.is_modern for revision in common)
            assert offered not in common
            assert isinstance(end.error, NoCommonRevision)
            for revision in ours:
                assert str(revision) in str(end.error)


UNKNOWN_METHOD = ErrorDetail(METHOD_NOT_FOUND, "Method not found")


def unsupported(version: str) -> ErrorDetail:
    return ErrorDetail(UNSUPPORTED_VERSION, "Unsupported", {"supported": [version], "requested": str(LATEST)})


EVENTS = st.sampled_from(
    ["probe_result", "probe_error", "probe_modern_error", "init_result", "init_error", "exited", "time"]
)


@given(
    allowed=st.sampled_from([REVISIONS, MODERN, LEGACY]),
    remembered=st.sampled_from([None, "modern", "legacy"]),
    events=st.lists(st.tuples(EVENTS, st.sampled_from([*map(str, REVISIONS), "1999-01-01"])), max_size=30),
)
def test_it_always_ends_and_asks_each_question_a_bounded_number_of_times(
    allowed: tuple[Revision, ...], remembered: Era | None, events: list[tuple[str, str]]
) -> None:
    """Whatever a server does, in whatever order: one end, by the deadline, and no question without end."""
    finder = EraFinder(allowed, remembered=remembered)
    done = list(finder.started(0))
    now = 0.0
    for event, version in [*events, *[("time", "")] * 10]:
        if finder.state == "restarting":
            done += finder.started(now)
        if event == "time" and finder.deadline is not None:
            now = max(now, finder.deadline)
            done += finder.due(now)
        elif event == "probe_result":
            done += finder.probe_result([version], now)
        elif event == "probe_error":
            done += finder.probe_error(UNKNOWN_METHOD, now)
        elif event == "probe_modern_error":
            done += finder.probe_error(unsupported(version), now)
        elif event == "init_result":
            done += finder.init_result(version, now)
        elif event == "init_error":
            done += finder.init_error(UNKNOWN_METHOD, now)
        elif event == "exited":
            done += finder.exited(now)
    assert finder.ended
    ends = [action for action in done if isinstance(action, Agreed | Failed)]
    assert len(ends) == 1
    assert done[-1] is ends[0]
    assert all(end.revision in allowed for end in ends if isinstance(end, Agreed))
    assert sum(isinstance(action, SendProbe) for action in done) <= 5
    assert sum(isinstance(action, SendInitialize) for action in done) <= 4
    assert sum(isinstance(action, StartAgain) for action in done) <= 3
