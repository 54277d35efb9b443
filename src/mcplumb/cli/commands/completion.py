"""``mcplumb completion``: the script that completes commands in a shell; and what that script asks, at each Tab.

Shells call ``mcplumb`` with a variable in its environment, see `answer`. It has to be quick: of the commands only the
one that is being typed is loaded, and no server is started.
"""

from __future__ import annotations

import os

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from mcplumb.cli.help_text import COMMANDS, OVERVIEW

__all__ = ["answer", "commands", "completion"]

_VARIABLE = "_MCPLUMB_COMPLETE"
#: Options whose values are known to be files, folders or servers.
_FILES = {"--log-file", "--config", "--token-file", "--ca-file", "--output", "-o"}
_FOLDERS = {"--cwd", "--root"}
_SERVERS = {"-s", "--server"}
#: For click's own, the first comma in a description is the end of it.
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

    In zsh, that line belongs behind the one with compinit. The scripts themselves:

    \b
    mcplumb completion bash
    mcplumb completion zsh
    mcplumb completion fish
    """
    click.echo(_made(shell).source())


def answer(question: str) -> int:
    """Print what a shell wants to know: the words that may stand where its user has pressed Tab.

    ``question`` is the value of the variable. Where it is no question, the exit code is 1, as shells expect.
    """
    shell, _, what = question.partition("_")
    if shell not in _SHELLS or what != "complete":
        return 1
    click.echo(_made(shell).complete())
    return 0


def commands(beginning: str) -> list[CompletionItem]:
    """The commands whose names begin like this, with what they do, as the overview has it."""
    lines = [line.strip().partition("  ") for line in OVERVIEW.splitlines()]
    said = {name: text.strip() for name, _, text in lines if text}
    return [CompletionItem(name, help=said.get(name)) for name in COMMANDS if name.startswith(beginning)]


class _Ours(ShellComplete):
    """What is known better here than from the declarations of the commands."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """The words that may stand behind those that are there."""
        before = args[-1] if args else ""
        command = next((word for word in args if word in COMMANDS), "")
        if before == "--" and incomplete and os.sep not in incomplete:
            # In bash, a file drops the words before it.
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


class _Bash(_Ours, BashComplete):
    pass


class _Zsh(_Ours, ZshComplete):
    pass


class _Fish(_Ours, FishComplete):
    source_template = _FISH


_SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


def _made(shell: str) -> ShellComplete:
    from mcplumb.cli.app import cli

    return _SHELLS[shell](cli, {}, "mcplumb", _VARIABLE)


def _programs(beginning: str) -> list[CompletionItem]:
    """The programs of the PATH whose names begin like this."""
    found = set()
    for folder in os.get_exec_path():
        try:
            names = os.listdir(folder)  # noqa: PTH208 - pathlib takes its time to load
        except OSError:
            continue
        found |= {name for name in names if name.startswith(beginning) and os.access(f"{folder}/{name}", os.X_OK)}
    return [CompletionItem(name) for name in sorted(filter(_is_plain, found))]


def _names(args: list[str], beginning: str) -> list[CompletionItem]:
    """The servers of the config file that the line names, or of all that are found. A bad file has none."""
    from mcplumb.config.config import discover_config, load_config
    from mcplumb.errors import UsageError

    at = args.index("--config") + 1 if "--config" in args else len(args)
    try:
        config = load_config(os.path.expanduser(args[at])) if at < len(args) else discover_config()  # noqa: PTH111
    except UsageError:
        return []
    return [CompletionItem(name) for name in config if name.startswith(beginning) and _is_plain(name)]


def _is_plain(name: str) -> bool:
    """Whether a name means itself in every shell: it is put on the user's line, and may come from a stranger."""
    from shlex import quote

    return quote(name) == name and not name.startswith(("-", "~", "="))
