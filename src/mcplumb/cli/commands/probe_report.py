"""The report of ``mcplumb probe``: findings from the traffic, memory use, and advice on failures."""

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
from mcplumb.recording.recording_format import line_record
from mcplumb.revisions import Revision
from mcplumb.tap.findings import Findings as RuleFindings
from mcplumb.tap.transcript import Transcript
from mcplumb.types.meta import SERVER_INFO
from mcplumb.wire.message_decoder import BadMessage, decode_line
from mcplumb.wire.messages import ErrorDetail

__all__ = [
    "STATUS",
    "EraRequest",
    "Failure",
    "Findings",
    "Report",
    "advice",
    "memory_of",
    "show_failure",
    "show_report",
]


# --- Memory ---

#: Seconds that ``ps`` may take.
_PS_TIMEOUT = 5.0


def memory_of(pid: int) -> tuple[int, int] | None:
    """Return the resident bytes of a server's processes and their number; None if they cannot be determined.

    Shared memory is counted for each process.
    """
    from mcplumb.transports.process.tree import Tree

    try:
        members = list(Tree(pid).members())
    except ValueError:  # it is not a session leader
        return None
    sizes = [size for size in map(_resident, members) if size is not None] or _resident_from_ps(members)
    return (sum(sizes), len(sizes)) if sizes else None


def _resident(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # it has ended, or there is no /proc
        return None


def _resident_from_ps(group: list[int]) -> list[int]:
    """Return the resident bytes of the processes in these groups, on systems without /proc."""
    if not group:
        return []
    command = ["ps", "-A", "-o", "pgid=,rss="]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PS_TIMEOUT, check=True, stdin=subprocess.DEVNULL)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.split() for line in done.stdout.splitlines()]
    return [int(row[1]) * 1024 for row in rows if len(row) == 2 and row[0].isdigit() and int(row[0]) in group]


# --- Findings ---

#: The rules that a server can break in the session of a probe.
_REPORTED = frozenset((
    "answered-twice", "answers-nothing", "changed-id", "idless-error", "missing-result-type", "server-request",
    "tool-changed", "unknown-result-type",
))  # fmt: skip
_ERA_METHODS = ("server/discover", "initialize")
#: Lines of garbage and of stderr that are kept, and characters of a line and of a quotation.
_MAX_LINES = 200
_MAX_LINE = 2000
_MAX_QUOTE = 120
#: Messages that are checked against the rules. A transcript remembers each of them.
_MAX_MESSAGES = 10_000


class EraRequest(msgspec.Struct):
    """One of the requests that determine the era, and its response."""

    method: str
    asked: float
    answered: float | None = None
    #: The result, if there was one.
    result: Any = None


