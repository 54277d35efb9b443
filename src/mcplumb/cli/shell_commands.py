"""The commands of the shell: those of ``mcplumb`` that use a server, for the connected one, and a few of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import click

from mcplumb.cli.call import call
from mcplumb.cli.listening import all_lists, listen, print_change, say_what
from mcplumb.cli.lists import entries, prompts, resources, tools
from mcplumb.cli.output import complain, print_pairs, print_text, say
from mcplumb.cli.ping import ping
from mcplumb.cli.reading import complete, prompt, read
from mcplumb.cli.running import sentence_of
from mcplumb.cli.target import ServerCommand
from mcplumb.errors import McplumbError, UsageError
from mcplumb.types.log import LOGGING_LEVELS
from mcplumb.types.subscriptions import SubscriptionFilter

if TYPE_CHECKING:
    from mcplumb.cli.shell import Session
    from mcplumb.client.changes import Changes

__all__ = ["commands"]

_HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
_MOST_LISTENING = 16


def commands(session: Session) -> dict[str, click.Command]:
    """All commands by name, in the order of the help."""
    theirs = [_for(session, command) for command in (tools, resources, prompts, call, read, prompt, complete, ping)]
    return {command.name or "": command for command in (*theirs, *_Own(session).commands())}


def _for(session: Session, command: ServerCommand) -> click.Command:
    """A command of ``mcplumb``, for this session's server."""
    # Said for the whole shell.
    fixed: dict[str, Any] = {param.name or "": () for param in command.own_params if param.name == "roots"}
    return click.Command(
        command.name,
        params=[param for param in command.own_params if param.name not in fixed],
        callback=lambda **given: _function(command)(session, **given, **fixed),
        help=_without_server(command.help or ""),
        context_settings=_HELP,
    )


def _function(command: ServerCommand) -> Callable[..., Any]:
    return cast("Callable[..., Any]", command.callback)


def _without_server(text: str) -> str:
    """The help of a command, with its examples as they are typed in the shell."""
    lines = []
    for line in text.splitlines():
        if line.strip().startswith("mcplumb "):
            line = line.replace("mcplumb ", "", 1).partition(" -- ")[0].partition(" -s ")[0]
        lines.append(line)
    return "\n".join(lines)


class _Own:
    """The commands that only a shell has."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._listening: dict[int, asyncio.Task[None]] = {}

    def commands(self) -> list[click.Command]:
        argument = click.Argument
        level = argument(["level"], type=click.Choice(LOGGING_LEVELS))
        numbers = argument(["numbers"], metavar="[NUMBER]...", type=int, nargs=-1)
        topics = argument(["topics"], metavar="[COMMAND|TOOL|PROMPT]", nargs=-1)
        return [
            _command("listen", self.listen, *listen.own_params),
            _command("unlisten", self.unlisten, numbers),
            _command("log", self.log, level),
            _command("info", self.info),
            _command("reconnect", self.reconnect),
            _command("help", self.help, topics),
            _command("exit", self.exit),
            _command("quit", self.exit),
        ]

    async def listen(self, *, uris: tuple[str, ...], count: int | None, as_json: bool, **lists: bool) -> None:
        """Show what changes, as it changes, beside all else.

        Of resources with one of the URIs, or of the lists; without any of them, of all lists. With --count it waits
        for so many changes; otherwise "unlisten" ends it.

        \b
        listen --tools
        listen weather://Oslo/today --count 1
        """
        if count is not None:
            await _function(listen)(self._session, uris=uris, count=count, as_json=as_json, **lists)
            return
        if len(self._listening) >= _MOST_LISTENING:
            raise UsageError(f"You listen {_MOST_LISTENING} times already: end one with 'unlisten NUMBER'.")
        client = self._session.client
        wanted = {"tools": lists["tools"], "prompts": lists["prompts"], "resources_list": lists["resources"]}
        changes = client.listen(**(wanted if uris or any(wanted.values()) else all_lists(client)), resources=uris)
        await changes.__aenter__()
        number = next(number for number in range(1, _MOST_LISTENING + 1) if number not in self._listening)
        try:
            say_what(changes.wanted, changes.honoured or SubscriptionFilter(), f"'unlisten {number}' ends it.")
        except UsageError:
            await changes.__aexit__(None, None, None)
            raise
        task = self._listening[number] = self._session.start(_show_changes(changes, as_json=as_json))
        task.add_done_callback(lambda _: self._listening.pop(number, None))

    async def unlisten(self, *, numbers: tuple[int, ...]) -> None:
        """End what "listen" began: all of it, or that with these numbers."""
        for number in numbers or tuple(self._listening):
            task = self._listening.get(number)
            if task is None:
                raise UsageError(f"Nothing with the number {number} listens.")
            task.cancel()
            await asyncio.wait([task])

    async def log(self, *, level: Any) -> None:
        """Show the server's log messages from this level on."""
        await self._session.client.set_log_level(level)

    async def info(self) -> None:
        """Show who the server is, and how it does."""
        client = self._session.client
        pairs = [("server", self._session.title)]
        if (who := client.server_info) is not None:
            pairs.append(("identity", f"{who.name} {who.version}"))
        pairs.append(("revision", f"{client.revision} ({client.revision.era})"))
        can = [name for name in client.capabilities.__struct_fields__ if getattr(client.capabilities, name, None)]
        pairs.append(("abilities", ", ".join(can) or "none"))
        if (process := client.process) is not None:
            state = "is not running" if process.pid is None else f"{process.pid}, for {process.uptime or 0:.1f} s"
            pairs += [("process", state), ("restarts", str(process.restarts))]
        stats = client.stats
        pairs.append(("messages", f"{stats.messages_in} received, {stats.messages_out} sent"))
        if client.instructions:
            pairs.append(("instructions", client.instructions))
        print_pairs(pairs)

    async def reconnect(self) -> None:
        """Leave the server, and connect again; one of ours is started anew."""
        await self._session.close()
        await self._session.open()

    def help(self, *, topics: tuple[str, ...]) -> Any:
        """List the commands, or explain one of them, a tool or a prompt.

        \b
        help
        help call
        """
        known = self._session.commands
        if not topics:
            rows = [(name, command.get_short_help_str(limit=100)) for name, command in known.items()]
            print_pairs(rows)
            return None
        command = known.get(topics[0])
        if command is None:
            return self._explain(topics[0])
        with click.Context(command, info_name=topics[0], **_HELP) as context:
            print_text(command.get_help(context))
        return None

    def exit(self) -> None:
        """Leave."""
        self._session.leave()

    async def _explain(self, name: str) -> None:
        """A tool or a prompt, as its list has it."""
        client = self._session.client
        for method, key, lists in (("tools/list", "tools", tools), ("prompts/list", "prompts", prompts)):
            if any(entry.get("name") == name for entry in await entries(client, method, key)):
                await _function(lists)(self._session, as_json=False, schema=name)
                return
        raise UsageError(f"There is no command, tool or prompt {name!r}. 'help' lists the commands.")


def _command(name: str, function: Callable[..., Any], *params: click.Parameter) -> click.Command:
    return click.Command(name, params=list(params), callback=function, help=function.__doc__, context_settings=_HELP)


async def _show_changes(changes: Changes, *, as_json: bool) -> None:
    """Print each change, until the end; what it ends with is told, and hurts nobody."""
    try:
        async for change in changes:
            print_change(change, as_json=as_json)
        say("The server ended the subscription.")
    except McplumbError as error:
        complain(sentence_of(error))
    finally:
        await changes.__aexit__(None, None, None)
