"""``mcplumb call``, ``read``, ``prompt`` and ``complete``: use tools, resources, prompts and completions."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcplumb.cli.arguments import Pair, fill, prompt_schema, read_arguments, read_object, read_pair, signature
from mcplumb.cli.command_runner import TOOL_FAILED, global_options
from mcplumb.cli.commands.list_features import find_listed
from mcplumb.cli.input_prompts import InputPrompter, input_options
from mcplumb.cli.log_output import show_log
from mcplumb.cli.parse_value import SchemaView
from mcplumb.cli.render.output import print_json, print_text, say
from mcplumb.cli.render.print_content import (
    ContentSink,
    plain,
    print_contents,
    print_messages,
    print_result,
    say_failure,
)
from mcplumb.cli.render.progress_bar import ProgressBar
from mcplumb.cli.server_target import Target, server_command
from mcplumb.errors import McplumbError, UsageError
from mcplumb.server.schema.read_value import as_text
from mcplumb.types.prompts import PromptReference, Reference, ResourceTemplateReference

if TYPE_CHECKING:
    from mcplumb.client.client import Client

__all__ = ["call", "complete", "prompt", "read"]


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

    Values are converted to the types of the tool's schema: days=3 is a number if the tool expects one. days:=3 is JSON,
    and text@FILE reads the value from a file. Repeat a key to make a list; place.city=Oslo sets a member of an object.
    A required argument that you leave out gets the default of its schema. Unknown, missing and invalid arguments are
    reported before anything is sent.

    If the tool asks a question, answer it at the terminal or with --answer. Text and data go to stdout, images and
    other binary data to new files. Ctrl-C cancels the call on the server, too. If the tool reports a failure, the exit
    code is 1, and its message goes to stderr.

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


_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the whole answer as one JSON document.")


@server_command()
@click.argument("uri")
@click.argument("values", metavar="[KEY=VALUE]...", nargs=-1)
@input_options
@click.option("-o", "--output", metavar="FILE|FOLDER|-", help="Where to save the contents, instead of stdout.")
@_AS_JSON
async def read(
    target: Target,
    *,
    uri: str,
    values: tuple[str, ...],
    answers: tuple[str, ...],
    roots: tuple[str, ...],
    output: str | None,
    as_json: bool,
) -> None:
    """Read a resource.

    A template is filled in with values for its variables. Text goes to stdout, unchanged unless that is a terminal.
    Binary data goes to stdout too or, if that is a terminal, to a new file.

    \b
    mcplumb read weather://Oslo/today -- python weather.py
    mcplumb read 'weather://{city}/today' city=Oslo -- python weather.py
    mcplumb read weather://Oslo/today --json -- python weather.py
    """
    uri = _filled_in(uri, values)
    sink = ContentSink(output, "resource")
    progress_bar = ProgressBar(uri, lines=global_options().verbose > 0)
    prompter = InputPrompter(target.title, answers, roots=roots, paused=progress_bar.paused)
    async with target.connect(**prompter.options) as client:
        with progress_bar:
            result = await prompter.wait_for(client.read_resource(uri, on_progress=progress_bar.show))
    if as_json:
        print_json(plain(result))
    else:
        print_contents(result.contents, sink)
    prompter.raise_mistake()


@server_command()
@click.argument("name")
@click.argument("arguments", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--args", metavar="JSON|@FILE|-", help="All arguments as a JSON object; - reads it from stdin.")
@input_options
@click.option("-o", "--output", metavar="FILE|FOLDER|-", help="Where to save images, audio and other binary data.")
@_AS_JSON
def prompt(
    target: Target,
    *,
    name: str,
    arguments: tuple[str, ...],
    args: str | None,
    answers: tuple[str, ...],
    roots: tuple[str, ...],
    output: str | None,
    as_json: bool,
) -> Coroutine[Any, Any, None]:
    """Get the messages of a prompt.

    At a terminal, each message is shown under its role; a pipe gets only the text. --json prints everything.

    \b
    mcplumb prompt plan city=Oslo -- python weather.py
    """
    # Read before the event loop starts, so that Ctrl-C interrupts the wait for stdin.
    pairs = [read_pair(word) for word in arguments]
    known = {} if args is None else read_object(args)
    sink = ContentSink(output, name)
    progress_bar = ProgressBar(name, lines=global_options().verbose > 0)
    prompter = InputPrompter(target.title, answers, roots=roots, paused=progress_bar.paused)

    async def use() -> None:
        async with target.connect(**prompter.options) as client:
            schema = prompt_schema((await find_listed(client.list_prompts(), name, "prompt")).arguments)
            given = {key: as_text(value) for key, value in read_arguments(pairs, known, schema, name=name).items()}
            with progress_bar:
                result = await prompter.wait_for(client.get_prompt(name, given, on_progress=progress_bar.show))
        if as_json:
            print_json(plain(result))
        else:
            print_messages(result.messages, sink)
        prompter.raise_mistake()

    return use()


@server_command()
@click.argument("ref", metavar="PROMPT|TEMPLATE")
@click.argument("arguments", metavar="[KEY=VALUE]... KEY=BEGINNING", nargs=-1, required=True)
@_AS_JSON
async def complete(target: Target, *, ref: str, arguments: tuple[str, ...], as_json: bool) -> None:
    """Complete the value of an argument.

    The KEYs are arguments of a prompt, or variables of a resource template. The last one is completed; those before it
    have values already. Prints one value per line, the best first. If there are none, an argument that the prompt or
    the template does not have is an error.

    \b
    mcplumb complete plan city=O -- python weather.py
    mcplumb complete 'weather://{city}/today' city=O -- python weather.py
    """
    *known, (key, begun) = [_split(word) for word in arguments]
    is_template = "{" in ref or "://" in ref
    async with target.connect() as client:
        meant = ResourceTemplateReference(ref) if is_template else PromptReference(ref)
        found = await client.complete(meant, key, begun, dict(known) or None)
        if not found.values:
            await _check_names(client, meant, [*dict(known), key])
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    if not found.values:
        say(f"There are no completions for {arguments[-1]!r}.")
    for value in found.values:
        print_text(value)
    if found.has_more or (found.total or 0) > len(found.values):
        say("There are more." if found.total is None else f"There are {found.total} in all.")


async def _check_names(client: Client, ref: Reference, names: list[str]) -> None:
    """Raise `UsageError` if the definition of a prompt or a template has no arguments of these names."""
    if isinstance(ref, ResourceTemplateReference):
        from mcplumb.server.uri_templates import UriTemplate

        try:
            template = UriTemplate(ref.uri)
        except UsageError:  # the server may know more kinds of variables
            return
        template.check_names(names)
        return
    try:
        listed = {each.name: each for each in await client.list_prompts()}
    except McplumbError:  # the completions are empty, and that is all that is known
        return
    if ref.name in listed:
        schema = prompt_schema(listed[ref.name].arguments)
        mistakes = fill({}, [Pair(name, "=", "") for name in names], SchemaView(schema))
        if mistakes:
            raise UsageError("\n".join([*mistakes, "", signature(ref.name, schema)]))


def _filled_in(uri: str, values: tuple[str, ...]) -> str:
    if "{" not in uri and not values:
        return uri
    from mcplumb.server.uri_templates import UriTemplate

    return UriTemplate(uri).expand(**dict(_split(word) for word in values))


def _split(word: str) -> tuple[str, str]:
    key, mark, value = word.partition("=")
    if not key or not mark:
        raise UsageError(f"{word!r} is not an argument: write key=value.")
    return key, value
