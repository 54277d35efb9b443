"""Hypothesis strategies for every payload that the types can hold and that the protocol allows.

``payloads(kind)`` follows the annotations of the type; where the protocol allows less than the annotation, ``_FIELDS``
or ``_WHOLE`` says what.
"""

from __future__ import annotations

import base64
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from mcplumb import types as t
from mcplumb.types.meta import CLIENT_CAPABILITIES, PROGRESS_TOKEN, PROTOCOL_VERSION, SUBSCRIPTION_ID

P = TypeVar("P", bound=t.Payload)

texts = st.text(max_size=8)
names = st.sampled_from(["a", "b", "name with spaces", "日本", "x/y"])
uris = st.sampled_from(["file:///tmp/a", "https://example.com/x?y=1#z", "urn:isbn:1", "weather://oslo/now"])
templates = st.sampled_from(["weather://{city}/now", "file:///{+path}", "x:plain"])
blobs = st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode())
integers = st.integers(0, 2**53)
floats = st.floats(allow_nan=False, allow_infinity=False, width=32)
numbers = st.integers(-(2**53), 2**53) | floats
fractions = st.sampled_from([0, 0.25, 0.5, 1])
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
# The newest schema's definition of a JSON object leaves out null and fractions, which the protocol's text has.
objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    names, texts | st.booleans() | st.integers(0, 9) | st.just({"a": []}), max_size=2
)
object_maps = st.dictionaries(names, objects, max_size=2)
item_metas = st.dictionaries(st.sampled_from(["example.com/a", "b"]), json_values, max_size=2)

request_metas = st.builds(
    lambda rest, token: rest | token | {PROTOCOL_VERSION: "2026-07-28", CLIENT_CAPABILITIES: {}},
    item_metas,
    st.sampled_from([{}, {PROGRESS_TOKEN: 1}, {PROGRESS_TOKEN: "t"}]),
)

input_schemas = st.sampled_from(
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"type": "object", "properties": {"any": True, "never": False, "a": {}}},
        {"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": {"x": {}}},
        {"type": "object", "additionalProperties": False, "oneOf": [{"required": ["a"]}]},
    ]
)
output_schemas = input_schemas | st.sampled_from([{}, {"type": "array", "items": {}}, {"$ref": "#/$defs/x"}])

_labels = {"title": st.none() | texts, "description": st.none() | texts}
_choices = st.lists(st.builds(t.Choice, names, texts), max_size=3)
_enums = st.lists(names, max_size=3)
_lengths = st.none() | st.integers(0, 9)

string_fields = st.one_of(
    st.builds(
        t.StringSchema,
        **_labels,
        min_length=_lengths,
        max_length=_lengths,
        format=st.sampled_from([None, "email", "uri", "date", "date-time"]),
        default=st.none() | texts,
    ),
    st.builds(t.StringSchema, **_labels, enum=_enums, default=st.none() | names),
    st.builds(t.StringSchema, **_labels, enum=_enums, enum_names=_enums, default=st.none() | names),
    st.builds(t.StringSchema, **_labels, one_of=_choices, default=st.none() | names),
)
choice_items = st.builds(t.ChoiceItems, type=st.just("string"), enum=_enums) | st.builds(t.ChoiceItems, any_of=_choices)

_responses: st.SearchStrategy[t.Payload] = st.deferred(
    lambda: payloads(t.CreateMessageResult) | payloads(t.ElicitResult) | payloads(t.ListRootsResult)
)

# The official schemas let an answer be an integer only, where the protocol's text has numbers.
_answers = texts | st.integers(-(2**53), 2**53) | st.booleans() | st.lists(texts, max_size=2)