class Findings:
    """Records one connection through the callbacks ``trace`` and ``stderr``, within bounded memory."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        #: Seconds from the start until the first message arrived.
        self.first_answer: float | None = None
        self.era_requests: list[EraRequest] = []
        #: Lines on stdout that are not messages: the first ones, and their number.
        self.garbage: list[str] = []
        self.garbage_count = 0
        self.errors: deque[str] = deque(maxlen=_MAX_LINES)
        self._open: dict[Any, EraRequest] = {}
        self._is_watching = True
        self._transcript = Transcript()
        self._rules = RuleFindings(self._transcript)
        self._count = 1

    def stderr(self, line: str) -> None:
        """Record a line of the server's stderr."""
        self.errors.append(line[:_MAX_LINE])

    def trace(self, direction: Literal["in", "out"], line: bytes) -> None:
        """Record a message, or a line that is not one."""
        if self._count < _MAX_MESSAGES:
            self._count += 1
            sender: Literal["client", "server"] = "client" if direction == "out" else "server"
            record = line_record(time.monotonic() - self.began, sender, line)
            self._rules.feed(self._transcript.feed(self._count, record))
        if direction == "out":
            if self._is_watching:
                self._record_request(line)
        elif isinstance(decode_line(line, True, DEFAULT_LIMITS.max_batch), BadMessage):
            self.garbage_count += 1
            if len(self.garbage) < _MAX_LINES:
                self.garbage.append(line[:_MAX_LINE].decode("utf-8", "backslashreplace"))
        else:
            if self.first_answer is None:
                self.first_answer = time.monotonic() - self.began
            if self._open:
                self._record_response(line)

    def settled(self) -> None:
        """Stop recording era requests: the era is known, or the connection failed."""
        self._is_watching = False

    @property
    def broken_rules(self) -> list[str]:
        """The rules that the server broke and that no other part of the report is about, as sentences."""
        found = [finding for finding in self._rules.found if finding.rule in _REPORTED]
        return [f"{finding.title} ({finding.requirement}). {finding.message}" for finding in found]

    @property
    def offered(self) -> list[str]:
        """The revisions that the server named in its responses."""
        names: list[Any] = []
        for request in self.era_requests:
            if isinstance(request.result, dict):
                versions = request.result.get("supportedVersions")
                names += versions if isinstance(versions, list) else [request.result.get("protocolVersion")]
        return list(dict.fromkeys(name[:_MAX_QUOTE] for name in names if isinstance(name, str)))

    @property
    def answer(self) -> dict[str, Any]:
        """The last result of a request for the era; empty if there is none."""
        results = [request.result for request in self.era_requests if isinstance(request.result, dict)]
        return results[-1] if results else {}

    @property
    def server(self) -> dict[str, Any] | None:
        """The name and version that the server gave; None if it gave none."""
        meta = self.answer.get("_meta")
        info = meta.get(SERVER_INFO) if isinstance(meta, dict) else self.answer.get("serverInfo")
        return info if isinstance(info, dict) else None

    def era_explanation(self, revision: Revision, refusal: ErrorDetail | None = None) -> str:
        """Explain how the era of this revision was found, as part of a sentence.

        ``refusal`` is the error with which the server answered server/discover, as the client understood it. Over HTTP
        it may be no message, or one with another id.
        """
        last = {request.method: request for request in self.era_requests}
        probe, opening = last.get("server/discover"), last.get("initialize")
        if revision.is_modern:
            return "it answered server/discover" + ("" if opening is None else ", and was sent initialize as well")
        if probe is None:
            return "it was sent only initialize, and answered"
        if refusal is not None:
            return f"it answered server/discover with {_described(refusal)}, and then initialize"
        if probe.result is not None:
            return "it answered server/discover, though not as a modern server does, and then initialize"
        return "it gave no answer to server/discover, but one to initialize"

    def _record_request(self, line: bytes) -> None:
        message = _plain(line)
        if message.get("method") in _ERA_METHODS and "id" in message:
            request = EraRequest(message["method"], time.monotonic() - self.began)
            self.era_requests.append(request)
            self._open[message["id"]] = request

    def _record_response(self, line: bytes) -> None:
        message = _plain(line)
        request = self._open.pop(message.get("id"), None) if "method" not in message else None
        if request is None:
            return
        request.answered = time.monotonic() - self.began
        request.result = message.get("result")


def _described(refusal: ErrorDetail) -> str:
    """Return the error of a JSON-RPC response, or of an HTTP response without one, as part of a sentence."""
    if refusal.code:
        return f"error {refusal.code} ({refusal.message[:_MAX_QUOTE]})"
    return refusal.message.removeprefix("The server answered with ")[:_MAX_QUOTE].rstrip(".")


def _plain(line: bytes) -> dict[str, Any]:
    value = msgspec.json.decode(line)
    return value if isinstance(value, dict) else {}


# --- Advice ---

