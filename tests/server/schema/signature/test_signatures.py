"""Functions to schemas of their arguments, and JSON to their arguments."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import functools
import sys
import traceback
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, Optional, TypeVar

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.errors import UsageError
from mcplumb.server.schema.signature import MISSING, BadArguments, Signature, inspect_function
from tests.server.types_in_use import JSON, Author, Box, Colour, Options, Point, Size, validator

T = TypeVar("T")


class Context:
    pass


class BetterContext(Context, Generic[T]):
    pass


def inspected(function: Any, **options: Any) -> Signature:
    signature = inspect_function(function, context=Context, **options)
    assert signature.schema["type"] == "object"
    validator(signature.schema)
    return signature


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def said(signature: Signature, arguments: Any) -> str:
    """What is said about bad arguments, whichever way they come."""
    texts = set()
    for form in (arguments, raw(arguments)):
        with pytest.raises(BadArguments) as caught:
            signature.read(form)
        texts.add(str(caught.value))
    (text,) = texts
    return text


def forecast(city: str, days: Annotated[int, msgspec.Meta(ge=1, le=10)] = 3, *, colour: Colour = Colour.RED) -> Point:
    """Say what the weather will be.

    Args:
        city: Where.
        days: How many.
    """
    raise NotImplementedError


def test_the_schema() -> None:
    assert inspected(forecast).schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where."},
            "days": {"type": "integer", "minimum": 1, "maximum": 10, "description": "How many.", "default": 3},
            "colour": {
                "type": "string",
                "enum": ["#f00", "#00f"],
                "description": "What it looks like.",
                "default": "#f00",
            },
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_what_else_is_known() -> None:
    signature = inspected(forecast)
    assert signature.names == ("city", "days", "colour")
    assert signature.required == ("city",)
    assert signature.context_name is None
    assert signature.returns is Point
    assert not signature.is_async
    assert signature.docstring.description == "Say what the weather will be."


def test_a_function_that_says_nothing() -> None:
    signature = inspected(lambda: None)
    assert signature.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert signature.returns is MISSING
    assert signature.names == signature.required == ()
    nothings: list[Any] = [None, {}, raw({}), raw(None)]
    for nothing in nothings:
        assert signature.read(nothing) == {}


def test_arguments_are_read() -> None:
    signature = inspected(forecast)
    for arguments, values in (
        ({"city": "Oslo"}, {"city": "Oslo", "days": 3, "colour": Colour.RED}),
        ({"city": "Oslo", "days": 5.0, "colour": "#00f"}, {"city": "Oslo", "days": 5, "colour": Colour.BLUE}),
    ):
        assert signature.read(arguments) == signature.read(raw(arguments)) == values


def test_no_annotation_means_any_value() -> None:
    signature = inspected(lambda x, y=3: None)
    assert signature.schema["properties"] == {"x": {}, "y": {"default": 3}}
    assert signature.read(raw({"x": [1, {}]})) == {"x": [1, {}], "y": 3}


def test_descriptions_in_annotations_win() -> None:
    def function(a: Annotated[int, "From the annotation."], b: Point) -> None:
        """Do.

        Args:
            a: From the docstring.
            b: Also.
        """

    properties = inspected(function).schema["properties"]
    assert properties["a"]["description"] == "From the annotation."
    assert properties["b"] == {"$ref": "#/$defs/Point", "description": "Also."}


def test_a_docstring_says_more_than_the_class() -> None:
    def function(a: Colour, b: Colour | None = None) -> None:
        """Do.

        Args:
            a: Of the wall.
        """

    properties = inspected(function).schema["properties"]
    assert properties["a"]["description"] == "Of the wall."
    assert properties["b"]["anyOf"][0]["description"] == "What it looks like."


def test_a_type_is_defined_once() -> None:
    def function(a: Point, b: list[Point], c: Author, d: list[Author], e: Box[int], f: Box[int]) -> None: ...

    assert list(inspected(function).schema["$defs"]) == ["Point", "Author", "Box_int"]


def test_what_is_wrong_is_said_all_at_once() -> None:
    def function(city: str, days: list[Point], colour: Colour, when: dt.date | None = None) -> None: ...

    signature = inspected(function)
    arguments = {
        "ctiy": "Oslo",
        "days": [{"x": 1}, {"x": "1"}, {}],
        "colour": "red",
        "when": "soon",
    }
    assert said(signature, arguments).splitlines() == [
        "Argument 'city': missing, expected a string.",
        "Argument 'days', at [1].x: expected an integer, got the string \"1\".",
        "Argument 'days', at [2].x: missing, expected an integer.",
        'Argument \'colour\': expected one of "#f00", "#00f", got the string "red".',
        "Argument 'when': expected a date such as 1999-12-31 or null, got the string \"soon\".",
        "Argument 'ctiy': unknown, did you mean \"city\"?",
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Argument 'city': missing, expected a string."),
        ({"city": 3}, "Argument 'city': expected a string, got the number 3."),
        ({"city": "a", "days": 0},
         "Argument 'days': expected an integer from 1 to 10, got the number 0."),
        ({"city": "a", "days": None},
         "Argument 'days': expected an integer from 1 to 10, got null."),
        ({"city": "a", "zzz": 1}, "Argument 'zzz': unknown, known are \"city\", \"days\", \"colour\"."),
        ({"city": ["x"] * 500}, "Argument 'city': expected a string, got an array of 500 items."),
    ],
)  # fmt: skip
def test_sentences(arguments: Any, text: str) -> None:
    assert said(inspected(forecast), arguments) == text


@pytest.mark.parametrize(
    ("json", "text"),
    [
        (b"[]", "The arguments are invalid: expected an object, got an array of 0 items."),
        (b'"x"', 'The arguments are invalid: expected an object, got the string "x".'),
        (b'{"city":1e999}', "The arguments are invalid: this JSON cannot be read: Number out of range."),
    ],
)
def test_arguments_that_are_none(json: bytes, text: str) -> None:
    with pytest.raises(BadArguments) as caught:
        inspected(forecast).read(msgspec.Raw(json))
    assert str(caught.value) == text


def test_an_authors_own_sentence_keeps_its_end() -> None:
    @dataclasses.dataclass
    class Even:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("It is odd!")

    def function(even: Even) -> None: ...

    assert said(inspected(function), {"even": {"number": 1}}) == "Argument 'even': It is odd!"


def test_what_is_said_has_an_end() -> None:
    def function(numbers: dict[str, int]) -> None: ...

    signature = inspected(function)
    text = said(signature, {"numbers": {f"{i}" * 1000: "x" * 10_000 for i in range(20)}, "y" * 100_000: 1})
    assert len(text) < 10_000
    assert text.endswith("\nThere are more errors.")


def test_the_context_is_not_for_clients() -> None:
    def first(ctx: Context, x: int) -> None: ...
    def last(x: int, *, ctx: Context | None = None) -> None: ...
    def optional(x: int, ctx: Optional[BetterContext[int]] = None) -> None: ...  # noqa: UP045
    def better(x: int, ctx: BetterContext[Any]) -> None: ...
    def annotated(x: int, ctx: Annotated[Context, "The context."]) -> None: ...

    for function in (first, last, optional, better, annotated):
        signature = inspected(function)
        assert signature.context_name == "ctx"
        assert signature.names == ("x",)
        assert signature.read({"x": 1}) == {"x": 1}
        assert "unknown" in said(signature, {"x": 1, "ctx": None})


def test_a_list_of_contexts_is_no_context() -> None:
    def function(contexts: list[Context]) -> None: ...

    with pytest.raises(UsageError, match="The type Context cannot be represented in JSON"):
        inspected(function)


def test_a_context_that_is_imported_for_type_checkers_only_is_found_by_its_name() -> None:
    source = "def function(ctx: 'Context', x: 'int'): ..."
    names: dict[str, Any] = {}
    exec(source, names)  # noqa: S102 - a module without the name
    assert inspected(names["function"]).context_name == "ctx"


def test_only_one_parameter_can_take_the_context() -> None:
    def function(a: Context, b: Context) -> None: ...

    with pytest.raises(
        UsageError, match="has a parameter 'b' that takes the context, as 'a' does: leave one of them out"
    ):
        inspected(function)


def test_defaults_are_those_of_the_function() -> None:
    thing, numbers = object(), [1]

    def function(a: Any = thing, b: list[int] = numbers, c: Options = Options(3), d: float = float("inf")) -> None: ...  # noqa: B008

    signature = inspected(function)
    assert signature.schema["properties"]["b"]["default"] == [1]
    assert signature.schema["properties"]["c"]["default"] == {"maxItems": 3}
    assert "default" not in signature.schema["properties"]["a"]
    assert "default" not in signature.schema["properties"]["d"]
    for arguments in ({}, raw({}), {"b": [1.0]}):
        values = signature.read(arguments)
        assert values["a"] is thing
        assert values["d"] == float("inf")
    assert signature.read({})["b"] is numbers


def test_a_default_of_none_may_be_said() -> None:
    def function(a: int = None, b: Annotated[Point, "There."] = None, c=None, d: int | None = None) -> None: ...  # type: ignore[no-untyped-def, assignment] # noqa: RUF013

    signature = inspected(function)
    assert signature.schema["properties"]["a"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert signature.schema["properties"]["b"]["description"] == "There."
    assert signature.schema["properties"]["c"] == {"default": None}
    nothing = dict.fromkeys("abcd")
    assert signature.read(nothing) == signature.read(raw(nothing)) == signature.read(None) == nothing


def test_slow_parameters_leave_the_others_fast() -> None:
    def function(one: Point | Size, when: dt.date | Decimal | None = None, x: int = 1) -> None: ...

    signature = inspected(function)
    arguments = {"one": {"x": 1, "z": 2}}
    for form in (arguments, raw(arguments)):
        assert signature.read(form) == {"one": Size(1, 2), "when": None, "x": 1}
    assert said(signature, {"one": 1}) == "Argument 'one': expected an object, got the number 1."
    assert said(signature, {"one": {"x": 1}, "when": "x"}).startswith("Argument 'when': expected a date")
    assert signature.read(raw({**arguments, "x": 2.0})) == {"one": Size(1, 2), "when": None, "x": 2}


def test_values_that_cannot_be_hashed_are_refused() -> None:
    def function(some: set[Any]) -> None: ...

    assert (
        said(inspected(function), {"some": [[]]}) == "Argument 'some': a list or an object cannot be an item of a set."
    )


def test_texts_may_stand_for_values() -> None:
    def function(n: int, names: list[str], when: dt.date | Decimal = Decimal(1), on: bool = False) -> None: ...

    signature = inspected(function, strict=False)
    arguments = {"n": "3", "names": '["a"]', "when": "1999-12-31", "on": "true"}
    values = {"n": 3, "names": ["a"], "when": dt.date(1999, 12, 31), "on": True}
    assert signature.read(arguments) == signature.read(raw(arguments)) == values
    assert said(signature, arguments | {"n": "x"}) == "Argument 'n': expected an integer, got the string \"x\"."


def test_names_of_local_types_are_found() -> None:
    @dataclasses.dataclass
    class Inner:
        x: int

    @dataclasses.dataclass
    class Outer:
        inner: Inner

    def function(outer: Outer, inner: Inner) -> list[Inner]:
        raise NotImplementedError

    signature = inspected(function)
    assert signature.returns == list[Inner]
    assert signature.read({"outer": {"inner": {"x": 1}}, "inner": {"x": 2}}) == {
        "outer": Outer(Inner(1)),
        "inner": Inner(2),
    }


def test_callables_of_all_sorts() -> None:
    class Thing:
        async def __call__(self, x: int) -> None: ...

        def method(self, x: int) -> None: ...

        @staticmethod
        def static(x: int) -> None: ...

    def two(x: int, secret: str) -> None: ...

    @functools.wraps(two)
    async def wrapper(*args: Any, **kwargs: Any) -> None: ...

    partial = functools.partial(two, secret="abc")
    for function in (Thing(), Thing().method, Thing.static, partial, lambda x: x):
        signature = inspected(function)
        assert signature.names == ("x",)
        assert signature.is_async == isinstance(function, Thing)
    assert "abc" not in str(inspected(partial).schema)
    assert inspected(wrapper).names == ("x", "secret")
    assert inspected(wrapper).is_async


def test_fields_of_pydantic_as_defaults() -> None:
    def function(
        a: int = pydantic.Field(gt=0, description="Some."),
        b: int = pydantic.Field(3, le=5),
        c: list[int] = pydantic.Field(default_factory=lambda: [1]),  # noqa: B008 - so it is done with pydantic
        d: Author | None = None,
    ) -> None: ...

    signature = inspected(function)
    assert signature.required == ("a",)
    assert signature.schema["properties"]["a"] == {"type": "integer", "exclusiveMinimum": 0, "description": "Some."}
    assert signature.schema["properties"]["b"]["default"] == 3
    assert signature.read(raw({"a": 1, "d": {"fullName": "A"}})) == {
        "a": 1,
        "b": 3,
        "c": [1],
        "d": Author(fullName="A"),
    }
    assert signature.read({"a": 1})["c"] is not signature.read({"a": 1})["c"]
    assert said(signature, {"a": 0}) == "Argument 'a': expected an integer above 0, got the number 0."
    assert said(signature, {"a": 1, "d": {}}) == "Argument 'd', at .fullName: Field required."


def positional(a: int, /) -> None: ...
def many(*numbers: int) -> None: ...
def named(**numbers: int) -> None: ...
def mangled(__a: int) -> None: ...  # noqa: PYI063 - to Python, it is a name like others
def unknown_name(a: Nobody) -> None: ...  # type: ignore[name-defined] # noqa: F821
def no_type(a: "some text") -> None: ...  # type: ignore[valid-type] # noqa: F722
def no_value(a: 3 = None) -> None: ...  # type: ignore[valid-type]
def no_json(a: complex) -> None: ...
def unknown_return() -> Nobody: ...  # type: ignore[name-defined] # noqa: F821


class Unbound:
    def method(self, a: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (
            positional,
            "The function 'positional' has a parameter 'a' that is positional-only: clients pass each argument",
        ),
        (many, "has a parameter 'numbers' that is a list of any arguments (*)"),
        (named, "has a parameter 'numbers' that is a dict of any arguments (**)"),
        (mangled, "has a parameter '__a' that starts with two underscores"),
        (
            Unbound.method,
            "'Unbound.method' has a parameter 'self' that clients cannot fill in: register the method of an object",
        ),
        (
            unknown_name,
            "has a parameter 'a' that names 'Nobody', which cannot be found: define or import it at the top",
        ),
        (no_type, "has a parameter 'a' that is annotated with \"'some text'\", which is not a type"),
        (no_value, "has a parameter 'a' that clients cannot fill in. The type 3 cannot be represented in JSON"),
        (no_json, "has a parameter 'a' that clients cannot fill in. The type complex cannot be represented in JSON"),
        (unknown_return, "'unknown_return' has a return annotation that names 'Nobody', which cannot be found"),
        (3, "3 is not a function."),
        (dict, "The function 'dict' has no signature"),
    ],
)
def test_what_clients_could_not_call_is_refused(function: Any, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        inspected(function)
    assert text in str(caught.value)
    if function is not dict and function != 3:
        assert "direct cause" not in "".join(traceback.format_exception(caught.value))
        assert "During handling" not in "".join(traceback.format_exception(caught.value))


def everything(
    a: int,
    b: float | None = None,
    c: Literal["x", "y"] = "x",
    d: list[Point] | None = None,
    e: Point | Size | None = None,
    f: dict[str, bool] = {},  # noqa: B006
) -> None: ...


EVERYTHING = inspected(everything)
ACCEPTS = validator(EVERYTHING.schema).is_valid


@given(arguments=st.dictionaries(st.sampled_from("abcdefg"), JSON, max_size=4))
def test_the_schema_and_the_reader_agree(arguments: dict[str, Any]) -> None:
    for form in (arguments, raw(arguments)):
        try:
            values = EVERYTHING.read(form)
        except BadArguments:
            assert not ACCEPTS(arguments)
        else:
            assert ACCEPTS(arguments)
            assert values.keys() == set("abcdef")


@given(value=JSON)
def test_whatever_comes_is_read_or_refused(value: Any) -> None:
    with contextlib.suppress(BadArguments):
        EVERYTHING.read(raw(value))


@dataclasses.dataclass
class Link:
    name: str = "x"
    after: Link | list[Link] | None = None


def test_a_dataclass_gets_its_defaults_however_deep_it_is() -> None:
    def follow(link: Link) -> None: ...

    chain: dict[str, Any] = {}
    for _ in range(100):
        chain = {"after": [chain]}
    for form in ({"link": chain}, raw({"link": chain})):
        link = inspected(follow).read(form)["link"]
        while isinstance(link.after, list):
            assert vars(link)["name"] == "x"
            (link,) = link.after
        assert vars(link) == {"name": "x", "after": None}


def test_one_that_is_too_deep_is_refused() -> None:
    def follow(link: Link) -> None: ...

    chain: dict[str, Any] = {}
    for _ in range(sys.getrecursionlimit() - 150):
        chain = {"after": chain}
    with pytest.raises(BadArguments, match="nested too deeply"):
        inspected(follow).read(raw({"link": chain}))
