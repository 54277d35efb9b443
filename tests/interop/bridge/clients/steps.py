"""What the clients that are written with the Python SDKs share: each feature is tried by itself, within a time."""

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

NOTES = "interop://notes"
TRACE = "interop/trace"
ANSWERS = {"nights": 2, "breakfast": True, "sure": True}
SUMMARY = "It is short."
MODEL = "interop-model"
ROOT = "file:///inn"


class Heard:
    """What the server sends without being asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.log: asyncio.Queue[list[Any]] = asyncio.Queue()
        self.changes: asyncio.Queue[str] = asyncio.Queue()
        self.list_changed = asyncio.Event()
        self.progress: list[list[Any]] = []
        self.last_step = asyncio.Event()

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append([progress, total, message])
        if progress == total:
            self.last_step.set()


#: The methods of a client that try a feature, in this order: those that a bad bridge does not end come last.
FEATURES = (
    *("introduction", "calls", "tool_errors", "protocol_errors", "structured_content", "metadata", "resources"),
    *("templates", "prompts", "pagination", "completion", "extension_methods", "logs", "subscriptions", "list_changes"),
    *("forms", "urls", "sampling", "roots", "cancellation", "progress"),
)


async def observe(client: Any, seconds: float) -> None:
    """Try each feature, and print what was observed: what the method returns, or how it failed."""
    observed: dict[str, Any] = {}
    for name in FEATURES:
        try:
            async with asyncio.timeout(seconds):
                observed[name] = await getattr(client, name)()
        except TimeoutError:
            observed[name] = {"failed": f"nothing came within {seconds:g} s"}
        except Exception as error:
            observed[name] = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(observed), flush=True)


def new_folder() -> Path:
    """Return where the server and this client leave files for each other."""
    return Path(tempfile.mkdtemp(dir=Path.home()))


async def existing(file: Path) -> None:
    """Wait until there is such a file."""
    while not file.exists():
        await asyncio.sleep(0.01)


async def pages(list_page: Callable[[str | None], Awaitable[tuple[list[str], str | None]]]) -> list[list[str]]:
    """Return the names on all pages of a list."""
    found = []
    cursor = None
    while True:
        names, cursor = await list_page(cursor)
        found.append(names)
        if not cursor:
            return found


def joined(found: list[list[str]]) -> list[str]:
    return sorted(name for names in found for name in names)
