"""The recordings that can be watched: those in the folder, and one that the user named."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import msgspec

from mcplumb.errors import McplumbError
from mcplumb.recording.recording_format import Header, RecordingReader
from mcplumb.recording.recordings_folder import find_recordings, is_live, recordings_folder

__all__ = ["Listed", "SessionList"]

#: Recordings that are listed, the newest: the folder keeps no more.
_MOST_LISTED = 500


class Listed(msgspec.Struct, kw_only=True):
    """A recording in the list."""

    #: How the page names it.
    key: str
    file: str
    header: Header
    size: int
    live: bool


class SessionList:
    """Finds recordings. Its methods read files, so call them in a thread, one at a time."""

    def __init__(self, named: Path | None = None, folder: Path | None = None) -> None:
        self._named = None if named is None else named.resolve()
        self._folder = folder
        self._headers: dict[Path, Header | None] = {}
        self._paths: dict[str, Path] = {}

    @property
    def folder(self) -> Path:
        """The folder that is listed."""
        return recordings_folder() if self._folder is None else self._folder

    @property
    def first(self) -> str | None:
        """The key of the recording that the user named."""
        return None if self._named is None else _key(self._named)

    def path(self, key: str) -> Path | None:
        """Return the file of a listed recording."""
        return self._paths.get(key)

    def look(self) -> list[Listed]:
        """Look for recordings, and return them, newest first."""
        try:
            found = [path.resolve() for path in find_recordings(self.folder)[:_MOST_LISTED]]
        except OSError as error:
            raise McplumbError(f"The folder {self.folder} cannot be read: {error.strerror}.") from None
        if self._named is not None and self._named not in found:
            found.insert(0, self._named)
        listed = []
        for path in found:
            try:
                status = path.stat()
            except OSError:
                continue  # deleted meanwhile
            if not stat.S_ISREG(status.st_mode):
                continue  # opening a pipe would wait for its writer
            header = self._header(path)
            if header is not None:
                live = path.suffix != ".gz" and is_live(path)
                listed.append(Listed(key=_key(path), file=path.name, header=header, size=status.st_size, live=live))
        self._headers = {path: self._headers.get(path) for path in found if self._headers.get(path) is not None}
        self._paths = {_key(path): path for path in found}
        return listed

    def _header(self, path: Path) -> Header | None:
        """Return the header of a recording; None if it has none yet, or is not a recording."""
        header = self._headers.get(path)
        if header is None:
            try:
                with RecordingReader(path) as reader:
                    header = self._headers[path] = reader.header
            except McplumbError:
                return None
        return header


def _key(path: Path) -> str:
    return hashlib.sha256(bytes(path)).hexdigest()[:16]
