"""Arguments on the command line, such as ``city=Oslo days=3``, converted to the types of a schema."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from mcplumb.cli.parse_value import InvalidText, SchemaView
from mcplumb.cli.render.output import clean_line, say
from mcplumb.cli.render.schema_text import fields_of, signature_of
from mcplumb.errors import UsageError
from mcplumb.server.schema.read_value import closest, listed

__all__ = ["PAIRS", "Pair", "fill", "prompt_schema", "read_arguments", "read_object", "read_pair", "signature"]

#: The forms of a pair, for messages.
PAIRS = "key=value, key:=JSON or key@FILE"

_MARKS: tuple[Literal["=", ":=", "@"], ...] = (":=", "=", "@")
#: Names that are searched for a similar one, and characters of a line about an argument.
_MAX_NAMES = 1000
_MAX_LINE = 300


class Pair(msgspec.Struct, frozen=True):
    """One argument as given: its key, its mark, and its value: a string, JSON data, or a file's bytes."""

    key: str
    mark: Literal["=", ":=", "@"]
    value: Any


def read_pair(word: str) -> Pair:
    """Parse ``key=value``, ``key:=JSON`` or ``key@FILE``; raise UsageError if it is malformed or cannot be read.

    ``key@-`` reads standard input, and blocks.
    """
    places = [(word.find(mark), mark) for mark in _MARKS if mark in word]
    # The first mark counts; the rest belongs to the value. At the same position, `:=` wins.
    at, mark = min(places, key=lambda place: place[0], default=(0, "="))
    if at < 1:
        raise UsageError(f"{word!r} is not an argument: write {PAIRS}.")
    key, value = word[:at], word[at + len(mark) :]
    if mark == ":=":
        return Pair(key, mark, _decoded(value, f"The value of {key}:="))
    return Pair(key, mark, _read_file(value, word) if mark == "@" else value)


def read_object(args: str) -> dict[str, Any]:
    """Parse a JSON object, given directly, as ``@FILE``, or as ``-`` for standard input; raise UsageError otherwise."""
    what = "The value of --args"
    text: str | bytes = args
    if args == "-" or args.startswith("@"):
        text = _read_file(args.removeprefix("@"), f"--args {args}")
    value = _decoded(text, what)
    if not isinstance(value, dict):
        raise UsageError(f'{what} is {listed([value])}: write a JSON object, such as \'{{"city": "Oslo"}}\'.')
    return value


def read_arguments(
    pairs: Iterable[Pair], args: dict[str, Any], schema: Any, *, name: str, checked: bool = True
) -> dict[str, Any]:
    """Return the arguments for the tool or prompt ``name``: ``args``, updated with the pairs.

    A key may be a path into an object: ``place.city=Oslo``; a repeated key makes a list. Required arguments that are
    missing get the default of their schema. Mistakes raise one UsageError that lists them all and shows the signature.
    Without ``checked``, the schema is ignored.
    """
    arguments = dict(args)
    whole = SchemaView(schema if checked else {})
    mistakes = fill(arguments, pairs, whole)
    if checked:
        mistakes += [str(_unknown(name, whole)) for name in arguments if whole.part(name) is None]
        wrong = {mistake.partition(" ")[0] for mistake in mistakes}
        lacking = [name for name in _lacking(arguments, whole) if name not in wrong]
        if lacking:
            names = ", ".join(map(repr, lacking))
            mistakes.append(f"The argument{f's {names} are' if len(lacking) > 1 else f' {names} is'} missing.")
    if mistakes:
        raise UsageError("\n".join([*mistakes, "", signature(name, schema)]))
    _add_defaults(arguments, whole)
    return arguments


def fill(arguments: dict[str, Any], pairs: Iterable[Pair], whole: SchemaView) -> list[str]:
    """Convert the pairs and put them into ``arguments``; return the mistakes as sentences."""
    mistakes = []
    given: dict[tuple[str, ...], tuple[SchemaView, list[Pair]]] = {}
    for pair in pairs:
        try:
            path, view = _locate(pair.key, whole)
        except UsageError as mistake:
            mistakes.append(str(mistake))
        else:
            given.setdefault(path, (view, []))[1].append(pair)
    for path, (view, group) in given.items():
        try:
            _put(arguments, path, _value(group, view))
        except InvalidText as mistake:
            mistakes.append(f"{'.'.join(path)} {mistake}.")
    return mistakes


def signature(name: str, schema: Any) -> str:
    """Describe a tool, a prompt or a form in several lines: its signature, and each of its arguments."""
    fields = fields_of(schema)
    width = min(max((len(field.name) for field in fields), default=0), 30)
    lines = [f"  {clean_line(field.name, 80):{width}}  {clean_line(field.words, _MAX_LINE)}" for field in fields]
    return "\n".join([clean_line(signature_of(name, schema), _MAX_LINE), *lines])


