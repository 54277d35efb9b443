"""``mcpipe``: the commands."""

from __future__ import annotations

import sys

from mcpipe.errors import McpipeError

__all__ = ["main"]


def main() -> None:
    """Run the command line; the console script."""
    try:
        from mcpipe.cli.commands import cli
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("The command line needs one more package. Install it with: pip install 'mcpipe[cli]'")
    try:
        cli(prog_name="mcpipe")
    except McpipeError as error:
        sys.exit(f"Error: {error}")
