"""What a person has to agree to, or to tell, before a server of a config file is used."""

from __future__ import annotations

import shlex

import click

from mcpipe.cli.output import clean, clean_line, is_terminal, say
from mcpipe.config.entries import Input, ServerEntry
from mcpipe.config.masking import MASK, looks_secret
from mcpipe.config.places import shortened
from mcpipe.config.trust import remember
from mcpipe.errors import UsageError

__all__ = ["settle"]


def settle(entry: ServerEntry, *, yes: bool = False) -> ServerEntry:
    """The entry, ready to be used: agreed to if it is a project's, and with answers for what it asks for.

    Without a terminal nobody is asked, and the entry says on use what it lacks. ``yes`` agrees for this once.
    """
    if yes:
        entry = entry.consented()
    elif not entry.is_allowed():
        if not is_terminal():
            return entry
        _show(entry)
        if not click.confirm("Allow that, now and from now on?", err=True):
            raise UsageError(f"The server {entry.name!r} was not used, as you did not allow it.")
        remember(entry.digest(), name=entry.name, source=entry.source)
    questions = entry.questions() if is_terminal() else []
    return entry.answered({one.id: _ask(one) for one in questions})


def _show(entry: ServerEntry) -> None:
    """Tell what a project wants, as it is written: values that come from the user's own environment are not shown."""
    wants = f"{shortened(entry.source)}, a file of this project, names the server {entry.name!r} and wants to"
    if entry.url is not None:
        say(f"{wants} reach:\n")
        say(f"  {_line(entry.url)}")
    else:
        say(f"{wants} run:\n")
        say(f"  {_line(shlex.join([entry.command or '', *entry.args]))}")
        say(f"  in {_line(entry.cwd or shortened(entry.folder))}")
        if entry.env_file is not None:
            say(f"  with the variables in {_line(entry.env_file)}")
        if isinstance(entry.inherit_env, tuple):
            say(f"  with {_line(', '.join(entry.inherit_env))} of your environment")
        elif entry.inherit_env:
            say("  with all variables of your environment")
    for name, value in {**entry.env, **entry.headers}.items():
        is_hidden = looks_secret(name) and "$" not in value
        say(f"  with {_line(name)}: {MASK if is_hidden else _line(value)}")
    say()


def _line(text: str) -> str:
    return clean(text).replace("\n", "\\n").replace("\t", "\\t")


def _ask(wanted: Input) -> str:
    text = clean_line(wanted.description or wanted.id)
    kind = click.Choice(wanted.options) if wanted.options else None
    answer: str = click.prompt(
        text,
        default=wanted.default,
        hide_input=wanted.is_secret,
        show_default=not wanted.is_secret,
        type=kind,
        err=True,
    )
    return answer
