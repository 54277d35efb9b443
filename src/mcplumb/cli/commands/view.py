"""``mcplumb view``: sessions and a workbench in the browser."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mcplumb.cli.command_group import pop_values
from mcplumb.cli.command_runner import global_options
from mcplumb.cli.server_target import ServerCommand, Target
from mcplumb.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcplumb.view.api_routes import Section
    from mcplumb.view.event_hub import EventHub

__all__ = ["view"]


class _ViewCommand(ServerCommand):
    """A command for a server, a file, or neither."""

    def prepare(self, ctx: click.Context) -> None:
        """Select the server, if one is named."""
        if self.is_named(ctx):
            if ctx.params["file"] is not None:
                raise UsageError("Name a recording, or a server with -s or after --, but not both.")
            super().prepare(ctx)
        else:
            given = pop_values(self.server_params, ctx)
            if unused := [name for name, value in given.items() if value]:
                raise UsageError(f"--{unused[0].replace('_', '-')} is for a server: name it with -s or after --.")
            ctx.params["target"] = None


@click.command("view", cls=_ViewCommand)
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    default=0,
    help="The port of the page; by default a free one.",
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
async def view(target: Target | None, file: Path | None, *, port: int, no_browser: bool) -> None:
    """Watch sessions, and try a server, in the browser.

    Serves a page to the browsers of this machine, and prints its address. The page shows the sessions that mcplumb tap
    and others record, live and afterwards: messages with their answers, a timeline, and what is wrong. On its
    workbench, the tools, resources and prompts of a server can be tried by hand.

    With FILE, a recording, the page begins with that session; with a server, on the workbench, connected to it.

    The address has a secret in it: do not pass it on. Ctrl-C ends the page, and the servers that it has started.

    \b
    mcplumb view
    mcplumb view session.mcp.jsonl
    mcplumb view -- python weather.py
    """
    from mcplumb.cli.render.output import print_text, say
    from mcplumb.view.page_settings import PageSettings
    from mcplumb.view.run_view import serve_view
    from mcplumb.view.watch.watch_section import WatchSection
    from mcplumb.view.workbench.server_choice import ChosenServer
    from mcplumb.view.workbench.workbench_section import WorkbenchSection

    start = None
    if target is not None:
        start = ChosenServer(title=target.title, place=target.place, options=target.options, words=tuple(target.words))
    config = global_options().config

    def sections(hub: EventHub) -> Sequence[Section]:
        return [PageSettings(), WatchSection(hub, file=file), WorkbenchSection(hub, start, config=config)]

    # A fragment stays with the browser.
    begin = "" if target is None else "#/workbench"
    async with serve_view(sections, port=port) as served:
        print_text(served.url + begin)
        say("Open this address in a browser of this machine. Ctrl-C ends it.", style="dim")
        if not no_browser:
            _open_browser(served.one_time_url() + begin)
        await asyncio.get_running_loop().create_future()


def _open_browser(url: str) -> None:
    """Open the address in a daemon thread: some browsers do not return from the call until they are closed."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
