"""``mcplumb serve``: run the server in a Python file, and reload it when files change.

With ``--reload``, a thread checks the files a few times a second, so that a blocked event loop does not prevent a
reload. The process then executes itself again: its pid, terminal and signals stay, and no old thread survives.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import click
import msgspec

from mcplumb.cli.command_group import BaseCommand
from mcplumb.cli.command_runner import GlobalOptions, global_options
from mcplumb.cli.render.output import say, say_error
from mcplumb.cli.serve_options import (
    SCHEMES,
    HttpAccess,
    access_options,
    address_options,
    addresses_of,
    log_format_option,
    set_up_serving_logs,
)
from mcplumb.errors import ConnectError, McplumbError, UsageError
from mcplumb.limits import MAX_WORKERS
from mcplumb.server.server import Server
from mcplumb.server.stderr_logs import LogFormat

if TYPE_CHECKING:
    from mcplumb.cli.workers.control_channel import Inherited
    from mcplumb.server.address_host import OnReady
    from mcplumb.transports.http_server.http_options import HttpOptions
    from mcplumb.transports.line_connection import Trace
    from mcplumb.transports.stdio import Stdio

__all__ = [
    "CannotLoad",
    "ProcessImage",
    "Reloader",
    "ServeSettings",
    "ServerFailed",
    "WatchedFiles",
    "find_file",
    "is_project_file",
    "load_server",
    "reason",
    "run_reloading",
    "serve",
]

_logger = logging.getLogger("mcplumb.server")


_Main: TypeAlias = "Callable[[Trace | None], Coroutine[Any, Any, None]]"

#: Seconds between two checks of the files.
_CHECK_INTERVAL = 0.3
#: A changed file may still be written: seconds between checks of it, and their maximum number.
_SETTLE_INTERVAL = 0.1
_MAX_SETTLE_CHECKS = 50
#: Seconds that the end of a server may take beyond the time for its requests.
_STOP_GRACE = 3.0


# --- Finding the server in a file ---


class CannotLoad(UsageError):
    """A file has no usable server. The cause is the exception that the file raised, if it did."""


def load_server(target: str) -> Server:
    """Return the server of ``FILE`` or ``FILE:NAME``; raise UsageError, or `CannotLoad` if the file has none."""
    path, name = find_file(target)
    module, run = _imported(path)
    if run is not None and not name:
        return run
    if name:
        found = getattr(module, name, None)
        if not isinstance(found, Server):
            what = "" if found is None else f": it is of the type {type(found).__name__}"
            raise CannotLoad(f"{path} has no server {name!r}{what}. {_hint(module, path)}")
        return found
    servers = _servers_in(module)
    if len(set(servers.values())) != 1:
        what = "several servers" if servers else "no server"
        raise CannotLoad(f"{path} has {what} at its top level. {_hint(module, path)}")
    return next(iter(servers.values()))


class _RunCalled(BaseException):
    """The file calls ``server.run()`` while it is imported; that is the server to serve."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server


def _interrupt_run(self: Server, *_: object, **__: object) -> None:
    raise _RunCalled(self)


def find_file(target: str) -> tuple[Path, str]:
    """Split ``FILE`` or ``FILE:NAME`` into the path and the name; raise UsageError if there is no such file."""
    if os.path.isfile(target):  # noqa: PTH113 - pathlib raises for a long name
        return Path(target), ""
    file, colon, name = target.rpartition(":")
    path = Path(file if colon else target)
    if not os.path.isfile(path):  # noqa: PTH113
        raise UsageError(f"There is no file {str(path)!r}. Give the path of a Python file that has a Server.")
    return path, name


def _imported(path: Path) -> tuple[ModuleType, Server | None]:
    """Import the file; return the module, and the server that it runs during the import, if any."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise CannotLoad(f"{path} cannot be imported: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    # As for a script, modules in its folder can be imported.
    sys.path.insert(0, str(path.resolve().parent))
    run = Server.run
    try:
        # Many files end with server.run(), which must not start the server here.
        setattr(Server, "run", _interrupt_run)  # noqa: B010 - mypy forbids assigning to a method
        spec.loader.exec_module(module)
    except _RunCalled as called:
        return module, called.server
    except (Exception, SystemExit) as error:
        raise CannotLoad(f"{path} cannot be imported. {reason(error, path)}") from error
    finally:
        setattr(Server, "run", run)  # noqa: B010 - mypy forbids assigning to a method
    return module, None


def reason(error: BaseException, path: Path) -> str:
    """Describe an exception in one line: the last line of the author's own code, and the error."""
    if isinstance(error, SyntaxError):
        return f"{_position(error.lineno, error.filename, path)}: {error.msg}."
    text = str(error) if isinstance(error, McplumbError) else f"{type(error).__name__}: {error}"
    folder = path.resolve().parent
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_project_file(frame.filename, folder)]
    return f"{_position(frames[-1].lineno, frames[-1].filename, path)}: {text}" if frames else text


