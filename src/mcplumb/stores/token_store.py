"""Stores for tokens: the system's keyring where there is one, else files that only their owner can read.

All processes of a user share one store. An entry is changed under its lock, which is a lock on a file: the kernel
releases it when the last process that holds it ends, however that happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import msgspec

from mcplumb.errors import AuthorizationError, UsageError

__all__ = ["EntryLock", "FileTokens", "KeyringTokens", "TokenStore", "default_token_store"]

#: An entry has a few kilobytes; JWTs with many claims have been seen with sixteen.
_MAX_ENTRY = 1 << 20
#: Entries that are listed.
_MAX_ENTRIES = 10_000
#: Seconds between two attempts to get a lock. A refresh takes a tenth of a second and more.
_LOCK_INTERVAL = 0.03
_SERVICE = "mcplumb"
_LONGEST_QUOTE = 300


class EntryLock:
    """A lock on one entry. It is held while ``descriptor`` is open, in this process or in one that inherited it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def release(self) -> None:
        """Close the descriptor. A process that inherited it still holds the lock."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class TokenStore(Protocol):
    """Keeps named entries. ``data`` is secret; a name is not. All methods but ``locked`` are called in threads."""

    def load(self, name: str) -> bytes | None:
        """Return the entry; None if there is none."""

    def save(self, name: str, data: bytes) -> None:
        """Store an entry. When this returns, it survives a crash of the machine."""

    def delete(self, name: str) -> None:
        """Delete an entry, if there is one."""

    def names(self) -> list[str]:
        """Return the names of all entries."""

    def locked(self, name: str) -> contextlib.AbstractAsyncContextManager[EntryLock]:
        """Hold the lock of an entry, across processes; wait until it is free."""


class _Stored(msgspec.Struct, omit_defaults=True):
    """The content of a file: the name of the entry, and its data unless that is in the keyring."""

    name: str
    data: bytes | None = None
    #: When the entry ends, in seconds since the epoch.
    ends_at: float | None = None


@contextlib.contextmanager
def _reporting(what: str, errors: type[Exception] = OSError) -> Iterator[None]:
    """Turn the errors of a disk or a keyring into `AuthorizationError`."""
    try:
        yield
    except (AuthorizationError, UsageError):
        raise
    except errors as error:
        why = str(error) or type(error).__name__
        raise AuthorizationError("store", f"{what}: {why[:_LONGEST_QUOTE].rstrip('.')}.") from error


class FileTokens:
    """Keeps entries in the files of one folder, which only the owner may read.

    `AuthorizationError` with the reason "store": the disk does not allow it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def load(self, name: str) -> bytes | None:
        """Return the entry; None if there is none."""
        stored = self._read(self._path(name))
        return None if stored is None or stored.name != name else stored.data

    def save(self, name: str, data: bytes, *, ends_at: float | None = None) -> None:
        """Write the entry to a new file, and replace the old one with it.

        ``ends_at`` is when it is of no use any more, in seconds since the epoch; None if nobody knows.
        """
        with _reporting("The tokens cannot be kept"):
            self._write(_Stored(name, data, ends_at))

    def delete(self, name: str) -> None:
        """Remove the entry's file. The file of its lock stays, as another process may hold it."""
        with _reporting("The tokens cannot be deleted"):
            self._path(name).unlink(missing_ok=True)

    def has(self, name: str) -> bool:
        """Return whether there may be an entry, without reading it."""
        return os.path.lexists(self._path(name))

    def is_elsewhere(self, name: str) -> bool:
        """Return whether the entry's file has only its name: the entry itself is in a keyring."""
        stored = self._read(self._path(name))
        return stored is not None and stored.data is None

    def names(self) -> list[str]:
        """Return the names of all entries, sorted."""
        return list(self.ends())

    def ends(self) -> dict[str, float | None]:
        """Return when each entry ends, by name, sorted; None where nobody knows. No keyring is opened."""
        with _reporting("The tokens cannot be read"):
            try:
                names = os.listdir(self.folder)  # noqa: PTH208 - glob takes a folder of another user for an empty one
            except FileNotFoundError:
                return {}
        paths = [self.folder / name for name in sorted(names) if name.endswith(".json")][:_MAX_ENTRIES]
        found = [stored for path in paths if (stored := self._read(path)) is not None]
        return {stored.name: stored.ends_at for stored in sorted(found, key=lambda each: each.name)}

    @contextlib.asynccontextmanager
    async def locked(self, name: str) -> AsyncIterator[EntryLock]:
        """Hold the lock of an entry, across processes; wait until it is free."""
        path = self._path(name).with_suffix(".lock")
        with _reporting("The tokens cannot be locked"):
            self._check_folder()
            lock = EntryLock(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        try:
            while True:
                try:
                    fcntl.flock(lock.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(_LOCK_INTERVAL)
            yield lock
        finally:
            lock.release()

    def _path(self, name: str) -> Path:
        # A name has addresses in it, which are no file names.
        return self.folder / f"{sha256(name.encode()).hexdigest()[:40]}.json"

    def _read(self, path: Path) -> _Stored | None:
        with _reporting("The tokens cannot be read"):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            with os.fdopen(descriptor, "rb") as opened:
                _check_owner(path, os.fstat(descriptor))
                data = opened.read(_MAX_ENTRY + 1)
        try:
            return msgspec.json.decode(data, type=_Stored)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None  # It was written by hand, or by another program; signing in again replaces it.

    def _write(self, stored: _Stored) -> None:
        self._check_folder()
        path = self._path(stored.name)
        descriptor, made = tempfile.mkstemp(prefix=".new-", dir=self.folder)  # with mode 0600
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(msgspec.json.encode(stored))
                opened.flush()
                os.fsync(opened.fileno())
            Path(made).replace(path)
        except BaseException:
            Path(made).unlink(missing_ok=True)
            raise
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _check_folder(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(self.folder, self.folder.stat())


class KeyringTokens(FileTokens):
    """Keeps entries in the system's keyring. Files have their names, for lists and locks.

    A file that has an entry was written later, where the keyring was out of reach: it counts until the next `save`.
    """

    def __init__(self, folder: str | os.PathLike[str], keyring: Any, *, is_default: bool = False) -> None:
        super().__init__(folder)
        self._keyring = keyring
        #: Whether it is the system's keyring, which other processes find as well.
        self.is_default = is_default

    def load(self, name: str) -> bytes | None:
        """Return the entry; None if there is none."""
        if (data := super().load(name)) is not None:
            return data
        with _reporting("The keyring cannot be read", Exception):
            text = self._keyring.get_password(_SERVICE, name)
        return None if text is None else text.encode()

    def save(self, name: str, data: bytes, *, ends_at: float | None = None) -> None:
        """Keep the entry in the keyring, and its name and its end in a file."""
        with _reporting("The keyring cannot keep the tokens", Exception):
            self._keyring.set_password(_SERVICE, name, data.decode())
            self._write(_Stored(name, ends_at=ends_at))

    def delete(self, name: str) -> None:
        """Delete the entry from the keyring, and its file."""
        with _reporting("The tokens cannot be deleted from the keyring", Exception):
            if self._keyring.get_password(_SERVICE, name) is not None:
                self._keyring.delete_password(_SERVICE, name)
        super().delete(name)


def _check_owner(path: Path, found: os.stat_result) -> None:
    """Raise `UsageError` if a file or folder is another user's, or others can read or write it."""
    if found.st_uid != os.geteuid():
        raise UsageError(
            f"{path} holds the tokens of another user, number {found.st_uid}. Run this as that user, or set "
            "XDG_STATE_HOME to a folder of your own."
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise UsageError(
            f"{path} holds tokens, but other users may read or change it. Make it yours alone (chmod go= {path}), or "
            "delete it and sign in again."
        )


def default_token_store(folder: str | os.PathLike[str]) -> FileTokens:
    """Return the store for a user: the keyring if one works here, else files in ``folder``."""
    if (keyring := _working_keyring()) is not None:
        return KeyringTokens(folder, keyring, is_default=True)
    return FileTokens(folder)


def _working_keyring() -> Any:
    """Return the system's keyring; None if the package is not installed, or no keyring runs here."""
    if os.environ.get("MCPLUMB_KEYRING") == "0":
        return None
    try:
        import keyring
    except ModuleNotFoundError:
        return None
    try:
        backend = keyring.get_keyring()
        is_real = backend.priority >= 1
    except Exception:  # noqa: BLE001 - backends are plugins, which raise what they like
        return None
    # The package stands in for a missing keyring with one of priority 0 that fails, or one that keeps nothing.
    return backend if is_real else None
