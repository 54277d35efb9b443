"""Read a recorded session: its transcript and findings, at once or while it is being recorded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mcplumb.errors import UsageError
from mcplumb.recording.recording_format import Record, RecordingReader
from mcplumb.recording.recordings_folder import find_recordings, recordings_folder
from mcplumb.tap.findings import Findings
from mcplumb.tap.transcript import Step, Transcript

__all__ = ["SessionReader", "find_recording"]


class SessionReader:
    """A recording that is being read, with the transcript and the findings so far."""

    def __init__(self, path: str | Path) -> None:
        self.reader = RecordingReader(path)
        self.header = self.reader.header
        self.transcript = Transcript(self.header)
        self.findings = Findings(self.transcript)

    def read(self) -> Iterator[Step]:
        """Read the records added since the last call."""
        for number, record in self.reader.records():
            yield self._feed(number, record)

    def read_all(self) -> SessionReader:
        """Read to the end, and close the file."""
        for _ in self.read():
            pass
        if (last := self.reader.last()) is not None:
            self._feed(*last)
        self.findings.check_time(self.transcript.now)
        self.reader.close()
        return self

    def _feed(self, number: int, record: Record) -> Step:
        step = self.transcript.feed(number, record)
        self.findings.feed(step)
        return step


def find_recording(word: str | None) -> Path:
    """Return the recording that a word means: a file, the beginning of an id, or a server's name, the newest of all.

    Without a word, it is the newest one.
    """
    if word is not None and os.path.isfile(word):  # noqa: PTH113 - pathlib raises for a long name
        return Path(word)
    found = find_recordings()
    if word is None:
        if not found:
            raise UsageError(f"There are no recordings in {recordings_folder()}. Make one with: mcplumb tap -- COMMAND")
        return found[0]
    for path in found:
        id_, _, name = path.name.partition(".mcp.jsonl")[0].rpartition("Z-")
        unique, _, server = name.partition("-")
        if path.name.startswith(word) or unique == word or server == word or f"{id_}Z-{unique}" == word:
            return path
    raise UsageError(f"There is no recording {word!r}: give a file, or an id or a name that 'mcplumb sessions' lists.")
