"""Load the configured servers of one file, of a mapping, or of all files that apply to a folder."""

# pathlib is avoided: importing it would slow down the start of every command.
# ruff: noqa: PTH100, PTH109, PTH111, PTH113, PTH117, PTH118

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from mcplumb.config.entry import ServerEntry
from mcplumb.config.files import ConfigError, UnknownServer, decode_json, read_file
from mcplumb.config.locations import ConfigLocation, config_locations, find_dialect, project_folder
from mcplumb.config.parse import read_entries
from mcplumb.errors import UsageError

__all__ = ["Config", "discover_config", "load_config"]

#: What errors name instead of a file.
_MAPPING = "the given mapping"


class Config(Mapping[str, ServerEntry]):
    """Servers by name, in the order in which they were found.

    Looking up a missing name raises `UnknownServer`, which is a `KeyError`; looking up a broken entry, `ConfigError`.
    """

    def __init__(self) -> None:
        self._found: dict[str, ServerEntry | ConfigError] = {}
        #: The files that were read.
        self.files: list[str] = []
        #: Errors of files, which were ignored, and of entries, which cannot be used.
        self.faults: list[ConfigError] = []
        #: Entries whose name is taken by an entry of an earlier file.
        self.hidden: list[ServerEntry] = []

    def __getitem__(self, name: str) -> ServerEntry:
        found = self._found.get(name)
        if found is None:
            raise UnknownServer(name, self, [fault for fault in self.faults if fault.entry is None])
        if isinstance(found, ConfigError):
            raise found.with_traceback(None)
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(self._found.get(name), ServerEntry) if isinstance(name, str) else False

    def __iter__(self) -> Iterator[str]:
        return (name for name, found in self._found.items() if isinstance(found, ServerEntry))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<Config with {', '.join(self) or 'no servers'}>"

    def _add(self, location: ConfigLocation, document: Any, *, is_named: bool = False) -> None:
        entries = read_entries(document, location)
        if entries is None:
            if is_named:
                raise ConfigError('there is neither "mcpServers" nor "servers" in it.', file=location.path)
            return
        if location.path not in self.files:
            self.files.append(location.path)
        for name, found in entries.items():
            if isinstance(found, ConfigError):
                self.faults.append(found)
            if name not in self._found:
                self._found[name] = found
            elif isinstance(found, ServerEntry):
                self.hidden.append(found)


def load_config(path: str | os.PathLike[str] | Mapping[str, Any] | None = None) -> Config:
    """Return the servers of a config file in any supported dialect; without a path, call `discover_config`.

    Instead of a path, give the contents of such a file as a mapping, ``{"mcpServers": {…}}``: it is read in the same
    way, as a file in the current folder.

    Raises `ConfigError` if the file cannot be read. A broken entry does not affect the others; it is reported when it
    is used.
    """
    if path is None:
        return discover_config()
    if isinstance(path, Mapping):
        return _read_mapping(path)
    file = os.path.expanduser(path)
    file = os.path.normpath(file if os.path.isabs(file) else os.path.join(_here(), file))
    data = read_file(file)
    if data is None:
        raise ConfigError("there is no such file.", file=file)
    document = decode_json(data, file)
    dialect = find_dialect(file, document if isinstance(document, dict) else {})
    named = ConfigLocation(file, dialect, "named", project_folder(file))
    # A file of the user's own is read with the same scope whether it is named or discovered.
    mine = (
        location
        for location in config_locations(_here())
        if location.path == file and location.scope == "user" and not location.inside
    )
    config = Config()
    config._add(next(mine, named), document, is_named=True)
    return config


def discover_config(folder: str | os.PathLike[str] | None = None) -> Config:
    """Return the servers of all config files that apply to a folder, by default the current one.

    These are mcplumb's own file, the files of the project, and those of other MCP clients. If several files use the
    same name, the first file in this order wins. Files that cannot be read are ignored, and listed in ``faults``.
    """
    config = Config()
    documents: dict[str, Any] = {}
    for location in config_locations(_here() if folder is None else os.path.abspath(folder)):
        try:
            if location.path not in documents:
                # Only regular files: reading a pipe in a project would block.
                data = read_file(location.path) if os.path.isfile(location.path) else None
                documents[location.path] = None if data is None else decode_json(data, location.path)
            document = documents[location.path]
            for key in location.inside:
                document = document.get(key) if isinstance(document, dict) else None
            if document is not None:
                config._add(location, document)
        except ConfigError as error:
            documents[location.path] = None
            config.faults.append(error)
    return config


def _read_mapping(mapping: Mapping[str, Any]) -> Config:
    try:
        document = _as_json(mapping)
    except RecursionError:
        raise ConfigError("its values are nested too deeply.", file=_MAPPING) from None
    config = Config()
    location = ConfigLocation(_MAPPING, find_dialect(_MAPPING, document), "named", _here())
    config._add(location, document, is_named=True)
    config.files.clear()  # there is none
    return config


def _as_json(value: Any) -> Any:
    """Return a copy with the types that JSON has, where that is possible."""
    if isinstance(value, Mapping):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise UsageError("The current directory does not exist any more: go to another one.") from None
