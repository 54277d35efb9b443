"""Read and write config files: size limits, JSON with comments, atomic replacement, errors with positions."""
# Modules that only an error or a comment needs are imported there.
# ruff: noqa: PLC0415
# pathlib is avoided: it would slow down the start of every command.
# ruff: noqa: PTH103, PTH105, PTH108, PTH120, PTH123

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from mcplumb.errors import UsageError

__all__ = [
    "ConfigError",
    "NotTrusted",
    "UnknownServer",
    "decode_json",
    "decode_strict_json",
    "locked",
    "read_file",
    "replace_file",
]


# --- Errors ---


class ConfigError(UsageError):
    """A config file, or one server in it, cannot be used."""

    def __init__(self, what: str, *, file: str, entry: str | None = None, key: str | None = None) -> None:
        self.file = file
        #: The name of the server, or None if the error concerns the whole file.
        self.entry = entry
        self.key = key
        where = f"In {file}"
        if entry is not None:
            where += f", server {entry!r}"
        if key is not None:
            where += f", key {key!r}"
        super().__init__(f"{where}: {what}")


class NotTrusted(ConfigError):
    """The user has not agreed to a server of a project's file."""


class UnknownServer(UsageError, KeyError):
    """No config file has a server of this name."""

    # KeyError.__str__ would put the message in quotes.
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
            there = f"Did you mean {near[0]!r}?"
        elif names:
            there = f"There are: {', '.join(names)}."
        else:
            there = "There are none: add one with 'mcplumb add NAME -- COMMAND'."
        broken = "".join(f"\nIt may be in a file that was not read. {fault}" for fault in faults)
        super().__init__(f"There is no server {name!r} in {where}. {there}{broken}")


# --- JSON with comments and trailing commas ---


def decode_json(data: bytes, file: str) -> Any:
    """Decode JSON with comments and trailing commas; raise `ConfigError` with the position of a mistake."""
    text = _text(data, file)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        # The slow path. Most files have no comments, and some are large.
        return _decode(_blank_comments(text), file)
    except RecursionError:
        raise _too_deep(file) from None


def decode_strict_json(data: bytes, file: str) -> Any:
    """Decode plain JSON of a file that will be rewritten: comments, which would be lost, raise `ConfigError`."""
    text = _text(data, file)
    try:
        return _decode(text, file)
    except ConfigError as error:
        try:
            _decode(_blank_comments(text), file)
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
        raise ConfigError("the file is empty: write at least {}.", file=file)
    return text


def _decode(text: str, file: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"it is not valid JSON: {_explain(str(error), text)}.", file=file) from None
    except RecursionError:
        raise _too_deep(file) from None


def _explain(message: str, text: str) -> str:
    """Say what is wrong and where: unlike msgspec, the standard library reports line and column."""
    import json

    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" starting at").removesuffix(" at")
        return f"{what[0].lower()}{what[1:]} in line {error.lineno}, column {error.colno}"
    except (ValueError, RecursionError):  # json has its own limits of digits and depth
        pass
    message = message.removeprefix("JSON is malformed: ")
    return f"{message[0].lower()}{message[1:]}"


def _blank_comments(text: str) -> str:
    """Replace comments and trailing commas by spaces, so that positions in error messages stay right."""
    import re

    # Both patterns match strings first, so that nothing inside a string is taken for a comment or a comma. An unclosed
    # string ends with its line: restarting the search at each of its characters would take quadratic time.
    comments = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
    text = comments.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)
    commas = re.compile(r'"(?:[^"\\\n]|\\.)*"?|,(?=\s*[}\]])', re.DOTALL)
    return commas.sub(lambda m: m[0] if m[0][0] == '"' else " ", text)


def _too_deep(file: str) -> ConfigError:
    return ConfigError("its values are nested too deeply.", file=file)


# --- Reading, locking and replacing files ---

#: The largest config file in bytes. Claude Code keeps histories in the same file, which grow to megabytes.
_MAX_SIZE = 64 << 20
#: Seconds to wait for the lock; another process holds it for milliseconds.
_LOCK_TIMEOUT = 10.0


def read_file(file: str) -> bytes | None:
    """Return the contents, or None if there is no such file; raise `ConfigError` if it cannot be read."""
    try:
        with open(file, "rb") as opened:
            data = opened.read(_MAX_SIZE + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}.", file=file) from None
    if len(data) > _MAX_SIZE:
        raise ConfigError(f"it is larger than {_MAX_SIZE >> 20} MiB, the limit for config files.", file=file)
    return data


@contextlib.contextmanager
def locked(file: str) -> Iterator[None]:
    """Hold the lock that all mcplumb processes take before they change the file. Creates its folder if necessary.

    The lock is on the folder: a lock on the file would be lost when the file is replaced.
    """
    folder = os.path.dirname(os.path.realpath(file))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"its folder cannot be used: {error.strerror}.", file=file) from None
    try:
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConfigError("another process has been changing it for too long.", file=file) from None
                time.sleep(0.02)
            except OSError as error:  # some network file systems have no locks
                raise ConfigError(f"its folder cannot be locked: {error.strerror}.", file=file) from None
        yield
    finally:
        os.close(descriptor)  # releases the lock


def replace_file(file: str, data: bytes) -> None:
    """Replace a file atomically; the new one is readable by its owner only.

    A symbolic link stays: the file that it points to is replaced.
    """
    real = os.path.realpath(file)
    folder, name = os.path.split(real)
    made = None
    try:
        descriptor, made = tempfile.mkstemp(prefix=f".{name}.", dir=folder)  # with mode 0600
        with open(descriptor, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(made, real)
        made = None
    except OSError as error:
        raise ConfigError(f"it cannot be written: {error.strerror}.", file=file) from None
    finally:
        if made is not None:
            os.unlink(made)
