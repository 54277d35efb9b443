"""JSON as people write it: with comments and trailing commas, which editors allow in their own files."""

# What only a mistake or a comment needs is loaded for that:
# ruff: noqa: PLC0415

from __future__ import annotations

from typing import Any

import msgspec

from mcplumb.config.errors import ConfigError

__all__ = ["decode_json", "decode_strictly"]


def decode_json(data: bytes, file: str) -> Any:
    """What a file says, comments and trailing commas left out; `ConfigError` with the place of a mistake."""
    text = _text(data, file)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        # Most files have no comments, and some are large: those never come here.
        return _decode(_without_extras(text), file)
    except RecursionError:
        raise _too_deep(file) from None


def decode_strictly(data: bytes, file: str) -> Any:
    """The same for a file that is going to be written again: comments would be lost, so that they are a mistake."""
    text = _text(data, file)
    try:
        return _decode(text, file)
    except ConfigError as error:
        try:
            _decode(_without_extras(text), file)
        except ConfigError:
            raise error from None
        raise ConfigError(
            "it has comments or trailing commas, which would be lost. Edit it by hand, or take them out first.",
            file=file,
        ) from None


def _text(data: bytes, file: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"it is not UTF-8 text (byte {error.start}).", file=file) from None
    if not text.strip():
        raise ConfigError("the file is empty: the least that can be in it is {}.", file=file)
    return text


def _decode(text: str, file: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"it is not valid JSON: {_explained(str(error), text)}.", file=file) from None
    except RecursionError:
        raise _too_deep(file) from None


def _explained(said: str, text: str) -> str:
    """What is wrong, and where: the standard library says it in lines and columns, and to the character."""
    import json

    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" starting at").removesuffix(" at")
        return f"{what[0].lower()}{what[1:]} in line {error.lineno}, column {error.colno}"
    except (ValueError, RecursionError):  # it has other limits, for digits and for depth
        pass
    said = said.removeprefix("JSON is malformed: ")
    return f"{said[0].lower()}{said[1:]}"


def _without_extras(text: str) -> str:
    """The text with spaces where comments and trailing commas were, so that everything else stays in its place."""
    import re

    # Strings come first in both patterns, so that nothing in one is taken for a comment or a comma. One that is not
    # closed ends with its line: to begin again within it, character by character, would take forever.
    comments = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
    text = comments.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)
    commas = re.compile(r'"(?:[^"\\\n]|\\.)*"?|,(?=\s*[}\]])', re.DOTALL)
    return commas.sub(lambda m: m[0] if m[0][0] == '"' else " ", text)


def _too_deep(file: str) -> ConfigError:
    return ConfigError("its values are nested too deeply.", file=file)
