from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import enum
import json
import math
import re
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, Protocol, TypedDict, TypeVar

import attrs
import jsonschema_rs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from mcplumb import types as t
from mcplumb.errors import EncodeError, UsageError
from mcplumb.revisions import REVISIONS
from mcplumb.server.media import OCTET_STREAM, Audio, File, Image
from mcplumb.server.results import (
    TextResult,
    contents_of,
    messages_of,
    output_of,
    prompt_result_of,
)
from mcplumb.server.schema.signature import MISSING
from tests import spec
from tests.kit.products import examples

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
WAV = b"RIFF\x24\0\0\0WAVEfmt "


class Forecast(msgspec.Struct):
    city: str
    high: float
    next: Forecast | None = None


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Row(TypedDict):
    id: int


class Pair(NamedTuple):
    left: int
    right: str


@attrs.define
class Box:
    width: int


class Model(pydantic.BaseModel):
    when: dt.date
    size: int = pydantic.Field(serialization_alias="sizeInBytes")


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    hue: Shade = pydantic.Field(default_factory=lambda: Shade.DARK)


Pet = Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]


class Color(enum.Enum):
    RED = "red"


class Shade(enum.StrEnum):
    DARK = "dark"


class Level(enum.IntEnum):
    LOW = 1


Item_co = TypeVar("Item_co", covariant=True)


class SupportsItems(Protocol[Item_co]):
    def items(self) -> Sequence[Item_co]: ...


class Word(str):
    __slots__ = ()


UserId = NewType("UserId", int)
Coordinates = NewType("Coordinates", Point)
Pictures = TypeAliasType("Pictures", list[Image])
Place = TypeAliasType("Place", Point | None)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def shown(result: t.CallToolResult) -> tuple[list[Any], Any]:
    """The content of a result, with texts as such, and its structured content (Ellipsis without any)."""
    content = [block.text if block == t.TextContent(getattr(block, "text", "")) else block for block in result.content]
    structured = result.structured_content
    return content, ... if structured is None else json.loads(msgspec.json.encode(structured))


def text(value: str) -> tuple[list[Any], Any]:
    return [value], ...


def blocks(*content: Any) -> tuple[list[Any], Any]:
    return list(content), ...


def data(written: str) -> tuple[list[Any], Any]:
    return [written], json.loads(written)


RESOURCE = t.Resource("x:y", "Y", size=3, mime_type="text/plain", annotations=t.Annotations(priority=1), meta={"a": 1})
LINK = t.ResourceLink("x:y", "Y", size=3, mime_type="text/plain", annotations=t.Annotations(priority=1), meta={"a": 1})
CONTENTS = t.ResourceContents("x:y", text="abc")
IMAGE = t.ImageContent(encoded(PNG), "image/png")
SOUND = t.AudioContent(encoded(WAV), "audio/wav")
NOTED = t.TextContent("hi", annotations=t.Annotations(audience=["user"]))
BYTES = t.EmbeddedResource(t.ResourceContents("cid:352441c2", blob="YWJj", mime_type=OCTET_STREAM))

