"""``mcplumb call``: call a tool."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import click

from mcplumb.cli.arguments import read_arguments, read_object, read_pair
from mcplumb.cli.command_runner import TOOL_FAILED, global_options
from mcplumb.cli.commands.list_features import find_listed
from mcplumb.cli.input_prompts import InputPrompter, input_options
from mcplumb.cli.log_output import show_log
from mcplumb.cli.render.output import print_json
from mcplumb.cli.render.print_content import ContentSink, plain, print_result, say_failure
from mcplumb.cli.render.progress_bar import ProgressBar
from mcplumb.cli.server_target import Target, server_command

__all__ = ["call"]


@server_command()
@click.argument("tool")
@click.argument("arguments", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--args", metavar="JSON|@FILE|-", help="All arguments as a JSON object; - reads it from stdin.")
@click.option("--no-check", is_flag=True, help="Do not check the arguments against the tool's schema.")
@input_options
@click.option("-o", "--output", metavar="FILE|FOLDER|-", help="Where to save images, audio and other binary data.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as one JSON document.")
def call(
    target: Target,
    *,
    tool: str,
    arguments: tuple[str, ...],
    args: str | None,
    no_check: bool,
    answers: tuple[str, ...],
    roots: tuple[str, ...],
    output: str | None,
    as_json: bool,
) -> Coroutine[Any, Any, int | None]:
    """Call a tool.

    Values are typed by the tool's schema: days=3 is a number where the tool wants one. days:=3 is JSON, and text@FILE
    is what a file has. A key that is repeated makes a list, and place.city=Oslo goes into an object. Unknown,
    missing and invalid arguments are reported before anything is sent.

    What the tool asks is asked at the terminal, or answered with --answer. Text and data go to stdout, pictures and
    other bytes to new files. Ctrl-C cancels the call on the server, too. If the tool says that it failed, the exit code
    is 1, and what it says goes to stderr.

    \b
    mcplumb call forecast city=Oslo days=3 -- python weather.py
    mcplumb call forecast --args '{"city": "Oslo"}' --json -- python weather.py
    """
    # Read before the event loop starts, so that Ctrl-C interrupts the wait for stdin.
    pairs = [read_pair(word) for word in arguments]
    known = {} if args is None else read_object(args)
    sink = ContentSink(output, tool)
    verbose = global_options().verbose
    progress_bar = ProgressBar(tool, lines=verbose > 0)
    prompter = InputPrompter(target.title, answers, roots=roots, paused=progress_bar.paused)

    async def use() -> int | None:
        async with target.connect(**prompter.options, on_log=show_log if verbose else None) as client:
            schema = {} if no_check else (await find_listed(client.list_tools(), tool, "tool")).input_schema
            given = read_arguments(pairs, known, schema, name=tool, checked=not no_check)
            if verbose and client.capabilities.logging is not None:
                await client.set_log_level("debug" if verbose > 1 else "info")
            with progress_bar:
                result = await prompter.wait_for(client.call_tool(tool, given, on_progress=progress_bar.show))
        if as_json:
            print_json(plain(result))
        elif result.is_error:
            say_failure(result, tool)
        else:
            print_result(result, sink)
        prompter.raise_mistake()
        return TOOL_FAILED if result.is_error else None

    return use()
