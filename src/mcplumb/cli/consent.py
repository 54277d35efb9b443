"""Ask for consent to a project's server, and for the inputs of a config entry, before it is used.

A project's file may come from anyone, so the user is shown everything that it would do, exactly as written. Text of the
file cannot pose as text of mcplumb: lines that do not fit are continued after a mark.
"""

from __future__ import annotations

import click

from mcplumb.cli.render.output import clean, clean_line, is_terminal, say, stderr
from mcplumb.config.entry import Input, ResolvedEntry, ServerEntry
from mcplumb.config.locations import with_tilde
from mcplumb.config.trust import is_trusted, remember
from mcplumb.errors import UsageError

__all__ = ["prepare_entry"]

#: The mark of continued lines.
_CONTINUED = "  | "
#: Characters of a prompt, and its number of choices, that are shown.
_MAX_QUESTION = 200
_MAX_CHOICES = 30


def prepare_entry(entry: ServerEntry, *, yes: bool = False, ask: bool = True) -> ServerEntry:
    """Return the entry ready for use: with the user's consent if it is a project's, and with values for its inputs.

    Without a terminal, or without ``ask``, there are no prompts, and the entry reports what it lacks when it is used.
    ``yes`` consents once.
    """
    ask = ask and is_terminal()
    if yes:
        entry = entry.with_consent()
    elif entry.scope == "project":
        # Resolved once: the env file may change while the user reads, and the consent must not cover the change.
        preview = entry.preview()
        digest = entry.digest(preview)
        if not is_trusted(digest):
            if not ask:
                return entry
            from mcplumb.cli.input_prompts import discard_typed_input

            _show(entry, preview)
            discard_typed_input()
            if not click.confirm("Allow this, now and in the future?", err=True):
                raise UsageError(f"The server {entry.name!r} was not used, because you did not allow it.")
            remember(digest, name=entry.name, source=entry.source)
    questions = entry.unanswered_inputs() if ask else []
    return entry.with_answers({one.id: _ask(one) for one in questions})


# --- Consent ---


def _show(entry: ServerEntry, preview: ResolvedEntry) -> None:
    """Show what the entry would do, as written: values from the user's own environment are not shown."""
    what = "reach" if entry.url is not None else "run"
    source = with_tilde(entry.source)
    _say_exactly(f"{source}, a file of this project, names the server {entry.name!r} and wants to {what}:")
    say()
    lines = sum(_say_exactly(f"  {line}") for line in entry.actions(preview))
    if lines > stderr().height - 6:
        say(f"  That was long, {lines} lines: scroll up and read all of it.", style="bold")
    say()


def _say_exactly(text: str) -> int:
    """Show the text and, if it has letters that could be mistaken for others, its ASCII form below.

    Returns the number of lines.
    """
    line = clean(text).replace("\n", "\\n").replace("\t", "\\t")
    lines = _wrap(line)
    if not line.isascii():
        lines += _wrap(f"  (in ASCII: {line.strip().encode('ascii', 'backslashreplace').decode()})")
    for each in lines:
        say(each)
    return len(lines)


def _wrap(line: str) -> list[str]:
    """Wrap the line to the width of the terminal, with marks before the continued lines."""
    from rich.cells import chop_cells

    width = max(stderr().width - 1, 20)
    first, *rest = chop_cells(line, width)
    return [first, *(f"{_CONTINUED}{part}" for part in chop_cells("".join(rest), width - len(_CONTINUED)))]


# --- Inputs ---


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
        # Both are in the text already, with control characters escaped.
        show_default=False,
        show_choices=False,
        type=click.Choice(wanted.options) if wanted.options else None,
        err=True,
    )
    return answer