VALUES: list[tuple[Any, tuple[list[Any], Any]]] = [
    (None, blocks()),
    # Text
    ("", text("")),
    ("plain", text("plain")),
    ('{"a": 1}', text('{"a": 1}')),
    (Word("word"), text("word")),
    (Shade.DARK, text("dark")),
    (Color.RED, text("red")),
    # Numbers and the like
    (True, text("true")),
    (5, text("5")),
    (10**30, text("1" + "0" * 30)),
    (Level.LOW, text("1")),
    (1.5, text("1.5")),
    (1.0, text("1.0")),
    (math.nan, text("nan")),
    (-math.inf, text("-inf")),
    (Decimal("1.50"), text("1.50")),
    (dt.date(2020, 1, 2), text("2020-01-02")),
    (dt.datetime(2020, 1, 2, 3, 4, tzinfo=dt.UTC), text("2020-01-02T03:04:00Z")),
    (uuid.UUID(int=1), text("00000000-0000-0000-0000-000000000001")),
    # Content
    (b"abc", blocks(BYTES)),
    (bytearray(b"abc"), blocks(BYTES)),
    (memoryview(b"abc"), blocks(BYTES)),
    (PNG, blocks(IMAGE)),
    (WAV, blocks(SOUND)),
    (Image(PNG), blocks(IMAGE)),
    (Audio(WAV), blocks(SOUND)),
    (File(b"abc"), blocks(BYTES)),
    (NOTED, blocks(NOTED)),
    (IMAGE, blocks(IMAGE)),
    (LINK, blocks(LINK)),
    (RESOURCE, blocks(LINK)),
    (CONTENTS, blocks(t.EmbeddedResource(CONTENTS))),
    (t.EmbeddedResource(CONTENTS), blocks(t.EmbeddedResource(CONTENTS))),
    (t.UnknownContent("x", {}), blocks(t.UnknownContent("x", {}))),
    # Lists with content in them
    ([Image(PNG)], blocks(IMAGE)),
    (("a", Image(PNG), None, {"b": 1}, 2, Shade.DARK), blocks("a", IMAGE, '{"b":1}', "2", "dark")),
    ([RESOURCE, b"abc", CONTENTS], blocks(LINK, BYTES, t.EmbeddedResource(CONTENTS))),
    # Objects and arrays
    ({}, data("{}")),
    ({"a": [1, None]}, data('{"a":[1,null]}')),
    ([], data("[]")),
    (["a", "b"], data('["a","b"]')),
    ((1, 2), data("[1,2]")),
    ({3}, data("[3]")),
    (Point(1), data('{"x":1,"y":0}')),
    (Forecast("Oslo", 3.5), data('{"city":"Oslo","high":3.5,"next":null}')),
    (Pair(1, "a"), data('[1,"a"]')),
    (Box(2), data('{"width":2}')),
    (Model(when=dt.date(2020, 1, 2), size=3), data('{"when":"2020-01-02","sizeInBytes":3}')),
    ({"é": Path("a/b")}, data('{"é":"a/b"}')),
    (t.ResourceTemplate("x:{y}", "Y"), data('{"uriTemplate":"x:{y}","name":"Y"}')),
]


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=lambda value: type(value).__name__)
def test_without_an_annotation_the_value_decides(value: Any, expected: tuple[list[Any], Any]) -> None:
    for returns in (MISSING, Any, object):
        output = output_of(returns)
        assert output.schema is None
        assert shown(output.result_of(value)) == expected


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=lambda value: type(value).__name__)
def test_text_only(value: Any, expected: tuple[list[Any], Any]) -> None:
    output = output_of(MISSING, structured=False)
    assert shown(output.result_of(value)) == (expected[0], ...)


@pytest.mark.parametrize("structured", [None, True, False])
@pytest.mark.parametrize("returns", [MISSING, Point, str])
def test_a_whole_result_passes_through(returns: Any, structured: bool | None) -> None:
    result = t.CallToolResult([NOTED], structured_content={"x": 1}, is_error=True, meta={"a": 1})
    assert output_of(returns, structured=structured).result_of(result) is result


UNDESCRIBED = [
    *(None, str, int, float, bool, Decimal, dt.date, dt.timedelta, uuid.UUID, Color, Shade, Level, Literal["a", 1]),
    *(str | None, int | str, UserId, Annotated[int, "note"]),
    *(dict, list, tuple, set, Sequence, Mapping, dict[str, Any], list[Any], list[object], dict | None, list | int),
    *(bytes, Image, Audio | None, File, Path, t.ContentBlock, t.Resource, t.ResourceContents, t.CallToolResult),
    *(Image | Point, t.CallToolResult | Point, list[Image], list[Image] | Point, Sequence[str | Image]),
    *(Iterator[int], Iterator[Image], complex, dict[str, Image], SupportsItems[int]),
]


@pytest.mark.parametrize("returns", UNDESCRIBED, ids=str)
def test_no_schema_without_a_description_of_an_object_or_array(returns: Any) -> None:
    output = output_of(returns)
    assert output.schema is None
    assert shown(output.result_of("plain")) == text("plain")
    assert type(output.result_of("plain")) is TextResult, "which takes the short way"
    assert shown(output.result_of(Image(PNG))) == blocks(IMAGE)
    assert shown(output.result_of({"a": 1})) == data('{"a":1}')
    assert output.result_of(None).content == []


