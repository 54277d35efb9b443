"""HTTP header fields that carry any text: plain where HTTP allows it, otherwise as ``=?base64?…?=``."""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from string import ascii_letters, digits

from mcplumb.errors import DecodeError, EncodeError

__all__ = ["decode_field", "encode_field", "is_token"]

_PREFIX = "=?base64?"
_SUFFIX = "?="
_BLANKS = " \t"
_TOKEN_CHARACTERS = f"!#$%&'*+-.^_`|~{digits}{ascii_letters}"


def encode_field(text: str) -> str:
    """The text as the value of a header field.

    It stays as it is if no one on the way can change or misread it: ASCII without control characters (tabs are some),
    without blanks at its ends, and not itself of the base64 form. `EncodeError` for a text that UTF-8 cannot carry.
    """
    # Of ASCII, the printable characters are those from the blank to the tilde.
    if text.isascii() and text.isprintable() and text == text.strip(" ") and not _is_encoded(text):
        return text
    try:
        encoded = b2a_base64(text.encode(), newline=False).decode()
    except UnicodeEncodeError as error:
        raise EncodeError("A header field cannot carry a text that has a lone surrogate.") from error
    return f"{_PREFIX}{encoded}{_SUFFIX}"


def decode_field(value: str) -> str:
    """The text that a header field carries; blanks around it are not part of it.

    `DecodeError` if the value has characters that HTTP does not allow there, or begins and ends like the base64 form
    and is not of it. What has only the beginning or only the end of that form is a plain text.
    """
    value = value.strip(_BLANKS)
    if not _is_encoded(value):
        if value.isascii() and value.replace("\t", " ").isprintable():
            return value
        raise DecodeError("The value has characters that no header field can have.")
    if len(value) < len(_PREFIX) + len(_SUFFIX):
        raise DecodeError("The value is of the base64 form, but its two marks overlap.")
    try:
        return a2b_base64(value[len(_PREFIX) : -len(_SUFFIX)], strict_mode=True).decode()
    except ValueError as error:
        raise DecodeError("The value is of the base64 form, but what it encodes is malformed or no UTF-8.") from error


def is_token(name: str) -> bool:
    """Whether this may be the name of a header field, or the end of one."""
    return bool(name) and not name.strip(_TOKEN_CHARACTERS)


def _is_encoded(value: str) -> bool:
    return value.startswith(_PREFIX) and value.endswith(_SUFFIX)
