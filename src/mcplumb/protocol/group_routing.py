"""Names and URIs in a group of servers: one name for each tool or prompt, and the server that each belongs to.

The name of a tool is ``server_tool``. It consists of the characters that LLM providers allow, has up to 64 of them, and
is a function of the two original names alone: neither the other servers nor the order of a list changes it.

* An underscore in the server's name is doubled, so the first single underscore ends the prefix: the tool ``b_c`` of
  ``a`` is ``a_b_c``, and the tool ``c`` of ``a_b`` is ``a__b_c``.
* Where other characters are replaced, or a name is cut, a hash of the original name is appended: ``x`` and eight
  hexadecimal digits. A name that ends like that by itself gets a hash, too.

So two servers never share a name, whatever their tools are called. A hash can only collide with another of the same
server, and then one of the two tools has no name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import NamedTuple

from mcplumb.errors import UsageError

__all__ = ["MAX_NAME", "GroupNames", "Origin", "group_name", "group_prefix", "template_claims"]

#: The longest name of a function that the APIs of OpenAI and Anthropic have both accepted from the start.
MAX_NAME = 64
#: Leaves at least half of a name to the tool.
_MAX_PREFIX = 30

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_HASHED_PREFIX = re.compile(r"-x[0-9a-f]{8}\Z")
_HASHED_NAME = re.compile(r"(?:\A|_)x[0-9a-f]{8}\Z")
_PREFIX = re.compile(r"((?:[A-Za-z0-9-]|__)+?)_(?!_)")
_TAG_LENGTH = 9


class Origin(NamedTuple):
    """The server that a name belongs to, and the name on that server."""

    server: str
    name: str


def group_prefix(server: str) -> str:
    """Return the prefix of a server's names, without the underscore that ends it."""
    prefix = server.replace("_", "__")
    if _PLAIN.fullmatch(server) and len(prefix) <= _MAX_PREFIX and not _HASHED_PREFIX.search(server):
        return prefix
    cleaned = re.sub(r"[^A-Za-z0-9]+", "-", server)[: _MAX_PREFIX - 1 - _TAG_LENGTH].strip("-")
    return f"{cleaned or 'server'}-{_tag(server)}"


def group_name(server: str, name: str) -> str:
    """Return the name in a group of a tool or prompt that ``server`` calls ``name``."""
    prefix = group_prefix(server)
    return f"{prefix}_{_allowed(name, MAX_NAME - 1 - len(prefix))}"


def template_claims(template: str, uri: str) -> bool:
    """Return whether a URI may be one of this template: it has the template's literals, in their order.

    This is more tolerant than RFC 6570, since servers disagree about what a variable matches. The time is linear.
    """
    literals = re.split(r"\{[^{}]*\}", template)
    if len(literals) == 1:
        return uri == template
    first, *between, last = literals
    if len(uri) < len(first) + len(last) or not (uri.startswith(first) and uri.endswith(last)):
        return False
    at, end = len(first), len(uri) - len(last)
    for literal in between:
        at = uri.find(literal, at, end)
        if at < 0:
            return False
        at += len(literal)
    return True


