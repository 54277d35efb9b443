"""What ``mcplumb serve`` does with ``--workers``: in the supervisor, and in each worker."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mcplumb.cli.workers.control_channel import Inherited, Message, framed
from mcplumb.errors import McplumbError, UsageError

if TYPE_CHECKING:
    from mcplumb.cli.commands.serve_file import ServeSettings

__all__ = ["check_workers", "read_inherited", "run_as_worker", "run_workers"]

_logger = logging.getLogger("mcplumb.workers")


def check_workers(addresses: Sequence[str], *, stdio: bool, reload: bool, token_file: Path | None) -> None:
    """Raise `UsageError` if several processes cannot serve these addresses."""
    if stdio or not addresses or not all(address.startswith("http://") for address in addresses):
        raise UsageError("--workers is for clients over HTTP: give --http, and no other address.")
    if reload:
        raise UsageError("--workers and --reload do not go together: send SIGHUP to reload the workers.")
    if token_file is not None and not token_file.is_file():
        raise UsageError(f"Every worker reads the token file, and {token_file} can be read once only: give a file.")


def run_workers(settings: ServeSettings, count: int) -> None:
    """Run this many workers until a signal arrives; raise `McplumbError` if they cannot start."""
    from mcplumb.cli.commands.serve_file import ProcessImage, find_file
    from mcplumb.cli.workers.supervisor import Supervisor

    find_file(settings.target)
    program = ProcessImage().command
    options = settings.http_options
    is_shared = options is not None and options.shared is not None
    if count > 1 and not is_shared:
        _logger.warning(
            "Without --shared, %d workers serve modern clients; a legacy client's session works in one worker only, "
            "and subscribers hear only of changes in their worker.",
            count,
        )

    def command(addresses: Sequence[str], inherited: Inherited) -> list[str]:
        words = settings.words(addresses)
        return [*program, *words, "--as-worker", msgspec.json.encode(inherited).decode()]

    supervisor = Supervisor(
        settings.addresses,
        count,
        command,
        needs_tokens=options is not None and options.needs_tokens,
        has_keys=is_shared,
    )
    asyncio.run(supervisor.run())


def read_inherited(text: str) -> Inherited:
    """Return the descriptors that the command line of a worker names."""
    try:
        inherited = msgspec.json.decode(text, type=Inherited)
        for number in (inherited.control, *(each for listening in inherited.listening for each in listening)):
            os.fstat(number)
    except (msgspec.MsgspecError, OSError):
        raise UsageError("--as-worker is for the processes that --workers starts.") from None
    return inherited


def run_as_worker(settings: ServeSettings, inherited: Inherited) -> None:
    """Load and run the server as a worker. If that fails, the supervisor says why, once for all workers."""
    # A copy, which outlives the channel.
    with socket.fromfd(inherited.control, socket.AF_UNIX, socket.SOCK_STREAM) as report:
        try:
            settings.run(settings.load())
        except McplumbError as error:
            report.setblocking(True)
            report.sendall(framed(Message(failed=str(error))))
            sys.exit(1)
