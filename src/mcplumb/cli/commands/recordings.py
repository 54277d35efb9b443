"""``mcplumb sessions``, ``show`` and ``export``: list recorded sessions, show one, convert one."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcplumb.cli.command_group import BaseCommand
from mcplumb.cli.render.output import clean_line, print_json, print_table, print_text, say
from mcplumb.errors import McplumbError, UsageError
from mcplumb.recording.recordings_folder import find_recordings, is_live, recordings_folder

if TYPE_CHECKING:
    from mcplumb.recording.recording_format import Header
    from mcplumb.tap.read_session import SessionReader
    from mcplumb.tap.transcript import Step

__all__ = ["export", "sessions", "show"]

_FOUND = 1
#: Seconds between two looks at a recording that is followed.
_FOLLOW_INTERVAL = 0.2
#: Seconds that a check waits for the end of a recording: a tap does not wait for its recorder.
_LAST_RECORDS_WITHIN = 5.0
_LONGEST_LINE = 500


@click.command(cls=BaseCommand)
@click.argument("folder", required=False)
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1),
    metavar="NUMBER",
    default=30,
    show_default=True,
    help="List at most this many.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the output as one JSON document.")
def sessions(folder: str | None, count: int, *, as_json: bool) -> None:
    """List the recorded sessions.

    The newest comes first. Without a FOLDER, lists the default folder. To show a session, name it by its id, or by the
    name of its server for the newest of that server.

    \b
    mcplumb sessions
    mcplumb show weather
    """
    from mcplumb.tap.session_text import target_text

    if folder is not None and not os.path.isdir(folder):  # noqa: PTH112 - pathlib raises for a long name
        raise UsageError(f"There is no folder {folder}.")
    place = recordings_folder() if folder is None else Path(folder)
    found: list[dict[str, Any]] = []
    rows = []
    for path in find_recordings(place)[:count]:
        seen = _look_at(path)
        if seen is None:
            continue
        path, header, live, size = seen
        found.append({"file": str(path), "live": live, "size": size, "header": header})
        note = "running" if live else "compressed" if path.suffix == ".gz" else ""
        started = header.started[:19].replace("T", " ")
        host = header.host.program if header.host is not None else header.by
        rows.append((header.id.rpartition("-")[2], started, header.name, host, _size(size), target_text(header), note))
    if as_json:
        print_json(found)
    elif rows:
        has_notes = any(row[-1] for row in rows)
        columns = ("ID", "STARTED (UTC)", "NAME", "BY", "SIZE", "SERVER", "NOTE")
        print_table(columns[: 6 + has_notes], [row[: 6 + has_notes] for row in rows])
    else:
        say(f"There are no recordings in {place}. Make one with: mcplumb tap -- COMMAND")


def _look_at(path: Path) -> tuple[Path, Header, bool, int] | None:
    """Return the file, the header, whether it is live, and the size of a recording; None if there is none any more.

    Every new recording has old ones compressed or deleted, also while they are being listed.
    """
    from mcplumb.recording.recording_format import RecordingReader

    for file in (path, path.with_name(f"{path.name}.gz")):
        try:
            with RecordingReader(file) as reader:
                return file, reader.header, is_live(file), file.stat().st_size
        except FileNotFoundError:
            continue
        except McplumbError as error:
            if file.is_file():
                say(f"Warning: {error}", style="yellow")
                break
    return None


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


@click.command(cls=BaseCommand)
@click.argument("session", metavar="[FILE|ID|NAME]", required=False)
@click.argument("lines", metavar="[LINE]...", type=click.IntRange(1), nargs=-1)
@click.option("-f", "--follow", is_flag=True, help="Go on as long as the session runs.")
@click.option("--check", is_flag=True, help="Show only the findings; exit with 1 if there are any.")
@click.option("--json", "as_json", is_flag=True, help="Print the output as one JSON document.")
def show(session: str | None, lines: tuple[int, ...], *, follow: bool, check: bool, as_json: bool) -> int:
    """Show a recorded session, and where it breaks the rules.

    Each line has the number of its record, its time, and who spoke: --> is the client. A request has its answer on the
    same line, with the time that it took. The findings follow: each names the rule that was broken and the lines, why
    it matters, and what to do. With LINEs, only these records are shown, in full. The default is the newest session.

    With --check, only the findings are shown, and the exit code is 1 if there are any, except notes about the recording
    itself. If the session is still being recorded, it waits a few seconds for the end.

    \b
    mcplumb show
    mcplumb show weather --follow
    mcplumb show weather.mcp.jsonl 4 5
    mcplumb show weather.mcp.jsonl --check
    """
    from mcplumb.tap.read_session import SessionReader, find_recording

    if follow and (lines or as_json or check):
        raise UsageError("--follow shows the session as it goes on: leave the other options out.")
    reading = SessionReader(find_recording(session))
    if follow:
        _follow(reading)
        return 0
    if lines:
        return _show_records(reading, lines)
    is_running = _is_running(reading, _LAST_RECORDS_WITHIN if check else 0.0)
    reading.read_all()
    if is_running:
        say("The session is still being recorded: what comes later is not shown.", style="yellow")
    found = reading.findings.found
    code = _FOUND if check and any(finding.severity != "note" for finding in found) else 0
    if as_json:
        document: dict[str, Any] = {"header": reading.header, "findings": found}
        if not check:
            document |= {"items": reading.transcript.items}
        print_json(document)
        return code
    if not check:
        _show_items(reading)
    _show_findings(reading)
    return code


def _is_running(reading: SessionReader, wait: float) -> bool:
    """Return whether a session is being recorded, still after these seconds."""
    until = time.monotonic() + wait
    while is_live(reading.reader.path):
        if time.monotonic() >= until:
            return True
        time.sleep(_FOLLOW_INTERVAL)
    return False


def _show_items(reading: SessionReader) -> None:
    from mcplumb.tap.session_text import item_line, title_lines

    for line in title_lines(reading.header, reading.transcript):
        print_text(clean_line(line, _LONGEST_LINE))
    print_text()
    for item in reading.transcript.items:
        print_text(_one_line(item_line(item)))
    print_text()


def _show_findings(reading: SessionReader) -> None:
    from mcplumb.tap.session_text import counted, finding_lines

    found = reading.findings.found
    if not found:
        print_text("No findings.")
        return
    styles = {"error": "red", "warning": "yellow", "note": "dim"}
    for finding in found:
        first, *others = finding_lines(finding)
        print_text(_one_line(first), styles[finding.severity])
        for line in others:
            print_text(_one_line(line))
    print_text(f"{counted(len(found), 'finding')}.")


def _one_line(text: str) -> str:
    """Return the text on one line, whose blanks are kept."""
    line = text.replace("\n", " ").replace("\t", " ")
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


def _follow(reading: SessionReader) -> None:
    from mcplumb.tap.session_text import title_lines

    for line in title_lines(reading.header, reading.transcript):
        print_text(clean_line(line, _LONGEST_LINE))
    try:
        while True:
            # Asked before the read: what is written in between is read then.
            is_running = is_live(reading.reader.path)
            for step in reading.read():
                _show_step(step)
            if not is_running:
                break
            time.sleep(_FOLLOW_INTERVAL)
    except KeyboardInterrupt:
        return
    print_text()
    _show_findings(reading)


def _show_step(step: Step) -> None:
    from mcplumb.tap.session_text import answer_line, item_line
    from mcplumb.tap.transcript import Call

    for item in step.items:
        if item.number == step.number:
            print_text(_one_line(item_line(item, joins=False)))
        elif isinstance(item, Call) and step.number in (item.answer, item.cancellation):
            print_text(_one_line(answer_line(item)))


def _show_records(reading: SessionReader, lines: tuple[int, ...]) -> int:
    import msgspec

    wanted = set(lines)
    for number, record in reading.reader.records():
        if number in wanted:
            wanted.discard(number)
            data = msgspec.to_builtins(record)
            with contextlib.suppress(KeyError, msgspec.DecodeError):
                data["text"] = msgspec.json.decode(data["text"])
            print_json({"line": number, **data})
    reading.reader.close()
    if wanted:
        raise UsageError(f"The recording has no line {min(wanted)}, or it is the header.")
    return 0


@click.command(cls=BaseCommand)
@click.argument("session", metavar="FILE|ID|NAME")
@click.option(
    "--as", "form", type=click.Choice(["json", "html", "har", "otlp"]), required=True, help="The format to write."
)
@click.option("-o", "--output", metavar="FILE", help="Write to this file; by default, to stdout.")
def export(session: str, form: str, output: str | None) -> None:
    """Convert a session to JSON, HTML, HAR or OTLP.

    HTML is a page that needs nothing else. HAR is what the network tools of browsers read: each request is an entry,
    also of a session over stdio. OTLP is what tracing tools read: each request is a span.

    \b
    mcplumb export weather --as html -o weather.html
    mcplumb export weather.mcp.jsonl --as otlp -o spans.json
    """
    from mcplumb.tap.export_session import export_session
    from mcplumb.tap.read_session import SessionReader, find_recording

    path = find_recording(session)
    reading = SessionReader(path)
    records = {step.number: step.record for step in reading.read()}
    parts = export_session(reading.read_all(), records, form)
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.writelines(parts)
        sys.stdout.buffer.flush()
        return
    try:
        with Path(output).open("wb") as file:
            file.writelines(parts)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}.") from None
