"""What ``mcplumb probe`` found out about a server: as data, and as people see it."""

from __future__ import annotations

from typing import Any

import msgspec

from mcplumb.cli.output import complain, print_pairs, print_text, say, stderr

__all__ = ["Failure", "Report", "show_failure", "show_report"]

#: Lines of stderr and characters of instructions that people are shown.
_LINES = 10
_CHARACTERS = 500
_MIB = 1024 * 1024
#: What stands between an error about a program and the folders in which it was not found.
_IN_PATH = " in the PATH that it gets: "
_TRANSPORTS = {
    "stdio": "stdio",
    "unix": "Unix socket",
    "tcp": "TCP",
    "streamable-http": "Streamable HTTP",
    "http-sse": "HTTP+SSE",
}


class Report(msgspec.Struct, kw_only=True):
    """What was found out about a server that answers. It is also what ``--json`` prints."""

    reached: bool = True
    target: str
    #: "stdio", "unix", "tcp", "streamable-http" or "http-sse".
    transport: str
    server: Any
    era: str
    revision: str
    #: How that was found out, in half a sentence.
    found: str
    #: Every revision that the server named or, asked for it alone, agreed to.
    offers: list[str]
    capabilities: Any
    instructions: str | None
    #: How many there are of each; in words, why not, where it would not say.
    counts: dict[str, int | str]
    #: Seconds until there was an agreement and until the first message came, and for one more answer.
    ready_after: float
    first_answer_after: float | None
    answers_in: float
    #: Resident bytes of all its processes, and how many these are; None if they are not ours, or cannot be seen.
    memory: int | None
    processes: int | None
    #: Lines on its stdout that are no messages, and the first of them.
    bad_lines: int
    first_bad_line: str | None
    stderr: list[str]


class Failure(msgspec.Struct, kw_only=True):
    """What was found out about a server that cannot be reached."""

    reached: bool = False
    target: str
    error: str
    phase: str | None
    exit_code: int | None
    signal: str | None
    bad_lines: int
    first_bad_line: str | None
    stderr: list[str]
    #: The program that was started; None if there is none, or for a server at an address.
    program: str | None
    #: The folders in which it was looked for; empty for a server at an address.
    path: list[str]
    advice: list[str]


def show_report(report: Report) -> None:
    """Print it, to stdout."""
    info = report.server
    print_text("A server without a name" if info is None else f"{info.name} {info.version}", style="bold")
    pairs = [
        ("server", report.target),
        ("transport", _TRANSPORTS[report.transport]),
        ("era", f"{report.era}: {report.found}"),
        ("revision", report.revision),
        ("offers", ", ".join(report.offers)),
    ]
    if info is not None and (about := info.title or info.description):
        pairs.insert(0, ("title", about))
    pairs += [("abilities", line) for line in _abilities(report.capabilities) or ["none"]]
    pairs += [("has", _counted(report.counts))]
    if report.instructions:
        cut = "…" if len(report.instructions) > _CHARACTERS else ""
        pairs.append(("instructions", report.instructions[:_CHARACTERS].strip() + cut))
    first = "" if report.first_answer_after is None else f", first message after {_ms(report.first_answer_after)}"
    pairs.append(("start-up", f"ready after {_ms(report.ready_after)}{first}"))
    pairs.append(("answers", f"in {_ms(report.answers_in)}"))
    if report.memory is not None:
        number = "1 process" if report.processes == 1 else f"{report.processes} processes"
        pairs.append(("memory", f"{report.memory / _MIB:.1f} MiB in {number}"))
    if report.bad_lines:
        pairs.append(("stdout", _garbage(report.bad_lines, report.first_bad_line)))
    elif report.transport == "stdio":
        pairs.append(("stdout", "clean: nothing but messages"))
    if report.stderr:
        pairs.append(("stderr", "\n".join(report.stderr[-_LINES:])))
    print_pairs(_once(pairs))


def show_failure(failure: Failure) -> None:
    """Say it, on stderr: nothing was found."""
    short, mark, _ = failure.error.partition(_IN_PATH)
    complain(f"{short} in the PATH." if mark else short)
    say()
    pairs = [("server", failure.target)]
    if failure.program is not None:
        pairs.append(("program", failure.program))
    elif mark:
        pairs += [("PATH", folder) for folder in failure.path]
    if failure.phase is not None:
        pairs.append(("ended", f"{failure.signal or f'exit code {failure.exit_code}'}, in the {failure.phase} phase"))
    if failure.bad_lines:
        pairs.append(("stdout", _garbage(failure.bad_lines, failure.first_bad_line)))
    if failure.stderr:
        pairs.append(("stderr", "\n".join(failure.stderr[-_LINES:])))
    elif failure.program is not None:
        pairs.append(("stderr", "empty"))
    pairs += [("try", hint) for hint in failure.advice]
    print_pairs(_once(pairs), stderr())


def _once(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The same, with a name that stands several times in a row only at the first."""
    return [
        ("" if number and pairs[number - 1][0] == name else name, value) for number, (name, value) in enumerate(pairs)
    ]


def _abilities(capabilities: Any) -> list[str]:
    lines = []
    for name, value in capabilities.items() if isinstance(capabilities, dict) else ():
        more = [key for key, is_on in value.items() if is_on is not False] if isinstance(value, dict) else []
        lines.append(f"{name} ({', '.join(map(str, more))})" if more else str(name))
    return [", ".join(lines)] if lines else []


def _counted(counts: dict[str, int | str]) -> str:
    words = []
    for key, count in counts.items():
        name = "resource templates" if key == "resourceTemplates" else key
        if isinstance(count, int):
            words.append(f"{count} {name.removesuffix('s') if count == 1 else name}")
        else:
            words.append(f"{name}: {count}")
    return ", ".join(words)


def _garbage(count: int, first: str | None) -> str:
    lines = "1 line that is no message" if count == 1 else f"{count} lines that are no messages, the first"
    return f"{lines}: {(first or '')[:_CHARACTERS]}"


def _ms(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds * 1000:.{0 if seconds > 0.01 else 1}f} ms"
