"""The entry point of the console script ``mcplumb`` and of ``python -m mcplumb``."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its code."""
    from mcplumb.cli.std_streams import prepare_streams, run_and_flush

    prepare_streams()
    sys.exit(run_and_flush(_main))


def _main() -> int:
    """Run the command line and return its exit code; ``mcplumb --help`` needs no other packages."""
    from mcplumb.cli.help_text import NEEDS_PACKAGES, OVERVIEW, PACKAGES

    is_completing = "_MCPLUMB_COMPLETE" in os.environ
    if sys.argv[1:] in ([], ["-h"], ["--help"]) and not is_completing:
        sys.stdout.write(OVERVIEW)
        return 0
    try:
        from mcplumb.cli.command_group import cli
        from mcplumb.cli.command_runner import run_cli
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in PACKAGES:
            raise
        sys.stderr.write(NEEDS_PACKAGES)
        return 2
    if is_completing:
        from mcplumb.cli.commands.completion import print_completions

        return print_completions(os.environ["_MCPLUMB_COMPLETE"])
    return run_cli(cli)