class GroupNames:
    """The names of all tools, or of all prompts, of the servers in a group.

    ``only`` and ``hide`` are globs on these names: others do not exist. Without ``prefix``, names are those of the
    servers as far as they are allowed, and a name that several servers have is prefixed for each of them. Such names
    depend on what the other servers list.
    """

    def __init__(self, *, prefix: bool = True, only: Iterable[str] = (), hide: Iterable[str] = ()) -> None:
        #: Whether names begin with those of the servers, so that ``server_of`` needs no list.
        self.has_prefix = prefix
        self._only = _globs("only", only)
        self._hide = _globs("hide", hide)
        #: The servers by their prefixes.
        self._servers: dict[str, str] = {}
        self._listed: dict[str, tuple[str, ...]] = {}
        self._origins: dict[str, Origin] = {}
        #: For each server: the name in the group of each name that it lists.
        self._names: dict[str, dict[str, str]] = {}

    def __iter__(self) -> Iterator[str]:
        """The names of what the servers have listed."""
        return iter(self._origins)

    def add_server(self, server: str) -> None:
        """Add a server; raise `UsageError` if another one has the same prefix, which only equal hashes can cause."""
        prefix = group_prefix(server)
        other = self._servers.setdefault(prefix, server)
        if other != server:
            raise UsageError(f"The servers {other!r} and {server!r} get the same prefix, {prefix!r}: rename one.")

    def remove_server(self, server: str) -> None:
        """Remove a server and its names."""
        self._servers.pop(group_prefix(server), None)
        self.set_names(server, ())
        self._listed.pop(server, None)

    def set_names(self, server: str, names: Iterable[str]) -> None:
        """Replace the names that a server lists."""
        # In alphabetical order, so that the order of a list decides nothing even if two hashes are equal.
        listed = tuple(sorted(set(names)))
        if listed == self._listed.get(server, ()):
            return
        self._listed[server] = listed
        if self.has_prefix:
            self._set_names_of(server, {name: group_name(server, name) for name in listed})
        else:
            # What one server lists may change the names of others.
            self._origins.clear()
            self._names.clear()
            for each, own in self._plain_names().items():
                self._set_names_of(each, own)

    def name_of(self, server: str, name: str) -> str | None:
        """Return the name in the group of what a server has listed; None if it is hidden."""
        return self._names.get(server, {}).get(name)

    def find(self, name: str) -> Origin | None:
        """Return the origin of a name: of a listed one, or of one that needs no list because it has no hash."""
        origin = self._origins.get(name)
        if origin is not None or not self.has_prefix or not self.is_visible(name):
            return origin
        server = self.server_of(name)
        if server is None:
            return None
        rest = name[len(group_prefix(server)) + 1 :]
        return Origin(server, rest) if group_name(server, rest) == name else None

    def server_of(self, name: str) -> str | None:
        """Return the server with the prefix of this name; None if there is none, or names have no prefix."""
        prefix = _PREFIX.match(name) if self.has_prefix else None
        return None if prefix is None else self._servers.get(prefix[1])

    def is_visible(self, name: str) -> bool:
        """Return whether ``only`` and ``hide`` let this name pass."""
        if self._only and not any(fnmatchcase(name, glob) for glob in self._only):
            return False
        return not any(fnmatchcase(name, glob) for glob in self._hide)

    def _set_names_of(self, server: str, names: dict[str, str]) -> None:
        for name in self._names.get(server, {}).values():
            self._origins.pop(name, None)
        self._names[server] = visible = {}
        for original, name in names.items():
            if self.is_visible(name) and name not in self._origins:
                self._origins[name] = Origin(server, original)
                visible[original] = name

    def _plain_names(self) -> dict[str, dict[str, str]]:
        origins = [Origin(server, name) for server, listed in self._listed.items() for name in listed]
        names = {origin: _allowed(origin.name, MAX_NAME) for origin in origins}
        while True:
            servers: dict[str, set[str]] = {}
            for origin, name in names.items():
                servers.setdefault(name, set()).add(origin.server)
            shared = [it for it, name in names.items() if len(servers[name]) > 1 and name != group_name(*it)]
            if not shared:
                break
            # A name with a prefix may be the plain name of something else, so this is repeated until all differ.
            names.update((origin, group_name(*origin)) for origin in shared)
        found: dict[str, dict[str, str]] = {server: {} for server in self._listed}
        for origin, name in names.items():
            found[origin.server][origin.name] = name
        return found


def _allowed(name: str, room: int) -> str:
    """Return the name if it is allowed and fits, and otherwise what is left of it, with a hash."""
    is_plain = _PLAIN.fullmatch(name) is not None and not name.startswith("_")
    if is_plain and len(name) <= room and not _HASHED_NAME.search(name):
        return name
    cleaned = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[: room - 1 - _TAG_LENGTH].rstrip("_")
    return f"{cleaned}_{_tag(name)}" if cleaned else _tag(name)


def _tag(original: str) -> str:
    return "x" + sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[: _TAG_LENGTH - 1]


def _globs(option: str, globs: Iterable[str]) -> tuple[str, ...]:
    if isinstance(globs, str):
        raise UsageError(f"{option} takes a list of patterns, not a single one: [{globs!r}].")
    return tuple(globs)
