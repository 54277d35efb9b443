"""The spans of a tap: what is remembered of its requests."""

from __future__ import annotations

from opentelemetry.trace import NoOpTracer

from mcplumb.recording.recording_format import Http, line_record
from mcplumb.tap.request_spans import RequestSpans


def test_exchanges_that_are_complete_are_forgotten() -> None:
    """A tap runs for as long as its server. A JSON response has no other end than its body."""
    spans = RequestSpans(NoOpTracer(), "http", 0.0)
    headers = [("content-type", "application/json")]
    for number in range(1, 101):
        asked = Http(exchange=number, method="POST", path="/mcp", headers=headers)
        answered = Http(exchange=number, status=200, headers=headers)
        request = b'{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{}}' % number
        spans([line_record(number, "client", request, http=asked)])
        spans([line_record(number, "server", b'{"jsonrpc":"2.0","id":%d,"result":{}}' % number, http=answered)])
    transcript = spans._transcript
    assert transcript._requests_of_exchange == transcript._scope_of_exchange == {}
    assert len(transcript._scopes) <= 1
    assert spans._open == {}
