"""One call goes a straight way: few functions in few files at each end."""

from __future__ import annotations

import pytest

from tests.costs.ceilings import check
from tests.costs.walk import WALKS, Step, calls_of_a_client, calls_of_a_server, walk, walk_of


@pytest.mark.parametrize("subject", WALKS)
def test_a_call_passes_few_functions_in_few_files(subject: str) -> None:
    found = walk(WALKS[subject])
    # A function is listed once, and counts each time it is entered; one may be entered by nearly all calls only.
    assert len(found.steps) <= found.functions + 0.5
    check(subject, found.figures())


def test_the_calls_of_a_server_begin_after_a_wait() -> None:
    # The recording begins and ends in the middle of a call; between two calls the server may wait more than once.
    events = ["call", "c", "wait", "a", "b", "call", "c", "wait", "d", "wait", "a", "b", "call"]
    assert calls_of_a_server(events) == [["a", "b", "c", "d"], ["a", "b", "c"]]


def test_the_calls_of_a_client_begin_with_its_own_functions() -> None:
    assert calls_of_a_client(["x", "call", "a", "wait", "b", "call", "a"]) == [["a", "b"], ["a"]]


def test_a_walk_has_what_most_calls_enter() -> None:
    found = walk_of([["m.py:a", "n.py:b", "m.py:a"], ["m.py:a", "n.py:b", "m.py:a"], ["m.py:a", "o.py:c", "n.py:b"]])
    assert found.steps == (Step("m.py", "a", (1, 3)), Step("n.py", "b", (2,)))
    assert (found.functions, found.files) == (2.7, 2)
