"""What ``mcplumb probe`` reports: findings, memory, and advice on failures."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from mcplumb.cli.render.output import print_pairs, print_text, say, say_error, stderr
from mcplumb.errors import McplumbError, ServerExited
from mcplumb.limits import DEFAULT_LIMITS
from mcplumb.revisions import Revision
from mcplumb.wire.decode import BadMessage, decode_line

__all__ = ["Failure", "Findings", "Question", "Report", "advice", "memory_of", "show_failure", "show_report"]


# How much memory the processes of a server take.


#: Seconds for ``ps`` to answer.
_PATIENCE = 5.0


def memory_of(pid: int) -> tuple[int, int] | None:
    """The resident bytes of a server's processes, and how many these are; None where that cannot be told.

    What they share is counted for each of them.
    """
    from mcplumb.transports.process.tree import Tree

    try:
        members = list(Tree(pid).members())
    except ValueError:  # it leads no session
        return None
    sizes = [size for size in map(_resident, members) if size is not None] or _asked(members)
    return (sum(sizes), len(sizes)) if sizes else None


def _resident(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # it has ended, or there is no /proc
        return None


def _asked(group: list[int]) -> list[int]:
    """The same where there is no /proc, for a process group. In the command every word is ours or a number."""
    if not group:
        return []
    command = ["ps", "-A", "-o", "pgid=,rss="]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=True, stdin=subprocess.DEVNULL)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.split() for line in done.stdout.splitlines()]
    return [int(row[1]) * 1024 for row in rows if len(row) == 2 and row[0].isdigit() and int(row[0]) in group]


# What can be seen of a server while it is connected to: from the messages that go by, and from its stderr.


_OPENING = ("server/discover", "initialize")
#: Lines of garbage and of stderr that are kept, and characters of each.
_MOST_LINES = 200
_LONGEST = 2000
_QUOTED = 120


class Question(msgspec.Struct):
    """One of the two questions that find out the era, and what came of it."""

    method: str
    asked: float
    answered: float | None = None
    #: The result, if it was one.
    result: Any = None
    #: The error, in words, if it was one.
    error: str | None = None


class Findings:
    """Watches one connection: give ``trace`` and ``stderr`` to ``connect``. It keeps a bounded amount of everything."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        #: Seconds until the first message came, and since when it was asked for.
        self.first_answer: float | None = None
        self.questions: list[Question] = []
        #: Lines on stdout that are no messages: the first of them, and how many there were.
        self.garbage: list[str] = []
        self.garbage_count = 0
        self.errors: deque[str] = deque(maxlen=_MOST_LINES)
        self._open: dict[Any, Question] = {}
        self._is_watching = True

    def stderr(self, line: str) -> None:
        """The server wrote this line to its stderr."""
        self.errors.append(line[:_LONGEST])

    def trace(self, direction: Literal["in", "out"], line: bytes) -> None:
        """A message goes by, or what should have been one."""
        if direction == "out":
            if self._is_watching:
                self._ask(line)
        elif isinstance(decode_line(line, True, DEFAULT_LIMITS.max_batch), BadMessage):
            self.garbage_count += 1
            if len(self.garbage) < _MOST_LINES:
                self.garbage.append(line[:_LONGEST].decode("utf-8", "backslashreplace"))
        else:
            if self.first_answer is None:
                self.first_answer = time.monotonic() - self.began
            if self._open:
                self._answer(line)

    def settled(self) -> None:
        """There is an agreement, or none will come: what goes by from now on is not about the era."""
        self._is_watching = False

    @property
    def offered(self) -> list[str]:
        """The revisions that the server named itself, in whatever way."""
        names: list[Any] = []
        for question in self.questions:
            if isinstance(question.result, dict):
                said = question.result.get("supportedVersions")
                names += said if isinstance(said, list) else [question.result.get("protocolVersion")]
        return list(dict.fromkeys(name[:_QUOTED] for name in names if isinstance(name, str)))

    def era_explanation(self, revision: Revision) -> str:
        """How the era of this revision was found, in half a sentence."""
        last = {question.method: question for question in self.questions}
        probe, opening = last.get("server/discover"), last.get("initialize")
        if revision.is_modern:
            return "it answered server/discover" + ("" if opening is None else ", and was sent initialize as well")
        if probe is None:
            return "it was sent nothing but initialize, and answered"
        if probe.error is not None:
            return f"it answered server/discover with {probe.error}, and then initialize"
        if probe.result is not None:
            return "it answered server/discover, though not as a modern server does, and then initialize"
        return "it gave no answer to server/discover, but one to initialize"

    def _ask(self, line: bytes) -> None:
        message = _plain(line)
        if message.get("method") in _OPENING and "id" in message:
            question = Question(message["method"], time.monotonic() - self.began)
            self.questions.append(question)
            self._open[message["id"]] = question

    def _answer(self, line: bytes) -> None:
        message = _plain(line)
        question = self._open.pop(message.get("id"), None) if "method" not in message else None
        if question is None:
            return
        question.answered = time.monotonic() - self.began
        question.result = message.get("result")
        error = message.get("error")
        if isinstance(error, dict):
            question.error = f"error {error.get('code')} ({str(error.get('message'))[:_QUOTED]})"


