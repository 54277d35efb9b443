"""``mcplumb shell``: use one connection interactively, with one command per line.

The main thread reads the lines; everything else runs in an event loop in its own thread (`BackgroundLoop`). The
commands are those of ``mcplumb`` that need a server, plus a few of the shell's own.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import shlex
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import click

from mcplumb.cli.command_runner import DONE, INTERRUPTED, error_text, exit_code_of, global_options, using_runner
from mcplumb.cli.commands.call_read_prompt_complete import call, complete, prompt, read
from mcplumb.cli.commands.list_features import entries, prompts, resources, tools
from mcplumb.cli.commands.listen import all_lists, listen, print_change, say_subscribed
from mcplumb.cli.commands.probe import ping
from mcplumb.cli.input_prompts import InputPrompter, input_options
from mcplumb.cli.log_output import show_log
from mcplumb.cli.render.output import clean_line, print_pairs, print_text, say, say_error
from mcplumb.cli.render.print_content import end_line
from mcplumb.cli.server_target import ServerCommand, Target, server_command
from mcplumb.cli.shell_input import History, LineReader
from mcplumb.client.input_handlers import Elicitation
from mcplumb.errors import McplumbError, UsageError
from mcplumb.types.client_features import ElicitResult
from mcplumb.types.notification_params import LOGGING_LEVELS, SubscriptionFilter

if TYPE_CHECKING:
    from mcplumb.client.client import Client
    from mcplumb.client.process_link import ProcessExit
    from mcplumb.client.subscriptions import Changes

__all__ = ["BackgroundLoop", "ShellSession", "commands", "shell"]


_T = TypeVar("_T")

#: Seconds between two wake-ups of a waiting main thread, so that it notices signals.
_SIGNAL_CHECK_INTERVAL = 0.25
#: Seconds that a Tab waits for the server.
_COMPLETION_TIMEOUT = 2.0
#: Seconds between two checks of the server's process.
_PROCESS_CHECK_INTERVAL = 0.2
_MAX_SUBSCRIPTIONS = 16
_HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


# --- The event loop ---


class BackgroundLoop:
    """An event loop in its own thread, for coroutines of the main thread.

    Signals reach the main thread only, so Ctrl-C interrupts the line that is typed, or the wait for a coroutine.
    ``within`` is called first in the new thread. At the end of the block, all tasks are cancelled.
    """

    def __init__(self, within: Callable[[], object] = lambda: None) -> None:
        self._within = within
        self._loops: SimpleQueue[asyncio.AbstractEventLoop] = SimpleQueue()
        # A daemon, because a second Ctrl-C leaves it without waiting.
        self._thread = threading.Thread(target=self._run_loop, name="mcplumb loop", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._loop = self._loops.get()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and return its result.

        Ctrl-C cancels it, and raises `KeyboardInterrupt` once it has ended; a second Ctrl-C does not wait for that.
        """
        done: SimpleQueue[asyncio.Task[_T]] = SimpleQueue()
        started: list[asyncio.Task[_T]] = []

        def start() -> None:
            if not started:
                started.append(self._loop.create_task(coroutine))
                started[0].add_done_callback(done.put)

        def cancel() -> None:
            start()  # in case Ctrl-C came first
            started[0].cancel()

        try:
            self._loop.call_soon_threadsafe(start)
            task = _next(done)
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(cancel)
            task = _next(done)
            if not task.cancelled():
                task.exception()  # marks it as retrieved
            raise
        return task.result()

    def _run_loop(self) -> None:
        self._within()
        asyncio.run(self._wait())

    async def _wait(self) -> None:
        self._end = asyncio.Event()
        self._loops.put(asyncio.get_running_loop())
        await self._end.wait()


def _next(queue: SimpleQueue[_T]) -> _T:
    """Wait for the next item. A Ctrl-C that arrives just before the wait is noticed after a short delay."""
    while True:
        with suppress(Empty):
            return queue.get(timeout=_SIGNAL_CHECK_INTERVAL)


# --- The commands ---