def is_project_file(name: str, folder: Path) -> bool:
    """Whether a file belongs to the project: it is in the folder, and not in an installed package."""
    file = Path(name).resolve()
    return file.is_relative_to(folder) and "site-packages" not in file.parts


def _position(line: int | None, name: str | None, path: Path) -> str:
    is_other = Path(name or path).resolve() != path.resolve()
    return f"Line {line} of {name}" if is_other else f"Line {line}"


def _servers_in(module: ModuleType) -> dict[str, Server]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Server)}


def _hint(module: ModuleType, path: Path) -> str:
    names = ", ".join(f"{path}:{name}" for name in _servers_in(module))
    return f"Choose one: {names}." if names else "Make one with: server = Server('name')"


# --- Reloading ---


def run_reloading(settings: ServeSettings) -> None:
    """Load and run the server, and start again when its files change. Returns when a signal has stopped it.

    A server that cannot be loaded, or fails, is tried again at the next change.
    """
    files = WatchedFiles(find_file(settings.target)[0])
    program = ProcessImage()
    ready: list[str] = []

    def start_again() -> None:
        # With the ports that the system chose for port 0.
        program.start([*settings.words(ready or settings.addresses), "--reload"])

    try:
        server = settings.load()
        with Reloader(server, files, start_again) as reloader:
            settings.run(server, ready.append)
        if not reloader.has_changed:
            return
    except (CannotLoad, ServerFailed) as error:
        files.add_neighbours()
        say_error(str(error))
        say("Waiting for a change of its files; Ctrl-C ends it.", style="dim")
        while files.changed() is None:
            time.sleep(_CHECK_INTERVAL)
    start_again()


class Reloader:
    """Stops the server within its block when one of the files changes, and sets ``has_changed``.

    It is registered as a host of the server, so that it ends when the server is stopped for another reason. If the
    server does not stop in time, ``start_again`` is called from the watching thread.
    """

    def __init__(self, server: Server, files: WatchedFiles, start_again: Callable[[], None]) -> None:
        self._server = server
        self._files = files
        self._start_again = start_again
        self.has_changed = False
        self._is_stopped = threading.Event()
        self._has_ended = threading.Event()

    def __enter__(self) -> Self:
        self._files.changed()  # records the modules that are imported by now
        self._server.active_sessions.join(self)
        threading.Thread(target=self._watch, name="mcplumb-reload", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self._has_ended.set()
        self._server.active_sessions.leave(self)

    def stop(self) -> None:
        """Stop watching; called when the server is stopped."""
        self._is_stopped.set()

    def _watch(self) -> None:
        while not self._is_stopped.wait(_CHECK_INTERVAL):
            if (file := self._files.changed()) is not None:
                self.has_changed = True
                _logger.info("%s has changed: the server starts again.", file)
                self._server.stop()
                if not self._has_ended.wait(self._server.stop_within + _STOP_GRACE):
                    _logger.warning("Something in the server does not stop, and is abandoned.")
                    self._start_again()


class ProcessImage:
    """How this process was started: its command, folder and environment, before the server changes them."""

    def __init__(self) -> None:
        #: The interpreter and the program, without the arguments of ``mcplumb``.
        self.command = [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]]
        self._folder = Path.cwd()
        self._environment = dict(os.environ)

    def start(self, words: list[str]) -> None:
        """Replace the running program by a new one with these arguments."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.chdir(self._folder)
        os.execve(sys.executable, [*self.command, *words], self._environment)  # noqa: S606 - they are the user's own


class WatchedFiles:
    """A server's file and the modules imported from its folder, now or later."""

    def __init__(self, file: Path) -> None:
        self._folder = file.resolve().parent
        self._more = {str(file.resolve())}
        # The state before the import of all files that are likely to be imported.
        before = {name: _stamp(name) for name in self._neighbours()}
        self._seen = {name: stamp for name, stamp in before.items() if stamp is not None}
        self._own: dict[str, bool] = {}

    def add_neighbours(self) -> None:
        """Watch all modules in the folder: one whose import failed is not in ``sys.modules``."""
        self._more |= self._neighbours()

    def _neighbours(self) -> set[str]:
        return {str(path) for path in self._folder.glob("*.py")} | self._more

    def changed(self) -> str | None:
        """Return the first file that has changed since its first check, once it is completely written; None if none."""
        for name in self._names():
            if (stamp := _stamp(name)) is not None and self._seen.setdefault(name, stamp) != stamp:
                _settle(name)
                return name
        return None

    def _names(self) -> set[str]:
        loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        return self._more | {name for name in loaded if name and name.endswith(".py") and self._is_own(name)}

    def _is_own(self, name: str) -> bool:
        # Determined once, just after the import: later the file may be gone.
        if name not in self._own:
            self._own[name] = is_project_file(name, self._folder)
        return self._own[name]


