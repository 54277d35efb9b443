"""Parse docstrings in the styles of Google, NumPy and Sphinx: the description, and a text for each argument."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import msgspec

__all__ = ["Docstring", "read_docstring"]

# The titles of sections, and the names of Sphinx fields, that describe arguments, including those of classes.
_TITLES = frozenset({
    "args", "arguments", "attributes", "keyword args", "keyword arguments", "other parameters", "parameters", "params",
})  # fmt: skip
_FIELDS = frozenset({
    "arg", "argument", "attr", "attribute", "ivar", "key", "keyword", "kwarg", "kwparam", "param", "parameter", "var",
})  # fmt: skip
# Fields with types are ignored: the annotations have the types, and cannot be out of date.
_TYPE_FIELDS = frozenset({"kwtype", "rtype", "type", "vartype"})

#: The names that an item of a section describes, and its text; None if the line does not begin an item.
_Head = tuple[list[str], str] | None


class Docstring(msgspec.Struct, frozen=True):
    """A parsed docstring."""

    #: The text without the sections about arguments.
    description: str = ""
    arguments: dict[str, str] = {}

    @property
    def summary(self) -> str:
        """The first paragraph, as one line."""
        return " ".join(self.description.partition("\n\n")[0].split())


def read_docstring(text: str | None) -> Docstring:
    """Parse a docstring. A docstring in an unknown style becomes the description as a whole."""
    if not text:
        return Docstring()
    # As `inspect.cleandoc` does, which takes long to load: the first line is not indented like the others.
    first, _, rest = text.expandtabs().partition("\n")
    lines = f"{first.lstrip()}\n{dedent(rest)}".strip("\n").splitlines()
    kept: list[str] = []
    arguments: dict[str, str] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        indent = _indent(line)
        if _is_google_title(lines, at):
            at = _read_items(lines, at + 1, indent + 1, _google_head, arguments)
        elif _is_underlined(lines, at) and line.strip().lower() in _TITLES:
            at = _read_items(lines, at + 2, indent, _numpy_head, arguments)
        elif _sphinx_head(line) is not None:
            at = _read_items(lines, at, indent, _sphinx_head, arguments)
        else:
            kept.append(line)
            at += 1
    return Docstring(_joined(kept), {name: text for name, text in arguments.items() if name and text})


def _read_items(lines: list[str], at: int, least: int, head: Callable[[str], _Head], arguments: dict[str, str]) -> int:
    """Read items, whose texts may continue in deeper indented lines; return the index of the line after them."""
    level = -1
    names: list[str] = []
    texts: list[str] = []
    while at < len(lines):
        line = lines[at]
        indent = _indent(line)
        if not line.strip():
            texts.append("")
        elif indent < least or _is_underlined(lines, at):
            break
        elif level < 0 or indent <= level:
            item = head(line)
            if item is None:
                break
            level = indent
            names, first = item
            texts = [first]
        else:
            texts.append(line.strip())
        at += 1
        arguments.update(dict.fromkeys(names, _joined(texts)))
    return at


def _google_head(line: str) -> _Head:
    """Parse ``days (int, optional): How many.``"""
    before, colon, text = line.strip().partition(":")
    # A type in parentheses may contain colons.
    while colon and before.count("(") > before.count(")"):
        more, colon, text = text.partition(":")
        before += f":{more}"
    names = _names(before.partition("(")[0])
    return (names, text.strip()) if colon and names else None


def _numpy_head(line: str) -> _Head:
    """Parse ``days, hours : int``."""
    names = _names(line.partition(":")[0])
    return (names, "") if names else None


def _sphinx_head(line: str) -> _Head:
    """Parse ``:param int days: How many.``"""
    if not line.lstrip().startswith(":"):
        return None
    words, colon, text = line.strip()[1:].partition(":")
    field, _, name = words.partition(" ")
    if colon and field in _TYPE_FIELDS:
        return [""], ""
    names = _names(name.rpartition(" ")[2])
    return (names, text.strip()) if colon and field in _FIELDS and names else None


def _names(text: str) -> list[str]:
    """Return the names in a comma-separated list; no names if the text is not such a list."""
    names = [name.strip().strip("*`\\") for name in text.split(",")]
    return names if all(name.isidentifier() for name in names) else []


def _is_google_title(lines: list[str], at: int) -> bool:
    title = lines[at].strip()
    if not title.endswith(":") or title[:-1].lower() not in _TITLES:
        return False
    following = next((line for line in lines[at + 1 :] if line.strip()), "")
    return _indent(following) > _indent(lines[at])


def _is_underlined(lines: list[str], at: int) -> bool:
    rule = lines[at + 1].strip() if at + 1 < len(lines) else ""
    return bool(lines[at].strip()) and len(rule) >= 3 and not rule.strip("-")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _joined(lines: list[str]) -> str:
    """Join the lines, without blank lines at the ends, and with at most one between paragraphs."""
    text = "\n".join(lines).strip()
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text
