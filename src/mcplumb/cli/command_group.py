"""The ``mcplumb`` command group, its global options, and the base class of its commands.

Global options may be given before or after the name of the command. Commands are imported when they run.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import click

from mcplumb.cli.command_runner import GlobalOptions, run
from mcplumb.cli.main import COMMANDS, OVERVIEW

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["BaseCommand", "LazyGroup", "cli", "merge_global_options", "pop_values", "versions"]


#: Optional and required packages that ``--version`` lists.
_PACKAGES = (
    "msgspec", "click", "rich", "uvicorn", "httptools", "aiohttp", "jsonschema-rs", "joserfc", "keyring", "redis",
    "opentelemetry-api", "pydantic", "uvloop",
)  # fmt: skip


class BaseCommand(click.Command):
    """A command that also takes the global options after its name. An async function is run in an event loop."""

    #: The global options that the command takes; ``--config`` is only for commands that look up servers.
    global_names: ClassVar[tuple[str, ...]] = ("verbose", "trace", "log_file", "no_color")

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.own_params = list(self.params)
        self.global_params = [param for param in cli.params if param.name in self.global_names]
        self.params += self.global_params

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """Return the names of the help option, which click otherwise takes from the first context that asks."""
        return ["-h", "--help"]

    def invoke(self, ctx: click.Context) -> Any:
        """Merge the global options, and run the command."""
        given = {"config": None, **pop_values(self.global_params, ctx)}
        merge_global_options(ctx.ensure_object(GlobalOptions), **given)
        self.prepare(ctx)
        result = super().invoke(ctx)
        return run(result) if inspect.iscoroutine(result) else result

    def prepare(self, ctx: click.Context) -> None:
        """Prepare the run once the global options are known; a hook for subclasses."""


def pop_values(params: list[click.Parameter], ctx: click.Context) -> dict[str, Any]:
    """Remove the values of these parameters from the context and return them by name."""
    return {param.name or "": ctx.params.pop(param.name or "") for param in params}


class LazyGroup(click.Group):
    """The command group, which imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None if there is none of this name."""
        path = COMMANDS.get(cmd_name)
        if path is None:
            return None
        module, _, name = path.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command, or fail with the closest name."""
        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = ["--help"] if name == "help" else get_close_matches(name, COMMANDS, n=1)
            more = f" Did you mean '{near[0]}'?" if near else " 'mcplumb --help' lists all of them."
            ctx.fail(f"There is no command {name!r}.{more}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete options and names of commands, without importing any command."""
        from mcplumb.cli.commands.completion import commands

        return [*commands(incomplete), *click.Command.shell_complete(self, ctx, incomplete)]

    def get_help(self, ctx: click.Context) -> str:
        """Return the prepared help text."""
        return OVERVIEW.rstrip()


def versions() -> str:
    """Return the versions of mcplumb, the protocol, Python and the packages, one per line."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from mcplumb.revisions import REVISIONS
    from mcplumb.version import __version__

    lines = [
        f"mcplumb {__version__}",
        f"revisions: {', '.join(map(str, REVISIONS))}",
        f"python {platform.python_version()} on {platform.system()} {platform.machine()}",
    ]
    for package in _PACKAGES:
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            lines.append(f"{package} is not installed")
    return "\n".join(lines)


def _show_versions(ctx: click.Context, _: click.Parameter, wanted: Any) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(versions())
        ctx.exit()


def merge_global_options(
    options: GlobalOptions, *, verbose: int, trace: bool, log_file: str | None, config: str | None, no_color: bool
) -> None:
    """Merge the global options given before or after the command's name into ``options``."""
    from mcplumb.cli.render.output import set_color

    options.verbose += verbose
    options.trace = options.trace or trace
    options.log_file = log_file or options.log_file
    options.config = config or options.config
    if no_color:
        set_color(False)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", count=True, help="Log more, with the server's stderr; twice for debugging.")
@click.option("--trace", is_flag=True, help="Show every message, in both directions, with secrets masked.")
@click.option("--log-file", metavar="FILE", help="Write the log, and the trace, to this file.")
@click.option("--config", metavar="FILE", help="Look up the names of servers in this file only.")
@click.option("--no-color", is_flag=True, help="Use no colours.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_versions,
    help="Show the versions of mcplumb, the protocol and its packages.",
)
@click.pass_context
def cli(
    ctx: click.Context, *, verbose: int, trace: bool, log_file: str | None, config: str | None, no_color: bool
) -> None:
    """The Model Context Protocol on the command line: look at a server, use it, or run one."""
    options = ctx.ensure_object(GlobalOptions)
    merge_global_options(options, verbose=verbose, trace=trace, log_file=log_file, config=config, no_color=no_color)
