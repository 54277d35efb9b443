"""Files with variables, one ``NAME=value`` a line, as ``envFile`` names them."""

from __future__ import annotations

from mcplumb.config.errors import ConfigError

__all__ = ["read_variables"]

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


def read_variables(data: bytes, file: str) -> dict[str, str]:
    """The variables of a file; `ConfigError` names the line that is none.

    A value may stand in quotes: in single ones as it is, in double ones with ``\\n`` and the like. Outside of them,
    what follows a space and ``#`` is a comment. ``export`` before a name is overlooked. Nothing is expanded.
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
