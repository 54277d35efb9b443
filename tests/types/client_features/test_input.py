from __future__ import annotations

import msgspec
import pytest

from mcplumb import types as t
from mcplumb.errors import DecodeError

SAMPLE = t.CreateMessageRequest(t.CreateMessageParams(messages=[], max_tokens=1))
ELICIT = t.ElicitRequest(t.ElicitParams.for_url("m", "a:b"))
ROOTS = t.ListRootsRequest()


def test_requests_are_told_apart_by_their_method() -> None:
    result = t.InputRequiredResult(input_requests={"a": SAMPLE, "b": ELICIT, "c": ROOTS}, request_state="s")
    data = msgspec.to_builtins(result)
    assert [request["method"] for request in data["inputRequests"].values()] == [
        "sampling/createMessage",
        "elicitation/create",
        "roots/list",
    ]
    assert t.read(t.InputRequiredResult, data) == result


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (SAMPLE, t.CreateMessageResult("assistant", t.TextContent("hi"), model="m")),
        (ELICIT, t.ElicitResult("accept")),
        (ROOTS, t.ListRootsResult([])),
    ],
)
def test_what_a_response_is_follows_from_its_request(request_: t.InputRequest, response: t.InputResponse) -> None:
    assert t.read_input_response(request_, msgspec.to_builtins(response)) == response
    assert t.read_input_response(request_, msgspec.Raw(msgspec.json.encode(response))) == response
    assert t.read_input_response(request_, response) is response


def test_a_response_to_another_request() -> None:
    with pytest.raises(DecodeError, match="missing required field `roots`"):
        t.read_input_response(ROOTS, {"action": "accept"})
