"""What can be wrong with config files, as sentences that name the file, the server and the key."""

# What only a wrong name needs is loaded for that:
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Iterable

from mcplumb.errors import UsageError

__all__ = ["ConfigError", "NotTrusted", "UnknownServer"]


class ConfigError(UsageError):
    """A config file, or one server in it, cannot be used."""

    def __init__(self, what: str, *, file: str, entry: str | None = None, key: str | None = None) -> None:
        self.file = file
        #: The name of the server, or None if it is about the whole file.
        self.entry = entry
        self.key = key
        where = f"In {file}"
        if entry is not None:
            where += f", server {entry!r}"
        if key is not None:
            where += f", key {key!r}"
        super().__init__(f"{where}: {what}")


class NotTrusted(ConfigError):
    """A server that a project's file names, and that nobody has agreed to."""


class UnknownServer(UsageError, KeyError):
    """No config file has a server of this name."""

    # That of KeyError would show the sentence in quotes.
    __str__ = Exception.__str__

    def __init__(
        self,
        name: str,
        known: Iterable[str],
        faults: Iterable[ConfigError] = (),
        *,
        where: str = "the config files",
    ) -> None:
        from difflib import get_close_matches

        names = list(known)
        if near := get_close_matches(name, names, n=1):
            there = f"The name that is most like it is {near[0]!r}."
        elif names:
            there = f"There are: {', '.join(names)}."
        else:
            there = "There is none at all: add one with 'mcplumb add NAME -- COMMAND'."
        broken = "".join(f"\nIt may be in a file that was not read. {fault}" for fault in faults)
        super().__init__(f"There is no server {name!r} in {where}. {there}{broken}")
