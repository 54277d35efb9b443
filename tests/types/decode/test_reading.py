from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb import types as t
from mcplumb.errors import DecodeError, ProtocolError
from mcplumb.types import decode
from tests.kit.products import examples
from tests.types.strategies import json_values

VIDEO = {"type": "video", "url": "a:b", "content": [{"type": "text"}]}
UNKNOWN = t.UnknownContent("video", VIDEO)
TEXT = {"type": "text", "text": "hi"}
HI = t.TextContent("hi")


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"content": [TEXT, VIDEO], "isError": True}, t.CallToolResult([HI, UNKNOWN], is_error=True)),
        (
            {"messages": [{"role": "user", "content": VIDEO}, {"role": "user", "content": TEXT}]},
            t.GetPromptResult([t.PromptMessage("user", UNKNOWN), t.PromptMessage("user", HI)]),
        ),
        (
            {"messages": [{"role": "user", "content": [VIDEO]}], "maxTokens": 1},
            t.CreateMessageParams(messages=[t.SamplingMessage("user", [UNKNOWN])], max_tokens=1),
        ),
        (
            {"role": "user", "model": "m", "content": [{"type": "tool_result", "toolUseId": "1", "content": [VIDEO]}]},
            t.CreateMessageResult("user", [t.ToolResultContent("1", [UNKNOWN])], model="m"),
        ),
        (
            {
                "inputRequests": {
                    "a": {
                        "method": "sampling/createMessage",
                        "params": {"messages": [{"role": "user", "content": VIDEO}], "maxTokens": 1},
                    },
                    "b": {"method": "roots/list"},
                }
            },
            t.InputRequiredResult(
                input_requests={
                    "a": t.CreateMessageRequest(
                        t.CreateMessageParams(messages=[t.SamplingMessage("user", UNKNOWN)], max_tokens=1)
                    ),
                    "b": t.ListRootsRequest(),
                }
            ),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_block_of_a_new_type_does_not_hide_the_rest(payload: dict[str, Any], expected: t.Payload) -> None:
    before = msgspec.json.encode(payload)
    assert t.read(type(expected), before) == expected
    assert t.read(type(expected), msgspec.Raw(before)) == expected
    assert t.read(type(expected), payload) == expected
    assert msgspec.json.encode(payload) == before


def test_the_types_that_are_known_are_those_of_the_blocks() -> None:
    kinds = {
        kind.__struct_config__.tag
        for kind in (*t.ContentBlock.__args__, *t.SamplingContent.__args__)
        if kind is not t.UnknownContent
    }
    assert kinds == decode._KNOWN


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"{}", "Object missing required field `content`"),
        (b'{"content":7}', "Expected `array`, got `int`"),
        (b'{"content":[7]}', "Expected `object`, got `int`"),
        (b'{"content":[{}]}', "Object missing required field `type`"),
        (b'{"content":[{"type":7}]}', "Expected `str`"),
        (b'{"content":[{"type":"text"}]}', "Object missing required field `text`"),
        (b'{"content":[{"type":"new"},{"type":"text"}]}', "Invalid value 'new'"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"messages":1,"inputRequests":1,"params":1}', "Object missing required field `content`"),
    ],
)
def test_what_cannot_be_read_is_told_in_a_sentence(payload: bytes, reason: str) -> None:
    with pytest.raises(DecodeError) as caught:
        t.read(t.CallToolResult, payload)
    assert str(caught.value).startswith(f"The payload cannot be read: {reason}")


@pytest.mark.parametrize("payload", [b"", b"{", b'{"content":[{"type":"text","text":"\xff"}]}', b"[" * 100_000])
def test_what_is_no_json(payload: bytes) -> None:
    with pytest.raises(DecodeError, match=r"^The result of tools/call cannot be read: .*\.$"):
        t.read(t.CallToolResult, payload, what="result of tools/call")
    with pytest.raises(DecodeError):
        t.read(dict[str, Any], payload)


