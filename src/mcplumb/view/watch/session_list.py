"""The recordings that can be watched: those in the folder, and one that the user named."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import msgspec

from mcplumb.errors import McplumbError
from mcplumb.recording.recording_format import Header, RecordingReader
from mcplumb.recording.recordings_folder import find_recordings, is_live, recordings_folder

__all__ = ["Listed", "SessionList", "key_of"]

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
        #: The headers that were read, each with the inode and the size of its file.
        self._headers: dict[Path, tuple[int, int, Header]] = {}
        self._paths: dict[str, Path] = {}
        #: The key of the recording that the user named, after the first look.
        self.first: str | None = None

    @property
    def folder(self) -> Path:
        """The folder that is listed."""
        return recordings_folder() if self._folder is None else self._folder

    def path(self, key: str) -> Path | None:
        """Return the file of a listed recording."""
        return self._paths.get(key)

    def look(self) -> list[Listed]:
        """Look for recordings, and return them, newest first; raise `McplumbError` if the folder cannot be read."""
        found = [path.resolve() for path in find_recordings(self.folder)[:_MOST_LISTED]]
        if self._named is not None and self._named not in found:
            found.insert(0, self._named)
        listed, paths, headers = [], {}, {}
        for path in found:
            try:
                status = path.stat()
            except OSError:
                status = None  # deleted meanwhile
            # Opening a pipe would wait for its writer.
            is_file = status is not None and stat.S_ISREG(status.st_mode)
            header = self._header(path, status) if status is not None and is_file else None
            key = key_of(path, header)
            paths[key] = path
            if path == self._named:
                self.first = key
            if status is not None and header is not None:
                headers[path] = (status.st_ino, status.st_size, header)
                live = path.suffix != ".gz" and is_live(path)
                listed.append(Listed(key=key, file=path.name, header=header, size=status.st_size, live=live))
        self._headers, self._paths = headers, paths
        return listed

    def _header(self, path: Path, status: os.stat_result) -> Header | None:
        """Return the header of a recording; None if it has none yet, or is not a recording."""
        inode, size, header = self._headers.get(path, (0, 0, None))
        if header is not None and inode == status.st_ino and size <= status.st_size:
            return header
        try:
            with RecordingReader(path) as reader:
                return reader.header
        except McplumbError:
            return None


def key_of(path: Path, header: Header | None) -> str:
    """Return the key of a recording. A file that begins anew is another one."""
    return hashlib.sha256(bytes(path) + b"\0" + (header.id if header is not None else "").encode()).hexdigest()[:16]
