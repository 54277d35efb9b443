"""The positions of the values in a JSON text, so that one can be changed and the rest, with its comments, kept."""

from __future__ import annotations

import re
from typing import Any

import msgspec

__all__ = ["Span", "parse_spans"]

_TOKEN = re.compile(
    r'(?P<space>(?:\s+|\ufeff|//[^\n]*|/\*.*?\*/)+)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<mark>[{}\[\],:])|(?P<word>[^\s{}\[\],:"/]+)',
    re.DOTALL,
)


class Span(msgspec.Struct):
    """The position of a value in the text, and the spans of the values in it."""

    start: int
    end: int = 0
    #: The members of an object: the start of each key, and its value.
    members: dict[str, tuple[int, Span]] = msgspec.field(default_factory=dict)
    #: The items of an array.
    items: list[Span] = msgspec.field(default_factory=list)


def parse_spans(text: str) -> Span:
    """Return the positions of the values in a JSON text, which may have comments and trailing commas.

    The text must be valid: check that first. The last of several members with the same name counts.
    """
    tokens = [
        (match.lastgroup or "", match.start(), match.end())
        for match in _TOKEN.finditer(text)
        if match.lastgroup != "space"
    ]
    return _Parser(text, tokens).value()


class _Parser:
    def __init__(self, text: str, tokens: list[tuple[str, int, int]]) -> None:
        self._text = text
        self._tokens = tokens
        self._at = 0

    def value(self) -> Span:
        kind, start, end = self._tokens[self._at]
        self._at += 1
        span = Span(start, end)
        if kind == "mark" and self._text[start] == "{":
            while not self._closes("}", span):
                _, key_start, key_end = self._tokens[self._at]
                key: Any = msgspec.json.decode(self._text[key_start:key_end])
                self._at += 2  # the key and the colon
                span.members[key] = (key_start, self.value())
        elif kind == "mark":
            while not self._closes("]", span):
                span.items.append(self.value())
        return span

    def _closes(self, mark: str, span: Span) -> bool:
        """Pass a comma; return whether the closing mark follows, and pass it, too."""
        kind, start, end = self._tokens[self._at]
        if kind == "mark" and self._text[start] == ",":
            self._at += 1
            kind, start, end = self._tokens[self._at]
        if kind == "mark" and self._text[start] == mark:
            self._at += 1
            span.end = end
            return True
        return False
