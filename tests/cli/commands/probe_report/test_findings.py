"""What is seen of a server while it is connected to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcplumb.cli.commands.probe_report import Findings
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from mcplumb.wire.messages import ErrorDetail

DISCOVER = {"id": 1, "method": "server/discover"}
INITIALIZE = {"id": 2, "method": "initialize"}
ERROR = {"id": 1, "error": {"code": -32601, "message": "x" * 500}}
DISCOVERED = {"id": 1, "result": {"supportedVersions": ["b", "a", 5]}}
INITIALIZED = {"id": 2, "result": {"protocolVersion": "c"}}


def watched(*messages: dict[str, Any]) -> Findings:
    findings = Findings()
    for message in messages:
        direction: Any = "out" if "method" in message else "in"
        findings.trace(direction, json.dumps({"jsonrpc": "2.0", **message}).encode())
    return findings


@pytest.mark.parametrize(
    ("messages", "revision", "story"),
    [
        ([DISCOVER, DISCOVERED], LATEST, "it answered server/discover"),
        (
            [DISCOVER, INITIALIZE, DISCOVERED],
            LATEST,
            "it answered server/discover, and was sent initialize as well",
        ),
        ([INITIALIZE, INITIALIZED], LATEST_LEGACY, "it was sent only initialize, and answered"),
        (
            [DISCOVER, INITIALIZE, INITIALIZED],
            LATEST_LEGACY,
            "it gave no answer to server/discover, but one to initialize",
        ),
        (
            [DISCOVER, DISCOVERED, INITIALIZE, INITIALIZED],
            LATEST_LEGACY,
            "it answered server/discover, though not as a modern server does, and then initialize",
        ),
    ],
)
def test_how_the_era_was_found(messages: list[dict[str, Any]], revision: Revision, story: str) -> None:
    assert watched(*messages).era_explanation(revision) == story


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (ErrorDetail(-32601, "x" * 500), f"error -32601 ({'x' * 120})"),
        (ErrorDetail(0, "The server answered with HTTP 400 Bad Request: 'No'."), "HTTP 400 Bad Request: 'No'"),
    ],
)
def test_how_it_refused_to_be_modern(refusal: ErrorDetail, words: str) -> None:
    story = f"it answered server/discover with {words}, and then initialize"
    assert watched(DISCOVER, INITIALIZE, INITIALIZED).era_explanation(LATEST_LEGACY, refusal) == story


def test_who_it_is() -> None:
    info = {"name": "n", "version": "1"}
    assert watched(DISCOVER).server is None
    assert watched(INITIALIZE, {"id": 2, "result": {"serverInfo": info}}).server == info
    meta = {"_meta": {"io.modelcontextprotocol/serverInfo": info}}
    assert watched(DISCOVER, {"id": 1, "result": meta}).server == info
    assert watched(DISCOVER, {"id": 1, "result": {"_meta": 5, "serverInfo": 5}}).server is None


def test_revisions_are_those_that_the_server_names() -> None:
    assert watched(DISCOVER, DISCOVERED, INITIALIZE, INITIALIZED).offered == ["b", "a", "c"]
    assert watched(DISCOVER, ERROR, INITIALIZE).offered == []
    assert watched(DISCOVER, {"id": 1, "result": "text"}).offered == []


def test_what_is_not_about_the_era_is_not_kept() -> None:
    other = {"id": 3, "method": "tools/list"}
    findings = watched({"method": "notifications/initialized"}, other, {"id": 3, "result": {}})
    assert findings.era_requests == []
    findings = watched(DISCOVER, {"id": 7, "result": {}}, {"id": 1, "error": {"code": 1, "message": "m"}})
    assert [question.answered is not None for question in findings.era_requests] == [True]
    findings.settled()
    findings.trace("out", b'{"jsonrpc":"2.0","id":9,"method":"server/discover"}')
    assert len(findings.era_requests) == 1


def test_times_are_taken() -> None:
    findings = watched(DISCOVER, DISCOVERED, {"id": 5, "result": {}})
    assert findings.first_answer is not None
    (question,) = findings.era_requests
    assert question.answered is not None
    assert 0 <= question.asked <= question.answered
    assert watched(DISCOVER).first_answer is None


def test_requests_and_batches_of_the_server_are_messages_too() -> None:
    findings = watched(DISCOVER)
    findings.trace("in", b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    findings.trace("in", b'[{"jsonrpc":"2.0","id":1,"result":{}}]')
    assert (findings.garbage_count, findings.era_requests[0].answered) == (0, None)


def test_of_garbage_and_stderr_only_so_much_is_kept() -> None:
    findings = Findings()
    for number in range(300):
        findings.trace("in", f"line {number} {'x' * 3000}".encode())
        findings.stderr(f"said {number} {'x' * 3000}")
    assert findings.garbage_count == 300
    assert len(findings.garbage) == len(findings.errors) == 200
    assert findings.garbage[0].startswith("line 0 ")
    assert findings.errors[-1].startswith("said 299 ")
    assert max(map(len, [*findings.garbage, *findings.errors])) == 2000
