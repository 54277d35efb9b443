"""``mcplumb serve``: run the server that is in a Python file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click
import msgspec

from mcplumb.cli.everywhere import OwnCommand
from mcplumb.cli.running import GlobalOptions, global_options
from mcplumb.errors import ConnectError, McplumbError, UsageError
from mcplumb.server.logs import LOG_FORMATS, LogFormat

if TYPE_CHECKING:
    from mcplumb.server.hosting import OnReady
    from mcplumb.server.server import Server
    from mcplumb.transports.framed import Trace
    from mcplumb.transports.http_server.options import HttpOptions
    from mcplumb.transports.stdio import Stdio

__all__ = ["ServerFailed", "Serving", "serve"]

_Main: TypeAlias = "Callable[[Trace | None], Coroutine[Any, Any, None]]"

_OPTIONS = {"unix": "unix:", "tcp": "tcp://", "http": "http://"}


class ServerFailed(ConnectError):
    """The author's part of a server, which is its lifespan, raised something: that is the cause."""


class Serving(msgspec.Struct, kw_only=True):
    """What ``serve`` was told: how to run a server, once there is one."""

    target: str
    addresses: list[str]
    #: Taken before anything else, if a client is served there.
    stdio: Stdio | None = None
    token_file: Path | None = None
    log_format: LogFormat | None = None
    options: GlobalOptions = msgspec.field(default_factory=GlobalOptions)
    #: The file, once it is loaded; wherever that goes from here.
    file: Path = Path()

    def load(self) -> Server:
        """Import the file; raises `CannotLoad`."""
        from mcplumb.cli.loading import CannotLoad, find_file, load_server

        self.file = find_file(self.target)[0].resolve()
        try:
            return load_server(self.target)
        except CannotLoad as error:
            self._show_traceback(error.__cause__)
            raise

    def run(self, server: Server, on_ready: OnReady | None = None) -> None:
        """Serve, until a signal comes or the client on stdio is gone. Raises `McplumbError`."""
        from mcplumb.server.running import run_process

        main = self._at_addresses(server, on_ready) if self.addresses else self._on_stdio(server)
        try:
            run_process(server, main, log_format=self.log_format, trace=self.options.trace or None)
        except McplumbError:
            raise
        except Exception as error:
            from mcplumb.cli.loading import reason

            self._show_traceback(error)
            said = reason(error, self.file)
            raise ServerFailed(f"The server of {self.target} does not run. {said}") from error

    def _on_stdio(self, server: Server) -> _Main:
        stdio = self.stdio or _take_stdio()

        async def main(trace: Trace | None) -> None:
            await server.serve_connection(stdio.connection(limits=server.limits, trace=_masking(trace)))

        return main

    def _at_addresses(self, server: Server, on_ready: OnReady | None) -> _Main:
        from mcplumb.server.hosting import AddressHost

        tokens = None if self.token_file is None else _with_tokens(self.token_file)
        host = AddressHost(server, self.addresses, http=tokens, on_ready=on_ready)
        host.stdio = self.stdio
        return lambda trace: host.run(_masking(trace))

    def words(self, addresses: Sequence[str]) -> list[str]:
        """The arguments of ``mcplumb`` that say the same, for these addresses."""
        words = ["serve", self.target]
        for address in addresses:
            option, scheme = next(pair for pair in _OPTIONS.items() if address.startswith(pair[1]))
            words += [f"--{option}", address.removeprefix(scheme)]
        more = {"--token-file": self.token_file, "--log-format": self.log_format, "--log-file": self.options.log_file}
        words += [str(word) for pair in more.items() if pair[1] is not None for word in pair]
        return words + ["-v"] * self.options.verbose + ["--trace"] * self.options.trace

    def _show_traceback(self, error: BaseException | None) -> None:
        if error is not None and self.options.verbose:
            import traceback

            from mcplumb.cli.output import say

            say("".join(traceback.format_exception(error)).rstrip(), style="dim")


