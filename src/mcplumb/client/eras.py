"""The memory of which era a server belongs to, so that it is not asked again at each start.

It is only ever a hint: a wrong one costs a question more, and is corrected.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any

from mcplumb.errors import UsageError
from mcplumb.revisions import Era

__all__ = ["EraMemory", "process_memory"]

#: Servers that are remembered; those seen last.
_MOST_SERVERS = 1000
#: Seconds after which a server is asked again: it may have learned the other era by then.
_KEEPS_FOR = 7 * 24 * 3600.0
#: Seconds after which the file is told that a server still is what it was.
_FRESH_FOR = 24 * 3600.0

_logger = logging.getLogger("mcplumb.client")


class EraMemory:
    """What is known of servers, by their keys: for this process and, with a ``path``, in a file for others too.

    The file belongs to its user alone, and holds digests of the keys, never the commands themselves. A file that
    cannot be read or written is no reason to fail: that is logged once.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        if path is not None and not os.fspath(path):
            raise UsageError("The path of the era memory is empty: name a file, or leave it out.")
        self._path = None if path is None else os.path.expanduser(path)  # noqa: PTH111 - pathlib is slow to load
        self._eras: dict[str, Era] = {}
        self._has_complained = False

    def recall(self, key: str) -> Era | None:
        """The era that this server was found to belong to, if that is known."""
        era = self._eras.get(key)
        if era is None and self._path is not None:
            era = _era_of(self._load().get(_digest(key)), time.time())
        return era

    def learn(self, key: str, era: Era) -> None:
        """This server belongs to this era, whatever was known before."""
        self._eras.pop(key, None)
        self._eras[key] = era
        if len(self._eras) > _MOST_SERVERS:
            del self._eras[next(iter(self._eras))]
        if self._path is not None:
            self._keep(_digest(key), era, time.time())

    def _keep(self, name: str, era: Era, now: float) -> None:
        servers = self._load()
        entry = servers.pop(name, None)
        if _era_of(entry, now) == era and now - entry["seen"] < _FRESH_FOR:
            return
        known = [(each, entry) for each, entry in servers.items() if _era_of(entry, now) is not None]
        self._save(dict([*known[1 - _MOST_SERVERS :], (name, {"era": era, "seen": now})]))

    def _load(self) -> dict[str, Any]:
        import json
        from pathlib import Path

        try:
            servers = json.loads(Path(self._path or "").read_bytes())["servers"]
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            self._complain("read", error)
            return {}
        return servers if isinstance(servers, dict) else {}

    def _save(self, servers: dict[str, Any]) -> None:
        import json
        from pathlib import Path

        path = Path(self._path or "")
        beside = path.with_name(f"{path.name}.{os.urandom(4).hex()}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside.touch(mode=0o600, exist_ok=False)
            try:
                beside.write_text(json.dumps({"servers": servers}))
                beside.replace(path)  # whoever reads it meanwhile sees one of the two
            finally:
                beside.unlink(missing_ok=True)
        except OSError as error:
            self._complain("written", error)

    def _complain(self, what: str, error: Exception) -> None:
        level = logging.DEBUG if self._has_complained else logging.WARNING
        self._has_complained = True
        _logger.log(level, "The memory of servers in %s cannot be %s: %s", self._path, what, error)


#: What this process has found out.
process_memory = EraMemory()


def _era_of(entry: Any, now: float) -> Era | None:
    """What an entry of the file says, if it can be understood and is not too old."""
    match entry:
        case {"era": "modern" | "legacy" as era, "seen": int() | float() as seen} if 0 <= now - seen < _KEEPS_FOR:
            known: Era = era
            return known
    return None


def _digest(key: str) -> str:
    from hashlib import sha256

    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
