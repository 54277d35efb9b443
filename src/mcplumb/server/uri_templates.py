"""URI templates: expand and match the forms of RFC 6570 that can be matched without ambiguity.

    {name}      one path segment, or a part of one
    {/name}     a slash, and one path segment
    {+name}     the rest of a path: segments with slashes between them
    {name*}     the rest of a path
    {/name*}    a slash, and the rest of a path
    {?a,b}      query parameters, each optional, in any order
    {&a,b}      query parameters after a query in the template

A variable matches exactly its form. A segment is not empty, not ``.`` and not ``..``, and has no slash, backslash or
control character, neither encoded nor decoded. The rest of a path consists of such segments. Neither extends into a
query, a fragment or the next parameter. A query parameter may be any text.

Scheme and host are compared case-insensitively, everything else exactly. Invalid percent-escapes and bytes that are not
UTF-8 match nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import msgspec

from mcplumb.errors import UsageError

__all__ = ["UriTemplate", "normalize_uri"]

# ASCII only, because the lower case of other letters may have more characters.
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_HEX = frozenset("0123456789abcdefABCDEF")
_IN_SCHEME = frozenset((_LETTERS + b"0123456789+-.").decode())

# The bytes that are not percent-encoded in a segment and in a path. The reserved form of a path has more, but never the
# delimiters of a query, a fragment or the next parameter.
_IN_SEGMENT = frozenset(_LETTERS + b"0123456789-._~")
_IN_PATH = _IN_SEGMENT | frozenset(b"/")
_IN_RESERVED = _IN_PATH | frozenset(b":[]@!$'()*+,;=")
_IN_LITERAL = frozenset(map(chr, _IN_RESERVED | frozenset(b"?#&%")))

_FORMS = "{name}, {/name}, {+name}, {name*}, {/name*}, {?a,b} and {&a,b}"


class _Variable(msgspec.Struct, frozen=True):
    name: str
    is_rest: bool
    #: The bytes that are not percent-encoded when a value is expanded.
    safe: frozenset[int]
    #: The characters that an encoded value cannot have.
    delimiters: str

    def read(self, written: str) -> str | None:
        """Return the decoded value; None if this variable cannot have it."""
        value = _decoded(written)
        if value is None or any(delimiter in written for delimiter in self.delimiters):
            return None
        segments = value.split("/") if self.is_rest else [value]
        return value if all(map(_is_segment, segments)) else None


class UriTemplate:
    """A URI with variables in braces, or a plain URI without variables.

    Raises a UsageError with the position of the fault for an invalid template, and for an ambiguous one: with two
    adjacent variables, or with two that match the rest of a path.
    """

    __slots__ = ("_fixed", "_literals", "_pivot", "_text", "_variables", "names", "optional_names", "rank")

    #: The names of all variables, in the order of the template.
    names: tuple[str, ...]
    #: The names of the query parameters, which a URI may omit.
    optional_names: tuple[str, ...]
    #: The sort key for "most specific first": plain URIs, then templates with the most literal characters, and of equal
    #: ones first those without the rest of a path.
    rank: tuple[bool, int, bool]

    def __init__(self, text: str) -> None:
        parsed = _Parser(text)
        self._text = text
        self._variables = parsed.variables
        self._literals = normalize_uri("\0".join(parsed.literals)).split("\0")
        self._fixed = parsed.fixed
        self.optional_names = tuple(parsed.parameters)
        self.names = (*(variable.name for variable in parsed.variables), *parsed.parameters)
        rests = [index for index, variable in enumerate(parsed.variables) if variable.is_rest]
        # Literals before this variable are searched for from the left, literals after it from the right.
        self._pivot = rests[0] if rests else len(parsed.variables) - 1
        self.rank = (bool(self.names), -sum(map(len, parsed.literals)), bool(rests))

    @property
    def is_template(self) -> bool:
        """Whether there are variables."""
        return bool(self.names)

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the decoded values of the variables in ``uri``; None if it does not match.

        Each literal is searched for once, without backtracking, so the time is linear in the length of ``uri``. If a
        literal occurs more than once, the first occurrence counts, or the last one after the rest of a path.
        """
        if not self.optional_names:
            return self._match_base(uri)
        base, mark, query = uri.partition("?")
        pieces = query.split("&") if mark else []
        if self._fixed:
            base += mark + "&".join(pieces[: self._fixed])
        values = self._match_base(base)
        return None if values is None else self._match_parameters(pieces[self._fixed :], values)

    def expand(self, **values: str) -> str:
        """Return the URI with these values, for which ``match`` returns them. Query parameters are optional.

        Raises UsageError for a missing or unknown value, and for one that its variable cannot have.
        """
        self.check_names(values)
        missing = [name for name in self.names if name not in values and name not in self.optional_names]
        if missing:
            raise UsageError(f"The URI template {self._text!r} needs a value for {', '.join(missing)}.")
        uri = self._literals[0]
        for variable, literal in zip(self._variables, self._literals[1:], strict=True):
            uri += _encoded(values[variable.name], variable.safe) + literal
        pairs = [f"{name}={_encoded(values[name], _IN_SEGMENT)}" for name in self.optional_names if name in values]
        if pairs:
            uri += ("&" if self._fixed else "?") + "&".join(pairs)
        if self.match(uri) != values:
            raise UsageError(f"The URI template {self._text!r} cannot represent these values: {values!r}.")
        return uri

    def check_names(self, names: Iterable[str]) -> None:
        """Raise `UsageError` if there are no variables of these names."""
        unknown = [name for name in names if name not in self.names]
        if unknown and not self.names:
            raise UsageError(f"The URI {self._text!r} has no variables.")
        if unknown:
            named, known = (", ".join(map(repr, each)) for each in (unknown, self.names))
            raise UsageError(f"The URI template {self._text!r} has no variable {named}. It has {known}.")

    def _match_base(self, uri: str) -> dict[str, str] | None:
        literals, variables, pivot = self._literals, self._variables, self._pivot
        text = normalize_uri(uri)
        if not variables:
            return {} if text == literals[0] else None
        if not (text.startswith(literals[0]) and text.endswith(literals[-1])):
            return None
        start, end = len(literals[0]), len(text) - len(literals[-1])
        written = [""] * len(variables)
        for index in range(pivot):
            literal = literals[index + 1]
            found = _find(text, literal, start + 1, end)
            if found < 0:
                return None
            written[index] = uri[start:found]
            start = found + len(literal)
        for index in range(len(variables) - 1, pivot, -1):
            literal = literals[index]
            found = _find_last(text, literal, start, end - 1)
            if found < 0:
                return None
            written[index] = uri[found + len(literal) : end]
            end = found
        written[pivot] = uri[start:end]
        values: dict[str, str] = {}
        for variable, part in zip(variables, written, strict=True):
            value = variable.read(part)
            if value is None:
                return None
            values[variable.name] = value
        return values

    def _match_parameters(self, pairs: list[str], values: dict[str, str]) -> dict[str, str] | None:
        for pair in pairs:
            name, mark, written = pair.partition("=")
            value = _decoded(written)
            if value is None or not mark or "#" in written or name in values or name not in self.optional_names:
                return None
            values[name] = value
        return values

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"UriTemplate({self._text!r})"


