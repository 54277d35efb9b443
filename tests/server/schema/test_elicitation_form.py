"""Forms from classes, and values of the classes from the answers."""

from __future__ import annotations

import dataclasses
import datetime as dt
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict

import attrs
import msgspec
import pydantic
import pytest
from annotated_types import Gt, Lt

from mcplumb.errors import UsageError
from mcplumb.server.schema.elicitation_form import form_schema, read_form
from mcplumb.server.schema.type_codec import BadValue
from mcplumb.types.client_features import BooleanSchema, FormSchema, StringSchema
from tests.server.types_in_use import Box, Colour, Level, Mood, Odd, Pair, Point
from tests.spec import validator


@dataclasses.dataclass
class Person:
    """Who you are."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=9, title="Name", description="How you are called.")]
    age: Annotated[int, Gt(0), Lt(150)] | None
    email: Annotated[str, msgspec.Meta(extra_json_schema={"format": "email"})] = ""
    height: Annotated[float, msgspec.Meta(ge=0)] = 1.5
    is_here: bool = True
    born: dt.date | None = None
    seen: dt.datetime | None = None
    wake_up: dt.time | None = None
    money: Decimal = Decimal("1.50")
    debts: Decimal | None = None


def test_fields() -> None:
    assert form_schema(Person) == {
        "type": "object",
        "properties": {
            "name": {
                "type": "string",
                "title": "Name",
                "description": "How you are called.",
                "minLength": 1,
                "maxLength": 9,
            },
            "age": {"type": "integer", "minimum": 1, "maximum": 149},
            "email": {"type": "string", "format": "email", "default": ""},
            "height": {"type": "number", "minimum": 0, "default": 1.5},
            "is_here": {"type": "boolean", "default": True},
            "born": {"type": "string", "format": "date"},
            "seen": {"type": "string", "format": "date-time"},
            "wake_up": {"type": "string"},
            "money": {"type": "number", "default": 1.5},
            "debts": {"type": "number"},
        },
        "required": ["name"],
    }


def test_answers() -> None:
    assert read_form(Person, {"name": "Ann"}) == Person("Ann", None)
    answer = {"name": "Ann", "age": 30, "born": "1999-12-31", "wake_up": "07:00:00", "debts": 2.5}
    assert read_form(Person, answer) == Person(
        "Ann", 30, born=dt.date(1999, 12, 31), wake_up=dt.time(7), debts=Decimal("2.5")
    )
    assert read_form(Person, {"name": "Ann", "age": "30", "is_here": "false"}) == Person("Ann", 30, is_here=False)
    assert read_form(Person, {"name": "Ann", "age": None}).age is None


def test_answers_that_do_not_fit() -> None:
    with pytest.raises(BadValue, match=r"at \.name: missing, expected a string"):
        read_form(Person, {})
    with pytest.raises(
        BadValue, match=r"at \.age: expected an integer above 0 and below 150 or null, got the number 0"
    ):
        read_form(Person, {"name": "Ann", "age": 0})


@dataclasses.dataclass
class Choices:
    colour: Colour
    mood: Mood = Mood.CALM
    level: Level = Level.LOW
    letter: Literal["b", "a"] | None = None
    number: Literal[3, 5] = 3
    colours: list[Colour] = dataclasses.field(default_factory=lambda: [Colour.RED])
    levels: Annotated[list[Level], msgspec.Meta(min_length=1)] | None = None
    letters: set[Literal["a", "b"]] = dataclasses.field(default_factory=set)
    described: Annotated[Colour, "Which."] = Colour.RED


COLOURS = [{"const": "#f00", "title": "Red"}, {"const": "#00f", "title": "Blue"}]
LEVELS = [{"const": "1", "title": "Low"}, {"const": "2", "title": "High"}]


def test_choices() -> None:
    assert form_schema(Choices) == {
        "type": "object",
        "properties": {
            "colour": {"type": "string", "oneOf": COLOURS, "description": "What it looks like."},
            "mood": {"type": "string", "enum": ["calm", "wild"], "default": "calm"},
            "level": {"type": "string", "oneOf": LEVELS, "default": "1"},
            "letter": {"type": "string", "enum": ["b", "a"]},
            "number": {"type": "string", "enum": ["3", "5"], "default": "3"},
            "colours": {"type": "array", "items": {"anyOf": COLOURS}},
            "levels": {"type": "array", "items": {"anyOf": LEVELS}, "minItems": 1},
            "letters": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": []},
            "described": {"type": "string", "oneOf": COLOURS, "description": "Which.", "default": "#f00"},
        },
        "required": ["colour"],
    }


def test_answers_with_choices() -> None:
    answer = {"colour": "#00f", "mood": "wild", "level": "2", "letter": "a", "number": "5", "colours": ["#00f"]}
    assert read_form(Choices, answer) == Choices(Colour.BLUE, Mood.WILD, Level.HIGH, "a", 5, [Colour.BLUE])
    answer = {"colour": "#00f", "levels": ["1", "2"], "letters": ["a"]}
    assert read_form(Choices, answer) == Choices(Colour.BLUE, levels=[Level.LOW, Level.HIGH], letters={"a"})
    with pytest.raises(BadValue, match=r'at \.colour: expected one of "#f00", "#00f", got the string "red"'):
        read_form(Choices, {"colour": "red"})


def test_defaults_of_choices_are_texts() -> None:
    class Several(msgspec.Struct):
        levels: tuple[Level, ...] = (Level.LOW,)
        odd: Odd = Odd.YES

    schema = form_schema(Several)
    assert schema["properties"]["levels"]["default"] == ["1"]
    assert schema["properties"]["odd"]["default"] == "true"
    assert read_form(Several, {"odd": "null"}).odd is Odd.NONE


class Dictionary(TypedDict):
    name: str
    age: int | None


class Structure(msgspec.Struct, rename="camel"):
    full_name: str


@attrs.define
class Attributes:
    name: str


class Model(pydantic.BaseModel):
    full_name: str = pydantic.Field(alias="fullName", min_length=1)
    colour: Colour = Colour.RED
    fixed: Literal["a"] = "a"
    age: int | None
    site: pydantic.AnyUrl | None = None
    weight: Decimal | None = None
    price: Decimal = pydantic.Field(default=Decimal("1.50"), ge=0)


@pytest.mark.parametrize(
    ("kind", "content", "value"),
    [
        (Dictionary, {"name": "Ann"}, {"name": "Ann", "age": None}),
        (Structure, {"fullName": "Ann"}, Structure("Ann")),
        (Attributes, {"name": "Ann"}, Attributes("Ann")),
        (Model, {"fullName": "Ann"}, Model(fullName="Ann", age=None)),
        (Box[int], {"content": 1}, None),
        (Annotated[Attributes, "Who."], {"name": "Ann"}, Attributes("Ann")),
    ],
)
def test_classes_of_all_sorts(kind: Any, content: dict[str, Any], value: Any) -> None:
    if value is None:
        with pytest.raises(UsageError):
            form_schema(kind)
    else:
        assert form_schema(kind)["required"] == list(content)
        assert read_form(kind, content) == value


def test_models() -> None:
    assert form_schema(Model)["properties"] == {
        "fullName": {"type": "string", "title": "Fullname", "minLength": 1},
        "colour": {
            "type": "string",
            "enum": ["#f00", "#00f"],
            "title": "Colour",
            "description": "What it looks like.",
            "default": "#f00",
        },
        "fixed": {"type": "string", "enum": ["a"], "title": "Fixed", "default": "a"},
        "age": {"type": "integer", "title": "Age"},
        "site": {"type": "string", "format": "uri", "title": "Site", "minLength": 1},
        "weight": {"type": "number", "title": "Weight"},
        "price": {"type": "number", "title": "Price", "minimum": 0, "default": 1.5},
    }
    with pytest.raises(BadValue, match=r"at \.fullName: String should have at least 1 character"):
        read_form(Model, {"fullName": ""})


def test_schemas_are_taken_as_they_are() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string", "x-more": 1}}, "x-more": 2}
    assert form_schema(schema) is schema
    assert read_form(schema, {"name": 1, "b": 2}) == {"name": 1, "b": 2}
    typed = FormSchema({"name": StringSchema(min_length=1), "ok": BooleanSchema()}, required=["name"])
    assert form_schema(typed) == {
        "type": "object",
        "properties": {"name": {"type": "string", "minLength": 1}, "ok": {"type": "boolean"}},
        "required": ["name"],
    }
    assert read_form(typed, {"name": "a"}) == {"name": "a"}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "array"},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/b"}}},
    ],
)
def test_schemas_that_are_no_forms_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="The schema is not valid for a form"):
        form_schema(schema)


@dataclasses.dataclass
class Nested:
    place: Point


@dataclasses.dataclass
class Listed:
    names: list[str]


@dataclasses.dataclass
class Mixed:
    one: int | str


@dataclasses.dataclass
class Open:
    anything: Any


@dataclasses.dataclass
class Keyed:
    sizes: dict[str, int]


@pytest.mark.parametrize(
    ("kind", "field"), [(Nested, "place"), (Listed, "names"), (Mixed, "one"), (Open, "anything"), (Keyed, "sizes")]
)
def test_fields_that_no_form_can_have_are_named(kind: Any, field: str) -> None:
    with pytest.raises(UsageError) as caught:
        form_schema(kind)
    assert f"The field {field!r} of {kind.__name__} cannot be in a form, which has only texts, numbers," in str(
        caught.value
    )


@pytest.mark.parametrize("kind", [int, list[int], dict[str, int], Pair, Colour])
def test_what_has_no_fields_is_no_form(kind: Any) -> None:
    with pytest.raises(UsageError, match="cannot be a form: use a class with fields"):
        form_schema(kind)


@pytest.mark.parametrize("kind", [Person, Choices, Dictionary, Structure, Attributes, Model])
def test_the_protocol_allows_these_forms(kind: Any) -> None:
    params = {"mode": "form", "message": "Who?", "requestedSchema": form_schema(kind)}
    validator("2026-07-28", "ElicitRequestFormParams").validate(params)
    msgspec.convert(form_schema(kind), FormSchema)
