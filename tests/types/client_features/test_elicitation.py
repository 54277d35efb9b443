from __future__ import annotations

import msgspec
import pytest

from mcplumb import types as t
from mcplumb.errors import DecodeError

FORM = t.FormSchema(
    {
        "name": t.StringSchema(title="Name", min_length=1),
        "size": t.StringSchema(enum=["s", "m"]),
        "colour": t.StringSchema(one_of=[t.Choice("r", "Red")]),
        "older": t.StringSchema(enum=["a", "b", "c"], enum_names=["A", "B"]),
        "age": t.IntegerSchema(minimum=0),
        "weight": t.NumberSchema(default=1.5),
        "agree": t.BooleanSchema(default=False),
        "tags": t.MultiSelectSchema(items=t.ChoiceItems(type="string", enum=["x"])),
        "titled": t.MultiSelectSchema(items=t.ChoiceItems(any_of=[t.Choice("x", "X")])),
    },
    required=["name"],
)


def test_a_form_is_a_schema_on_the_wire() -> None:
    params = t.ElicitParams.for_form("Who?", FORM)
    assert params.is_form
    assert not params.is_url
    assert params.requested_schema is not None
    assert params.requested_schema["type"] == "object"
    assert params.requested_schema["properties"]["age"] == {"type": "integer", "minimum": 0}
    assert t.read(t.ElicitParams, msgspec.json.encode(params)) == params
    assert params.read_form() == FORM


def test_a_raw_schema_keeps_all_its_keys() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}, "additionalProperties": False}
    params = t.ElicitParams.for_form("Who?", schema)
    assert params.requested_schema is schema
    assert params.read_form() == t.FormSchema({"a": t.StringSchema()})


def test_a_schema_that_is_no_form() -> None:
    params = t.ElicitParams.for_form("Who?", {"type": "object", "properties": {"a": {"type": "object"}}})
    with pytest.raises(DecodeError, match=r"^The protocol does not allow the schema of the requested form: .*'object'"):
        params.read_form()


def test_page() -> None:
    params = t.ElicitParams.for_url("Sign in", "https://example.com", "7")
    assert params.is_url
    assert not params.is_form
    assert msgspec.to_builtins(params) == {
        "message": "Sign in",
        "mode": "url",
        "url": "https://example.com",
        "elicitationId": "7",
    }


@pytest.mark.parametrize(
    ("params", "key"),
    [
        (b'{"message":"m"}', "requestedSchema"),
        (b'{"message":"m","mode":"form","url":"a:b"}', "requestedSchema"),
        (b'{"message":"m","mode":"url","requestedSchema":{}}', "url"),
    ],
)
def test_each_mode_needs_what_it_shows(params: bytes, key: str) -> None:
    with pytest.raises(DecodeError, match=f"needs a '{key}'"):
        t.read(t.ElicitParams, params)


def test_a_new_mode_is_read() -> None:
    params = t.read(t.ElicitParams, b'{"message":"m","mode":"voice"}')
    assert not params.is_form
    assert not params.is_url


def test_choices_are_read_in_each_way_they_are_written() -> None:
    choices = {
        name: field.choices
        for name, field in FORM.properties.items()
        if isinstance(field, t.StringSchema | t.MultiSelectSchema)
    }
    assert choices == {
        "name": None,
        "size": [t.Choice("s", "s"), t.Choice("m", "m")],
        "colour": [t.Choice("r", "Red")],
        "older": [t.Choice("a", "A"), t.Choice("b", "B"), t.Choice("c", "c")],
        "tags": [t.Choice("x", "x")],
        "titled": [t.Choice("x", "X")],
    }
    assert t.MultiSelectSchema(items=t.ChoiceItems()).choices == []


def test_result() -> None:
    assert t.read(t.ElicitResult, b'{"action":"accept","content":{"a":1.5}}') == t.ElicitResult("accept", {"a": 1.5})
    assert t.read(t.ElicitResult, b'{"action":"decline"}').content is None
