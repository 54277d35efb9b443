"""The commands and their options."""

from __future__ import annotations

import click

from mcpipe.server.logs import LOG_FORMATS, LogFormat
from mcpipe.version import __version__

__all__ = ["cli", "serve"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mcpipe")
def cli() -> None:
    """The Model Context Protocol on the command line."""


@cli.command()
@click.argument("target", metavar="FILE[:NAME]")
@click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    help="How logs on stderr look: with times and levels, or plain with the prefixes [TRACE] and Error:.",
)
@click.option("--trace", is_flag=True, default=None, help="Show every message, in both directions, on stderr.")
def serve(target: str, log_format: LogFormat | None, trace: bool | None) -> None:
    """Run the server in FILE on standard input and output.

    NAME is the variable that holds it; without a NAME it is the only Server there. What FILE prints, also while it is
    imported, goes to stderr and never to the client.

    \b
    mcpipe serve weather.py
    mcpipe serve weather.py:server --trace
    """
    # Before the file is imported: what it prints must not reach the client.
    from mcpipe.transports.stdio import take_stdio

    stdio = take_stdio()
    from mcpipe.cli.loading import load_server
    from mcpipe.server.running import run_on_stdio

    run_on_stdio(load_server(target), stdio, log_format=log_format, trace=trace)
