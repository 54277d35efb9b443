"""Parse the servers of a config file into entries, in any dialect.

Differences between programs are accepted; mistakes are reported with the server and the key.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mcplumb.config.entry import Input, ServerEntry, Transport
from mcplumb.config.files import ConfigError
from mcplumb.config.locations import ConfigLocation, server_tables

__all__ = ["read_entries"]

#: Keys of a server's address: most programs use the first, Windsurf the second, Gemini CLI the third.
_ADDRESSES = ("url", "serverUrl", "httpUrl")
_TYPES: dict[str, Transport] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}


def read_entries(document: Any, location: ConfigLocation) -> dict[str, ServerEntry | ConfigError] | None:
    """Return each server of a file as an entry, or as the error that makes it unusable; None if it has no servers."""
    tables = server_tables(document, location.path)
    if tables is None:
        return None
    servers, inputs = tables
    known = tuple(_read_input(one) for one in inputs if isinstance(one, dict) and isinstance(one.get("id"), str))
    found: dict[str, ServerEntry | ConfigError] = {}
    for name, raw in servers.items():
        try:
            found[name] = _EntryParser(location, name).entry(raw, known)
        except ConfigError as error:
            found[name] = error
    return found


class _EntryParser:
    """Parses one server; its errors name the file and the server."""

    def __init__(self, location: ConfigLocation, name: str) -> None:
        self._place = location
        self._name = name

    def entry(self, raw: Any, inputs: tuple[Input, ...]) -> ServerEntry:
        if not isinstance(raw, dict):
            raise self._error(f"it must be an object with a command or a url, not {_kind(raw)}.")
        transport = self._transport(raw)
        entry = ServerEntry(
            name=self._name,
            source=self._place.path,
            dialect=self._place.dialect,
            scope=self._place.scope,
            folder=self._place.folder,
            transport=transport,
            disabled=raw.get("disabled") is True or raw.get("enabled") is False,
            inputs=inputs,
            raw=raw,
        )
        if transport != "stdio":
            return replace(entry, url=self._address(raw), headers=self._texts(raw, "headers"))
        command, args = self._command(raw)
        return replace(
            entry,
            command=command,
            args=args,
            env=self._texts(raw, "env"),
            env_file=self._text(raw, "envFile"),
            inherit_env=self._inherited(raw),
            cwd=self._text(raw, "cwd"),
        )

    def _transport(self, raw: dict[str, Any]) -> Transport:
        has_command = raw.get("command") is not None
        has_address = any(raw.get(key) is not None for key in _ADDRESSES)
        key = "type" if "type" in raw else "transport"
        said = raw.get(key)
        if said is None:
            if has_command and has_address:
                raise self._error('it has a command and a url: say which counts, with "type": "stdio" or "http".')
            if not has_command and not has_address:
                raise self._error('it needs a "command" that starts it, or the "url" where it is.')
            return "stdio" if has_command else "http"
        if not isinstance(said, str):
            raise self._error(f"it must be a string, not {_kind(said)}.", key)
        transport = _TYPES.get(said)
        if transport is None:
            raise self._error(f"mcplumb does not know the type {said!r}: it knows stdio, http and sse.", key)
        if transport == "stdio" and not has_command:
            raise self._error('a server of the type stdio needs a "command" that starts it.')
        if transport != "stdio" and not has_address:
            raise self._error(f'a server of the type {said} needs the "url" where it is.')
        return transport

    def _address(self, raw: dict[str, Any]) -> str:
        key = next(key for key in _ADDRESSES if raw.get(key) is not None)
        return self._required(raw[key], key)

    def _command(self, raw: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        command = raw["command"]
        args = raw.get("args")
        if args is None:
            args = []
        if isinstance(command, list) and command:
            command, args = command[0], [*command[1:], *args] if isinstance(args, list) else args
        if not isinstance(args, list):
            raise self._error(f"it must be a list of strings, not {_kind(args)}.", "args")
        texts = tuple(_scalar(item) for item in args)
        if None in texts:
            raise self._error(f"all items must be strings: number {texts.index(None) + 1} is not.", "args")
        return self._required(command, "command"), tuple(text for text in texts if text is not None)

    def _texts(self, raw: dict[str, Any], key: str) -> dict[str, str]:
        values = raw.get(key)
        if values is None:
            return {}
        if not isinstance(values, dict):
            raise self._error(f"it must be an object of names and values, not {_kind(values)}.", key)
        found = {}
        for name, value in values.items():
            if not isinstance(name, str):
                raise self._error(f"its names must be strings, not {name!r}.", key)
            if value is None:
                continue  # VS Code removes an inherited variable this way; here only safe ones are inherited
            text = _scalar(value)
            if text is None:
                raise self._error(f"it must be a string, not {_kind(value)}.", f"{key}.{name}")
            found[name] = text
        return found

    def _text(self, raw: dict[str, Any], key: str) -> str | None:
        value = raw.get(key)
        return None if value is None else self._required(value, key)

    def _inherited(self, raw: dict[str, Any]) -> bool | tuple[str, ...]:
        value = raw.get("inheritEnv", False)
        if isinstance(value, bool):
            return value
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            return tuple(value)
        raise self._error("it must be true, false, or a list of names of variables.", "inheritEnv")

    def _required(self, value: Any, key: str) -> str:
        if not isinstance(value, str):
            raise self._error(f"it must be a string, not {_kind(value)}.", key)
        if not value:
            raise self._error("it is empty.", key)
        return value

    def _error(self, what: str, key: str | None = None) -> ConfigError:
        return ConfigError(what, file=self._place.path, entry=self._name, key=key)


def _read_input(raw: dict[str, Any]) -> Input:
    options = raw.get("options")
    default = raw.get("default")
    description = raw.get("description")
    return Input(
        raw["id"],
        description if isinstance(description, str) else "",
        default if isinstance(default, str) else None,
        raw.get("password") is True,
        tuple(_choice(one) for one in options) if isinstance(options, list) else (),
    )


def _choice(raw: Any) -> str:
    """Return the text of an option, which is a string or an object with a value."""
    return str(raw.get("value", "")) if isinstance(raw, dict) else str(raw)


def _scalar(value: Any) -> str | None:
    """Return a string, number or boolean as a string, as JavaScript writes it; None for anything else.

    Unquoted numbers and booleans are a common mistake in config files.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, str | int | float) else None


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    kinds = {
        bool: "a truth value",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "a list",
        dict: "an object",
    }
    if type(value) in kinds:
        return kinds[type(value)]
    # Only a mapping of Python's values has others: a file does not need the import.
    from mcplumb.transports.process.command import kind_of  # noqa: PLC0415

    return kind_of(value)
