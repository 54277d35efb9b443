"""``mcplumb bridge``: serve any server to any client, over other transports and in other eras."""

from __future__ import annotations

import hashlib
import logging
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcplumb.cli.command_group import pop_values
from mcplumb.cli.command_runner import GlobalOptions, global_options
from mcplumb.cli.commands.login import default_sign_in
from mcplumb.cli.serve_options import (
    HttpAccess,
    access_options,
    address_options,
    addresses_of,
    log_format_option,
    set_up_serving_logs,
)
from mcplumb.cli.server_target import ServerCommand, Target, seconds_or_none
from mcplumb.errors import UsageError
from mcplumb.server.stderr_logs import LogFormat

if TYPE_CHECKING:
    from mcplumb.bridge.bridge import Bridge
    from mcplumb.bridge.server_pool import Share
    from mcplumb.config import ConfigError, ServerEntry

__all__ = ["bridge"]

#: The environment variable that tells a bridge which entries of config files other bridges have started it for.
_STARTED_FOR = "MCPLUMB_BRIDGE_ENTRIES"


class _BridgeCommand(ServerCommand):
    """A command for one server, or for several of a config file."""

    def prepare(self, ctx: click.Context) -> None:
        """Select the one server; the command itself finds several."""
        if ctx.params["http"] and ctx.params["server"] is None:
            ctx.params["sse"] = False  # --http serves HTTP+SSE anyway; only an address could speak it
        options = ctx.ensure_object(GlobalOptions)
        is_one = self.is_named(ctx)
        if is_one and ctx.params["names"]:
            raise UsageError("Name one server with -s or after --, or several of a config file, but not both.")
        if is_one or not (ctx.params["names"] or options.config):
            super().prepare(ctx)
        else:
            given = pop_values(self.server_params, ctx)
            if unused := [name for name, value in given.items() if value and name != "yes"]:
                option = unused[0].replace("_", "-")
                raise UsageError(f"--{option} is for one server: put it into the config file for several.")
            ctx.params |= {"target": None, "yes": given["yes"]}


