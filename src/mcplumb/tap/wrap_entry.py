"""Put a tap before the command of a server in a config file, and remove it again, byte for byte.

Only the command and the beginning of its arguments change, in the text of the file: formatting, comments and the order
of keys stay. The command goes to the arguments exactly as it is written, so that it can be put back::

    "command": "python", "args": ["weather.py"]
    "command": "/usr/bin/mcplumb", "args": ["tap", "--name", "weather", "--", "python", "weather.py"]

An entry without arguments gets them, with ``--name=weather`` as one word; that is how to know that they were added.
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from mcplumb.config.entry import mask_url
from mcplumb.config.files import ConfigError, decode_json
from mcplumb.config.json_spans import Span, parse_spans
from mcplumb.config.locations import server_tables

__all__ = ["is_wrapped", "unwrap_entry", "wrap_entry"]

_SEPARATOR = ", "


def wrap_entry(text: str, file: str, name: str, tap: list[str], inside: tuple[str, ...] = ()) -> str:
    """Return the text of a config file with a tap before the command of this server; ``tap`` starts mcplumb.

    ``inside`` are the keys that lead to the part of the file that applies. Raises `ConfigError` if it cannot be done.
    """
    entry = _find(text, file, name, inside)
    command = _command(text, entry, file, name)
    if is_wrapped(text, file, name, inside):
        raise ConfigError("it is wrapped already.", file=file, entry=name)
    program, *words = tap
    edits: list[tuple[int, int, str]] = []
    if command.items:
        # Some programs have the arguments in the same list.
        first = command.items[0]
        added = [*_literals([*tap, "tap", "--name", name, "--"]), ""]
        edits.append((first.start, first.start, _SEPARATOR.join(added)))
        return _edited(text, edits)
    literal = text[command.start : command.end]
    edits.append((command.start, command.end, _literal(program)))
    args = entry.members.get("args")
    if args is None:
        list_ = f"[{_SEPARATOR.join([*_literals([*words, 'tap', f'--name={name}', '--']), literal])}]"
        at = entry.members["command"][0]
        return _edited(text, [*edits, (at, at, f'"args": {list_}{_SEPARATOR}')])
    if text[args[1].start] != "[":
        raise ConfigError("it must be a list of strings.", file=file, entry=name, key="args")
    added = [*_literals([*words, "tap", "--name", name, "--"]), literal]
    at = args[1].start + 1
    edits.append((at, at, _SEPARATOR.join(added) + (_SEPARATOR if args[1].items else "")))
    return _edited(text, edits)


def is_wrapped(text: str, file: str, name: str, inside: tuple[str, ...] = ()) -> bool:
    """Return whether this server has a tap before its command."""
    entry = _find(text, file, name, inside)
    if "command" not in entry.members:
        return False
    return _tap_words(text, entry) is not None


def unwrap_entry(text: str, file: str, name: str, inside: tuple[str, ...] = ()) -> str:
    """Return the text of a config file without the tap before the command of this server."""
    entry = _find(text, file, name, inside)
    _command(text, entry, file, name)
    found = _tap_words(text, entry)
    if found is None:
        raise ConfigError("it is not wrapped.", file=file, entry=name)
    items, at, was_added = found
    command_at, command = entry.members["command"]
    if command.items:
        return _edited(text, [(items[0].start, items[at].start, "")])
    literal = text[items[at].start : items[at].end]
    edits = [(command.start, command.end, literal)]
    args_at, args = entry.members["args"]
    if was_added and at == len(items) - 1:
        if args_at < command_at and not text[args.end : command_at].strip(", \t\r\n"):
            edits.append((args_at, command_at, ""))
        else:
            edits.append((args.start, args.end, "[]"))
        return _edited(text, edits)
    end = items[at].end
    if at + 1 < len(items):
        # What was inserted ends with a comma and a blank; a program may have formatted it since.
        rest = text[end : items[at + 1].start]
        end += len(_SEPARATOR) if rest.startswith(_SEPARATOR) else len(rest)
    edits.append((args.start + 1 if text[args.start + 1] == '"' else items[0].start, end, ""))
    return _edited(text, edits)


def _find(text: str, file: str, name: str, inside: tuple[str, ...]) -> Span:
    document = decode_json(text.encode(), file)
    span = parse_spans(text)
    for key in inside:
        document, span = document[key], span.members[key][1]
    tables = server_tables(document, file)
    if tables is None or name not in tables[0]:
        raise ConfigError("there is no such server.", file=file, entry=name)
    for path in (("mcpServers",), ("servers",), ("mcp", "servers")):
        found: Span | None = span
        for key in (*path, name):
            found = found.members[key][1] if found is not None and key in found.members else None
        if found is not None:
            return found
    raise ConfigError("there is no such server.", file=file, entry=name)


def _command(text: str, entry: Span, file: str, name: str) -> Span:
    if "command" not in entry.members:
        addresses = [entry.members[key][1] for key in ("url", "httpUrl", "serverUrl") if key in entry.members]
        given = json.loads(text[addresses[0].start : addresses[0].end]) if addresses else ""
        address = mask_url(given) if isinstance(given, str) else ""
        try:
            path = urlsplit(address).path
        except ValueError:
            path = ""
        raise ConfigError(
            "it is at an address, and has no command. Run 'mcplumb tap --http 127.0.0.1:9000 -s "
            f"{address or 'ADDRESS'}', and let the program use http://127.0.0.1:9000{path} instead.",
            file=file,
            entry=name,
        )
    command = entry.members["command"][1]
    if text[command.start] != '"' and not command.items:
        raise ConfigError("it must be a string.", file=file, entry=name, key="command")
    return command


def _tap_words(text: str, entry: Span) -> tuple[list[Span], int, bool] | None:
    """Return the words after a tap's program, which of them is the original command, and whether args were added."""
    command = entry.members["command"][1]
    items = command.items or (entry.members["args"][1].items if "args" in entry.members else [])
    words = [json.loads(text[item.start : item.end]) for item in items]
    program = words[0] if command.items else json.loads(text[command.start : command.end])
    if "tap" not in words[:5] or "--" not in words or words.index("--") < words.index("tap"):
        return None
    before = [str(program), *map(str, words[: words.index("tap")])]
    if not any(word.endswith("mcplumb") for word in before):
        return None
    at = words.index("--") + 1
    was_added = any(str(word).startswith("--name=") for word in words[:at])
    return (items, at, was_added) if at < len(words) else None


def _literal(word: str) -> str:
    return json.dumps(word)


def _literals(words: list[str]) -> list[str]:
    return [_literal(word) for word in words]


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text