def normalize_uri(uri: str) -> str:
    """Return the URI with its scheme and host in lower case, as a lookup key."""
    scheme, colon, rest = uri.partition(":")
    if not colon:
        return uri
    start = scheme.translate(_LOWER) + colon
    if not rest.startswith("//"):
        return start + rest
    authority = rest[2:]
    for mark in "/?#":
        authority = authority.partition(mark)[0]
    user, at, host = authority.rpartition("@")
    return f"{start}//{user}{at}{host.translate(_LOWER)}{rest[2 + len(authority) :]}"


class _Parser:
    """Parses a template: literals with variables between them, then query parameters."""

    __slots__ = ("_at", "_text", "literals", "parameters", "variables")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        #: The literals around the variables: one more than there are variables.
        self.literals = [""]
        self.variables: list[_Variable] = []
        self.parameters: list[str] = []
        while self._at < len(text):
            if text[self._at] == "{":
                self._read_expression()
            else:
                self._read_character()
        scheme, colon, _ = self.literals[0].partition(":")
        if not (colon and scheme[:1].isalpha() and _IN_SCHEME.issuperset(scheme)):
            self._at = 0
            self._fail("a URI begins with its scheme, as in 'notes://{name}'")

    @property
    def fixed(self) -> int:
        """The number of query parts in the template itself, before the parameters."""
        _, mark, query = "\0".join(self.literals).partition("?")
        return query.count("&") + 1 if mark else 0

    def _read_character(self) -> None:
        character = self._text[self._at]
        if self.parameters:
            self._fail("nothing can follow the query parameters")
        if character not in _IN_LITERAL:
            self._fail(f"{character!r} cannot be in a URI as it is; write it percent-encoded")
        digits = self._text[self._at + 1 : self._at + 3]
        if character == "%" and not (len(digits) == 2 and _HEX.issuperset(digits)):
            self._fail("'%' needs two hexadecimal digits after it; the percent sign itself is '%25'")
        self.literals[-1] += character
        self._at += 1

    def _read_expression(self) -> None:
        end = self._text.find("}", self._at)
        if end < 0:
            self._fail("this '{' has no '}'")
        inside = self._text[self._at + 1 : end]
        if inside.startswith(("?", "&")):
            self._add_parameters(inside[0], inside[1:].split(","))
        else:
            self._add_variable(inside)
        self._at = end + 1

    def _add_variable(self, inside: str) -> None:
        before = "".join(self.literals)
        if self.parameters:
            self._fail("nothing can follow the query parameters")
        if inside.startswith("/"):
            self.literals[-1] += "/"
        if inside.startswith("+"):
            name, is_rest, safe = inside[1:], True, _IN_RESERVED
        elif inside.endswith("*"):
            name, is_rest, safe = inside[:-1].removeprefix("/"), True, _IN_PATH
        else:
            name, is_rest, safe = inside.removeprefix("/"), False, _IN_SEGMENT
        self._check_name(name)
        if self.variables and not self.literals[-1]:
            self._fail("two variables need a literal between them")
        if is_rest and any(variable.is_rest for variable in self.variables):
            self._fail("only one variable can be the rest of a path")
        self.variables.append(_Variable(name, is_rest, safe, "#&" if "?" in before else "?#"))
        self.literals.append("")

    def _add_parameters(self, operator: str, names: list[str]) -> None:
        before = "".join(self.literals)
        if "#" in before:
            self._fail("query parameters come before the fragment")
        if ("?" in before or bool(self.parameters)) != (operator == "&"):
            self._fail("the first query parameters begin with '{?', further ones with '{&'")
        for name in names:
            self._check_name(name)
            self.parameters.append(name)

    def _check_name(self, name: str) -> None:
        if not (name.isascii() and name.isidentifier()):
            self._fail(f"the forms of variables are {_FORMS}, and names are those of function arguments")
        if name in self.parameters or any(name == variable.name for variable in self.variables):
            self._fail(f"{name!r} occurs twice")

    def _fail(self, why: str) -> NoReturn:
        raise UsageError(f"The URI template {self._text!r} cannot be read at character {self._at + 1}: {why}.")


