"""The official examples are read and written without loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcplumb import types as t
from mcplumb.revisions import LATEST
from mcplumb.types.method_table import METHODS
from tests import spec

EXAMPLES = spec.examples(str(LATEST))

#: Our name for a type, where it is another than the specification's.
RENAMED: dict[str, Any] = {
    "BlobResourceContents": t.ResourceContents,
    "CallToolRequestParams": t.CallToolParams,
    "CancelledNotificationParams": t.CancelledParams,
    "CompleteRequestParams": t.CompleteParams,
    "CreateMessageRequestParams": t.CreateMessageParams,
    "ElicitRequestFormParams": t.ElicitParams,
    "ElicitRequestURLParams": t.ElicitParams,
    "GetPromptRequestParams": t.GetPromptParams,
    "InputRequests": dict[str, t.InputRequest],
    "LoggingMessageNotificationParams": t.LogMessageParams,
    "PaginatedRequestParams": t.PageParams,
    "ProgressNotificationParams": t.ProgressParams,
    "ResourceUpdatedNotificationParams": t.ResourceUpdatedParams,
    "SubscriptionsListenResult": t.ListenResult,
    "TextResourceContents": t.ResourceContents,
    "TitledMultiSelectEnumSchema": t.MultiSelectSchema,
    "TitledSingleSelectEnumSchema": t.StringSchema,
    "UntitledMultiSelectEnumSchema": t.MultiSelectSchema,
    "UntitledSingleSelectEnumSchema": t.StringSchema,
}

#: Answers to requests: their method.
ANSWERS = {
    "CallToolResultResponse": "tools/call",
    "CompleteResultResponse": "completion/complete",
    "DiscoverResultResponse": "server/discover",
    "GetPromptResultResponse": "prompts/get",
    "ListPromptsResultResponse": "prompts/list",
    "ListResourceTemplatesResultResponse": "resources/templates/list",
    "ListResourcesResultResponse": "resources/list",
    "ListToolsResultResponse": "tools/list",
    "ReadResourceResultResponse": "resources/read",
    "SubscriptionsListenResultResponse": "subscriptions/listen",
}

#: Errors are messages, not payloads; the data of two of them has parts that are typed.
ERRORS = {
    "HeaderMismatchError",
    "InternalError",
    "InvalidParamsError",
    "MethodNotFoundError",
    "MissingRequiredClientCapabilityError",
    "ParseError",
    "UnsupportedProtocolVersionError",
}

#: Examples that lack what their own schema requires of a complete result.
INCOMPLETE = {"read-resource-result-response"}

#: What the answers of this example are follows from the requests of another.
INPUT_RESPONSES = "InputResponses"


def name_of(example: tuple[str, Path]) -> str:
    return f"{example[0]}-{example[1].stem}"


def typed_part(folder: str, data: Any) -> tuple[Any, Any]:
    """The type of the example, and the part of it that is of this type."""
    if folder in RENAMED:
        return RENAMED[folder], data
    if folder in ANSWERS:
        return METHODS[ANSWERS[folder]].result, data["result"]
    if "method" in data:
        return METHODS[data["method"]].params, data.get("params", {})
    return getattr(t, folder), data


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 100


@pytest.mark.parametrize(
    "example", [e for e in EXAMPLES if e[0] not in ERRORS and e[0] != INPUT_RESPONSES], ids=name_of
)
def test_example_loses_nothing(example: tuple[str, Path]) -> None:
    folder, path = example
    kind, part = typed_part(folder, json.loads(path.read_text()))
    payload = t.read(kind, msgspec.json.encode(part))
    assert json.loads(msgspec.json.encode(payload)) == part
    assert t.read(kind, part) == payload
    if isinstance(payload, t.Payload) and path.stem not in INCOMPLETE:
        assert t.for_revision(payload, LATEST) is payload


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e[0] == INPUT_RESPONSES], ids=name_of)
def test_input_responses_lose_nothing(example: tuple[str, Path]) -> None:
    responses = json.loads(example[1].read_text())
    requests: dict[str, t.InputRequest] = {}
    for folder, path in EXAMPLES:
        if folder == "InputRequests":
            requests |= t.read(dict[str, t.InputRequest], path.read_bytes())
    typed = {key: t.read_input_response(requests[key], response) for key, response in responses.items()}
    assert {type(response) for response in typed.values()} == {t.ElicitResult, t.CreateMessageResult}
    assert json.loads(msgspec.json.encode(typed)) == responses


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e[0] in ERRORS], ids=name_of)
def test_errors_are_no_payloads(example: tuple[str, Path]) -> None:
    folder, path = example
    data = json.loads(path.read_text())
    error = data.get("error", data)
    assert isinstance(error["code"], int)
    if folder == "MissingRequiredClientCapabilityError":
        required = error["data"]["requiredCapabilities"]
        assert msgspec.to_builtins(t.read(t.ClientCapabilities, required)) == required