def prompt_schema(arguments: Sequence[Any] | None) -> dict[str, Any]:
    """Return the arguments of a prompt as a schema; all of them are strings."""
    known = arguments or []
    return {
        "type": "object",
        "properties": {one.name: {"type": "string", "description": one.description or one.title} for one in known},
        "required": [one.name for one in known if one.required],
        "additionalProperties": False,
    }


# --- Paths of arguments ---


def _unknown(name: str, view: SchemaView) -> UsageError:
    text = f"There is no argument {name!r}{closest(name.rpartition('.')[2], view.names[:_MAX_NAMES])}"
    return UsageError(text if text.endswith("?") else f"{text}.")


def _locate(key: str, whole: SchemaView) -> tuple[tuple[str, ...], SchemaView]:
    """Return the path that a key refers to, and the schema of its value; raise UsageError if there is none."""
    path: list[str] = []
    view, rest = whole, key
    while True:
        name = _longest_name(rest, view)
        found = view.part(name)
        if found is None:
            raise _unknown(".".join([*path, name]), view)
        path.append(name)
        rest = rest[len(name) + 1 :]
        if not rest:
            return tuple(path), found
        inner = next((one for one in found.options if one.type in ("object", "any")), None)
        if inner is None:
            raise UsageError(f"There is no argument {key!r}: {'.'.join(path)} must be {found.words}.")
        view = inner


def _longest_name(key: str, view: SchemaView) -> str:
    """Return the longest beginning of the key that names a member of this object: names may contain dots."""
    steps = key.split(".")
    known = set(view.names)
    for count in range(len(steps), 0, -1):
        if (name := ".".join(steps[:count])) in known:
            return name
    more = view.part(steps[0])
    takes_parts = more is None or any(option.type in ("object", "any") for option in more.options)
    return steps[0] if takes_parts and all(steps) else key


def _put(arguments: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    inner: Any = arguments
    for name in path[:-1]:
        inner = inner.setdefault(name, {})
        if not isinstance(inner, dict):
            raise InvalidText(f"cannot be set, because {name} is not an object")
    inner[path[-1]] = value


def _add_defaults(value: dict[str, Any], view: SchemaView) -> None:
    """Add the defaults of required members that are missing, also within nested objects.

    Optional ones are left to the server; but some schemas require what they have a default for.
    """
    for name, inner in value.items():
        part = view.part(name)
        if isinstance(inner, dict) and part is not None and len(part.options) == 1:
            _add_defaults(inner, part.options[0])
    for name in view.needed:
        part = view.part(name)
        if name not in value and part is not None and "default" in part.schema:
            value[name] = part.schema["default"]


def _lacking(value: dict[str, Any], view: SchemaView, place: str = "") -> Iterator[str]:
    """Yield the paths of required members that are missing and have no default, also within nested objects."""
    for name in view.needed:
        part = view.part(name)
        if name not in value and (part is None or "default" not in part.schema):
            yield f"{place}{name}"
    for name, inner in value.items():
        part = view.part(name)
        if isinstance(inner, dict) and part is not None and len(part.options) == 1:
            yield from _lacking(inner, part.options[0], f"{place}{name}.")


# --- Values ---


def _value(group: list[Pair], view: SchemaView) -> Any:
    items = next((option.items for option in view.options if option.type == "array"), None)
    if len(group) == 1:
        try:
            return _single(group[0], view)
        except InvalidText as mistake:
            if items is None:
                raise
            raise InvalidText(f"{mistake}: give it once for each item, or as JSON") from None
    if items is None and not any(option.type == "any" for option in view.options):
        raise InvalidText(f"is given {len(group)} times, but takes one value: {view.words}")
    return [_single(pair, items or SchemaView({})) for pair in group]


def _single(pair: Pair, view: SchemaView) -> Any:
    if pair.mark == "=":
        return view.read(pair.value)
    if pair.mark == ":=":
        return pair.value
    texts = [option for option in view.options if option.type == "string"]
    if any(option.schema.get("contentEncoding") == "base64" for option in texts):
        from base64 import b64encode

        return b64encode(pair.value).decode()
    try:
        text = pair.value.decode()
    except UnicodeDecodeError:
        raise InvalidText("must be UTF-8 text") from None
    return text if texts else view.read(text.strip())


def _decoded(text: str | bytes, what: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"{what} is not valid JSON: {error}.") from None


def _read_file(name: str, what: str) -> bytes:
    """Return the contents of a file, or of standard input for ``-``."""
    if name == "-" and sys.stdin.isatty():
        say(f"Type the value of {what}, and end it with Ctrl-D:", style="dim")
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"{what} cannot be read: {error.strerror}.") from None