points = st.builds(Point, st.integers(), st.integers())
forecasts: st.SearchStrategy[Forecast] = st.deferred(
    lambda: st.builds(
        Forecast, st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False), st.none() | forecasts
    )
)
DESCRIBED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Point, points),
    (Forecast, forecasts),
    (Row, st.fixed_dictionaries({"id": st.integers()})),
    (Pair, st.builds(Pair, st.integers(), st.text(max_size=5))),
    (Box, st.builds(Box, st.integers())),
    (Model, st.builds(Model, when=st.dates(), size=st.integers())),
    (Coordinates, points),
    (Pet, st.sampled_from([Cat(), Dog()])),
    (list[Pet], st.just([Cat(), Dog()])),
    (Annotated[Point, "where"], points),
    (Point | None, points | st.none()),
    (Place, points | st.none()),
    (Point | int | str, points | st.integers() | st.text(max_size=5)),
    (Point | Forecast, points | forecasts),
    (list[int], st.lists(st.integers(), max_size=3)),
    (list[str], st.lists(st.text(max_size=5), max_size=3)),
    (list[Point] | None, st.lists(points, max_size=3) | st.none()),
    (Sequence[Forecast], st.lists(forecasts, max_size=3)),
    (set[int], st.sets(st.integers(), max_size=3)),
    (tuple[int, str], st.tuples(st.integers(), st.text(max_size=5))),
    (dict[str, int], st.dictionaries(st.text(max_size=5), st.integers(), max_size=3)),
    (Mapping[str, Point], st.dictionaries(st.text(max_size=5), points, max_size=3)),
    (dict[str, dt.date | Decimal], st.dictionaries(st.text(max_size=5), st.dates() | st.just(Decimal("1.5")))),
]


@pytest.mark.parametrize(("returns", "values"), DESCRIBED, ids=lambda each: str(each)[:40])
@examples(30)
@given(drawn=st.data())
def test_structured_content_is_what_its_schema_says(
    returns: Any, values: st.SearchStrategy[Any], drawn: st.DataObject
) -> None:
    output = output_of(returns)
    assert output.schema is not None
    validator = jsonschema_rs.validator_for(output.schema)
    value = drawn.draw(values)
    (written,), structured = shown(output.result_of(value))
    validator.validate(structured)
    assert json.loads(written) == structured
    assert output_of(returns, structured=True).schema == output.schema
    assert output_of(returns, structured=False).schema is None


def test_the_value_is_written_once() -> None:
    result = output_of(Point).result_of(Point(1, 2))
    (block,) = result.content
    assert isinstance(block, t.TextContent)
    assert bytes(result.structured_content) == block.text.encode()


def test_the_schema_of_a_record_is_that_of_an_object() -> None:
    # Older revisions have no other.
    for kind in (Point, Forecast, Row, Box, Model):
        schema = output_of(kind).schema
        assert schema is not None
        assert schema["type"] == "object"