def _find(text: str, literal: str, start: int, end: int) -> int:
    """Return the index of the first occurrence of a literal, or -1; matches within a percent-escape do not count."""
    found = text.find(literal, start, end)
    while found >= 0 and "%" in text[found - 2 : found]:
        found = text.find(literal, found + 1, end)
    return found


def _find_last(text: str, literal: str, start: int, end: int) -> int:
    found = text.rfind(literal, start, end)
    while found >= 0 and "%" in text[found - 2 : found]:
        found = text.rfind(literal, start, found + len(literal) - 1)
    return found


def _is_segment(value: str) -> bool:
    if value in ("", ".", "..") or "/" in value or "\\" in value:
        return False
    return value.isprintable() or not any(character < " " or "\x7f" <= character <= "\x9f" for character in value)


def _decoded(written: str) -> str | None:
    """Return the text with percent-escapes decoded; None if an escape is invalid, or the result is not UTF-8."""
    if "%" not in written:
        return written
    from binascii import unhexlify  # most URIs have no escapes

    head, *pieces = written.split("%")
    if any(len(piece) < 2 for piece in pieces):
        return None
    try:
        data = b"".join([head.encode(), *(unhexlify(piece[:2]) + piece[2:].encode() for piece in pieces)])
        return data.decode()
    except ValueError:
        return None


def _encoded(value: str, safe: frozenset[int]) -> str:
    return "".join(chr(byte) if byte in safe else f"%{byte:02X}" for byte in value.encode("utf-8", "surrogatepass"))
