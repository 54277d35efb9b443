"""What may be shown of an entry: everything but secrets, which many people write into config files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["MASK", "looks_secret", "shown_arguments", "shown_url", "shown_values"]

#: What stands in the place of a secret.
MASK = "***"

#: Parts of names of what is nobody's business.
_SECRET_NAMES = ("key", "token", "secret", "passw", "pwd", "credential", "auth", "cookie", "session")
#: How keys of well-known services begin.
_SECRET_STARTS = ("sk-", "pk-", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xox", "AKIA", "AIza", "eyJ")
#: From this length on, letters and digits in a mixture are a key, not a word.
_OPAQUE = 20


def looks_secret(name: str) -> bool:
    """Whether something of this name should not be shown."""
    name = name.lower()
    return any(part in name for part in _SECRET_NAMES)


def shown_values(values: Mapping[str, str]) -> dict[str, str]:
    """Variables or headers without their values, except for those that only name a variable: ``Bearer ${TOKEN}``."""
    return {name: value if _is_reference(value) else MASK for name, value in values.items()}


def shown_arguments(arguments: Iterable[str]) -> list[str]:
    """Arguments without the values of options that are secret by name, and without what looks like a key."""
    shown: list[str] = []
    is_next_secret = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if _is_reference(argument):
            shown.append(argument)
        elif is_next_secret and not argument.startswith("-"):
            shown.append(MASK)
        elif equals and not _is_reference(value) and (looks_secret(name) or _looks_like_key(value)):
            shown.append(f"{name}={MASK}")
        elif "://" in argument:
            shown.append(shown_url(argument))
        else:
            shown.append(MASK if _looks_like_key(argument) else argument)
        is_next_secret = argument.startswith("-") and not equals and looks_secret(name)
    return shown


def shown_url(url: str) -> str:
    """An address without a password, the values of its query, and parts of its path that look like keys."""
    before, has_query, query = url.partition("?")
    scheme, slashes, rest = before.partition("://")
    place, slash, path = rest.partition("/")
    place = f"{MASK}@{place.rpartition('@')[2]}" if "@" in place else place
    parts = [MASK if _looks_like_key(part) else part for part in path.split("/")]
    pairs = [_shown_pair(pair) for pair in query.split("&")]
    return f"{scheme}{slashes}{place}{slash}{'/'.join(parts)}{has_query}{'&'.join(pairs)}"


def _shown_pair(pair: str) -> str:
    name, equals, value = pair.partition("=")
    return f"{name}={value if _is_reference(value) else MASK}" if equals else MASK if pair else ""


def _is_reference(value: str) -> bool:
    """Whether it is nothing but a variable, without a default."""
    for scheme in ("Bearer ", "Basic ", "Token "):
        value = value.removeprefix(scheme)
    return value.startswith("${") and value.endswith("}") and value.count("$") == 1 and ":-" not in value


def _looks_like_key(text: str) -> bool:
    if text.startswith(_SECRET_STARTS) and len(text) >= _OPAQUE:
        return True
    return (
        len(text) >= _OPAQUE
        and text.isascii()
        and all(character.isalnum() or character in "-_" for character in text)
        and any(character.isdigit() for character in text)
        and any(character.isupper() for character in text)
        and any(character.islower() for character in text)
    )
