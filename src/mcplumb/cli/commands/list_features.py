"""``mcplumb tools``, ``resources`` and ``prompts``: list what a server offers.

The lists are read as raw data, including unknown keys: that helps to debug a server, and a malformed entry does not
hide the others. Malformed entries are reported on stderr, because other clients may reject the whole list for one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from mcplumb.cli.render.output import clean_line, print_json, print_pairs, print_table, print_text, say, stdout
from mcplumb.cli.server_target import Target, server_command
from mcplumb.errors import ProtocolError, RemoteError, UsageError
from mcplumb.wire.messages import METHOD_NOT_FOUND

if TYPE_CHECKING:
    from mcplumb.cli.render.schema_text import Field
    from mcplumb.client.client import Client

__all__ = ["broken_definitions", "entries", "find", "find_listed", "prompts", "resources", "tools"]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_N = TypeVar("_N", bound=_Named)

#: Pages of one list; a server with more is in a loop.
_MAX_PAGES = 1000
#: Characters of a description, and of a tool's signature, in a table.
_MAX_DESCRIPTION = 160
_MAX_SIGNATURE = 48
#: Broken definitions that are reported, and characters of a quotation in such a report.
_MAX_FAULTS = 20
_MAX_QUOTE = 80
#: The terminal width below which arguments are listed without a table.
_MIN_TABLE_WIDTH = 60

_as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print everything the server says, as one JSON document."
)


@server_command()
@_as_json
@click.option("--schema", metavar="NAME", help="Show the arguments of this tool instead.")
async def tools(target: Target, *, as_json: bool, schema: str | None) -> None:
    """List the tools of a server.

    \b
    mcplumb tools -- python weather.py
    mcplumb tools --schema forecast -- python weather.py
    mcplumb tools --json -s http://127.0.0.1:8000/mcp
    """
    from mcplumb.cli.render.schema_text import fields_of, signature_of

    async with target.connect() as client:
        found = await entries(client, "tools/list", "tools")
    _say_broken(found, "tools")
    if schema is not None:
        tool = find(found, schema, "tool")
        if as_json:
            print_json(tool.get("inputSchema"))
        else:
            _show_fields(signature_of(schema, tool.get("inputSchema")), tool, fields_of(tool.get("inputSchema")))
    elif as_json:
        print_json({"tools": found})
    else:
        rows = [
            (signature_of(_text(tool, "name"), tool.get("inputSchema"), _MAX_SIGNATURE), _summary(tool))
            for tool in found
        ]
        _show(["TOOL", "DESCRIPTION"], rows, "tools")


@server_command()
@_as_json
async def resources(target: Target, *, as_json: bool) -> None:
    """List the resources of a server, and its templates.

    \b
    mcplumb resources -- python weather.py
    mcplumb resources --json -- python weather.py
    """
    async with target.connect() as client:
        found = await entries(client, "resources/list", "resources")
        templates = await entries(client, "resources/templates/list", "resourceTemplates")
    _say_broken(found, "resources")
    _say_broken(templates, "resourceTemplates")
    if as_json:
        print_json({"resources": found, "resourceTemplates": templates})
        return
    rows = [
        (_text(each, "uri") or _text(each, "uriTemplate"), _text(each, "name"), _text(each, "mimeType"), _summary(each))
        for each in (*found, *templates)
    ]
    _show(["URI", "NAME", "TYPE", "DESCRIPTION"], rows, "resources")


@server_command()
@_as_json
@click.option("--schema", metavar="NAME", help="Show the arguments of this prompt instead.")
async def prompts(target: Target, *, as_json: bool, schema: str | None) -> None:
    """List the prompts of a server.

    \b
    mcplumb prompts -- python weather.py
    mcplumb prompts --schema plan -- python weather.py
    """
    async with target.connect() as client:
        found = await entries(client, "prompts/list", "prompts")
    _say_broken(found, "prompts")
    if schema is not None:
        prompt = find(found, schema, "prompt")
        if as_json:
            print_json(prompt.get("arguments", []))
        else:
            _show_fields(_call(prompt), prompt, _arguments(prompt))
    elif as_json:
        print_json({"prompts": found})
    else:
        _show(["PROMPT", "DESCRIPTION"], [(_call(prompt), _summary(prompt)) for prompt in found], "prompts")


async def entries(client: Client, method: str, key: str) -> list[dict[str, Any]]:
    """Return all entries of a list, from all pages, as raw data; empty if the server does not know the method."""
    found: list[dict[str, Any]] = []
    cursor, seen = None, set[str]()
    while True:
        try:
            page = await client.request(method, {} if cursor is None else {"cursor": cursor})
        except RemoteError as error:
            if error.code == METHOD_NOT_FOUND and not found:
                return []
            raise
        items = page.get(key) if isinstance(page, dict) else None
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise ProtocolError(f"The server answered {method} without a list of objects in {key!r}.")
        found += items
        cursor = page.get("nextCursor")
        if cursor is None:
            return found
        if not isinstance(cursor, str) or cursor in seen or len(seen) >= _MAX_PAGES:
            raise ProtocolError(f"The server repeats pages of {method}, or has more than {_MAX_PAGES}.")
        seen.add(cursor)


def find(found: Sequence[dict[str, Any]], name: str, what: str) -> dict[str, Any]:
    """Return the entry of this name; raise `UsageError` with similar names if there is none."""
    for entry in found:
        if entry.get("name") == name:
            return entry
    from difflib import get_close_matches

    names = [_text(entry, "name") for entry in found]
    near = get_close_matches(name, names, n=3)
    if near:
        hint = f"Did you mean {' or '.join(near)}?"
    else:
        hint = f"It has {', '.join(names[:20])}{' …' if len(names) > 20 else ''}." if names else "It has none."
    raise UsageError(f"The server has no {what} {name!r}. {hint}")


async def find_listed(listed: Awaitable[Sequence[_N]], name: str, what: str) -> _N:
    """Return the listed record of this name; raise `UsageError` as `find` does, also if there is no such list."""
    try:
        known = {each.name: each for each in await listed}
    except RemoteError as error:
        if error.code != METHOD_NOT_FOUND:
            raise
        known = {}
    find([{"name": each} for each in known], name, what)
    return known[name]


# --- Broken definitions ---

#: The members that a definition must and may have, by their JSON types. "object" also stands for a JSON Schema.
_COMMON = {"title": "string", "description": "string", "icons": "list"}
_DEFINITIONS: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "tools": (
        "tool",
        {"name": "string", "inputSchema": "object"},
        {**_COMMON, "outputSchema": "object", "annotations": "object"},
    ),
    "resources": (
        "resource",
        {"uri": "string", "name": "string"},
        {**_COMMON, "mimeType": "string", "annotations": "object"},
    ),
    "resourceTemplates": (
        "resource template",
        {"uriTemplate": "string", "name": "string"},
        {**_COMMON, "mimeType": "string", "annotations": "object"},
    ),
    "prompts": ("prompt", {"name": "string"}, {**_COMMON, "arguments": "list"}),
}
_JSON_TYPES: dict[str, tuple[type[Any], str]] = {
    "string": (str, "a string"),
    "object": (dict, "an object"),
    "list": (list, "a list"),
}


def broken_definitions(found: Sequence[dict[str, Any]], key: str) -> list[str]:
    """Return a sentence for each entry of a list (``tools``, …) that other clients may reject, up to a limit."""
    what, needed, more = _DEFINITIONS[key]
    identity = next(iter(needed))
    seen: set[str] = set()
    said: list[str] = []
    for number, entry in enumerate(found, 1):
        faults = list(_faults(entry, needed, more))
        title = _text(entry, identity)
        if title and title in seen:
            faults.append(f"its {identity} is listed twice")
        seen.add(title)
        if faults:
            name = repr(clean_line(title, _MAX_QUOTE)) if title else f"number {number}"
            said.append(f"The {what} {name} is broken: {'; '.join(faults)}.")
    rest = len(said) - _MAX_FAULTS
    return said if rest <= 0 else [*said[:_MAX_FAULTS], f"{rest} more {what}s are broken."]


def _faults(entry: dict[str, Any], needed: dict[str, str], more: dict[str, str]) -> Iterator[str]:
    for name, kind in {**needed, **more}.items():
        if name not in entry:
            if name in needed:
                yield f"it has no {name}"
            continue
        value = entry[name]
        expected, words = _JSON_TYPES[kind]
        if not isinstance(value, expected):
            yield f"its {name} is {_quoted(value)}, and must be {words}"
        elif name == "inputSchema":
            yield from _schema_faults(value)
        elif name == "arguments":
            for number, argument in enumerate(value, 1):
                if not isinstance(argument, dict) or not _text(argument, "name"):
                    yield f"its argument number {number} has no name"


def _schema_faults(schema: dict[str, Any]) -> Iterator[str]:
    if schema.get("type") != "object":
        given = f"is of type {_quoted(schema['type'])}" if "type" in schema else "has no type"
        yield f"its inputSchema {given}, and must be of type 'object'"
    if not isinstance(schema.get("properties", {}), dict):
        yield f"the properties in its inputSchema are {_quoted(schema['properties'])}, and must be an object"
    if not isinstance(schema.get("required", []), list):
        yield f"the required in its inputSchema is {_quoted(schema['required'])}, and must be a list"


def _quoted(value: Any) -> str:
    import msgspec

    text = repr(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
    return clean_line(text, _MAX_QUOTE)


def _say_broken(found: Sequence[dict[str, Any]], key: str) -> None:
    for sentence in broken_definitions(found, key):
        say(sentence)


# --- Output ---


def _show(columns: Sequence[str], rows: Sequence[Sequence[str]], what: str) -> None:
    if rows:
        print_table(columns, rows)
    else:
        say(f"The server has no {what}.")


def _show_fields(call: str, entry: dict[str, Any], fields: list[Field]) -> None:
    print_text(call, style="bold")
    if about := _text(entry, "description") or _text(entry, "title"):
        print_text(about)
    print_text()
    if not fields:
        print_text("It takes no arguments.")
    elif stdout().is_terminal and stdout().width < _MIN_TABLE_WIDTH:
        print_pairs([(field.name, field.words) for field in fields])
    else:
        columns = {
            "ARGUMENT": [field.name for field in fields],
            "TYPE": [field.kind for field in fields],
            "REQUIRED": ["yes" if field.is_required else "" for field in fields],
            "DEFAULT": [field.default for field in fields],
            "DESCRIPTION": [field.description for field in fields],
        }
        shown = {title: cells for title, cells in columns.items() if any(cells)}
        print_table(list(shown), zip(*shown.values(), strict=True))


def _arguments(prompt: dict[str, Any]) -> list[Field]:
    from mcplumb.cli.render.schema_text import Field

    listed = prompt.get("arguments")
    return [
        Field(_text(each, "name"), "string", each.get("required") is True, "", _text(each, "description"))
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict)
    ]


def _call(prompt: dict[str, Any]) -> str:
    words = [field.name if field.is_required else f"{field.name}?" for field in _arguments(prompt)]
    return f"{_text(prompt, 'name')}({', '.join(words)})"


def _summary(entry: dict[str, Any]) -> str:
    """Return the first paragraph of a description, which may be pages long."""
    about = _text(entry, "description") or _text(entry, "title")
    return clean_line(about.strip().partition("\n\n")[0], _MAX_DESCRIPTION)


def _text(entry: dict[str, Any], name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""
