"""What is read has all its fields, also those that came from defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, NamedTuple, TypedDict, TypeVar

import attrs
import msgspec
import pytest

from mcplumb import Server, connect
from mcplumb.server.schema.from_annotation import parse_type
from mcplumb.server.schema.type_codec import reader_of, write
from mcplumb.server.schema.type_tree import completer_of

T = TypeVar("T")


@dataclass
class Place:
    street: str
    city: str = "Oslo"
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    street: str
    city: str = "Oslo"


@dataclass(slots=True)
class Slotted:
    street: str
    city: str = "Oslo"


@dataclass(frozen=True, slots=True)
class Both:
    street: str
    city: str = "Oslo"


@dataclass
class Child(Place):
    zone: int | None = None


@dataclass
class Derived:
    street: str
    city: str = ""

    def __post_init__(self) -> None:
        self.city = self.city or "Oslo"


@dataclass
class Pair(Generic[T]):
    one: T
    other: int = 2


@attrs.define
class Defined:
    street: str
    city: str = "Oslo"


@attrs.define(slots=False)
class Loose:
    street: str
    city: str = "Oslo"


class Whole(msgspec.Struct, rename="camel"):
    a_place: Place


class Keyed(TypedDict, total=False):
    place: Place


class Named(NamedTuple):
    place: Place
    other: Frozen | None = None


@dataclass
class Nested:
    place: Place
    maybe: Frozen | None = None
    many: list[Frozen] = field(default_factory=list)
    fixed: tuple[int, Frozen] | None = None
    by_name: dict[str, Frozen] = field(default_factory=dict)
    count: int = 1


@dataclass
class Tree:
    name: str = "leaf"
    below: list[Tree] = field(default_factory=list)


@dataclass
class Knot:
    name: str = "k"
    below: list[Knot] = field(default_factory=list)
    above: Knot | None = None

    def __post_init__(self) -> None:
        for knot in self.below:
            knot.above = self


@attrs.define
class Holder:
    place: Place


HERE: dict[str, Any] = {"street": "a"}
PLACE: dict[str, Any] = {"street": "a", "city": "Oslo", "tags": []}
SHORT: dict[str, Any] = {"street": "a", "city": "Oslo"}
NESTED: dict[str, Any] = {
    "place": PLACE,
    "maybe": SHORT,
    "many": [SHORT, SHORT],
    "fixed": [1, SHORT],
    "by_name": {"x": SHORT},
    "count": 1,
}

CASES: list[tuple[Any, Any, Any]] = [
    (Place, HERE, PLACE),
    (Place, {"street": "a", "city": "Rome"}, {"street": "a", "city": "Rome", "tags": []}),
    (Frozen, HERE, SHORT),
    (Slotted, HERE, SHORT),
    (Both, HERE, SHORT),
    (Child, HERE, {**PLACE, "zone": None}),
    (Derived, HERE, SHORT),
    (Pair[int], {"one": 1}, {"one": 1, "other": 2}),
    (Pair[Frozen], {"one": HERE}, {"one": SHORT, "other": 2}),
    (Defined, HERE, SHORT),
    (Loose, HERE, SHORT),
    (Holder, {"place": HERE}, {"place": PLACE}),
    (Whole, {"aPlace": HERE}, {"aPlace": PLACE}),
    (Keyed, {"place": HERE}, {"place": PLACE}),
    (Keyed, {}, {}),
    (Named, [HERE, HERE], [PLACE, SHORT]),
    (Named, [HERE], [PLACE, None]),
    (list[Place], [HERE, HERE], [PLACE, PLACE]),
    (set[Frozen], [HERE], [SHORT]),
    (tuple[Place, ...], [HERE], [PLACE]),
    (tuple[int, Place], [1, HERE], [1, PLACE]),
    (dict[str, Place], {"x": HERE}, {"x": PLACE}),
    (dict[str, list[Place | None]], {"x": [HERE, None]}, {"x": [PLACE, None]}),
    (Annotated[Place, msgspec.Meta(description="Where.")], HERE, PLACE),
    (Place | int, 1, 1),
    (Place | list[Frozen] | None, HERE, PLACE),
    (Place | list[Frozen] | None, [HERE], [SHORT]),
    (Nested, {"place": HERE}, {**NESTED, "maybe": None, "many": [], "fixed": None, "by_name": {}}),
    (
        Nested,
        {"place": HERE, "maybe": HERE, "many": [HERE, HERE], "fixed": [1, HERE], "by_name": {"x": HERE}},
        NESTED,
    ),
    (
        Tree,
        {"below": [{}, {"below": [{}]}]},
        {
            "name": "leaf",
            "below": [
                {"name": "leaf", "below": []},
                {"name": "leaf", "below": [{"name": "leaf", "below": []}]},
            ],
        },
    ),
]


@pytest.mark.parametrize(("kind", "given", "whole"), CASES)
def test_defaults_are_written_too(kind: Any, given: Any, whole: Any) -> None:
    read = reader_of(kind)
    for value in (given, msgspec.Raw(msgspec.json.encode(given))):
        made = write(read(value))
        assert sorted(made) == sorted(msgspec.json.encode(whole))
        assert msgspec.json.decode(made) == whole


@pytest.mark.parametrize(("kind", "given", "whole"), CASES)
async def test_a_tool_may_return_what_it_was_given(kind: Any, given: Any, whole: Any) -> None:
    def give_back(value: Any) -> Any:
        return [value]

    give_back.__annotations__ = {"value": kind, "return": list[kind]}
    server = Server("shop")
    server.tool(give_back)

    async with connect(server) as client:
        result = await client.call_tool("give_back", {"value": given})
        assert result.structured_content == [whole] or result.structured_content == {"result": [whole]}, result


def test_what_is_read_is_as_its_class_makes_it() -> None:
    made = reader_of(Nested)({"place": HERE, "many": [HERE]})
    assert made == Nested(Place("a"), many=[Frozen("a")])
    assert vars(made) == vars(Nested(Place("a"), many=[Frozen("a")]))
    assert vars(made.place) == vars(Place("a"))
    assert vars(made.many[0]) == vars(Frozen("a"))


def test_what_its_author_ties_into_a_knot_is_read_too() -> None:
    made = reader_of(Knot)({"below": [{"below": [{}]}, {}]})
    assert made.above is None
    assert made.below[0].above is made
    assert vars(made.below[0].below[0]).keys() == {"name", "below", "above"}


def test_a_field_that_its_author_replaced_is_left_alone() -> None:
    @dataclass
    class Odd:
        pair: tuple[int, Place]
        places: list[Place]
        place: Place
        names: dict[str, Place]
        city: str = "Oslo"

        def __post_init__(self) -> None:
            for name in ("pair", "places", "place", "names"):
                setattr(self, name, 7 if name == "places" else ())

    made = reader_of(Odd)({"pair": [1, HERE], "places": [HERE], "place": HERE, "names": {}})
    assert vars(made) == {"pair": (), "places": 7, "place": (), "names": (), "city": "Oslo"}


@pytest.mark.parametrize(
    "kind",
    [int, list[str], dict[str, Any], Slotted, Both, Defined, Loose, Pair[int] | None, Any, tuple[int, str], Holder],
)
def test_most_types_need_nothing(kind: Any) -> None:
    needs = kind in (Holder, Pair[int] | None)
    assert (completer_of(parse_type(kind, {}).shape) is not None) is needs