_FIELDS: dict[tuple[type, str], st.SearchStrategy[Any]] = {
    (t.Params, "meta"): st.none() | request_metas,
    (t.ListenResult, "meta"): item_metas.map(lambda meta: meta | {SUBSCRIPTION_ID: 1}),
    (t.Result, "result_type"): st.sampled_from([None, "complete"]),
    (t.InputRequiredResult, "result_type"): st.sampled_from([None, "input_required"]),
    (t.CacheableResult, "ttl_ms"): st.none() | integers,
    (t.RetryParams, "input_responses"): st.none() | st.dictionaries(names, _responses, max_size=2),
    (t.Annotations, "audience"): st.none() | st.lists(st.sampled_from(["user", "assistant"]), max_size=2),
    (t.Annotations, "priority"): st.none() | fractions,
    (t.Icon, "theme"): st.sampled_from([None, "light", "dark"]),
    (t.Icon, "src"): uris,
    (t.Implementation, "website_url"): st.none() | uris,
    (t.ClientCapabilities, "experimental"): st.none() | object_maps,
    (t.ClientCapabilities, "extensions"): st.none() | object_maps,
    (t.ClientCapabilities, "tasks"): st.none() | st.just({"list": {}}),
    (t.ServerCapabilities, "experimental"): st.none() | object_maps,
    (t.ServerCapabilities, "extensions"): st.none() | object_maps,
    (t.ServerCapabilities, "tasks"): st.none() | st.just({"list": {}}),
    (t.Tool, "input_schema"): input_schemas,
    (t.Tool, "output_schema"): st.none() | output_schemas,
    (t.Tool, "execution"): st.none() | st.just({"taskSupport": "optional"}),
    (t.Resource, "size"): st.none() | integers,
    (t.ResourceTemplate, "uri_template"): templates,
    (t.ResourceTemplateReference, "uri"): templates,
    (t.ImageContent, "data"): blobs,
    (t.AudioContent, "data"): blobs,
    (t.Completion, "total"): st.none() | integers,
    (t.CreateMessageParams, "max_tokens"): integers,
    (t.ModelPreferences, "cost_priority"): st.none() | fractions,
    (t.ModelPreferences, "speed_priority"): st.none() | fractions,
    (t.ModelPreferences, "intelligence_priority"): st.none() | fractions,
    (t.ElicitResult, "content"): st.none() | st.dictionaries(names, _answers, max_size=2),
    (t.MultiSelectSchema, "items"): choice_items,
    (t.MultiSelectSchema, "min_items"): _lengths,
    (t.MultiSelectSchema, "max_items"): _lengths,
}
_FIELDS |= {
    (kind, "uri"): uris
    for kind in (t.Resource, t.Root, t.ResourceParams, t.ReadResourceParams, t.ResourceUpdatedParams)
}

_WHOLE: dict[type, st.SearchStrategy[Any]] = {
    t.StringSchema: string_fields,
    t.ChoiceItems: choice_items,
    t.ResourceContents: st.builds(t.ResourceContents, uris, text=texts, mime_type=st.none() | texts, meta=item_metas)
    | st.builds(t.ResourceContents, uris, blob=blobs),
    t.ElicitParams: st.one_of(
        st.builds(
            t.ElicitParams,
            texts,
            mode=st.sampled_from([None, "form"]),
            requested_schema=st.deferred(lambda: payloads(t.FormSchema).map(msgspec.to_builtins)),
            meta=st.none() | request_metas,
        ),
        st.builds(t.ElicitParams.for_url, texts, uris, st.none() | texts),
    ),
}


def payloads(kind: type[P]) -> st.SearchStrategy[P]:
    """Payloads of this very type."""
    if kind not in _WHOLE:
        fields = {field.name: _field(kind, field) for field in msgspec.structs.fields(kind)}
        _WHOLE[kind] = st.builds(kind, **fields)
    return _WHOLE[kind]


def _field(kind: type, field: msgspec.structs.FieldInfo) -> st.SearchStrategy[Any]:
    for parent in kind.__mro__:
        if (parent, field.name) in _FIELDS:
            return _FIELDS[parent, field.name]
    if field.name == "meta":
        return st.none() | item_metas
    return _of(field.type)


def _of(annotation: Any) -> st.SearchStrategy[Any]:
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: texts,
        int: integers,
        float: floats,
        bool: st.booleans(),
        NoneType: st.none(),
        Any: json_values,
    }
    if annotation in simple:
        return simple[annotation]
    if annotation == dict[str, Any]:
        return objects
    arguments = get_args(annotation)
    match get_origin(annotation):
        case None:
            return st.deferred(lambda: payloads(annotation))
        case origin if origin is list:
            return st.lists(_of(arguments[0]), max_size=2)
        case origin if origin is dict:
            return st.dictionaries(names, _of(arguments[1]), max_size=2)
        case origin if origin is Literal:
            return st.sampled_from(arguments)
        case origin if origin in (Union, UnionType):
            return st.one_of(*(_of(argument) for argument in arguments))
    raise AssertionError(f"no strategy for {annotation}")
