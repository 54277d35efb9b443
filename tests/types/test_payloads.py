"""What holds for all types: nothing is lost by writing and reading, and unknown keys do not matter."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from mcplumb import types as t
from mcplumb.types.method_table import METHODS
from tests.kit.products import examples
from tests.types.strategies import payloads

#: Every type that can be made and sent: the public ones, without those that only others are made from.
KINDS: list[type[t.Payload]] = sorted(
    {
        value
        for name in t.__all__
        if isinstance(value := getattr(t, name), type) and issubclass(value, t.Payload) and value is not t.Payload
    },
    key=lambda kind: kind.__name__,
)


def plain(value: Any) -> Any:
    """As it comes from the wire: answers within params stay untyped until the request is known."""
    match value:
        case t.RetryParams(input_responses=dict()):
            return msgspec.structs.replace(value, input_responses=msgspec.to_builtins(value.input_responses))
        case _:
            return value


def with_unknown_keys(value: Any) -> Any:
    """The JSON of a payload, with a key that is not known in each object that has a type."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        data = {} if config.tag_field is None else {config.tag_field: config.tag}
        fields = msgspec.structs.asdict(value)  # as stored: an absent flag reads as False
        for field in msgspec.structs.fields(value):
            inner = fields[field.name]
            if field.required or inner is not None:
                data[field.encode_name] = with_unknown_keys(inner)
        return data | {"x-unknown": {"type": "nonsense"}, "content-length": None}
    if isinstance(value, list):
        return [with_unknown_keys(item) for item in value]
    if isinstance(value, dict):
        return {key: with_unknown_keys(item) for key, item in value.items()}
    return value


def test_every_payload_of_the_methods_is_among_the_kinds() -> None:
    for method in METHODS.values():
        assert method.params in KINDS
        assert method.result is None or method.result in KINDS


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@examples(20)
@given(data=st.data())
def test_reading_undoes_writing(kind: type[t.Payload], data: st.DataObject) -> None:
    payload = plain(data.draw(payloads(kind)))
    encoded = msgspec.json.encode(payload)
    assert t.read(kind, encoded) == payload
    assert t.read(kind, msgspec.Raw(encoded)) == payload
    assert t.read(kind, msgspec.to_builtins(payload)) == payload


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@examples(20)
@given(data=st.data())
def test_unknown_keys_are_passed_over_at_every_level(kind: type[t.Payload], data: st.DataObject) -> None:
    payload = plain(data.draw(payloads(kind)))
    assert t.read(kind, msgspec.json.encode(with_unknown_keys(payload))) == payload


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_optional_means_none(kind: type[t.Payload]) -> None:
    for field in msgspec.structs.fields(kind):
        if not field.required:
            assert field.default is None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_payloads_cannot_be_changed(kind: type[t.Payload]) -> None:
    assert kind.__struct_config__.frozen


def _form(params: t.ElicitParams, is_wanted: Callable[[t.FieldSchema], bool]) -> bool:
    return params.is_form and any(is_wanted(field) for field in params.read_form().properties.values())


def _has_block(kind: type) -> Callable[[t.CallToolResult], bool]:
    return lambda result: any(isinstance(block, kind) for block in result.content)


def _has_field(is_wanted: Callable[[Any], bool]) -> Callable[[t.ElicitParams], bool]:
    return functools.partial(_form, is_wanted=is_wanted)


GENERATED: dict[str, tuple[type[t.Payload], Callable[[Any], bool]]] = {
    "text": (t.CallToolResult, _has_block(t.TextContent)),
    "image": (t.CallToolResult, _has_block(t.ImageContent)),
    "audio": (t.CallToolResult, _has_block(t.AudioContent)),
    "link": (t.CallToolResult, _has_block(t.ResourceLink)),
    "embedded": (t.CallToolResult, _has_block(t.EmbeddedResource)),
    "unknown block": (t.CallToolResult, _has_block(t.UnknownContent)),
    "structured object": (t.CallToolResult, lambda r: isinstance(r.structured_content, dict)),
    "structured list": (t.CallToolResult, lambda r: isinstance(r.structured_content, list)),
    "structured only": (t.CallToolResult, lambda r: r.structured_content is not None and not r.content),
    "blob": (t.ReadResourceResult, lambda r: any(not part.is_text for part in r.contents)),
    "output schema of no object": (t.Tool, lambda tool: (tool.output_schema or {}).get("type") == "array"),
    "schema with a dialect": (t.Tool, lambda tool: "$schema" in tool.input_schema),
    "property that is a boolean": (t.Tool, lambda tool: True in tool.input_schema.get("properties", {}).values()),
    "tool with hints": (t.Tool, lambda tool: tool.annotations is not None),
    "one block in a list": (t.SamplingMessage, lambda m: isinstance(m.content, list) and len(m.content) == 1),
    "several blocks": (t.SamplingMessage, lambda m: len(m.blocks) > 1),
    "tool use": (t.SamplingMessage, lambda m: isinstance(m.content, t.ToolUseContent)),
    "tool result": (t.SamplingMessage, lambda m: isinstance(m.content, t.ToolResultContent)),
    "text field": (t.ElicitParams, _has_field(lambda f: isinstance(f, t.StringSchema) and f.choices is None)),
    "choice": (t.ElicitParams, _has_field(lambda f: isinstance(f, t.StringSchema) and bool(f.enum))),
    "titled choice": (t.ElicitParams, _has_field(lambda f: isinstance(f, t.StringSchema) and bool(f.one_of))),
    "older choice": (t.ElicitParams, _has_field(lambda f: isinstance(f, t.StringSchema) and bool(f.enum_names))),
    "number field": (t.ElicitParams, _has_field(lambda f: isinstance(f, t.NumberSchema))),
    "integer field": (t.ElicitParams, _has_field(lambda f: isinstance(f, t.IntegerSchema))),
    "boolean field": (t.ElicitParams, _has_field(lambda f: isinstance(f, t.BooleanSchema) and f.default is True)),
    "several": (t.ElicitParams, _has_field(lambda f: isinstance(f, t.MultiSelectSchema) and bool(f.items.enum))),
    "titled several": (
        t.ElicitParams,
        _has_field(lambda f: isinstance(f, t.MultiSelectSchema) and bool(f.items.any_of)),
    ),
    "page without id": (t.ElicitParams, lambda p: p.is_url and p.elicitation_id is None),
    "page with id": (t.ElicitParams, lambda p: p.is_url and p.elicitation_id is not None),
    "list as an answer": (t.ElicitResult, lambda r: any(isinstance(v, list) for v in (r.content or {}).values())),
    "pages only": (t.ClientCapabilities, lambda c: c.elicitation is not None and not c.elicitation.has_form),
    "typed answers": (t.CallToolParams, lambda p: bool(p.input_responses)),
    "questions": (t.InputRequiredResult, lambda r: bool(r.input_requests)),
    "no request id": (t.CancelledParams, lambda p: p.request_id is None),
    "fraction": (t.ProgressParams, lambda p: p.progress % 1 > 0),
}


@pytest.mark.parametrize("name", GENERATED)
def test_the_strategies_make(name: str) -> None:
    kind, is_wanted = GENERATED[name]
    find(
        payloads(kind),
        is_wanted,
        settings=settings(
            max_examples=2000,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