@click.command(cls=OwnCommand)
@click.argument("target", metavar="FILE[:NAME]")
@click.option("--stdio", is_flag=True, help="Serve standard input and output, also beside addresses.")
@click.option("--unix", metavar="PATH", multiple=True, help="Serve a Unix socket, which only you can use.")
@click.option("--tcp", metavar="[HOST]:PORT", multiple=True, help="Serve a TCP port.")
@click.option("--http", metavar="[HOST]:PORT[/PATH]", multiple=True, help="Serve HTTP; the path is /mcp if not given.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Over HTTP, serve only clients that have one of the bearer tokens in this file, one a line.",
)
@click.option("--reload", is_flag=True, help="At addresses: start again when the server's files change.")
@click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    help="How logs on stderr look: with times and levels, or plain with the prefixes [TRACE] and Error:.",
)
def serve(
    target: str,
    *,
    stdio: bool,
    unix: tuple[str, ...],
    tcp: tuple[str, ...],
    http: tuple[str, ...],
    token_file: Path | None,
    reload: bool,
    log_format: LogFormat | None,
) -> None:
    """Run the server that is in a Python file.

    It is served on standard input and output or, if any are given, at addresses; each option for an address may be
    given several times. NAME is the variable that holds it; without a NAME it is the only Server there. What FILE
    prints, also while it is imported, never reaches a client. If it cannot be imported, one line says why, and -v
    shows the whole traceback.

    With --reload, the process starts again in its place when FILE changes, or a module that it imported from its
    folder. Requests that were accepted have the usual time to finish, and ports stay the same. A client on standard
    input and output could not go on with a new process, so this is for addresses only.

    \b
    mcplumb serve weather.py
    mcplumb serve weather.py:server --trace
    mcplumb serve weather.py --unix /run/weather.sock --http 127.0.0.1:8000
    mcplumb serve weather.py --http :8000 --reload
    """
    given = {"unix": unix, "tcp": tcp, "http": http}
    addresses = [f"{_OPTIONS[option]}{place}" for option, places in given.items() for place in places]
    if token_file is not None and not http:
        raise UsageError("--token-file is for clients over HTTP: give --http as well.")
    if reload and (stdio or not addresses):
        raise UsageError(
            "--reload is for addresses, for instance --http :8000: a client on standard input and output has started "
            "this process itself, and its session ends with it."
        )
    if not addresses and os.isatty(0):
        from mcplumb.cli.output import say
        from mcplumb.server.running import what_it_waits_for

        say(what_it_waits_for(f"mcplumb serve {target}", "--http :8000"), style="dim")
    serving = Serving(
        target=target,
        addresses=addresses,
        # Before the file is imported: what it prints must not reach the client.
        stdio=_take_stdio() if stdio or not addresses else None,
        token_file=token_file,
        log_format=log_format,
        options=global_options(),
    )
    _set_up_logs(serving)
    if reload:
        from mcplumb.cli.reloading import run_reloading

        run_reloading(serving)
        return
    serving.run(serving.load())


def _take_stdio() -> Stdio:
    from mcplumb.transports.stdio import take_stdio

    return take_stdio()


def _set_up_logs(serving: Serving) -> None:
    from mcplumb.server.logs import set_up_logs

    options = serving.options
    set_up_logs(serving.log_format, trace=options.trace or None)
    if options.verbose:
        logging.getLogger("mcplumb").setLevel(logging.DEBUG)
    if options.log_file is not None:
        try:
            handler = logging.FileHandler(options.log_file, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(f"The log file {options.log_file} cannot be written: {error.strerror}.") from None
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
        logging.getLogger().addHandler(handler)


def _masking(trace: Trace | None) -> Trace | None:
    """The same, without the secrets."""
    from mcplumb.cli.tracing import masked

    return None if trace is None else lambda direction, line: trace(direction, masked(line).encode())


def _with_tokens(file: Path) -> HttpOptions:
    from mcplumb.transports.http_server.options import HttpOptions

    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    tokens = tuple(line for line in lines if line and not line.startswith("#"))
    if not tokens:
        raise UsageError(f"There is no token in {file}: write one on each line.")
    return HttpOptions(tokens=tokens)
