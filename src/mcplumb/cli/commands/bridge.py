"""``mcplumb bridge``: serve any server to any client, over other transports and in other eras."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcplumb.cli.command_group import pop_values
from mcplumb.cli.command_runner import GlobalOptions, global_options
from mcplumb.cli.serve_options import addresses_of, set_up_serving_logs, with_tokens
from mcplumb.cli.server_target import ServerCommand, Target, seconds
from mcplumb.errors import UsageError
from mcplumb.server.stderr_logs import LOG_FORMATS, LogFormat

if TYPE_CHECKING:
    from mcplumb.bridge.server_pool import Share

__all__ = ["bridge"]


class _BridgeCommand(ServerCommand):
    """A command for one server, or for several of a config file."""

    def prepare(self, ctx: click.Context) -> None:
        """Select the one server; the command itself finds several."""
        options = ctx.ensure_object(GlobalOptions)
        is_one = self.is_named(ctx)
        if is_one and ctx.params["names"]:
            raise UsageError("Name one server with -s or after --, or several of a config file, but not both.")
        if is_one or not (ctx.params["names"] or options.config):
            super().prepare(ctx)
        else:
            if unused := [
                name for name, value in pop_values(self.server_params, ctx).items() if value and name != "yes"
            ]:
                option = unused[0].replace("_", "-")
                raise UsageError(f"--{option} is for one server: put it into the config file for several.")
            ctx.params["target"] = None


@click.command("bridge", cls=_BridgeCommand)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--stdio", is_flag=True, help="Serve standard input and output, also beside addresses.")
@click.option("--unix", metavar="PATH", multiple=True, help="Serve a Unix socket, which only you can use.")
@click.option("--tcp", metavar="[HOST]:PORT", multiple=True, help="Serve a TCP port.")
@click.option(
    "--http", metavar="[HOST]:PORT[/PATH]", multiple=True, help="Serve HTTP, and HTTP+SSE at /sse; the path is /mcp."
)
@click.option(
    "--client-token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Over HTTP, require one of the bearer tokens in this file, one per line.",
)
@click.option(
    "--share",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Whether clients share a server: where it is safe, always, or never.",
)
@click.option(
    "--idle", type=seconds, default=300.0, metavar="SECONDS", help="Stop a server that no client has used for so long."
)
@click.option("--only", metavar="GLOB", multiple=True, help="Of several servers: pass on only the tools that match.")
@click.option("--hide", metavar="GLOB", multiple=True, help="Of several servers: do not pass on tools that match.")
@click.option("--log-dir", metavar="FOLDER", help="Write the stderr of each server to a file in this folder.")
@click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    help="How logs on stderr look: with times and levels, or plain with the prefixes [TRACE] and Error:.",
)
def bridge(
    target: Target | None,
    names: tuple[str, ...],
    *,
    stdio: bool,
    unix: tuple[str, ...],
    tcp: tuple[str, ...],
    http: tuple[str, ...],
    client_token_file: Path | None,
    share: Share,
    idle: float,
    only: tuple[str, ...],
    hide: tuple[str, ...],
    log_dir: str | None,
    log_format: LogFormat | None,
) -> None:
    """Serve any server to any client: over other transports, in other eras, several behind one address.

    The server is a command after --, or -s with an address or a configured name. With --config FILE, all servers of
    that file are served as one, or only those whose NAMEs are given; their tools get the name of their server as a
    prefix. Clients are served on standard input and output or, if any are given, at addresses.

    A server is started when a client needs it, started again after a crash, and stopped when it is idle. Clients share
    one where that is safe: always if it is modern; if it is legacy, those that cannot be asked anything. With --share
    always they all share one, and a legacy server cannot ask them anything; with --share never each has its own.

    The token of a client is never passed on. For a protected server, sign in with mcplumb login first.

    \b
    mcplumb bridge -s https://example.com/mcp
    mcplumb bridge --http :8000 -- npx -y @modelcontextprotocol/server-everything
    mcplumb bridge --config servers.json weather notes --http :8000
    """
    from mcplumb.bridge.bridge import Bridge
    from mcplumb.server.run import what_it_waits_for

    options = global_options()
    addresses = addresses_of(unix=unix, tcp=tcp, http=http)
    if client_token_file is not None and not http:
        raise UsageError("--client-token-file is for clients over HTTP: give --http as well.")
    if not addresses:
        import os

        from mcplumb.cli.render.output import say

        if os.isatty(0):
            say(what_it_waits_for(shlex.join(["mcplumb", "bridge", "…"]), "--http :8000"), style="dim")
    more: dict[str, Any] = {} if log_dir is None else {"stderr": _folder(log_dir)}
    set_up_serving_logs(log_format, options)
    if target is None:
        from mcplumb.cli.commands.servers import find_entries

        servers: Any = find_entries(names, options.config)
        made = Bridge(servers, share=share, idle=idle, only=only, hide=hide, **more)
    else:
        if only or hide:
            raise UsageError("--only and --hide are for several servers, whose tools have prefixes.")
        known = target.options | (more if target.is_started else {})
        made = Bridge(target.place, name=target.title, share=share, idle=idle, **known)
    http_options = None if client_token_file is None else with_tokens(client_token_file)
    where = (["stdio"] if stdio and addresses else []) + addresses
    made.run(*where, log_format=log_format, trace=options.trace or None, http=http_options)


def _folder(path: str) -> Path:
    folder = Path(path)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder {path} cannot be made: {error.strerror}.") from None
    return folder
