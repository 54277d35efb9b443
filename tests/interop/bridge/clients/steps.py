"""What the clients that are written with the Python SDKs share: each feature is tried by itself, within a time."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

NOTES = "interop://notes"
TRACE = "interop/trace"
ANSWERS = {"nights": 2, "breakfast": True, "sure": True}
SUMMARY = "It is short."
MODEL = "interop-model"
ROOT = "file:///inn"


class Features:
    """What a client does to try each feature, as far as it is the same with every SDK."""

    #: The exception for a protocol error.
    error: type[Exception]
    #: The parameter of ``call`` that takes a function for progress.
    progress_option = "progress_callback"
    #: The attribute of a page that has the cursor of the next one.
    next_cursor = "next_cursor"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.log: asyncio.Queue[list[Any]] = asyncio.Queue()
        self.changes: asyncio.Queue[str] = asyncio.Queue()
        self.list_changed = asyncio.Event()
        self.steps: list[list[Any]] = []
        self.last_step = asyncio.Event()

    # --- What an SDK does in its own way ---

    async def call(self, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
        """Call a tool, and return its text; after ``error:`` if it failed."""
        raise NotImplementedError

    async def read(self, uri: str) -> str | None:
        """Return the text of a resource, or its bytes in base64."""
        raise NotImplementedError

    async def echo(self, text: str) -> str:
        """Return the result of a method that the SDK does not know."""
        raise NotImplementedError

    async def set_log_level(self) -> None:
        """Ask for log messages, if that has not been done."""
        raise NotImplementedError

    def lists(self) -> dict[str, tuple[Any, str, str]]:
        """Return for tools, prompts, resources and templates: what lists a page, and the attributes of items and names."""
        raise NotImplementedError

    def code_of(self, error: Any) -> int:
        """Return the code of a protocol error."""
        return error.code

    # --- The features ---

    async def pages_of(self, what: str) -> list[list[str]]:
        """Return the names on all pages of a list."""
        list_page, items, name = self.lists()[what]
        found, cursor = [], None
        while cursor is not None or not found:
            result = await list_page(cursor=cursor)
            found.append([str(getattr(item, name)) for item in getattr(result, items)])
            cursor = getattr(result, self.next_cursor)
        return found

    async def calls(self) -> Any:
        return await self.call("greet", {"name": "Åse"})

    async def tool_errors(self) -> Any:
        return await self.call("refuse", {"reason": "The inn is full."})

    async def protocol_errors(self) -> Any:
        try:
            return await self.read("interop://nowhere")
        except self.error as error:
            return self.code_of(error)

    async def resources(self) -> Any:
        uris = sorted(sum(await self.pages_of("resources"), []))
        return [uris, await self.read(NOTES), await self.read("interop://dot")]

    async def templates(self) -> Any:
        return [sum(await self.pages_of("templates"), []), await self.read("interop://cities/Oslo")]

    async def pagination(self) -> Any:
        return await self.pages_of("prompts")

    async def has_drink(self) -> bool:
        return any("drink" in names for names in await self.pages_of("tools"))

    async def forms(self) -> Any:
        self.asked = []
        booked = [await self.call("book", {"room": room}) for room in ("the attic", "the cellar")]
        return [self.asked, booked]

    async def urls(self) -> Any:
        self.asked = []
        return [await self.call("pay"), self.asked]

    async def sampling(self) -> Any:
        self.asked = []
        return [await self.call("summarize", {"text": "a long text"}), self.asked]

    async def roots(self) -> Any:
        return await self.call("look_around")

    async def logs(self) -> Any:
        await self.set_log_level()
        await self.call("announce", {"text": "Dinner is served."})
        return await self.log.get()

    async def extension_methods(self) -> Any:
        try:
            return await self.echo("Åse")
        except self.error as error:
            return self.code_of(error)

    async def cancellation(self) -> Any:
        folder = new_folder()
        hike = asyncio.create_task(self.call("hike", {"steps": 0, "folder": str(folder)}))
        await existing(folder / "begun")
        await self.before_cancelling()
        hike.cancel()
        await existing(folder / "stopped")
        return "stopped"

    async def before_cancelling(self) -> None:
        """Do nothing: SDKs tell the server when a call is cancelled."""

    async def progress(self) -> Any:
        folder = new_folder()
        arguments = {"steps": 3, "folder": str(folder)}
        options = {self.progress_option: self.on_progress}
        hike = asyncio.create_task(self.call("hike", arguments, **options))
        await self.last_step.wait()
        (folder / "home").touch()
        return [self.steps, await hike]

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.steps.append([progress, total, message])
        if progress == total:
            self.last_step.set()


#: The methods of a client that try a feature, in this order: those that a bad bridge does not end come last.
TRIED = (
    *("introduction", "calls", "tool_errors", "protocol_errors", "structured_content", "metadata", "resources"),
    *("templates", "prompts", "pagination", "completion", "extension_methods", "logs", "subscriptions", "list_changes"),
    *("forms", "urls", "sampling", "roots", "cancellation", "progress"),
)


async def observe(client: Features, seconds: float) -> None:
    """Try each feature, and print what was observed: what the method returns, or how it failed."""
    observed: dict[str, Any] = {}
    for name in TRIED:
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
