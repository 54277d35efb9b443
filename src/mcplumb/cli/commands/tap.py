"""``mcplumb tap``: stand in for a server, and record what it and its host say to each other."""

from __future__ import annotations

import os
from typing import Any

import click

from mcplumb.cli.render.output import say
from mcplumb.cli.serve_options import check_port
from mcplumb.cli.server_target import ServerCommand, Target
from mcplumb.errors import UsageError
from mcplumb.transports.address import HttpAddress, read_address

__all__ = ["tap"]


# A tap passes on what the two say, and says nothing itself.
@click.command(
    "tap",
    cls=ServerCommand,
    listen_option="--http 127.0.0.1:9000",
    without=("inherit_env", "sse", "timeout", "revision", "no_restart", "quiet"),
)
@click.option("--name", metavar="NAME", help="The name of the server in the recording.")
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Recordings that the default folder keeps: 200, unless given.",
)
@click.option("--unmasked", is_flag=True, help="Record secrets, too.")
@click.option("--http", metavar="HOST:PORT", help="Listen here, in front of a server over HTTP.")
def tap(target: Target, *, name: str | None, keep: int | None, unmasked: bool, http: str | None) -> None:
    """Record what a host and its server say to each other.

    Put it before the command of a server in the config file of a host; 'mcplumb wrap' does that. To the host it is the
    server: all bytes pass unchanged, in both directions, with stderr, signals and the exit code. Each line is recorded
    with its time. If the recorder is too slow, or the disk is full, records are lost and counted; nothing waits for it.

    With --http, it listens there, and passes all requests on to the server at the address.

    Recordings are in the folder that 'mcplumb sessions' lists, for their owner only. Secrets are masked as far as their
    names and shapes show them. To see what was said, use 'mcplumb show' or 'mcplumb view'.

    \b
    mcplumb tap -- python weather.py
    mcplumb tap --record weather.mcp.jsonl -- npx -y @modelcontextprotocol/server-everything
    mcplumb tap --http 127.0.0.1:9000 -s https://example.com/mcp
    """
    options: dict[str, Any] = {
        "place": target.options.get("record"),
        "masks": not unmasked,
        "keep": keep,
        "name": name or "",
    }
    if target.is_started:
        if http is not None:
            raise UsageError("--http is for a server over HTTP: name its address with -s.")
        from mcplumb.tap.start_tap import start_tap

        if (folder := target.options.get("cwd")) is not None:
            os.chdir(folder)
        env = {**os.environ, **target.options.get("env", {})} if target.options.get("env") else None
        start_tap(list(target.place), env=env, **options)
    if not str(target.place).lower().startswith(("http://", "https://")):
        raise UsageError("A tap is for a command, or with --http for an address that begins with http:// or https://.")
    if http is None:
        raise UsageError(
            "Where shall the tap listen? Give --http 127.0.0.1:9000, for example, and let the host use that address."
        )
    _run_http(target.place, http, options, target.options)


def _run_http(server: str, where: str, options: dict[str, Any], known: dict[str, Any]) -> None:
    """Run a tap until Ctrl-C or SIGTERM. ``known`` are the options of a client for the server."""
    import asyncio
    import signal
    from contextlib import suppress
    from urllib.parse import urlsplit

    from mcplumb.tap.http_tap import http_tap, serve_http_tap

    check_port("--http", where)
    address = read_address(f"http://{where}")
    if not isinstance(address, HttpAddress) or address.path not in ("", "/"):
        raise UsageError(f"--http takes HOST:PORT, such as 127.0.0.1:9000, not {where!r}.")
    headers = dict(known.get("headers") or {})
    if known.get("token") is not None:
        headers["Authorization"] = f"Bearer {known['token']}"
    app, recorder = http_tap(server, headers=headers.items(), tls=known.get("tls"), **options)

    def ready(at: str) -> None:
        say(f"The tap listens at {at.rstrip('/')}{urlsplit(server).path}. Ctrl-C ends it.")

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(serve_http_tap(app, address, ready))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        with suppress(asyncio.CancelledError):
            await task

    try:
        asyncio.run(serve())
    finally:
        recorder.close()
