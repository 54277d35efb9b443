"""``mcplumb diff`` and ``replay``: what differs between two sessions, or between a session and a server of today."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mcplumb.cli.command_group import BaseCommand
from mcplumb.cli.render.output import clean_line, print_json, print_text, say
from mcplumb.cli.server_target import Target, server_command
from mcplumb.recording.recording_format import read_recording

if TYPE_CHECKING:
    from mcplumb.tap.compare_sessions import Answer, Difference, Snapshot

__all__ = ["diff", "replay"]

_DIFFERENT = 1
_LONGEST_LINE = 400


@click.command(cls=BaseCommand)
@click.argument("old", metavar="FILE|ID|NAME")
@click.argument("new", metavar="FILE|ID|NAME")
@click.option("--json", "as_json", is_flag=True, help="Print the output as one JSON document.")
def diff(old: str, new: str, *, as_json: bool) -> int:
    """Show what differs between two sessions.

    Compares the identity and the capabilities of the server; tools, prompts and resources with their schemas, if both
    sessions list them; and the answers to requests that are in both. The exit code is 1 if anything differs.

    \b
    mcplumb diff before.mcp.jsonl after.mcp.jsonl
    """
    from mcplumb.tap.compare_sessions import compare

    found = compare(_snapshot(old), _snapshot(new))
    if as_json:
        print_json(found)
    else:
        for difference in found:
            print_text(clean_line(_line(difference), _LONGEST_LINE))
        if not found:
            print_text("No differences.")
    return _DIFFERENT if found else 0


def _snapshot(session: str) -> Snapshot:
    from mcplumb.tap.compare_sessions import take_snapshot
    from mcplumb.tap.read_session import find_recording

    return take_snapshot(read_recording(find_recording(session))[1])


def _line(difference: Difference) -> str:
    lines = [str(line) for line in difference.lines if line is not None]
    where = f"line{'s' if len(lines) > 1 else ''} {' and '.join(lines)}"
    return f"{difference.kind} {difference.name}: {difference.change} ({where})"


@server_command()
@click.argument("session", metavar="FILE|ID|NAME")
@click.option("--all", "everything", is_flag=True, help="Also send requests that may change something.")
@click.option("--json", "as_json", is_flag=True, help="Print the output as one JSON document.")
async def replay(target: Target, session: str, *, everything: bool, as_json: bool) -> int:
    """Send the requests of a session again, and show what differs.

    The server is a command after --, or -s with an address or a name. The requests of the session's client are sent
    again, one after the other, and each answer is compared with the recorded one. Without --all, only tools that the
    server marks as read-only are called. The exit code is 1 if anything differs.

    \b
    mcplumb replay weather.mcp.jsonl -- python weather.py
    mcplumb replay weather -s http://127.0.0.1:8000/mcp --all
    """
    from mcplumb.tap.read_session import find_recording
    from mcplumb.tap.replay_session import replay as replay_answers

    answers = _snapshot(str(find_recording(session))).answers
    found = []
    async with target.connect(cache=False) as client:
        async for replayed in replay_answers(client, answers, everything=everything):
            found.append(replayed)
            if as_json:
                continue
            what = _name(replayed.answer)
            if replayed.skipped:
                say(f"{what}: not sent, {replayed.skipped}.", style="dim")
            elif not replayed.differs:
                print_text(clean_line(f"{what}: the same", _LONGEST_LINE))
            for place, change in replayed.differs:
                print_text(clean_line(f"{what}: {place} {change}".replace("  ", " "), _LONGEST_LINE))
    if as_json:
        print_json(
            [
                {
                    "line": each.answer.line,
                    "method": each.answer.method,
                    "name": each.answer.name,
                    "skipped": each.skipped or None,
                    "differences": [{"place": place, "change": change} for place, change in each.differs],
                }
                for each in found
            ]
        )
    else:
        sent = [each for each in found if not each.skipped]
        different = sum(bool(each.differs) for each in sent)
        unsent = len(found) - len(sent)
        say(f"Requests sent again: {len(sent)}, of which {different} got another answer. Not sent: {unsent}.")
    return _DIFFERENT if any(each.differs for each in found) else 0


def _name(answer: Answer) -> str:
    return f"{answer.line} {answer.method} {answer.name}".strip()
