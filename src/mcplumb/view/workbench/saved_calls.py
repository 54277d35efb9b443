"""Calls that the user saved, in a file of the state folder that only its owner can read."""
# pathlib is avoided, as in `mcplumb.config`, which finds the folder.
# ruff: noqa: PTH118, PTH120

from __future__ import annotations

import os
import secrets
import time
from typing import Any

import msgspec

from mcplumb.config.files import ConfigError, decode_strict_json, locked, read_file, replace_file
from mcplumb.config.locations import trust_file
from mcplumb.limits import MAX_SAVED_CALLS
from mcplumb.view.api_routes import ApiError

__all__ = ["SavedCall", "SavedCalls"]

#: Bytes of one saved call.
_MAX_CALL = 1024 * 1024


class SavedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One saved call."""

    id: str = ""
    #: What the user calls it.
    title: str
    #: The server that it was saved with, as the page names it.
    server: str
    method: str
    params: dict[str, Any]
    #: When it was saved, in seconds since 1970.
    saved: float = 0.0


class SavedCalls:
    """The saved calls of the user. Several programs may use them at once."""

    def __init__(self, file: str | None = None) -> None:
        #: The file that has them.
        self.file = file or os.path.join(os.path.dirname(trust_file()), "saved-calls.json")

    def all(self) -> list[SavedCall]:
        """Return the saved calls, newest first; raise `ConfigError` if the file cannot be read."""
        data = read_file(self.file)
        if data is None:
            return []
        try:
            return msgspec.convert(decode_strict_json(data, self.file)["calls"], list[SavedCall])
        except (msgspec.ValidationError, KeyError, TypeError) as error:
            raise ConfigError(
                f"it does not contain saved calls: {error}. Repair it, or move it away.", file=self.file
            ) from None

    def save(self, call: SavedCall) -> SavedCall:
        """Save a call: it replaces the one with its id, or is new if it has none."""
        call = msgspec.structs.replace(call, id=call.id or secrets.token_hex(8), saved=time.time())
        if len(msgspec.json.encode(call)) > _MAX_CALL:
            raise ApiError(413, f"The call is too large to be saved: the limit is {_MAX_CALL >> 20} MiB.")
        with locked(self.file):
            others = [each for each in self.all() if each.id != call.id]
            if len(others) >= MAX_SAVED_CALLS:
                raise ApiError(409, f"{MAX_SAVED_CALLS} calls are saved already: delete some.")
            self._write([call, *others])
        return call

    def delete(self, id_: str) -> None:
        """Delete a call; raise `ApiError` if there is none with this id."""
        with locked(self.file):
            calls = self.all()
            others = [each for each in calls if each.id != id_]
            if len(others) == len(calls):
                raise ApiError(404, "This call is not saved any more.")
            self._write(others)

    def _write(self, calls: list[SavedCall]) -> None:
        replace_file(self.file, msgspec.json.format(msgspec.json.encode({"calls": calls}), indent=2) + b"\n")
