"""The folder of recordings: its place, the names of its files, how many are kept, and which are compressed.

A recording that is being written is locked, so that nobody compresses or deletes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from mcplumb.errors import McplumbError, UsageError
from mcplumb.limits import MAX_RECORDINGS, MAX_RECORDINGS_SIZE
from mcplumb.recording.recording_format import SUFFIX, Header, encode

__all__ = ["find_recordings", "is_live", "open_recording", "recordings_folder", "tidy_folder"]

#: Seconds after its last record when a recording is compressed.
_OLD = 24 * 3600.0
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 40


def recordings_folder() -> Path:
    """Return the default folder, which may not exist yet. Raises `UsageError` if the user has no home folder."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not base.is_absolute():  # as XDG demands: it could be a project's
        try:
            base = Path("~/.local/state").expanduser()
        except RuntimeError:
            raise UsageError(
                "There is no folder for recordings, because you have no home folder. Set XDG_STATE_HOME, or HOME."
            ) from None
    return base / "mcplumb" / "recordings"


def find_recordings(folder: Path | None = None) -> list[Path]:
    """Return the recordings in a folder, the newest first; raise `McplumbError` if it cannot be read.

    A pipe is none: to open one could take forever.
    """
    folder = recordings_folder() if folder is None else folder
    try:
        # Not ``glob``, which takes a folder of another user for an empty one.
        names = sorted(os.listdir(folder), reverse=True)  # noqa: PTH208
        found = [folder / name for name in names if name.endswith((SUFFIX, f"{SUFFIX}.gz"))]
        return [path for path in found if path.is_file()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise McplumbError(f"The folder {folder} cannot be read: {error.strerror}.") from None


def is_live(path: Path) -> bool:
    """Return whether a recording is being written."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def open_recording(header: Header, place: str | Path | None = None, *, goes_on: bool = False) -> tuple[int, Path]:
    """Create the file of a recording, for its owner only, and return its descriptor and path; raise `OSError`.

    ``place`` is a file, or a folder, which gets a new file; None is the default folder. A file of that name that exists
    already is kept under a numbered name, unless this recording ``goes_on`` in it: the writer before may have died
    before it had kept an earlier one.
    """
    if place is None:
        folder = recordings_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = folder
    path = Path(place)
    if path.is_dir():
        name = _NO_NAME.sub("-", header.name).strip("-.")[:_LONGEST_NAME]
        path = path / f"{header.id}{f'-{name}' if name else ''}{SUFFIX}"
    elif path.is_file() and path.stat().st_size and not (goes_on and _was_begun(path, header)):
        path.rename(_free_name(path))
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
    fd = os.open(path, flags, 0o600)
    try:
        os.set_blocking(fd, True)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.fchmod(fd, 0o600)  # an empty file may have been there
        with contextlib.suppress(OSError):  # a device, or a file system without locks
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    return fd, path


def _was_begun(path: Path, header: Header) -> bool:
    """Return whether a file begins with this header, or with a part of it."""
    first = encode(header)
    with path.open("rb") as file:
        return first.startswith(file.read(len(first)))


def _free_name(path: Path) -> Path:
    suffix = SUFFIX if path.name.endswith(SUFFIX) else path.suffix
    stem = path.name.removesuffix(suffix)
    number = 1
    while os.path.lexists(free := path.with_name(f"{stem}.{number}{suffix}")):
        number += 1
    return free


def tidy_folder(path: Path, keep: int | None = None) -> None:
    """Compress old recordings in the folder of this one, and delete the oldest beyond a number; in the default folder.

    What cannot be compressed or deleted stays as it is.
    """
    folder = recordings_folder()
    if path.parent != folder:
        return
    with contextlib.suppress(OSError, McplumbError), _folder_lock(folder):
        found = [(each, each.stat()) for each in find_recordings(folder)]
        kept, size = 0, 0
        for each, state in found:
            kept, size = kept + 1, size + state.st_size
            if (kept > (MAX_RECORDINGS if keep is None else keep) or size > MAX_RECORDINGS_SIZE) and not is_live(each):
                with contextlib.suppress(OSError):
                    each.unlink()
                kept, size = kept - 1, size - state.st_size
            elif each.suffix != ".gz" and time.time() - state.st_mtime > _OLD and not is_live(each):
                with contextlib.suppress(OSError):
                    _compress(each, state)


@contextlib.contextmanager
def _folder_lock(folder: Path) -> Iterator[None]:
    """Let one process at a time tidy a folder; raise `BlockingIOError` if another one does."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


def _compress(path: Path, state: os.stat_result) -> None:
    import gzip

    done = path.with_name(f"{path.name}.gz")
    part = path.with_name(f".{path.name}.part")
    try:
        with (
            path.open("rb") as source,
            os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", mtime=state.st_mtime) as target,
        ):
            shutil.copyfileobj(source, target)
        os.utime(part, (state.st_atime, state.st_mtime))
        part.rename(done)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    path.unlink()