def commands(session: ShellSession) -> dict[str, click.Command]:
    """Return all commands by name, in the order of the help."""
    shared = [_adapt(session, command) for command in (tools, resources, prompts, call, read, prompt, complete, ping)]
    return {command.name or "": command for command in (*shared, *_ShellCommands(session).commands())}


def _adapt(session: ShellSession, command: ServerCommand) -> click.Command:
    """Return a command of ``mcplumb`` that uses this session's server."""
    # Roots are given for the whole shell.
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
    """Return the help of a command with its examples as they are typed in the shell."""
    lines = []
    for line in text.splitlines():
        if line.strip().startswith("mcplumb "):
            line = line.replace("mcplumb ", "", 1).partition(" -- ")[0].partition(" -s ")[0]
        lines.append(line)
    return "\n".join(lines)


class _ShellCommands:
    """The commands that only the shell has."""

    def __init__(self, session: ShellSession) -> None:
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
        """Show changes as they happen, in the background.

        Reports changes of the resources with these URIs, or of the lists; by default, of all lists. With --count it
        waits for that many changes; otherwise "unlisten" ends it.

        \b
        listen --tools
        listen weather://Oslo/today --count 1
        """
        if count is not None:
            await _function(listen)(self._session, uris=uris, count=count, as_json=as_json, **lists)
            return
        if len(self._listening) >= _MAX_SUBSCRIPTIONS:
            raise UsageError(f"There are {_MAX_SUBSCRIPTIONS} subscriptions already: end one with 'unlisten NUMBER'.")
        client = self._session.client
        wanted = {"tools": lists["tools"], "prompts": lists["prompts"], "resources_list": lists["resources"]}
        changes = client.listen(**(wanted if uris or any(wanted.values()) else all_lists(client)), resources=uris)
        await changes.__aenter__()
        number = next(number for number in range(1, _MAX_SUBSCRIPTIONS + 1) if number not in self._listening)
        try:
            say_subscribed(changes.wanted, changes.honoured or SubscriptionFilter(), f"'unlisten {number}' ends it.")
        except UsageError:
            await changes.__aexit__(None, None, None)
            raise
        task = self._listening[number] = self._session.start(_show_changes(changes, as_json=as_json))
        task.add_done_callback(lambda _: self._listening.pop(number, None))

    async def unlisten(self, *, numbers: tuple[int, ...]) -> None:
        """End subscriptions of "listen": all, or those with these numbers."""
        for number in numbers or tuple(self._listening):
            task = self._listening.get(number)
            if task is None:
                raise UsageError(f"There is no subscription {number}.")
            task.cancel()
            await asyncio.wait([task])

    async def log(self, *, level: Any) -> None:
        """Show the server's log messages from this level on."""
        await self._session.client.set_log_level(level)

    async def info(self) -> None:
        """Show the server's identity and state."""
        client = self._session.client
        pairs = [("server", self._session.title)]
        if (who := client.server_info) is not None:
            pairs.append(("identity", f"{who.name} {who.version}"))
        pairs.append(("revision", f"{client.revision} ({client.revision.era})"))
        can = [name for name in client.capabilities.__struct_fields__ if getattr(client.capabilities, name, None)]
        pairs.append(("capabilities", ", ".join(can) or "none"))
        if (process := client.process) is not None:
            state = "is not running" if process.pid is None else f"{process.pid}, for {process.uptime or 0:.1f} s"
            pairs += [("process", state), ("restarts", str(process.restarts))]
        stats = client.stats
        pairs.append(("messages", f"{stats.messages_in} received, {stats.messages_out} sent"))
        if client.instructions:
            pairs.append(("instructions", client.instructions))
        print_pairs(pairs)

    async def reconnect(self) -> None:
        """Disconnect and connect again; a server that is a command is restarted."""
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
        """Leave the shell."""
        self._session.leave()

    async def _explain(self, name: str) -> None:
        """Show a tool or a prompt with its arguments."""
        client = self._session.client
        for method, key, lists in (("tools/list", "tools", tools), ("prompts/list", "prompts", prompts)):
            if any(entry.get("name") == name for entry in await entries(client, method, key)):
                await _function(lists)(self._session, as_json=False, schema=name)
                return
        raise UsageError(f"There is no command, tool or prompt {name!r}. 'help' lists the commands.")