def _plain(line: bytes) -> dict[str, Any]:
    value = msgspec.json.decode(line)
    return value if isinstance(value, dict) else {}


# What to try when a server cannot be reached: from what it left behind, in words.


#: Programs that are often missing, and what brings them.
_BRINGS = {
    "npx": "Install Node.js, which brings it.",
    "node": "Install Node.js.",
    "uv": "Install uv.",
    "uvx": "Install uv, which brings it.",
    "bunx": "Install Bun, which brings it.",
    "docker": "Install Docker.",
    "python": "Try python3.",
    "pip": "Try python3 -m pip.",
}
_ADDRESS = re.compile(r"https?://[\w.:\[\]-]+(?:/[\w./-]*)?")
_STATUS = re.compile(r"\bHTTP (\d{3})\b")
_NO_MODULE = re.compile(r"No module named '?([\w.]+)|Cannot find (?:module|package) '([^']+)'")
_VARIABLE = re.compile(r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b")
_ABOUT_VARIABLES = re.compile(r"(?i)environment|env var|not set|missing|required|undefined|KeyError")


def advice(
    error: McplumbError, *, command: Sequence[str] | None, garbage: Sequence[str], stderr: Sequence[str]
) -> list[str]:
    """What to try, the likeliest first. ``command`` is None for a server at an address."""
    hints = _of_command(error, command, garbage, stderr) if command else _of_address(error, garbage)
    return list(dict.fromkeys(hints))


def _of_command(
    error: McplumbError, command: Sequence[str], garbage: Sequence[str], stderr: Sequence[str]
) -> Iterator[str]:
    said = "\n".join((*garbage, *stderr))
    program = command[0].rpartition("/")[2]
    if "could not be started" in str(error):
        if program.endswith(".py"):
            yield f"A Python file is started with its interpreter: python {command[0]}"
        elif f"there is no {command[0]!r} in the PATH" in str(error):
            yield _BRINGS.get(program, "Is it installed? Give its whole path, or add its folder to PATH.")
        return
    if missing := _NO_MODULE.search(said):
        yield f"Install {missing[1] or missing[2]} where {command[0]} looks for it."
    if address := _ADDRESS.search(said):
        yield f"It names an address, and may not speak over stdio. Try: mcplumb probe -s {address[0]}"
    if garbage:
        yield "Stdout is for messages only: let the server write everything else to stderr."
    about = [line for line in stderr if _ABOUT_VARIABLES.search(line)]
    if names := [name for line in about for name in _VARIABLE.findall(line)]:
        yield f"A server gets few of your variables. Pass this one on: --inherit-env {names[0]}"
    if isinstance(error, ServerExited):
        if error.exit_code == 0:
            yield "It ended by itself: it may need an argument, such as stdio, to stay and listen."
        elif not stderr:
            yield "It said nothing: run the command by itself to see what happens."
    else:
        yield "Does it need longer? Allow more with --timeout SECONDS."
    if isinstance(error, ServerExited) and error.exit_code and not names and (about or not stderr):
        yield "A server gets few of your variables: pass more on with --inherit-env NAME or -e NAME=VALUE."


def _of_address(error: McplumbError, garbage: Sequence[str]) -> Iterator[str]:
    said = str(error)
    status = _STATUS.search(said)
    if garbage and garbage[0].startswith("HTTP/"):
        yield "It speaks HTTP: give its address as http://…"
    elif status is None:
        yield (
            "Trust its certificate with --ca-file FILE."
            if "certificate" in said
            else "Start it, or correct the address."
        )
    elif status[1] in ("401", "403"):
        yield "Show a token, with --token-file FILE, or another header, with --header NAME:VALUE."
    elif status[1] in ("404", "405"):
        yield "Correct the path: most servers answer at /mcp, and old ones at /sse."


# What ``mcplumb probe`` found out about a server: as data, and as people see it.


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
    say_error(f"{short} in the PATH." if mark else short)
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