def test_nesting_without_end() -> None:
    with pytest.raises(DecodeError, match="nested too deeply"):
        t.read(dict[str, Any], b'{"a":' * 100_000)


def test_blocks_within_blocks_without_end() -> None:
    block: dict[str, Any] = {"type": "new"}
    for _ in range(400):
        block = {"type": "tool_result", "toolUseId": "1", "content": [block]}
    with pytest.raises(DecodeError, match=r"nested too deeply|Invalid value"):
        t.read(t.CreateMessageResult, {"role": "user", "model": "m", "content": block})


def test_a_union_has_no_name_but_can_be_read() -> None:
    kind: Any = t.InputRequest
    assert t.read(kind, b'{"method":"roots/list"}') == t.ListRootsRequest()
    with pytest.raises(DecodeError, match="Invalid value 'other'"):
        t.read(kind, b'{"method":"other"}')


def test_a_long_reason_is_cut() -> None:
    payload = b'{"content":[{"type":"' + b"x" * 10_000 + b'"},7]}'
    with pytest.raises(DecodeError) as caught:
        t.read(t.CallToolResult, payload)
    assert len(str(caught.value)) < 400


def test_an_absent_payload_is_an_empty_object() -> None:
    assert t.read(t.PageParams, msgspec.UNSET) == t.PageParams()


@pytest.mark.req("DIR-4")
def test_a_result_without_a_type_is_complete() -> None:
    assert t.read_result_type(msgspec.Raw(b'{"tools":[]}')) == "complete"
    assert t.read_result_type(b'{"content":[],"resultType":"input_required"}') == "input_required"
    assert t.read_result_type(b'{"resultType":"task"}', known=["complete", "task"]) == "task"


@pytest.mark.req("DIR-4")
def test_an_unknown_result_type_is_an_error_of_the_peer() -> None:
    with pytest.raises(ProtocolError, match="unknown type 'later'; known: complete, input_required"):
        t.read_result_type(b'{"resultType":"later"}')
    with pytest.raises(ProtocolError) as caught:
        t.read_result_type(b'{"resultType":"' + b"x" * 5000 + b'"}')
    assert len(str(caught.value)) < 200


@pytest.mark.req("DIR-4")
@pytest.mark.parametrize("result", [b"[]", b"null", b'"complete"', b'{"resultType":null}', b'{"resultType":1}'])
def test_a_result_is_an_object_and_its_type_a_text(result: bytes) -> None:
    with pytest.raises(DecodeError, match="The result cannot be read"):
        t.read_result_type(result)


@examples(200)
@given(
    st.sampled_from(
        [t.CallToolResult, t.CreateMessageParams, t.InputRequiredResult, t.ElicitParams, t.ListToolsResult]
    ),
    st.dictionaries(
        st.sampled_from(["content", "messages", "inputRequests", "params", "type", "tools", "maxTokens", "message"]),
        json_values | st.lists(st.fixed_dictionaries({"type": st.text(max_size=3) | json_values}), max_size=2),
    ),
)
def test_nothing_else_is_raised(kind: type[t.Payload], payload: dict[str, Any]) -> None:
    with contextlib.suppress(DecodeError):
        t.read(kind, msgspec.json.encode(payload))


def test_a_mistake_that_is_not_forgiven_is_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_again(data: Any) -> Any:
        raise AssertionError(data)

    monkeypatch.setattr(decode, "_with_unknown_blocks", read_again)
    for payload in (b'{"content":7}', b"{}", b'{"content":[{"type":7}]}', b'{"content":[],"isError":"Invalid value"}'):
        with pytest.raises(DecodeError):
            t.read(t.CallToolResult, payload)


@pytest.mark.req("DIR-4")
def test_what_is_known_is_for_the_caller_to_say() -> None:
    with pytest.raises(ProtocolError, match="known: complete"):
        t.read_result_type(b'{"resultType":"input_required"}', known=["complete"])