def _stamp(name: str) -> tuple[int, int] | None:
    """Return the modification time and size of a file; None if it is not a regular file, or is being replaced."""
    try:
        status = os.stat(name)  # noqa: PTH116 - of hundreds of files, several times a second
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) else None


def _settle(name: str) -> None:
    """Wait until a file is no longer written to, for a limited time."""
    before = None
    for _ in range(_MAX_SETTLE_CHECKS):
        stamp = _stamp(name)
        if stamp is not None and stamp == before:
            return
        before = stamp
        time.sleep(_SETTLE_INTERVAL)


# --- mcplumb serve ---


class ServerFailed(ConnectError):
    """The lifespan of the server raised an exception, which is the cause."""


class ServeSettings(msgspec.Struct, kw_only=True):
    """The arguments of ``mcplumb serve``, and how to load and run the server with them."""

    target: str
    addresses: list[str]
    #: The standard streams, taken over before the file is imported, if a client is served there.
    stdio: Stdio | None = None
    access: HttpAccess = msgspec.field(default_factory=HttpAccess)
    #: What ``access`` says, read once: a token file may be a pipe.
    http_options: HttpOptions | None = None
    log_format: LogFormat | None = None
    #: The file or folder to record to.
    record: str | None = None
    options: GlobalOptions = msgspec.field(default_factory=GlobalOptions)
    #: What this process got from its supervisor, if it is a worker.
    inherited: Inherited | None = None
    #: The absolute path of the file, once it is loaded: the server may change the current folder.
    file: Path = Path()

    def load(self) -> Server:
        """Import the file and return its server; raise `CannotLoad` if that fails."""
        self.file = find_file(self.target)[0].resolve()
        try:
            return load_server(self.target)
        except CannotLoad as error:
            self._show_traceback(error.__cause__)
            raise

    def run(self, server: Server, on_ready: OnReady | None = None) -> None:
        """Serve until a signal arrives or the client on stdio is gone; raise `McplumbError` on failure."""
        from mcplumb.server.run import run_process

        if self.record is not None:
            server.record = self.record
        main = self._at_addresses(server, on_ready) if self.addresses else self._on_stdio(server)
        try:
            run_process(server, main, log_format=self.log_format, trace=self.options.trace or None)
        except McplumbError:
            raise
        except Exception as error:
            self._show_traceback(error)
            raise ServerFailed(f"The server of {self.target} does not run. {reason(error, self.file)}") from error

    def _on_stdio(self, server: Server) -> _Main:
        stdio = self.stdio or _take_stdio()

        async def main(trace: Trace | None) -> None:
            with server._recorded("stdio", _masking(trace)) as recorded:
                await server.serve_connection(stdio.connection(limits=server.limits, trace=recorded))

        return main

    def _at_addresses(self, server: Server, on_ready: OnReady | None) -> _Main:
        from mcplumb.server.address_host import AddressHost

        if self.inherited is not None:
            return self._as_worker(server, self.inherited)
        host = AddressHost(server, self.addresses, http=self.http_options, on_ready=on_ready)
        host.stdio = self.stdio
        return lambda trace: host.run(_masking(trace))

    def _as_worker(self, server: Server, inherited: Inherited) -> _Main:
        import socket

        from mcplumb.cli.workers.control_channel import worker_channel
        from mcplumb.server.address_host import AddressHost

        sockets = [[socket.socket(fileno=number) for number in each] for each in inherited.listening]

        async def main(trace: Trace | None) -> None:
            if self.http_options is not None and self.http_options.metrics:
                server.metrics  # noqa: B018 - the property creates them, before the supervisor asks for them
            async with worker_channel(inherited, server) as channel:
                host = channel.host = AddressHost(
                    server, self.addresses, http=self.http_options, on_ready=channel.ready, sockets=sockets
                )
                await host.run(_masking(trace))

        return main

    def words(self, addresses: Sequence[str]) -> list[str]:
        """Return the arguments of ``mcplumb`` for the same settings with these addresses."""
        words = ["serve", self.target]
        for address in addresses:
            option, scheme = next(pair for pair in SCHEMES.items() if address.startswith(pair[1]))
            words += [f"--{option}", address.removeprefix(scheme)]
        words += self.access.words()
        more = {"--log-format": self.log_format, "--record": self.record, "--log-file": self.options.log_file}
        words += [str(word) for pair in more.items() if pair[1] is not None for word in pair]
        return words + ["-v"] * self.options.verbose + ["--trace"] * self.options.trace

    def _show_traceback(self, error: BaseException | None) -> None:
        if error is not None and self.options.verbose:
            import traceback

            from mcplumb.cli.render.output import say

            say("".join(traceback.format_exception(error)).rstrip(), style="dim")


