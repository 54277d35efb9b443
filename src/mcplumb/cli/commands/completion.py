"""``mcplumb completion``: print the completion script of a shell, and answer that script at each Tab.

The script calls ``mcplumb`` with an environment variable, see `print_completions`. To be fast, only the command that is
being typed is imported, and no server is started.
"""

from __future__ import annotations

import os

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from mcplumb.cli.main import COMMANDS, OVERVIEW

__all__ = ["commands", "completion", "print_completions"]

_VARIABLE = "_MCPLUMB_COMPLETE"
#: Options whose values are files, folders or servers.
_FILES = {"--log-file", "--config", "--token-file", "--ca-file", "--output", "-o"}
_FOLDERS = {"--cwd", "--root"}
_SERVERS = {"-s", "--server"}
#: The script for fish; click's own cuts descriptions at the first comma.
_FISH = """\
function _mcplumb_completion
    for line in (env _MCPLUMB_COMPLETE=fish_complete COMP_WORDS=(commandline -cp) COMP_CWORD=(commandline -t) mcplumb)
        set -l item (string split --max 1 , -- $line)
        switch $item[1]
            case dir
                __fish_complete_directories $item[2]
            case file
                __fish_complete_path $item[2]
            case plain
                printf '%%s\\n' $item[2]
        end
    end
end

complete --no-files --command mcplumb --arguments "(_mcplumb_completion)"
"""


@click.command()
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands in your shell.

    It completes commands, options, and the names of servers in your config files. Have your shell run it when it
    starts, and open a new one:

    \b
    bash:  echo 'eval "$(mcplumb completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(mcplumb completion zsh)"' >> ~/.zshrc
    fish:  echo 'mcplumb completion fish | source' >> ~/.config/fish/config.fish

    In zsh, that line belongs after the one with compinit. The scripts themselves:

    \b
    mcplumb completion bash
    mcplumb completion zsh
    mcplumb completion fish
    """
    click.echo(_completer(shell).source())


def print_completions(instruction: str) -> int:
    """Print the completions for a shell and return the exit code.

    ``instruction`` is the value of the environment variable, such as ``bash_complete``; for other values the exit code
    is 1, as shells expect.
    """
    shell, _, action = instruction.partition("_")
    if shell not in _SHELLS or action != "complete":
        return 1
    click.echo(_completer(shell).complete())
    return 0


def commands(beginning: str) -> list[CompletionItem]:
    """Return the commands whose names begin like this, with their descriptions in the overview."""
    lines = [line.strip().partition("  ") for line in OVERVIEW.splitlines()]
    descriptions = {name: text.strip() for name, _, text in lines if text}
    return [CompletionItem(name, help=descriptions.get(name)) for name in COMMANDS if name.startswith(beginning)]


class _ValueComplete(ShellComplete):
    """Completes files, servers, revisions and programs, which the declarations of the commands do not describe."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return the completions of the word after ``args``."""
        before = args[-1] if args else ""
        command = next((word for word in args if word in COMMANDS), "")
        if before == "--" and incomplete and os.sep not in incomplete:
            # The file comes first: in bash, a file item drops the items before it.
            return [CompletionItem(incomplete, type="file"), *_programs(incomplete)]
        if "--" in args or before in _FILES:
            return [CompletionItem(incomplete, type="file")]
        if before in _FOLDERS:
            return [CompletionItem(incomplete, type="dir")]
        if before in _SERVERS or (command == "remove" and before == command):
            return _names(args, incomplete)
        if before == "--revision":
            from mcplumb.revisions import REVISIONS

            return [CompletionItem(name) for name in map(str, REVISIONS) if name.startswith(incomplete)]
        if command == "serve" and before == command and not incomplete.startswith("-"):
            return [CompletionItem(incomplete, type="file")]
        return super().get_completions(args, incomplete)


class _Bash(_ValueComplete, BashComplete):
    pass


class _Zsh(_ValueComplete, ZshComplete):
    pass


class _Fish(_ValueComplete, FishComplete):
    source_template = _FISH


_SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def _completer(shell: str) -> ShellComplete:
    from mcplumb.cli.command_group import cli

    return _SHELLS[shell](cli, {}, "mcplumb", _VARIABLE)


def _programs(beginning: str) -> list[CompletionItem]:
    """Return the programs in PATH whose names begin like this."""
    found = set()
    for folder in os.get_exec_path():
        try:
            names = os.listdir(folder)  # noqa: PTH208 - pathlib takes its time to load
        except OSError:
            continue
        found |= {name for name in names if name.startswith(beginning) and os.access(f"{folder}/{name}", os.X_OK)}
    return [CompletionItem(name) for name in sorted(filter(_is_plain, found))]


def _names(args: list[str], beginning: str) -> list[CompletionItem]:
    """Return the servers of the config file in the line, or of all discovered ones; none if a file is broken."""
    from mcplumb.config.load_config import discover_config, load_config
    from mcplumb.errors import UsageError

    at = args.index("--config") + 1 if "--config" in args else len(args)
    try:
        config = load_config(os.path.expanduser(args[at])) if at < len(args) else discover_config()  # noqa: PTH111
    except UsageError:
        return []
    return [CompletionItem(name) for name in config if name.startswith(beginning) and _is_plain(name)]


def _is_plain(name: str) -> bool:
    """Whether a name needs no quoting in any shell: it goes into the user's line, and may come from a stranger."""
    from shlex import quote

    return quote(name) == name and not name.startswith(("-", "~", "="))