@pytest.mark.parametrize(
    ("returns", "value", "schema", "written"),
    [
        (str, "a", {"type": "string"}, '"a"'),
        (int, 5, {"type": "integer"}, "5"),
        (bool, True, {"type": "boolean"}, "true"),
        (int | None, None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null"),
        (dict, {"a": 1}, {"type": "object"}, '{"a":1}'),
        (Any, [1], None, "[1]"),
        (MISSING, "a", None, '"a"'),
        (MISSING, None, None, "null"),
    ],
)
def test_structured_content_on_request(returns: Any, value: Any, schema: dict[str, Any] | None, written: str) -> None:
    output = output_of(returns, structured=True)
    assert output.schema == schema
    assert shown(output.result_of(value)) == data(written)


def test_lists_of_content() -> None:
    for returns in (
        list[Image],
        list[str | Image],
        tuple[Image, ...],
        list[t.ContentBlock] | None,
        list[Path],
        Pictures,
    ):
        output = output_of(returns)
        assert shown(output.result_of([])) == blocks()
        assert shown(output.result_of(["a", "b"])) == blocks("a", "b")
        assert shown(output.result_of(("a", Image(PNG)))) == blocks("a", IMAGE)
        assert shown(output.result_of({"a": 1})) == data('{"a":1}')
        assert shown(output.result_of(None)) == blocks()
    output = output_of(list[Image], structured=False)
    assert shown(output.result_of([])) == blocks()


def test_paths_are_the_files_that_they_lead_to(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("abc")
    block = t.EmbeddedResource(t.ResourceContents(path.as_uri(), text="abc", mime_type="text/plain"))
    assert shown(output_of(Path).result_of(path)) == blocks(block)
    assert shown(output_of(list[Path]).result_of([path])) == blocks(block)
    with pytest.raises(UsageError, match=r"^The file '.*gone' cannot be read: No such file or directory.$"):
        output_of(Path).result_of(tmp_path / "gone")


def test_content_cannot_be_structured() -> None:
    for returns, name in [(Image, "Image"), (list[Image], "list[mcplumb.server.media.Image]"), (bytes, "bytes")]:
        said = f"A tool that returns {name} cannot have structured=True: this is content."
        with pytest.raises(UsageError, match=f"^{re.escape(said)}$"):
            output_of(returns, structured=True)


def test_what_has_no_schema_cannot_be_structured_on_request() -> None:
    with pytest.raises(UsageError, match="complex"):
        output_of(complex, structured=True)


@pytest.mark.parametrize(
    ("returns", "value", "said"),
    [
        (Point, None, "A tool that returns Point returned a value of type NoneType."),
        (Point, [1], "A tool that returns Point returned a value of type list."),
        (list[int], {}, "A tool that returns list[int] returned a value of type dict."),
        (Row, "x", "A tool that returns Row returned a value of type str."),
    ],
)
def test_a_value_that_is_not_what_the_annotation_says(returns: Any, value: Any, said: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(said)}$"):
        output_of(returns).result_of(value)


async def later() -> int:
    return 1


async def one_by_one() -> AsyncIterator[int]:
    yield 1


def test_what_can_be_no_result() -> None:
    result_of = output_of(MISSING).result_of
    coroutine = later()
    with pytest.raises(UsageError, match=r"^A value of type coroutine was returned without being awaited."):
        result_of(coroutine)
    coroutine.close()
    with pytest.raises(UsageError, match=r"^A value of type generator cannot be a result: return a list of its items."):
        result_of(x for x in "abc")
    with pytest.raises(UsageError, match=r"^A value of type async_generator cannot be a result: return a list"):
        result_of(one_by_one())
    with pytest.raises(EncodeError, match=r"^A value of type 'complex' cannot be written as JSON"):
        result_of(1j)
    with pytest.raises(EncodeError, match=r"^A value of type 'dict' cannot be written as JSON"):
        result_of({"f": later})
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(EncodeError, match=r"^A value of type 'list' cannot be written as JSON"):
        result_of(endless)
    for structured in (True, False):
        with pytest.raises(EncodeError):
            output_of(MISSING, structured=structured).result_of(object())


def check(definition: str, payload: t.Payload) -> None:
    for revision in REVISIONS:
        value = json.loads(msgspec.json.encode(t.for_revision(payload, revision)))
        spec.official_validator(str(revision), definition).validate(value)
        spec.validator(str(revision), definition).validate(value)


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize(("value", "expected"), VALUES, ids=lambda value: type(value).__name__)
def test_results_are_valid_in_every_revision(value: Any, expected: object) -> None:
    for structured in (None, False):
        check("CallToolResult", output_of(MISSING, structured=structured).result_of(value))


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize(("returns", "values"), DESCRIBED, ids=lambda each: str(each)[:40])
@examples(10)
@given(drawn=st.data())
def test_structured_results_are_valid_in_every_revision(
    returns: Any, values: st.SearchStrategy[Any], drawn: st.DataObject
) -> None:
    output = output_of(returns)
    check("Tool", t.Tool("f", {"type": "object"}, output_schema=output.schema))
    check("CallToolResult", output.result_of(drawn.draw(values)))


# Resources


def contents(value: Any, mime_type: str | None = None) -> list[t.ResourceContents] | None:
    return contents_of(value, uri="x:y", mime_type=mime_type)


@pytest.mark.parametrize(
    ("value", "as_it_is", "given", "with_given"),
    [
        ("abc", "text/plain", "text/css", "text/css"),
        (Word("abc"), "text/plain", "text/css", "text/css"),
        (t.TextContent("abc"), "text/plain", "text/css", "text/css"),
        (File(b"abc", mime_type="text/csv"), "text/csv", "text/css", "text/csv"),
        (File(b"abc", name="a.md"), "text/markdown", "text/css", "text/css"),
    ],
)
def test_texts_of_resources(value: Any, as_it_is: str, given: str, with_given: str) -> None:
    assert contents(value) == [t.ResourceContents("x:y", text="abc", mime_type=as_it_is)]
    assert contents(value, given) == [t.ResourceContents("x:y", text="abc", mime_type=with_given)]


@pytest.mark.parametrize(
    ("value", "as_it_is", "given", "with_given"),
    [
        (b"abc", OCTET_STREAM, "text/css", "text/css"),
        (memoryview(b"abc"), OCTET_STREAM, "font/woff", "font/woff"),
        (File(b"abc"), OCTET_STREAM, "font/woff", "font/woff"),
        (Image(b"abc", mime_type="image/x-own"), "image/x-own", "image/png", "image/x-own"),
        (t.ImageContent("YWJj", "image/gif"), "image/gif", "image/png", "image/gif"),
        (t.AudioContent("YWJj", "audio/wav"), "audio/wav", "audio/x-wav", "audio/wav"),
    ],
)
def test_bytes_of_resources(value: Any, as_it_is: str, given: str, with_given: str) -> None:
    assert contents(value) == [t.ResourceContents("x:y", blob="YWJj", mime_type=as_it_is)]
    assert contents(value, given) == [t.ResourceContents("x:y", blob="YWJj", mime_type=with_given)]


def test_bytes_of_resources_are_recognised() -> None:
    assert contents(PNG) == [t.ResourceContents("x:y", blob=encoded(PNG), mime_type="image/png")]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"a": 1}, '{"a":1}'),
        ([1, "b"], '[1,"b"]'),
        ([], "[]"),
        (Point(1, 2), '{"x":1,"y":2}'),
        (5, "5"),
        (dt.date(2020, 1, 2), '"2020-01-02"'),
    ],
)
def test_json_of_resources(value: Any, written: str) -> None:
    assert contents(value) == [t.ResourceContents("x:y", text=written, mime_type="application/json")]
    assert contents(value, "application/geo+json") == [
        t.ResourceContents("x:y", text=written, mime_type="application/geo+json")
    ]