#: Programs that are often missing, and how to get them.
_INSTALL_HINTS = {
    "npx": "Install Node.js, which includes it.",
    "node": "Install Node.js.",
    "uv": "Install uv.",
    "uvx": "Install uv, which includes it.",
    "bunx": "Install Bun, which includes it.",
    "docker": "Install Docker.",
    "python": "Try python3.",
    "pip": "Try python3 -m pip.",
}
#: An address of this machine, and the words around one at which a server listens, or which it cannot reach.
_ADDRESS = re.compile(r"https?://(localhost|127\.[\d.]+|0\.0\.0\.0|\[::1?\])(:\d+)?(?:/[\w./-]*)?")
_LISTENS = re.compile(r"(?i)\b(listen|serv|run|start|ready|avail|endpoint|open)\w*")
_FAILS = re.compile(r"(?i)cannot|can't|could not|couldn't|fail|refused|unable|error|timed? ?out|unreachable")
#: An HTTP status in the message of an error.
STATUS = re.compile(r"\bHTTP (\d{3})\b")
_NO_MODULE = re.compile(r"No module named '?([\w.]+\w)|Cannot find (?:module|package) '([^']+)'")
_EXCEPTION = re.compile(r"^[\w.]*(Error|Exception)\b", re.MULTILINE)
#: How a server fails that was written for the official SDK of one major version, and runs with another.
_FOR_MCP_1 = re.compile(
    r"No module named '?mcp\.(?!server\.mcpserver)|cannot import name '(?!MCPServer)\w+' from 'mcp[.']|"
    r"module 'mcp[\w.]*' has no attribute|"
    r"'Server' object has no attribute '(list_|call_tool|read_|get_prompt|request_context|progress_|completion)"
)
_FOR_MCP_2 = re.compile(r"No module named '?mcp\.server\.mcpserver|cannot import name 'MCPServer' from 'mcp[.']")
#: How a Python file runs a server, or passes it on; and the bytes of it that are searched.
_RUNS = re.compile(rb"\brun\w*\s*\(|\.asgi\(|\.serve")
_MAX_SOURCE = 1024 * 1024
_VARIABLE = re.compile(r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b")
_ABOUT_VARIABLES = re.compile(r"(?i)environment|env var|not set|missing|required|undefined|KeyError")


def advice(
    error: McplumbError, *, command: Sequence[str] | None, garbage: Sequence[str], stderr: Sequence[str]
) -> list[str]:
    """Return what to try, most likely first. ``command`` is None for a server at an address."""
    hints = _of_command(error, command, garbage, stderr) if command else _of_address(error, garbage)
    return list(dict.fromkeys(hints))


def _of_command(
    error: McplumbError, command: Sequence[str], garbage: Sequence[str], stderr: Sequence[str]
) -> Iterator[str]:
    output = "\n".join((*garbage, *stderr))
    program = command[0].rpartition("/")[2]
    if "could not be started" in str(error):
        if program.endswith(".py"):
            yield f"A Python file is started with its interpreter: python {command[0]}"
        elif f"there is no {command[0]!r} in the PATH" in str(error):
            yield _INSTALL_HINTS.get(program, "Is it installed? Give its whole path, or add its folder to PATH.")
        return
    if _FOR_MCP_2.search(output):
        yield _other_sdk(command, written_for="2.x", needs="mcp>=2")
    elif _FOR_MCP_1.search(output):
        yield _other_sdk(command, written_for="1.x", needs="mcp<2")
    elif (module := _missing_module(output)) is not None:
        what = f"the version of {module.partition('.')[0]} that has {module}" if "." in module else module
        yield f"Install {what} where {command[0]} looks for it."
    if not isinstance(error, ServerExited) and (address := _own_address((*garbage, *stderr))) is not None:
        yield f"The command names an address, so the server may not speak over stdio. Try: mcplumb probe -s {address}"
    if garbage:
        yield "Stdout is for messages only: let the server write everything else to stderr."
    about = [line for line in stderr if _ABOUT_VARIABLES.search(line)]
    if names := [name for line in about for name in _VARIABLE.findall(line)]:
        yield f"A server gets few of your variables. Pass this one on: --inherit-env {names[0]}"
    if isinstance(error, ServerExited):
        if error.exit_code == 0 and (file := _file_without_run(command)) is not None:
            yield f"{file} does not run its server: end it with server.run(), or start it with: mcplumb serve {file}"
        elif error.exit_code == 0:
            yield "It ended by itself: it may need an argument, such as stdio, to stay and listen."
        elif not stderr:
            yield "It said nothing: run the command by itself to see what happens."
    else:
        yield "Does it need longer? Allow more with --timeout SECONDS."
    if isinstance(error, ServerExited) and error.exit_code and not names and (about or not stderr):
        yield "A server gets few of your variables: pass more on with --inherit-env NAME or -e NAME=VALUE."


def _missing_module(output: str) -> str | None:
    """Return the module whose absence ended the server; None if a later exception did."""
    found = list(_NO_MODULE.finditer(output))
    if not found or any(not _NO_MODULE.search(_line(output, each.start())) for each in _later(output, found[-1])):
        return None
    return found[-1][1] or found[-1][2]


def _later(output: str, found: re.Match[str]) -> Iterator[re.Match[str]]:
    return _EXCEPTION.finditer(output, found.end())


def _line(output: str, start: int) -> str:
    return output[start:].partition("\n")[0]


def _other_sdk(command: Sequence[str], *, written_for: str, needs: str) -> str:
    """Return the advice for a server that needs another major version of the official SDK."""
    import shlex

    program = command[0].rpartition("/")[2]
    words = {"uvx": 1, "uv": 3 if list(command[1:3]) == ["tool", "run"] else 2}.get(program)
    if words is not None and len(command) > words:
        again = shlex.join([*command[:words], "--with", needs, *command[words:]])
        return f"It is written for mcp {written_for}: try {again}"
    if program == "pipx":
        return f"It is written for mcp {written_for}: try uvx --with '{needs}' …"
    return f"It is written for mcp {written_for}: install '{needs}' where {command[0]} looks for it."


def _own_address(lines: Sequence[str]) -> str | None:
    """Return the address at which the server says that it listens; not one that it cannot reach itself."""
    for line in lines:
        address = _ADDRESS.search(line)
        if address is not None and _LISTENS.search(line) and not _FAILS.search(line):
            return address[0].rstrip(".").replace("//0.0.0.0", "//127.0.0.1").replace("//[::]", "//[::1]")
    return None


def _file_without_run(command: Sequence[str]) -> str | None:
    """Return the Python file of a command if it makes an mcplumb server, but nothing in it calls ``run``."""
    for word in command[1:]:
        if word.endswith(".py"):
            try:
                with open(word, "rb") as file:  # noqa: PTH123
                    text = file.read(_MAX_SOURCE)
            except OSError:
                return None
            return word if b"mcplumb" in text and b"Server(" in text and not _RUNS.search(text) else None
    return None


def _of_address(error: McplumbError, garbage: Sequence[str]) -> Iterator[str]:
    said = str(error)
    status = STATUS.search(said)
    if garbage and garbage[0].startswith("HTTP/"):
        yield "It speaks HTTP: give its address as http://…"
    elif status is None:
        yield (
            "Trust its certificate with --ca-file FILE."
            if "certificate" in said
            else "Start it, or correct the address."
        )
    elif "named the Host" in said:
        yield "Use the name of this machine that the server allows: localhost, or 127.0.0.1."
    elif status[1] in ("401", "403"):
        yield "Sign in with mcplumb login, send a token with --token-file FILE, or a header with --header NAME:VALUE."
    elif "path of the address" in said:
        yield "Correct the path: most servers answer at /mcp, and old ones at /sse."


# --- The report ---

#: Lines of stderr, and characters of instructions, that are shown.
_LINES = 10
_CHARACTERS = 500
_MIB = 1024 * 1024
#: The text before the list of folders in the error about a missing program.
_IN_PATH = " in the PATH that it gets: "
_TRANSPORTS = {
    "stdio": "stdio",
    "unix": "Unix socket",
    "tcp": "TCP",
    "streamable-http": "Streamable HTTP",
    "http-sse": "HTTP+SSE",
}


class Report(msgspec.Struct, kw_only=True):
    """The report on a server that answers; ``--json`` prints it as is."""

    reached: bool = True
    target: str
    #: "stdio", "unix", "tcp", "streamable-http" or "http-sse".
    transport: str
    server: Any
    era: str
    revision: str
    #: How the era was found, as part of a sentence.
    found: str
    #: Every revision that the server named, or accepted when offered alone.
    offers: list[str]
    #: The revisions for which it is unknown whether the server accepts them, and why.
    unknown: dict[str, str]
    capabilities: Any
    instructions: str | None
    #: The length of each list, or the error in its place.
    counts: dict[str, int | str]
    #: What is wrong with the server although it answers, as sentences.
    findings: list[str]
    #: Why the server was not examined to the end; None if it was.
    error: str | None
    #: Seconds until the connection was ready, until the first message arrived, and for a later response.
    ready_after: float
    first_answer_after: float | None
    answers_in: float | None
    #: Resident bytes of all its processes and their number; None if mcplumb did not start it, or cannot see them.
    memory: int | None
    processes: int | None
    #: The number of lines on its stdout that are not messages, and the first one.
    bad_lines: int
    first_bad_line: str | None
    stderr: list[str]


class Failure(msgspec.Struct, kw_only=True):
    """The report on a server that cannot be reached."""

    reached: bool = False
    target: str
    error: str
    #: What the server said about itself before it failed; None if it said nothing.
    server: Any
    capabilities: Any
    phase: str | None
    exit_code: int | None
    signal: str | None
    bad_lines: int
    first_bad_line: str | None
    stderr: list[str]
    #: The program that was started; None if it was not found, or for a server at an address.
    program: str | None
    #: The folders that were searched for it; empty for a server at an address.
    path: list[str]
    advice: list[str]


def show_report(report: Report) -> None:
    """Print a report to stdout, and to stderr why it is not complete."""
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
    pairs += [("unknown", f"{revision}: {reason}") for revision, reason in report.unknown.items()]
    pairs += [("capabilities", line) for line in _capabilities(report.capabilities) or ["none"]]
    pairs += [("has", _counted(report.counts))]
    if report.instructions:
        cut = "…" if len(report.instructions) > _CHARACTERS else ""
        pairs.append(("instructions", report.instructions[:_CHARACTERS].strip() + cut))
    first = "" if report.first_answer_after is None else f", first message after {_ms(report.first_answer_after)}"
    pairs.append(("start-up", f"ready after {_ms(report.ready_after)}{first}"))
    if report.answers_in is not None:
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
    pairs += [("finding", sentence) for sentence in report.findings]
    print_pairs(_once(pairs))
    if report.error is not None:
        say_error(report.error)


def show_failure(failure: Failure) -> None:
    """Print a failure to stderr."""
    short, mark, _ = failure.error.partition(_IN_PATH)
    say_error(f"{short} in the PATH." if mark else short)
    say()
    pairs = [("server", failure.target)]
    if isinstance(failure.server, dict):
        pairs.append(("name", f"{failure.server.get('name')} {failure.server.get('version')}"))
    pairs += [("capabilities", line) for line in _capabilities(failure.capabilities)]
    if failure.program is not None:
        pairs.append(("program", failure.program))
    elif mark:
        pairs += [("PATH", folder) for folder in failure.path]
    if failure.phase is not None:
        how = failure.signal or f"exit code {failure.exit_code}"
        pairs.append(("ended", f"{how}, {ServerExited.WHEN[failure.phase]}"))
    if failure.bad_lines:
        pairs.append(("stdout", _garbage(failure.bad_lines, failure.first_bad_line)))
    if failure.stderr:
        pairs.append(("stderr", "\n".join(failure.stderr[-_LINES:])))
    elif failure.program is not None:
        pairs.append(("stderr", "empty"))
    pairs += [("try", hint) for hint in failure.advice]
    print_pairs(_once(pairs), stderr())


def _once(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Blank the names that repeat the one before."""
    return [
        ("" if number and pairs[number - 1][0] == name else name, value) for number, (name, value) in enumerate(pairs)
    ]


def _capabilities(capabilities: Any) -> list[str]:
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
    lines = "1 line that is not a message" if count == 1 else f"{count} lines that are not messages, the first"
    return f"{lines}: {(first or '')[:_CHARACTERS]}"


def _ms(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds * 1000:.{0 if seconds > 0.01 else 1}f} ms"
