"""``mcplumb shell``: one connection, and a line for each thing to do with it."""

from __future__ import annotations

import asyncio
import inspect
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from mcplumb.cli.asking import Asker, asking_options
from mcplumb.cli.background import Background
from mcplumb.cli.content import end_line
from mcplumb.cli.history import History
from mcplumb.cli.lines import Lines
from mcplumb.cli.logs import show_log
from mcplumb.cli.output import clean_line, complain, say
from mcplumb.cli.running import DONE, INTERRUPTED, exit_code_of, global_options, running_with, sentence_of
from mcplumb.cli.target import Target, server_command
from mcplumb.client.inputs import Elicitation
from mcplumb.errors import McplumbError, UsageError
from mcplumb.types.elicitation import ElicitResult

if TYPE_CHECKING:
    from mcplumb.client.client import Client
    from mcplumb.client.process import ProcessExit

__all__ = ["Session", "shell"]

#: Seconds that a Tab waits for the server, and between two looks at its process.
_TAB = 2.0
_LOOK = 0.2


@server_command()
@asking_options
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
    from mcplumb.cli.logs import logs

    context = click.get_current_context()
    asker = Asker(target.title, answers, roots=roots)
    code = DONE
    with logs(global_options()), Background(within=lambda: click.globals.push_context(context)) as background:
        session = Session(target, asker, background)
        history = None if no_history else History(_history_file())
        lines = Lines(session.suggest, history)
        with lines.shared(), running_with(background.run), _told_to_end(session) as told:
            try:
                background.run(session.open())
                code = session.use(lines)
            except KeyboardInterrupt:
                if not told:
                    raise
            finally:
                background.run(session.close())
        return 128 + told[0] if told else code


@contextmanager
def _told_to_end(session: Session) -> Iterator[list[int]]:
    """Within the block, SIGTERM and SIGHUP end the session as a person would. Gives a list of those that came.

    The line that is typed is left, so that the terminal is what it was before, and the server ends with us.
    """
    told: list[int] = []

    def heed(number: int, frame: object) -> None:
        told.append(number)
        session.leave()
        raise KeyboardInterrupt

    # Those that are ignored, as with nohup, stay so.
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, heed)
    try:
        yield told
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _history_file() -> str:
    from mcplumb.config.places import trust_file

    return os.path.join(os.path.dirname(trust_file()), "shell_history")  # noqa: PTH118, PTH120


class Session:
    """One connection, and the commands that use it. Lines are dealt with in the main thread, all else in the loop."""

    def __init__(self, target: Target, asker: Asker, background: Background) -> None:
        self.client: Client
        self.commands: dict[str, click.Command] = {}
        self._target = target
        self._asker = asker
        self._background = background
        #: Whoever answers questions during the command that runs.
        self._on_elicit = asker.answer
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._is_open = False

    # --- The connection ---

    async def open(self) -> None:
        """Connect. What the server asks, says and does from now on is shown."""
        from mcplumb.cli.shell_commands import commands

        options = {**self._asker.options, "on_elicit": self._answer, "on_log": show_log}
        self.client = await self._target.connect(**options)
        self._is_open = True
        self.commands = self.commands or commands(self)
        self.start(self._watch(self.client))

    async def close(self) -> None:
        """Leave, and end what runs beside the commands."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._is_open:
            await self.client.close()

    @asynccontextmanager
    async def connect(self, **options: Any) -> AsyncIterator[Client]:
        """What a command gets for a connection of its own: this one. Of its options, who answers questions counts."""
        before = self._on_elicit
        self._on_elicit = options.get("on_elicit", before)
        try:
            yield self.client
        finally:
            self._on_elicit = before

    @property
    def title(self) -> str:
        """The server, for messages."""
        return self._target.title

    # --- Lines ---

    def use(self, lines: Lines) -> int:
        """Deal with one line after the other, to the last; returns the exit code."""
        last, interrupts = DONE, 0
        if lines.is_asking:
            say(f"Connected to {self._name}, {self.client.revision}. 'help' lists the commands; Ctrl-D leaves.", "dim")
        while not self._is_over:
            try:
                line = lines.read(f"{self._name}> ")
                interrupts = 0
                last = self._deal_with(line) or last
                sys.stdout.flush()  # somebody may read it, and then write the next line
            except EOFError:
                if lines.is_asking:
                    say()
                break
            except KeyboardInterrupt:
                interrupts += 1
                if interrupts > 1 or not lines.is_asking:
                    return INTERRUPTED
                self._say_cancelled()
        # Who types has seen what failed.
        return DONE if lines.is_asking else last

    def suggest(self, before: str, word: str) -> list[str]:
        """What a word may become. It takes no longer than a moment, and a server that fails has no suggestions."""
        from mcplumb.cli.suggesting import suggest

        async def found() -> list[str]:
            async with asyncio.timeout(_TAB):
                return await suggest(self.client, self.commands, before, word)

        try:
            return self._background.run(found())
        except (McplumbError, TimeoutError):
            return []

    def _say_cancelled(self) -> None:
        # Who has to leave may have no terminal any more.
        if not self._is_over:
            say("\nCancelled. Once more leaves, as does Ctrl-D.", "dim")

    def leave(self) -> None:
        """Take no more lines."""
        self._is_over = True

    @property
    def _name(self) -> str:
        info = self.client.server_info
        return clean_line(info.name if info is not None else "mcplumb", 30)

    def _deal_with(self, line: str) -> int:
        try:
            return self._run(line)
        except McplumbError as error:
            complain(sentence_of(error))
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
            hint = "What begins with ' or \" ends with the same."
            raise UsageError(f"That cannot be read: {error}. {hint}") from None
        if not words:
            return DONE
        end_line()
        command = self.commands.get(words[0])
        if command is None:
            raise UsageError(self._background.run(self._no_command(words[0])))
        self._asker.mistake = None
        result = command.main(words[1:], prog_name=words[0], standalone_mode=False, obj=global_options())
        if inspect.iscoroutine(result):
            result = self._background.run(result)
        self._asker.confess()
        return result if isinstance(result, int) else DONE

    async def _no_command(self, name: str) -> str:
        from difflib import get_close_matches

        with suppress(McplumbError):
            if any(tool.name == name for tool in await self.client.list_tools()):
                return f"{name} is a tool: write 'call {name}'."
        near = get_close_matches(name, self.commands, n=1)
        return f"There is no command {name!r}. " + (f"Did you mean '{near[0]}'?" if near else "'help' lists them.")

    # --- What the server does by itself ---

    async def _answer(self, question: Elicitation) -> ElicitResult:
        return await self._on_elicit(question)

    async def _watch(self, client: Client) -> None:
        """Tell when the server exits, and when it is back."""
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
            await asyncio.sleep(_LOOK)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside the commands, until it is done or the shell is left."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