@click.command(cls=BaseCommand)
@click.argument("target", metavar="FILE[:NAME]")
@address_options
@access_options()
@click.option("--reload", is_flag=True, help="At addresses: restart when the server's files change.")
@click.option(
    "--workers", type=click.IntRange(1, MAX_WORKERS), metavar="N", help="Over HTTP: serve with this many processes."
)
@click.option("--as-worker", hidden=True)
@click.option("--record", metavar="FILE", help="Record all messages to this file, or to new files in this folder.")
@log_format_option
def serve(
    target: str,
    *,
    stdio: bool,
    unix: tuple[str, ...],
    tcp: tuple[str, ...],
    http: tuple[str, ...],
    reload: bool,
    workers: int | None,
    as_worker: str | None,
    record: str | None,
    log_format: LogFormat | None,
    **access: Any,
) -> None:
    """Run the server that is in a Python file.

    It is served on standard input and output or, if any are given, at addresses; each option for an address may be
    given several times. NAME is the variable that holds it; without a NAME it is the only Server there. What FILE
    prints, also while it is imported, never reaches a client. If it cannot be imported, one line says why, and -v
    shows the whole traceback. Over HTTP, -v logs each request: client, user, method, tool, status and time; -vv also
    logs its start, with more details.

    Over HTTP, --token-file and --issuer decide who may use the server: those with one of the tokens in a file, or with
    an access token (a JWT) that an authorization server issued for this server. A client without one is told where to
    sign in. Behind a proxy, --resource and --host-name are its public address and name.

    With --reload, the process restarts in place when FILE changes, or a module that it imported from its folder.
    Requests that were accepted have the usual time to finish, and ports stay the same. A client on standard input and
    output could not go on with a new process, so this is for addresses only.

    With --workers, that many processes serve the same addresses over HTTP. One that dies is replaced. SIGHUP replaces
    them one after the other, with the files and tokens as they are then, and turns no client away. SIGTERM and Ctrl-C
    let them finish. With --metrics, GET /metrics counts for all of them.

    \b
    mcplumb serve weather.py
    mcplumb serve weather.py:server --trace
    mcplumb serve weather.py --unix /run/weather.sock --http 127.0.0.1:8000
    mcplumb serve weather.py --http :8000 --reload
    mcplumb serve weather.py --http :8000 --workers 4 --metrics
    mcplumb serve weather.py --http :8000 --issuer https://login.example --audience https://weather.example/mcp
    """
    from mcplumb._fast.lazy_modules import load_asyncio

    load_asyncio()  # before the file is imported, which may import asyncio
    addresses = addresses_of(unix=unix, tcp=tcp, http=http)
    allowed = HttpAccess(**access)
    if workers is not None:
        from mcplumb.cli.workers.serve_with_workers import check_workers

        check_workers(addresses, stdio=stdio, reload=reload, token_file=allowed.token_file)
    http_options = allowed.options_for(addresses)  # before the file is imported
    if reload and (stdio or not addresses):
        raise UsageError(
            "--reload is for addresses, for instance --http :8000: a client on standard input and output has started "
            "this process itself, and its session ends with it."
        )
    if not addresses and os.isatty(0):
        from mcplumb.cli.render.output import say
        from mcplumb.server.run import what_it_waits_for

        say(what_it_waits_for(f"mcplumb serve {target}", "--http :8000"), style="dim")
    settings = ServeSettings(
        target=target,
        addresses=addresses,
        # Taken before the file is imported: its prints must not reach the client.
        stdio=_take_stdio() if stdio or not addresses else None,
        access=allowed,
        http_options=http_options,
        log_format=log_format,
        record=record,
        options=global_options(),
    )
    set_up_serving_logs(settings.log_format, settings.options)
    if workers is not None or as_worker is not None:
        from mcplumb.cli.workers.serve_with_workers import read_inherited, run_as_worker, run_workers

        if as_worker is None:
            run_workers(settings, workers or 1)
        else:
            settings.inherited = read_inherited(as_worker)
            run_as_worker(settings, settings.inherited)
        return
    if reload:
        run_reloading(settings)
        return
    settings.run(settings.load())


def _take_stdio() -> Stdio:
    from mcplumb.transports.stdio import take_stdio

    return take_stdio()


def _masking(trace: Trace | None) -> Trace | None:
    """Return a trace callback that masks secrets."""
    from mcplumb.cli.log_output import masked
    from mcplumb.server.stderr_logs import MessageTrace

    if isinstance(trace, MessageTrace):
        return trace.masked_by(lambda line: masked(line).encode())
    return None if trace is None else lambda direction, line: trace(direction, masked(line).encode())
