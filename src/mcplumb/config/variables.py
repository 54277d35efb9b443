"""Variables in config files: their expansion, and the env files that define some.

All dialects share one grammar:

* ``${NAME}`` and ``${env:NAME}``: the environment variable. An unset variable is missing, not empty.
* ``${NAME:-text}``: the text if the variable is not set. The text may contain variables.
* ``${workspaceFolder}``, ``${workspaceFolderBasename}``, ``${userHome}``, ``${cwd}``, ``${pathSeparator}``, ``${/}``.
* ``${input:id}``: a value that the user is asked for.
* ``$${`` is a literal ``${``.
"""
# pathlib is avoided: importing it would slow down the start of every command.
# ruff: noqa: PTH109, PTH119

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from mcplumb.config.files import ConfigError

__all__ = ["Expander", "UnknownVariable", "parse_env_file"]


# --- Env files ---

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


def parse_env_file(data: bytes, file: str) -> dict[str, str]:
    """Parse an env file of ``NAME=value`` lines; raise `ConfigError` with the number of a bad line.

    A value may be quoted: single quotes keep it as is, double quotes allow escapes such as ``\\n``. Outside quotes, a
    space and ``#`` begin a comment. ``export`` before a name is ignored. Variables are not expanded.
    """
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ConfigError(f"it is not UTF-8 text (byte {error.start}).", file=file) from None
    variables = {}
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.removeprefix("export ").partition("=")
        name = name.strip()
        if not equals or not name or any(character.isspace() for character in name):
            # The line itself is not shown: it may be a secret.
            raise ConfigError(f"line {number} is not NAME=value.", file=file)
        variables[name] = _value(value.strip(), file, number)
    return variables


def _value(text: str, file: str, number: int) -> str:
    quote = text[:1]
    if quote not in {'"', "'"}:
        return (f" {text}".partition(" #")[0]).strip()
    parts: list[str] = []
    characters = iter(text[1:])
    for character in characters:
        if character == quote:
            return "".join(parts)
        if character == "\\" and quote == '"':
            escaped = next(characters, "")
            parts.append(_ESCAPES.get(escaped, f"\\{escaped}"))
        else:
            parts.append(character)
    raise ConfigError(f"line {number} has a quote that is not closed.", file=file)


# --- Expansion ---

#: The maximum nesting of defaults within defaults.
_MAX_DEPTH = 10


class UnknownVariable(ValueError):
    """A ``${…}`` is not valid; the message says what to do, without a full stop."""


class Expander:
    """Replaces variables, and collects those that have no value."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        folder: str,
        home: str,
        answer: Callable[[str], str | None],
        has_bare_names: bool = False,
    ) -> None:
        self._environ = environ
        self._answer = answer
        self._has_bare_names = has_bare_names
        self._known = {
            "workspaceFolder": folder,
            "workspaceFolderBasename": os.path.basename(folder),
            "userHome": home,
            "pathSeparator": os.sep,
            "/": os.sep,
            # Claude Code sets it for its servers.
            **({} if "CLAUDE_PROJECT_DIR" in environ else {"CLAUDE_PROJECT_DIR": folder}),
        }
        #: Variables that are not set, in order of appearance.
        self.missing: list[str] = []
        #: The ids of inputs without a value.
        self.unanswered: list[str] = []

    def expand(self, text: str) -> str:
        """Return the text with variables replaced. A variable without a value becomes empty and is collected."""
        parts: list[str] = []
        at = 0
        while (start := text.find("$", at)) >= 0:
            parts.append(text[at:start])
            if text.startswith("$${", start):
                parts.append("${")
                at = start + 3
            elif text.startswith("${", start):
                end = _closing(text, start)
                parts.append(self._value(text[start + 2 : end]))
                at = end + 1
            else:
                at = start + 1 + (_name_length(text, start + 1) if self._has_bare_names else 0)
                parts.append(self._environ.get(text[start + 1 : at], text[start:at]))
        parts.append(text[at:])
        return "".join(parts)

    def _value(self, inside: str) -> str:
        if inside.startswith("input:"):
            name = inside[6:]
            return self._or_missing(self._answer(name), name, self.unanswered)
        name, colon, default = inside.removeprefix("env:").partition(":-")
        if name in self._known and not inside.startswith("env:"):
            return self._known[name]
        if inside == "cwd":
            return os.getcwd()
        if not name or _name_length(name, 0) != len(name):
            raise UnknownVariable(
                f"mcplumb does not know what ${{{inside}}} means. To keep it literally, write $${{{inside}}}"
            )
        if name not in self._environ and colon:
            return self.expand(default)
        return self._or_missing(self._environ.get(name), name, self.missing)

    @staticmethod
    def _or_missing(value: str | None, name: str, missing: list[str]) -> str:
        if value is None and name not in missing:
            missing.append(name)
        return value or ""


def _closing(text: str, start: int) -> int:
    """Return the index of the brace that closes the variable, whose default may contain variables."""
    depth = 0
    at = start
    while at < len(text):
        if text.startswith("${", at):
            depth += 1
            if depth > _MAX_DEPTH:
                raise UnknownVariable(f"there are more than {_MAX_DEPTH} variables within each other")
            at += 2
            continue
        if text[at] == "}":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    raise UnknownVariable("there is a ${ without its }. To keep it literally, write $${")


def _name_length(text: str, start: int) -> int:
    """Return the length of the variable name that begins at ``start``."""
    at = start
    while (
        at < len(text)
        and text[at].isascii()
        and (text[at].isalpha() or text[at] == "_" or (at > start and text[at].isdigit()))
    ):
        at += 1
    return at - start
