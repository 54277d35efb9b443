"""What a person has to agree to, or to tell, before a server of a config file is used.

A project's file may have been written by anybody: what is shown is all that it does, and exactly that. Whatever stands
in the file, it cannot look like a line of ours: what does not fit into one line goes on behind a mark.
"""

from __future__ import annotations

import shlex

import click

from mcplumb.cli.render.output import clean, clean_line, is_terminal, say, stderr
from mcplumb.config.entry import MASK, Input, ResolvedEntry, ServerEntry, looks_secret, mask_url
from mcplumb.config.locations import with_tilde
from mcplumb.config.trust import is_trusted, remember
from mcplumb.errors import UsageError

__all__ = ["prepare_entry"]

#: What stands before all but the first line of something long.
_FOLDED = "  | "
#: Characters of a question, and how many of its choices are shown.
_MAX_QUESTION = 200
_MAX_CHOICES = 30


def prepare_entry(entry: ServerEntry, *, yes: bool = False) -> ServerEntry:
    """The entry, ready to be used: agreed to if it is a project's, and with answers for what it asks for.

    Without a terminal nobody is asked, and the entry says on use what it lacks. ``yes`` agrees for this once.
    """
    if yes:
        entry = entry.with_consent()
    elif entry.scope == "project":
        # Once: a file with variables may be another one while somebody reads, and that is not what is agreed to.
        meant = entry.preview()
        digest = entry.digest(meant)
        if not is_trusted(digest):
            if not is_terminal():
                return entry
            from mcplumb.cli.input_prompts import discard_typed_input

            _show(entry, meant)
            discard_typed_input()
            if not click.confirm("Allow that, now and from now on?", err=True):
                raise UsageError(f"The server {entry.name!r} was not used, as you did not allow it.")
            remember(digest, name=entry.name, source=entry.source)
    questions = entry.unanswered_inputs() if is_terminal() else []
    return entry.with_answers({one.id: _ask(one) for one in questions})


# --- What a project wants ---


def _show(entry: ServerEntry, meant: ResolvedEntry) -> None:
    """Tell what a project wants, as it is written: values that come from the user's own environment are not shown."""
    what = "reach" if entry.url is not None else "run"
    _tell(f"{with_tilde(entry.source)}, a file of this project, names the server {entry.name!r} and wants to {what}:")
    say()
    lines = sum(_tell(f"  {line}") for line in _wishes(entry, meant))
    if lines > stderr().height - 6:
        say(f"  That was much, {lines} lines: scroll up, and read all of it.", style="bold")
    say()


def _wishes(entry: ServerEntry, meant: ResolvedEntry) -> list[str]:
    wishes = []
    if entry.url is not None:
        wishes.append(entry.url)
    else:
        wishes.append(shlex.join([entry.command or "", *entry.args]))
        wishes.append(f"in {entry.cwd or with_tilde(entry.folder)}")
        if entry.env_file is not None:
            wishes.append(f"with the variables in {entry.env_file}")
            wishes += [f"  {_shown(name, value)}" for name, value in meant.env_file.items()]
        if isinstance(entry.inherit_env, tuple):
            wishes.append(f"with {', '.join(entry.inherit_env)} of your environment")
        elif entry.inherit_env:
            wishes.append("with all variables of your environment")
    return wishes + [f"with {_shown(name, value)}" for name, value in {**entry.env, **entry.headers}.items()]


def _shown(name: str, value: str) -> str:
    is_hidden = looks_secret(name) and "$" not in value
    return f"{name}: {MASK if is_hidden else mask_url(value) if '://' in value and '@' in value else value}"


def _tell(text: str) -> int:
    """Show something as what it is, and below that, if letters could be mistaken for others, which they are.

    Returns how many lines that took.
    """
    line = clean(text).replace("\n", "\\n").replace("\t", "\\t")
    lines = _folded(line)
    if not line.isascii():
        lines += _folded(f"  (in ASCII: {line.strip().encode('ascii', 'backslashreplace').decode()})")
    for each in lines:
        say(each)
    return len(lines)


def _folded(line: str) -> list[str]:
    """The line in lines that are not wider than the terminal."""
    from rich.cells import chop_cells

    width = max(stderr().width - 1, 20)
    first, *rest = chop_cells(line, width)
    return [first, *(f"{_FOLDED}{part}" for part in chop_cells("".join(rest), width - len(_FOLDED)))]


# --- What a server needs to know ---


def _ask(wanted: Input) -> str:
    text = clean_line(wanted.description or wanted.id, _MAX_QUESTION)
    if wanted.options:
        more = ", …" if len(wanted.options) > _MAX_CHOICES else ""
        text += f" ({', '.join(clean_line(one, _MAX_QUESTION) for one in wanted.options[:_MAX_CHOICES])}{more})"
    if wanted.default is not None and not wanted.is_secret:
        text += f" [{clean_line(wanted.default, _MAX_QUESTION)}]"
    answer: str = click.prompt(
        text,
        default=wanted.default,
        hide_input=wanted.is_secret,
        # Both are in the text, and there they drive no terminal.
        show_default=False,
        show_choices=False,
        type=click.Choice(wanted.options) if wanted.options else None,
        err=True,
    )
    return answer