def _command(name: str, function: Callable[..., Any], *params: click.Parameter) -> click.Command:
    return click.Command(name, params=list(params), callback=function, help=function.__doc__, context_settings=_HELP)


async def _show_changes(changes: Changes, *, as_json: bool) -> None:
    """Print each change until the subscription ends, and report an error that ends it."""
    try:
        async for change in changes:
            print_change(change, as_json=as_json)
        say("The server ended the subscription.")
    except McplumbError as error:
        say_error(error_text(error))
    finally:
        await changes.__aexit__(None, None, None)


# --- mcplumb shell ---


@server_command()
@input_options
@click.option("--no-history", is_flag=True, help="Keep no history of what is typed.")
def shell(target: Target, *, answers: tuple[str, ...], roots: tuple[str, ...], no_history: bool) -> int:
    """Use a server interactively.

    There is one connection, and a line for each thing to do: the commands of mcplumb without the server, such as
    "call forecast city=Oslo". "help" lists them, and "help forecast" explains a tool. Tab completes commands, tools,
    arguments, values and addresses.

    Ctrl-C cancels what runs, and a second one leaves, as Ctrl-D does. A server that exits is started again. Lines are
    kept in a file that only you can read, except those that begin with a space.

    Commands can come through a pipe, too. Then there is no prompt, and the exit code is that of the last command that
    failed.

    \b
    mcplumb shell -- python weather.py
    echo 'call forecast city=Oslo' | mcplumb shell -- python weather.py
    """
    from mcplumb.cli.log_output import logs

    context = click.get_current_context()
    prompter = InputPrompter(target.title, answers, roots=roots)
    code = DONE
    with logs(global_options()), BackgroundLoop(within=lambda: click.globals.push_context(context)) as background:
        session = ShellSession(target, prompter, background)
        history = None if no_history else History(_history_file())
        lines = LineReader(session.suggest, history)
        with lines.shared(), using_runner(background.run), _end_on_signal(session) as received:
            try:
                background.run(session.open())
                code = session.use(lines)
            except KeyboardInterrupt:
                if not received:
                    raise
            finally:
                background.run(session.close())
        return 128 + received[0] if received else code


@contextmanager
def _end_on_signal(session: ShellSession) -> Iterator[list[int]]:
    """End the session on SIGTERM and SIGHUP within the block; yield the list of received signals.

    Reading the line is interrupted, which restores the terminal, and the server is closed.
    """
    received: list[int] = []

    def on_signal(number: int, frame: object) -> None:
        received.append(number)
        session.leave()
        raise KeyboardInterrupt

    # Signals that are ignored, as with nohup, stay ignored.
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, on_signal)
    try:
        yield received
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _history_file() -> str:
    from mcplumb.config.locations import trust_file

    return os.path.join(os.path.dirname(trust_file()), "shell_history")  # noqa: PTH118, PTH120