@click.command("bridge", cls=_BridgeCommand)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@address_options
@access_options("--client-token-file")
@click.option(
    "--share",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Whether clients share a server: where it is safe, always, or never.",
)
@click.option(
    "--idle",
    type=seconds_or_none,
    default=300.0,
    metavar="SECONDS",
    help="Stop a server after this time without clients; 0 stops it at once.",
)
@click.option(
    "--only", metavar="GLOB", multiple=True, help="With several servers: offer only the tools and prompts that match."
)
@click.option(
    "--hide", metavar="GLOB", multiple=True, help="With several servers: hide the tools and prompts that match."
)
@click.option("--log-dir", metavar="FOLDER", help="Write the stderr of each server to a file in this folder.")
@log_format_option
def bridge(
    target: Target | None,
    names: tuple[str, ...],
    *,
    yes: bool = False,
    stdio: bool,
    unix: tuple[str, ...],
    tcp: tuple[str, ...],
    http: tuple[str, ...],
    share: Share,
    idle: float,
    only: tuple[str, ...],
    hide: tuple[str, ...],
    log_dir: str | None,
    log_format: LogFormat | None,
    **access: Any,
) -> None:
    """Serve any server to any client, in any era.

    The server is a command after --, or -s with an address or a configured name. With --config FILE, all servers of
    that file that are not disabled are served as one, or only those whose NAMEs are given; their tools get the name of
    their server as a prefix. Clients are served on standard input and output or, if any are given, at addresses.

    A server is started when a client needs it, restarted after a crash, and stopped when it is idle. Clients share a
    modern server. A legacy server is shared only by clients that cannot be asked anything, because it would not know
    which one to ask. With --share always, all clients share one server, and a legacy server cannot ask them anything;
    with --share never, each client has its own.

    With --http, clients of the old HTTP+SSE transport are served as well, at /sse, whether --sse is given or not.
    --client-token-file and --issuer decide who may use the bridge over HTTP, as for mcplumb serve. The token of a
    client is never passed on. For a protected server, sign in with mcplumb login first.

    \b
    mcplumb bridge -s https://example.com/mcp
    mcplumb bridge --http :8000 -- npx -y @modelcontextprotocol/server-everything
    mcplumb bridge --config servers.json weather notes --http :8000
    """
    from mcplumb.bridge.bridge import Bridge

    options = global_options()
    addresses = addresses_of(unix=unix, tcp=tcp, http=http)
    allowed = HttpAccess(token_file=access.pop("client_token_file"), **access)
    http_options = allowed.options_for(addresses, "--client-token-file")
    if not addresses and os.isatty(0):
        from mcplumb.cli.render.output import say
        from mcplumb.server.run import what_it_waits_for

        say(what_it_waits_for("mcplumb bridge …", "--http :8000"), style="dim")
    set_up_serving_logs(log_format, options)
    if not options.verbose:
        for name in ("mcplumb.bridge", "mcplumb.client"):
            logging.getLogger(name).setLevel(logging.WARNING)
    more: dict[str, Any] = {"share": share, "idle": idle}
    if target is not None:
        if only or hide:
            raise UsageError("--only and --hide are for several servers, whose tools have prefixes.")
        more |= target.options
        if log_dir is not None and target.is_started:
            more["stderr"] = _folder(log_dir)
        made = Bridge(target.place, name=target.title, **more)
    else:
        more |= {"only": only, "hide": hide, "sign_in": default_sign_in}
        if log_dir is not None:
            more["stderr"] = _folder(log_dir)
        made = _group(names, options.config, yes=yes, **more)
    where = ["stdio", *addresses] if stdio and addresses else addresses
    made.run(*where, log_format=log_format, trace=options.trace or None, http=http_options)


def _group(names: tuple[str, ...], config: str | None, *, yes: bool, **options: Any) -> Bridge:
    """Return a bridge over several servers of config files, which follows changes of the files."""
    from mcplumb.bridge.bridge import Bridge
    from mcplumb.config import ConfigError

    found = _entries(names, config, yes=yes)
    if not found:
        raise UsageError("No server is enabled in the config files. Add one with: mcplumb add NAME -- COMMAND")
    files = {entry.file if isinstance(entry, ConfigError) else entry.source for entry in found.values()}
    # There may be no user to answer when a file changes.
    reload = partial(_entries, names, config, yes=yes, ask=False)
    return Bridge(found, watch=sorted(files), reload=reload, **options)


def _entries(
    names: tuple[str, ...], config: str | None, *, yes: bool, ask: bool = True
) -> dict[str, ServerEntry | ConfigError]:
    """Return the servers with these names, or all that are not disabled.

    Raises `UsageError` if one of them is the entry for which a bridge has started this one: it would start itself
    without end.
    """
    from mcplumb.cli.commands.servers import find_entries
    from mcplumb.config import ConfigError

    started_for = os.environ.get(_STARTED_FOR, "").split()
    found = find_entries(names, config, yes=yes, ask=ask)
    for name, entry in found.items():
        if isinstance(entry, ConfigError) or entry.url is not None:
            continue
        digest = hashlib.sha256(f"{os.path.realpath(entry.source)}\0{entry.name}".encode(errors="surrogateescape"))
        key = digest.hexdigest()[:16]
        if key in started_for:
            raise UsageError(
                f"The entry {name!r} of {entry.source} is this bridge, which would start itself without end. Name the "
                "servers that the bridge is to serve, or keep them in a file of their own."
            )
        found[name] = msgspec.structs.replace(entry, env={**entry.env, _STARTED_FOR: " ".join([*started_for, key])})
    return found


def _folder(path: str) -> Path:
    folder = Path(path)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder {path} cannot be made: {error.strerror}.") from None
    return folder
