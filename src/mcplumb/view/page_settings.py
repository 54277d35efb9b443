"""What the user has chosen on the page, such as its theme, in a file of the state folder that only its owner can read.

The browser cannot keep it: each start of the page has another port, and so is another site for it. And whatever program
listens at such a port later could read what the browser keeps.
"""
# pathlib is avoided, as in `mcplumb.config`, which finds the folder.
# ruff: noqa: PTH118, PTH120

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import msgspec

from mcplumb.config.files import ConfigError, decode_strict_json, locked, read_file, replace_file
from mcplumb.config.locations import trust_file
from mcplumb.limits import MAX_PAGE_SETTINGS
from mcplumb.view.api_routes import ApiCall, ApiError, Route

__all__ = ["PageSettings"]

_logger = logging.getLogger("mcplumb.view")


class PageSettings:
    """The settings of the page, as a section of it. Several programs may use them at once."""

    def __init__(self, file: str | None = None) -> None:
        #: The file that has them.
        self.file = file or os.path.join(os.path.dirname(trust_file()), "view-settings.json")

    def routes(self) -> Sequence[Route]:
        """Return the routes of the section."""
        return [Route("GET", "settings", self._answer), Route("POST", "settings", self._keep)]

    async def open(self) -> None:
        """Do nothing: the file is read when a page asks."""

    async def close(self) -> None:
        """Do nothing: every change is in the file."""

    def all(self) -> dict[str, Any]:
        """Return the settings; none if the file cannot be read, because a page without them works."""
        try:
            data = read_file(self.file)
            return {} if data is None else msgspec.convert(decode_strict_json(data, self.file), dict[str, Any])
        except (ConfigError, msgspec.ValidationError) as error:
            _logger.warning("The settings of the page are not used: %s", error)
            return {}

    def keep(self, changes: dict[str, Any]) -> None:
        """Keep these settings, beside the others."""
        with locked(self.file):
            settings = self.all() | changes
            data = msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n"
            if len(data) > MAX_PAGE_SETTINGS:
                raise ApiError(413, f"The settings are too large: the limit is {MAX_PAGE_SETTINGS >> 10} KiB.")
            replace_file(self.file, data)

    async def _answer(self, _: ApiCall) -> Any:
        return {"settings": self.all()}

    async def _keep(self, call: ApiCall) -> Any:
        self.keep(await call.json_body(dict[str, Any]))
        return {}