class ShellSession:
    """One connection and the commands that use it. Lines run in the main thread, everything else in the loop."""

    def __init__(self, target: Target, prompter: InputPrompter, background: BackgroundLoop) -> None:
        self.client: Client
        self.commands: dict[str, click.Command] = {}
        self._target = target
        self._prompter = prompter
        self._background = background
        #: The elicitation callback of the running command.
        self._on_elicit = prompter.answer
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_left = False
        self._is_open = False

    # --- The connection ---

    async def open(self) -> None:
        """Connect, and show elicitations, log messages and restarts of the server from now on."""
        options = {**self._prompter.options, "on_elicit": self._answer, "on_log": show_log}
        self.client = await self._target.connect(**options)
        self._is_open = True
        self.commands = self.commands or commands(self)
        self.start(self._watch(self.client))

    async def close(self) -> None:
        """Cancel background tasks and disconnect."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._is_open:
            await self.client.close()

    @asynccontextmanager
    async def connect(self, **options: Any) -> AsyncIterator[Client]:
        """Give a command this session's connection; of its options, only ``on_elicit`` is used."""
        before = self._on_elicit
        self._on_elicit = options.get("on_elicit", before)
        try:
            yield self.client
        finally:
            self._on_elicit = before

    @property
    def title(self) -> str:
        """The name of the server in messages."""
        return self._target.title

    # --- Lines ---

    def use(self, lines: LineReader) -> int:
        """Run one line after another until the end of the input; return the exit code."""
        last, interrupts = DONE, 0
        if lines.is_asking:
            say(f"Connected to {self._name}, {self.client.revision}. 'help' lists the commands; Ctrl-D leaves.", "dim")
        while not self._has_left:
            try:
                line = lines.read(f"{self._name}> ")
                interrupts = 0
                last = self._run_line(line) or last
                sys.stdout.flush()  # another program may read it before it writes the next line
            except EOFError:
                if lines.is_asking:
                    say()
                break
            except KeyboardInterrupt:
                interrupts += 1
                if interrupts > 1 or not lines.is_asking:
                    return INTERRUPTED
                self._say_cancelled()
        # An interactive user has seen the errors.
        return DONE if lines.is_asking else last

    def suggest(self, before: str, word: str) -> list[str]:
        """Return the completions of a word within a short timeout; none if the server fails."""
        from mcplumb.cli.shell_completion import suggest

        async def found() -> list[str]:
            async with asyncio.timeout(_COMPLETION_TIMEOUT):
                return await suggest(self.client, self.commands, before, word)

        try:
            return self._background.run(found())
        except (McplumbError, TimeoutError):
            return []

    def _say_cancelled(self) -> None:
        # After SIGHUP the terminal may be gone.
        if not self._has_left:
            say("\nCancelled. Ctrl-C again, or Ctrl-D, leaves.", "dim")

    def leave(self) -> None:
        """Stop reading lines."""
        self._has_left = True

    @property
    def _name(self) -> str:
        info = self.client.server_info
        return clean_line(info.name if info is not None else "mcplumb", 30)

    def _run_line(self, line: str) -> int:
        try:
            return self._run(line)
        except McplumbError as error:
            say_error(error_text(error))
            return exit_code_of(error)
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except click.Abort:
            raise KeyboardInterrupt from None

    def _run(self, line: str) -> int:
        try:
            words = [] if line.lstrip().startswith("#") else shlex.split(line)
        except ValueError as error:
            hint = "Close each ' and \"."
            raise UsageError(f"The line cannot be parsed: {error}. {hint}") from None
        if not words:
            return DONE
        end_line()
        command = self.commands.get(words[0])
        if command is None:
            raise UsageError(self._background.run(self._no_command(words[0])))
        self._prompter.mistake = None
        result = command.main(words[1:], prog_name=words[0], standalone_mode=False, obj=global_options())
        if inspect.iscoroutine(result):
            result = self._background.run(result)
        self._prompter.raise_mistake()
        return result if isinstance(result, int) else DONE

    async def _no_command(self, name: str) -> str:
        from difflib import get_close_matches

        with suppress(McplumbError):
            if any(tool.name == name for tool in await self.client.list_tools()):
                return f"{name} is a tool: write 'call {name}'."
        near = get_close_matches(name, self.commands, n=1)
        return f"There is no command {name!r}. " + (f"Did you mean '{near[0]}'?" if near else "'help' lists them.")

    # --- Events of the server ---

    async def _answer(self, question: Elicitation) -> ElicitResult:
        return await self._on_elicit(question)

    async def _watch(self, client: Client) -> None:
        """Report exits and restarts of the server's process."""
        process = client.process
        seen: ProcessExit | None = None
        restarts = 0
        while process is not None:
            last = process.exits[-1] if process.exits else None
            if last is not None and last is not seen:
                seen = last
                how = f"by {last.signal}" if last.signal else f"with code {last.exit_code}"
                say(f"The server exited {how}, after {last.uptime:.1f} s.", "yellow")
            if process.restarts > restarts and process.pid is not None:
                restarts = process.restarts
                say(f"It was started again, as process {process.pid}.", "dim")
            await asyncio.sleep(_PROCESS_CHECK_INTERVAL)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a background task that is cancelled when the session is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
