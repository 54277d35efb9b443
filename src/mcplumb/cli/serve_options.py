"""What the commands that serve clients have in common: addresses, tokens and logs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mcplumb.cli.command_runner import GlobalOptions
from mcplumb.errors import UsageError
from mcplumb.server.stderr_logs import LogFormat, set_up_logs

if TYPE_CHECKING:
    from mcplumb.transports.http_server.http_options import HttpOptions

__all__ = ["SCHEMES", "addresses_of", "set_up_serving_logs", "with_tokens"]

#: The options for addresses, and the scheme of each.
SCHEMES = {"unix": "unix:", "tcp": "tcp://", "http": "http://"}


def addresses_of(**given: Sequence[str]) -> list[str]:
    """Return the addresses that the options of these names give."""
    return [f"{SCHEMES[option]}{place}" for option, places in given.items() for place in places]


def set_up_serving_logs(log_format: LogFormat | None, options: GlobalOptions) -> None:
    """Send logs to stderr and to the log file, as verbose as the global options say."""
    set_up_logs(log_format, trace=options.trace or None)
    if options.verbose:
        logging.getLogger("mcplumb").setLevel(logging.DEBUG)
    if options.verbose > 1:
        logging.getLogger("mcplumb.http.access").setLevel(1)
    if options.log_file is not None:
        try:
            handler = logging.FileHandler(options.log_file, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(f"The log file {options.log_file} cannot be written: {error.strerror}.") from None
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
        logging.getLogger().addHandler(handler)


def with_tokens(file: Path) -> HttpOptions:
    """Return HTTP options that require one of the tokens in a file."""
    from mcplumb.transports.http_server.http_options import HttpOptions

    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    tokens = tuple(line for line in lines if line and not line.startswith("#"))
    if not tokens:
        raise UsageError(f"There is no token in {file}: write one on each line.")
    return HttpOptions(tokens=tokens)
