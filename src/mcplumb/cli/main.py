"""The entry point of ``mcplumb`` and ``python -m mcplumb``, the text of ``mcplumb --help``, and the table of commands.

This module imports nothing of the package, so that the help appears at once. A test compares it with the commands.
"""

from __future__ import annotations

import os
import sys

__all__ = ["COMMANDS", "NEEDS_PACKAGES", "OVERVIEW", "PACKAGES", "main"]


#: The commands in the order of the help, and the module and name of each.
COMMANDS = {
    "probe": "mcplumb.cli.commands.probe:probe",
    "tools": "mcplumb.cli.commands.list_features:tools",
    "resources": "mcplumb.cli.commands.list_features:resources",
    "prompts": "mcplumb.cli.commands.list_features:prompts",
    "ping": "mcplumb.cli.commands.probe:ping",
    "call": "mcplumb.cli.commands.call_read_prompt_complete:call",
    "read": "mcplumb.cli.commands.call_read_prompt_complete:read",
    "prompt": "mcplumb.cli.commands.call_read_prompt_complete:prompt",
    "complete": "mcplumb.cli.commands.call_read_prompt_complete:complete",
    "listen": "mcplumb.cli.commands.listen:listen",
    "shell": "mcplumb.cli.shell:shell",
    "tap": "mcplumb.cli.commands.tap:tap",
    "wrap": "mcplumb.cli.commands.wrap:wrap",
    "unwrap": "mcplumb.cli.commands.wrap:unwrap",
    "sessions": "mcplumb.cli.commands.recordings:sessions",
    "show": "mcplumb.cli.commands.recordings:show",
    "diff": "mcplumb.cli.commands.compare:diff",
    "replay": "mcplumb.cli.commands.compare:replay",
    "export": "mcplumb.cli.commands.recordings:export",
    "view": "mcplumb.cli.commands.view:view",
    "demo": "mcplumb.cli.commands.demo:demo",
    "serve": "mcplumb.cli.commands.serve_file:serve",
    "bridge": "mcplumb.cli.commands.bridge:bridge",
    "login": "mcplumb.cli.commands.login:login",
    "logout": "mcplumb.cli.commands.login:logout",
    "servers": "mcplumb.cli.commands.servers:servers",
    "add": "mcplumb.cli.commands.servers:add",
    "remove": "mcplumb.cli.commands.servers:remove",
    "completion": "mcplumb.cli.commands.completion:completion",
}

OVERVIEW = """\
Usage: mcplumb [OPTIONS] COMMAND [ARGS]...

  The Model Context Protocol on the command line: look at a server, use it, or
  run one.

  A server is a command after --, or -s with an address, or with a name from a
  config file:

      mcplumb tools -- python weather.py
      mcplumb tools -s http://127.0.0.1:8000/mcp
      mcplumb tools -s weather

Look at a server:
  probe       Report on a server: its era, identity, capabilities and timings.
  tools       List the tools of a server.
  resources   List the resources of a server, and its templates.
  prompts     List the prompts of a server.
  ping        Find out whether a server answers, and how fast.

Use a server:
  call        Call a tool.
  read        Read a resource.
  prompt      Get the messages of a prompt.
  complete    Complete the value of an argument.
  listen      Show changes as they happen.
  shell       Use a server interactively.

Record and inspect sessions:
  tap         Record what a host and its server say to each other.
  wrap        Put the tap into the config file of a host.
  unwrap      Remove the tap from the config file.
  sessions    List the recorded sessions.
  show        Show a recorded session, and where it breaks the rules.
  diff        Show what differs between two sessions.
  replay      Send the requests of a session again, and show what differs.
  export      Convert a session to JSON, HTML, HAR or OTLP.
  view        Watch sessions, and try a server, in the browser.

Run and manage servers:
  demo        Take a tour, with the built-in demo server.
  serve       Run the server that is in a Python file.
  bridge      Serve any server to any client, in any era.
  login       Sign in to a protected server.
  logout      Sign out of a server.
  servers     List the servers of your config files.
  add         Save a server under a name.
  remove      Delete a saved server.
  completion  Print a script that completes commands in your shell.

Options:
  -v, --verbose    Log more, with the server's stderr; twice for debugging.
  --trace          Show every message, in both directions, with secrets masked.
  --log-file FILE  Write the log, and the trace, to this file.
  --config FILE    Look up the names of servers in this file only.
  --no-color       Use no colours.
  --version        Show the versions of mcplumb, the protocol and its packages.
  -h, --help       Show this help; after a command, the help of that command.

Exit codes:
  0 done             3 no server: not started, not reached, or lost
  1 the tool failed  4 the server answered with an error, or broke the rules
  2 wrong usage      5 timeout                               130 Ctrl-C
"""

#: The packages that the commands need, and the message if one is missing.
PACKAGES = ("click", "rich", "msgspec")
NEEDS_PACKAGES = "Error: The command line needs more packages. Install them with: pip install 'mcplumb[cli]'\n"


def main() -> None:
    """Run the command line and exit with its code."""
    from mcplumb.cli.std_streams import prepare_streams, run_and_flush

    prepare_streams()
    sys.exit(run_and_flush(_main))


def _main() -> int:
    """Run the command line and return its exit code; ``mcplumb --help`` needs no other packages."""
    is_completing = "_MCPLUMB_COMPLETE" in os.environ
    if sys.argv[1:2] == ["tap"] and not is_completing:
        # A tap starts whenever its server does, so it does not wait for the packages of the other commands.
        from mcplumb.tap.start_tap import start_at_once

        start_at_once(sys.argv[2:])
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
