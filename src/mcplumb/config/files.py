"""Files of the user's: read with a limit, and replaced as a whole or not at all."""

# Without pathlib: descriptors are what this is about.
# ruff: noqa: PTH103, PTH105, PTH108, PTH120, PTH123

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator

from mcplumb.config.errors import ConfigError

__all__ = ["locked", "read_file", "replace_file"]

#: Bytes of a config file. Claude Code keeps histories in the same file, which grow to megabytes.
_MAX_SIZE = 64 << 20
#: Seconds to wait for another process that changes the same file, which takes it milliseconds.
_PATIENCE = 10.0


def read_file(file: str) -> bytes | None:
    """All of it, or None if there is no such file; `ConfigError` if it cannot be read."""
    try:
        with open(file, "rb") as opened:
            data = opened.read(_MAX_SIZE + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}.", file=file) from None
    if len(data) > _MAX_SIZE:
        raise ConfigError(f"it is larger than {_MAX_SIZE >> 20} MiB, which no config file is.", file=file)
    return data


@contextlib.contextmanager
def locked(file: str) -> Iterator[None]:
    """Nobody else who asks for the same changes the file meanwhile. Makes its folder, if there is none.

    The lock is on the folder: one on the file would be lost with the file that is replaced.
    """
    folder = os.path.dirname(os.path.realpath(file))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"its folder cannot be used: {error.strerror}.", file=file) from None
    try:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConfigError("another process has been changing it for too long.", file=file) from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)  # and with it the lock


def replace_file(file: str, data: bytes) -> None:
    """Put new contents into a file that only its owner can read, which at every moment is the old or the new one.

    A link stays one: what it leads to is replaced.
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
