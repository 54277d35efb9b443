"""Arguments on the command line, typed by a schema."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from mcplumb.cli.arguments import Pair, prompt_schema, read_arguments, read_object, read_pair, signature
from mcplumb.errors import UsageError
from mcplumb.types.prompts import PromptArgument

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "The\n name \x1b[2J of a city."},
        "days": {"type": "integer", "minimum": 1, "default": 3},
        "tags": {"type": "array", "items": {"type": "string"}},
        "ids": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        "place": {"$ref": "#/$defs/Place"},
        "either": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "string"}]},
        "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
        "free": {"type": "object"},
        "dotted.name": {"type": "integer"},
        "data": {"type": "string", "contentEncoding": "base64"},
        "any": {},
    },
    "required": ["city"],
    "$defs": {
        "Place": {
            "type": "object",
            "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
            "required": ["lat", "lon"],
        }
    },
}


def arguments(*words: str, args: str | None = None, checked: bool = True) -> dict[str, Any]:
    known = {} if args is None else read_object(args)
    return read_arguments([read_pair(word) for word in words], known, SCHEMA, name="forecast", checked=checked)


def mistake(*words: str, args: str | None = None) -> str:
    with pytest.raises(UsageError) as said:
        arguments(*words, args=args)
    return str(said.value).partition("\n\n")[0]


@pytest.mark.parametrize(
    ("word", "pair"),
    [
        ("a=b", Pair("a", "=", "b")),
        ("a=", Pair("a", "=", "")),
        ("a=b=c", Pair("a", "=", "b=c")),
        ("a=x@y:=z", Pair("a", "=", "x@y:=z")),
        ("a:=1", Pair("a", ":=", 1)),
        ("a:b=1", Pair("a:b", "=", "1")),
        ("a@/dev/null", Pair("a", "@", b"")),
    ],
)
def test_a_pair_ends_its_key_at_the_first_mark(word: str, pair: Pair) -> None:
    assert read_pair(word) == pair


@pytest.mark.parametrize("word", ["", "a", "=b", ":=1", "@f", "{}"])
def test_what_is_no_pair_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="is not an argument: write key=value, key:=JSON or key@FILE"):
        read_pair(word)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["city=Oslo"], {"city": "Oslo"}),
        (["city=3", "days=3"], {"city": "3", "days": 3}),
        (["city=x", "tags=a"], {"city": "x", "tags": ["a"]}),
        (["city=x", "tags=a", "tags=b"], {"city": "x", "tags": ["a", "b"]}),
        (["city=x", 'tags=["a"]'], {"city": "x", "tags": ["a"]}),
        (["city=x", "ids=1", "ids:=2"], {"city": "x", "ids": [1, 2]}),
        (["city=x", "ids=null"], {"city": "x", "ids": None}),
        (["city=x", "any=1", "any=b"], {"city": "x", "any": [1, "b"]}),
        (["city=x", "place.lat=1", "place.lon=2.5"], {"city": "x", "place": {"lat": 1, "lon": 2.5}}),
        (["city=x", 'place={"lat": 1, "lon": 2}', "place.lat=5"], {"city": "x", "place": {"lat": 5, "lon": 2}}),
        (["city=x", "either.lat=1", "either.lon=1"], {"city": "x", "either": {"lat": 1, "lon": 1}}),
        (["city=x", "limits.a.b=3"], {"city": "x", "limits": {"a.b": 3}}),
        (["city=x", "free.a.b=3"], {"city": "x", "free": {"a": {"b": 3}}}),
        (["city=x", "free.a..b=3"], {"city": "x", "free": {"a..b": 3}}),
        (["city=x", "dotted.name=3"], {"city": "x", "dotted.name": 3}),
        (["city:=[1]"], {"city": [1]}),
    ],
)
def test_values_are_typed_by_the_schema(words: list[str], found: dict[str, Any]) -> None:
    assert arguments(*words) == found


def test_files_give_their_contents(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("Oslo\n", encoding="utf-8")
    assert arguments(f"city@{file}") == {"city": "Oslo\n"}
    assert arguments("city=x", f"data@{file}") == {"city": "x", "data": "T3Nsbwo="}
    file.write_text(" 3\n", encoding="utf-8")
    assert arguments("city=x", f"days@{file}") == {"city": "x", "days": 3}
    file.write_bytes(b"\xff")
    assert arguments("city=x", f"data@{file}") == {"city": "x", "data": "/w=="}
    assert mistake(f"city@{file}") == "city must be UTF-8 text."
    assert mistake(f"city@{file}x") == f"city@{file}x cannot be read: No such file or directory."


def test_all_arguments_can_come_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert arguments(args='{"city": "Oslo", "days": 9}') == {"city": "Oslo", "days": 9}
    assert arguments("days=2", args='{"city": "Oslo", "days": 9}') == {"city": "Oslo", "days": 2}
    file = tmp_path / "file"
    file.write_text('{"city": "Rome"}', encoding="utf-8")
    assert arguments(args=f"@{file}") == {"city": "Rome"}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"city": "Bonn"}')))
    assert arguments(args="-") == {"city": "Bonn"}


_LIST = "ids must be a list (each item: an integer) or null, not '1,2': give it once for each item, or as JSON."


class Typed(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_told_that_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Typed(io.BytesIO(b"Oslo")))
    assert arguments("city@-") == {"city": "Oslo"}
    assert capsys.readouterr().err == "Type the value of city@-, and end it with Ctrl-D:\n"


@pytest.mark.parametrize(
    ("words", "args", "said"),
    [
        ([], None, "The argument 'city' is missing."),
        (["ciy=Oslo"], None, "There is no argument 'ciy', did you mean \"city\"?\nThe argument 'city' is missing."),
        (["city=x", "days=x"], None, "days must be an integer of at least 1, not 'x'."),
        (["city=x", "days=1", "days=2"], None, "days is given 2 times, but takes one value: an integer of at least 1."),
        (["city=x", "city=y"], None, "city is given 2 times, but takes one value: a text."),
        (["city=x", "ids=1", "ids=x"], None, "ids must be an integer, not 'x'."),
        (["city=x", "place.lat=1"], None, "The argument 'place.lon' is missing."),
        (["city=x", "place.z=1"], None, 'There is no argument \'place.z\', known are "lat", "lon".'),
        (["city=x", "place.lat.a=1"], None, "There is no argument 'place.lat.a': place.lat must be a number."),
        (["city=x", "ids=1,2"], None, _LIST),
        (["city=x", "free=3"], None, "free must be an object, not '3'."),
        (["city=x", "free:=3", "free.a=3"], None, "free.a cannot be set, because free is not an object."),
        ([], '{"city": "x", "zzz": 1}', None),
        ([], "[1]", 'The value of --args is [1]: write a JSON object, such as \'{"city": "Oslo"}\'.'),
        ([], "{", "The value of --args is not valid JSON: Input data was truncated."),
        (["city:={"], None, "The value of city:= is not valid JSON: Input data was truncated."),
    ],
)
def test_mistakes_are_explained(words: list[str], args: str | None, said: str | None) -> None:
    found = mistake(*words, args=args)
    assert found == said if said is not None else found.startswith("There is no argument 'zzz', known are \"city\"")


def test_a_mistake_shows_the_signature() -> None:
    with pytest.raises(UsageError) as said:
        arguments("ciy=Oslo")
    assert str(said.value).endswith(signature("forecast", SCHEMA))


def test_the_signature_has_a_line_for_each_argument() -> None:
    lines = signature("forecast", SCHEMA).splitlines()
    assert lines[0].startswith("forecast(city, days=3, tags?, ")
    assert lines[1] == "  city         string, required. The name \\x1b[2J of a city."
    assert lines[2] == "  days         integer (from 1), default 3."
    assert [line.split()[0] for line in lines[5:10]] == ["place.lat", "place.lon", "either", "either.lat", "either.lon"]
    assert signature("none", {}) == "none()"


def test_what_is_required_and_has_a_default_is_filled_in() -> None:
    inner: dict[str, Any] = {"type": "object", "properties": {"x": {"default": [1]}, "y": {}}, "required": ["x", "y"]}
    schema = {
        "type": "object",
        "properties": {
            "scale": {"type": "string", "enum": ["css", "device"], "default": "css"},
            "quality": {"type": "integer", "default": 5},
            "area": inner,
            "self": {"$ref": "#", "default": {}},
        },
        "required": ["scale", "self"],
    }

    def read(*words: str, checked: bool = True) -> dict[str, Any]:
        return read_arguments([read_pair(word) for word in words], {}, schema, name="shoot", checked=checked)

    assert read() == {"scale": "css", "self": {}}
    assert read("scale=device", "area.y=2") == {"scale": "device", "self": {}, "area": {"y": 2, "x": [1]}}
    assert read(checked=False) == {}
    with pytest.raises(UsageError, match=r"^The argument 'area\.y' is missing\."):
        read("area.x=1")
    assert signature("shoot", schema).startswith('shoot(scale="css", self={}, quality=5, area?)')


def test_unchecked_everything_goes() -> None:
    assert arguments("ciy=Oslo", "days=x", "a.b=3", checked=False) == {"ciy": "Oslo", "days": "x", "a": {"b": 3}}


def test_a_tool_that_says_nothing_takes_everything() -> None:
    assert read_arguments([read_pair("a=1")], {}, {"type": "object"}, name="x") == {"a": 1}
    assert read_arguments([read_pair("a=1")], {}, None, name="x") == {"a": 1}


def test_prompts_take_texts() -> None:
    known = [PromptArgument("city", required=True, description="Where."), PromptArgument("days", title="Days")]
    schema = prompt_schema(known)
    assert read_arguments([read_pair("city=3")], {}, schema, name="plan") == {"city": "3"}
    assert signature("plan", schema) == "plan(city, days?)\n  city  string, required. Where.\n  days  string. Days."
    with pytest.raises(UsageError, match="The argument 'city' is missing"):
        read_arguments([], {}, schema, name="plan")
    with pytest.raises(UsageError, match="There is no argument 'a', none is known"):
        read_arguments([read_pair("a=1")], {}, prompt_schema(None), name="plan")