def test_contents_of_resources_pass_through() -> None:
    own = t.ResourceContents("x:own", text="abc", meta={"a": 1})
    assert contents(own, "text/css") == [own]
    assert contents(t.EmbeddedResource(own)) == [own]
    assert contents([own, own]) == [own, own]
    assert contents((own, "abc", None, b"abc")) == [
        own,
        t.ResourceContents("x:y", text="abc", mime_type="text/plain"),
        t.ResourceContents("x:y", blob="YWJj", mime_type=OCTET_STREAM),
    ]


def test_files_of_resources(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("é")
    (tmp_path / "b.txt").write_bytes(b"\xff")
    assert contents([tmp_path / "a.txt", File(tmp_path / "b.txt", uri="x:b")]) == [
        t.ResourceContents("x:y", text="é", mime_type="text/plain"),
        t.ResourceContents("x:b", blob="/w==", mime_type="text/plain"),
    ]
    assert contents(Image(path=tmp_path / "a.txt"), "image/png") == [
        t.ResourceContents("x:y", blob=encoded("é".encode()), mime_type="image/png")
    ]


def test_none_means_that_there_is_no_such_resource() -> None:
    assert contents(None) is None


def test_what_no_resource_can_have() -> None:
    with pytest.raises(EncodeError, match=r"^A value of type 'object' cannot be written as JSON"):
        contents(object())


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize(("value", "_"), VALUES, ids=lambda value: type(value).__name__)
def test_contents_are_valid_in_every_revision(value: Any, _: object) -> None:
    found = contents(value)
    if found is not None:
        check("ReadResourceResult", t.ReadResourceResult(found))


# Prompts


def said(role: t.Role, content: Any) -> t.PromptMessage:
    return t.PromptMessage(role, t.TextContent(content) if isinstance(content, str) else content)


PROMPTS: list[tuple[Any, list[t.PromptMessage]]] = [
    ("hi", [said("user", "hi")]),
    (Word("hi"), [said("user", "hi")]),
    (said("assistant", "hi"), [said("assistant", "hi")]),
    (("assistant", "hi"), [said("assistant", "hi")]),
    (("user", Image(PNG)), [said("user", IMAGE)]),
    (("user", ["look", Image(PNG)]), [said("user", "look"), said("user", IMAGE)]),
    (Image(PNG), [said("user", IMAGE)]),
    (b"abc", [said("user", BYTES)]),
    (RESOURCE, [said("user", LINK)]),
    (NOTED, [said("user", NOTED)]),
    ([], []),
    (["a", ("assistant", "b"), Image(PNG)], [said("user", "a"), said("assistant", "b"), said("user", IMAGE)]),
    (("a", "b", "c"), [said("user", "a"), said("user", "b"), said("user", "c")]),
    ((said("user", "a"), said("assistant", "b")), [said("user", "a"), said("assistant", "b")]),
    (["user", "hi"], [said("user", "user"), said("user", "hi")]),
]


@pytest.mark.parametrize(("value", "messages"), PROMPTS, ids=lambda value: str(value)[:30])
def test_messages(value: Any, messages: list[t.PromptMessage]) -> None:
    assert messages_of(value) == messages
    result = prompt_result_of(value, "what for")
    assert result == t.GetPromptResult(messages, "what for")
    check("GetPromptResult", result)
    check("GetPromptResult", prompt_result_of(value))


def test_a_prompt_s_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("abc")
    block = t.EmbeddedResource(t.ResourceContents(path.as_uri(), text="abc", mime_type="text/plain"))
    assert messages_of(path) == [said("user", block)]


def test_a_whole_prompt_passes_through() -> None:
    result = t.GetPromptResult([], "own")
    assert prompt_result_of(result, "other") is result


@pytest.mark.parametrize("value", [None, 5, {"role": "user"}, [None], [["a"]], ("user", 5), ("user", ["a", 5])])
def test_what_is_no_message(value: Any) -> None:
    with pytest.raises(UsageError, match=r"^A prompt's message cannot be made of a value of type \w+. Return text, "):
        messages_of(value)


def test_a_role_that_there_is_not() -> None:
    with pytest.raises(UsageError, match=r"^A prompt's message cannot have the role 'system': it is 'user' or "):
        messages_of(("system", "hi"))


WRAPPED = {"type": "object", "required": ["result"], "x-fastmcp-wrap-result": True}


@pytest.mark.parametrize(
    ("returns", "value", "properties", "content", "text"),
    [
        (int, 5, {"result": {"type": "integer"}}, {"result": 5}, "5"),
        (str, "a", {"result": {"type": "string"}}, {"result": "a"}, "a"),
        (list[int], [1], {"result": {"type": "array", "items": {"type": "integer"}}}, {"result": [1]}, "[1]"),
        (MISSING, [1], None, {"result": [1]}, "[1]"),
        (MISSING, {"a": 1}, None, {"a": 1}, '{"a":1}'),
        (MISSING, "a", None, None, "a"),
        (Any, [1], None, {"result": [1]}, "[1]"),
    ],
)
def test_structured_content_that_is_always_an_object(
    returns: Any, value: Any, properties: Any, content: Any, text: str
) -> None:
    output = output_of(returns, structured="object")
    assert output.schema == (None if properties is None else {**WRAPPED, "properties": properties})
    result = output.result_of(value)
    assert result.content == [t.TextContent(text)]
    written = result.structured_content
    assert (None if written is None else json.loads(bytes(written))) == content


def test_objects_stay_objects_and_content_stays_content() -> None:
    assert output_of(Point, structured="object").schema == output_of(Point).schema
    assert json.loads(bytes(output_of(Point, structured="object").result_of(Point(1)).structured_content))["x"] == 1
    for returns, value in ((Image, Image(PNG)), (None, None)):
        output = output_of(returns, structured="object")
        assert output.schema is None
        assert output.result_of(value).structured_content is None
    own = t.CallToolResult([], structured_content=[1])
    assert output_of(list[int], structured="object").result_of(own) is own


def test_a_union_with_objects_is_wrapped_as_a_whole() -> None:
    output = output_of(Point | list[int], structured="object")
    assert output.schema is not None
    assert output.schema["type"] == "object"
    for value, expected in ((Point(1), {"x": 1, "y": 0}), ([1], [1])):
        content = json.loads(bytes(output.result_of(value).structured_content))
        assert content == {"result": expected}
        assert jsonschema_rs.is_valid(output.schema, content)
