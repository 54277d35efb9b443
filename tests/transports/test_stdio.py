"""Standard input and output, in real processes: nothing but messages passes, whatever the program does."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mcplumb.errors import ConnectError, UsageError
from mcplumb.limits import Limits
from mcplumb.transports.stdio import take_stdio
from mcplumb.wire.messages import Notification
from tests.kit.leaks import nothing_left
from tests.kit.loop import PATIENCE, run
from tests.kit.products import spread
from tests.repo.source import ROOT
from tests.transports.echo import echo
from tests.transports.ends import Recorder

IMPORTS = """
import asyncio, ctypes, io, multiprocessing, os, subprocess, sys, threading
from mcplumb.errors import McplumbError
from mcplumb.transports.stdio import take_stdio
from tests.transports.echo import echo, serve
"""


def request(number: int, method: str = "x") -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":{"a":"%d"}}\n' % (number, method.encode(), number)


def answer(number: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"result":{"a":"%d"}}\n' % (number, number)


def end(*, clean: bool = True) -> bytes:
    return b'{"jsonrpc":"2.0","method":"ended","params":{"clean":%b}}\n' % (b"true" if clean else b"false")


def command(code: str) -> list[str]:
    # Buffered, as by default: that is when text can be left over.
    return [sys.executable, "-c", IMPORTS + code]


ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def child(code: str, given: bytes) -> tuple[bytes, str]:
    """What a process that runs the code writes to its standard output and error; it has to end well."""
    done = subprocess.run(
        command(code), input=given, capture_output=True, cwd=ROOT, env=ENVIRONMENT, timeout=PATIENCE, check=False
    )
    said = done.stderr.decode()
    assert done.returncode == 0, said
    return done.stdout, said


HUNDRED = b"".join(map(request, range(2, 102)))
HUNDRED_ANSWERS = b"".join(map(answer, range(2, 102)))


# --- Nothing stray gets out ---


# Each leaves something in a buffer.
UNWRITTEN = [
    "print('stray')",
    "print('stray', end='')",
    "print('stray', file=sys.__stdout__)",
    "sys.stdout.buffer.write(b'stray')",
    "ctypes.CDLL(None).puts(b'stray')",
]
WRITTEN = [
    "print('stray', flush=True)",
    "os.write(1, b'stray')",
    "os.system('echo stray')",
    "subprocess.run(['echo', 'stray'], check=True)",
    "subprocess.run(['echo', 'stray'], check=True, close_fds=False)",
    "ctypes.CDLL(None).write(1, b'stray', 5)",
    "threading.Thread(target=print, args=('stray',)).start()",
]


@pytest.mark.req("FRM-1", "FRM-2")
@pytest.mark.parametrize(
    "code",
    [
        *spread((f"{stray}; serve()" for stray in UNWRITTEN), 2),
        *spread((f"serve(lambda: {stray})" for stray in UNWRITTEN + WRITTEN), 4),
        *spread((f"serve(); {stray}" for stray in UNWRITTEN + WRITTEN), 3),
    ],
)
def test_stray_output_goes_to_standard_error(code: str) -> None:
    out, said = child(code, request(1, "do") + request(2))
    assert out == answer(1) + answer(2) + end()
    assert "stray" in said


@pytest.mark.req("FRM-2")
def test_what_is_printed_is_seen_at_once() -> None:
    code = "serve(lambda: print('stray'))"
    with started(code) as (process, to, from_):
        to.write(request(1, "do"))
        assert process.stderr is not None
        assert process.stderr.readline() == b"stray\n"
        assert from_.readline() == answer(1)


@contextmanager
def started(code: str) -> Iterator[tuple[subprocess.Popen[bytes], io.FileIO, io.BufferedReader]]:
    """A process that is still running, its input and its output."""
    with subprocess.Popen(
        command(code), stdin=-1, stdout=-1, stderr=-1, cwd=ROOT, env=ENVIRONMENT, bufsize=-1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert isinstance(process.stdout, io.BufferedReader)
        with open(process.stdin.fileno(), "wb", buffering=0, closefd=False) as to:
            try:
                yield process, to, process.stdout
                process.stdin.close()
                assert process.wait(PATIENCE) == 0
            finally:
                process.kill()


# --- Nothing gets at the input ---


@pytest.mark.req("LIF-15")
@pytest.mark.parametrize(
    "theft",
    [
        "print(repr(sys.stdin.read()))",
        "print(repr(os.read(0, 100000).decode()))",
        "print(repr(subprocess.run(['cat'], stdout=-1, check=True).stdout.decode()))",
        "print(repr(subprocess.run(['cat'], stdout=-1, check=True, close_fds=False).stdout.decode()))",
        "os.system('cat'), print(repr(''))",
    ],
)
def test_stolen_input_is_empty(theft: str) -> None:
    out, said = child(f"serve(lambda: ({theft}))", request(1, "do") + HUNDRED)
    assert out == answer(1) + HUNDRED_ANSWERS + end()
    assert said == "''\n"


@pytest.mark.req("LIF-15")
def test_input_finds_the_end() -> None:
    code = """
def ask():
    try:
        input("stray")
    except EOFError:
        print(" eof")
serve(ask)
"""
    out, said = child(code, request(1, "do") + HUNDRED)
    assert out == answer(1) + HUNDRED_ANSWERS + end()
    assert said == "stray eof\n"


FORK_TASK = """
def task():
    print("stray", repr(sys.stdin.read()), flush=True)
    os.write(1, b"stray")
    for fd in range(3, 100):
        # Whatever is still open: to write to it or read from it must not be noticed.
        try:
            mode = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if mode in wire:
            print("the wire is open", flush=True)
wire = [os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1)]
"""


FORKS = {
    "os": """
def do():
    if os.fork() == 0:
        task()
        os._exit(0)
    assert os.wait()[1] == 0
""",
    "multiprocessing": """
def do():
    process = multiprocessing.get_context("fork").Process(target=task)
    process.start()
    process.join()
    assert process.exitcode == 0
""",
}


@pytest.mark.req("FRM-2", "LIF-15")
@pytest.mark.parametrize("way", FORKS)
def test_a_fork_has_no_part_in_the_connection(way: str) -> None:
    out, said = child(f"{FORK_TASK}{FORKS[way]}serve(do)", request(1, "do") + HUNDRED)
    assert out == answer(1) + HUNDRED_ANSWERS + end()
    assert said == "stray ''\nstray"


@pytest.mark.req("LIF-15")
def test_a_program_that_is_started_has_no_part_in_the_connection() -> None:
    look = "import os; print(*(os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if n != '3'))"
    code = f"""
wire = {{os.readlink(f"/proc/self/fd/{{fd}}") for fd in (0, 1)}}
def do():
    for closes in (True, False):
        found = subprocess.run([sys.executable, "-c", {look!r}], stdout=-1, close_fds=closes, check=True).stdout
        print(wire & set(found.decode().split()))
serve(do)
"""
    out, said = child(code, request(1, "do") + HUNDRED)
    assert out == answer(1) + HUNDRED_ANSWERS + end()
    assert said == "set()\nset()\n"


@pytest.mark.req("LIF-15")
def test_a_client_sees_the_end_of_a_server_whose_fork_lives_on() -> None:
    code = """
def do():
    if os.fork() == 0:
        os.close(2)
        os.write(1, b"x")
        os.read(held, 1)
        os._exit(0)
held = int(os.environ["HELD"])
serve(do)
"""
    held, release = os.pipe()
    process = subprocess.Popen(
        command(code),
        stdin=-1,
        stdout=-1,
        stderr=subprocess.DEVNULL,
        pass_fds=[held],
        env={**ENVIRONMENT, "HELD": str(held)},
        cwd=ROOT,
    )
    out, _ = process.communicate(request(1, "do"), PATIENCE)
    assert out == answer(1) + end()
    assert process.returncode == 0
    os.close(release)
    os.close(held)


# --- Bad input ---


@pytest.mark.req("FRM-4", "FRM-5", "FRM-9")
@pytest.mark.parametrize(
    "bad",
    [
        b"garbage\n",
        b'{"jsonrpc":"2.0","id":1,"method":"x"\n',
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}\n',
        b"[" * 100_000 + b"\n",
        b'{"jsonrpc":"2.0","id":null,"method":"x"}\n',
        b'{"jsonrpc":"2.0","id":5,"method":"' + b"x" * 65 * 1024 * 1024 + b'"}\n',
        b"5\n",
    ],
    ids=["garbage", "torn", "not UTF-8", "deep", "null id", "too long", "a number"],
)
def test_a_bad_line_does_not_stop_the_stream(bad: bytes) -> None:
    given = b"\xef\xbb\xbf" + request(1) + bad + b"\r\n \n" + request(2)[:-1] + b"\r\n"
    out, said = child("serve()", given)
    first, error, second, last = out.splitlines(keepends=True)
    assert (first, second, last) == (answer(1), answer(2), end())
    assert error.startswith(b'{"jsonrpc":"2.0","id":0,"error":{')
    assert said == ""


@pytest.mark.req("FRM-6")
def test_an_unterminated_last_line_is_answered_and_told_from_a_clean_end(tmp_path: Path) -> None:
    given = HUNDRED + request(1)[:-1]
    expected = HUNDRED_ANSWERS + answer(1) + end(clean=False)
    assert child("serve()", given) == (expected, "")
    path = tmp_path / "requests"
    path.write_bytes(given)
    with path.open("rb") as file:
        out = subprocess.run(
            command("serve()"), stdin=file, stdout=-1, cwd=ROOT, env=ENVIRONMENT, timeout=PATIENCE, check=True
        ).stdout
    assert out == expected


@pytest.mark.req("FRM-1")
def test_input_may_come_byte_by_byte() -> None:
    with started("serve()") as (_, to, from_):
        for byte in HUNDRED[:500]:
            to.write(bytes([byte]))
        to.write(HUNDRED[500:])
        for number in range(2, 102):
            assert from_.readline() == answer(number)


def test_a_client_that_does_not_read_gets_everything_later() -> None:
    count = 50_000
    with started("serve()") as (_, to, from_):
        # More answers than fit into a pipe wait when the last request is written.
        given = b"".join(map(request, range(count)))
        while given:
            given = given[to.write(given) :]
        for number in range(count):
            assert from_.readline() == answer(number)


def test_a_client_that_vanishes_ends_the_process_quietly() -> None:
    with started("serve(lambda: sys.stdin.read())") as (process, to, from_):
        to.write(request(1))
        assert from_.readline() == answer(1)
        from_.close()
        to.write(request(2))
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_terminal_can_be_the_client() -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(command("serve()"), stdin=slave, stdout=slave, cwd=ROOT, env=ENVIRONMENT)
    os.close(slave)
    os.write(master, request(1) + b"\x04")
    shown = b""
    while not shown.endswith(end().replace(b"\n", b"\r\n")):
        shown += os.read(master, 1000)
    assert answer(1).replace(b"\n", b"\r\n") in shown
    assert process.wait(PATIENCE) == 0
    os.close(master)


# --- Odd programs ---


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("sys.stdout = io.StringIO(); print('kept')", ""),
        ("sys.stdout = None; print('nowhere')", ""),
        ("print('early'); sys.stdout = io.StringIO()", "early\n"),
        ("sys.stdout = io.TextIOWrapper(sys.stdout.detach()); print('early')", "early\n"),
        ("sys.stdin = None", ""),
        ("sys.stderr = None; print('early')", "early\n"),
    ],
)
def test_a_program_may_have_other_streams(before: str, said: str) -> None:
    assert child(f"{before}\nserve()", request(1)) == (answer(1) + end(), said)


def test_standard_error_may_be_closed() -> None:
    code = "serve(lambda: (print('nowhere'), os.write(1, b'nowhere')))"
    shell = ["/bin/sh", "-c", '"$@" 2>&-', "sh", *command(code)]
    done = subprocess.run(
        shell, input=request(1, "do"), stdout=-1, cwd=ROOT, env=ENVIRONMENT, timeout=PATIENCE, check=True
    )
    assert done.stdout == answer(1) + end()


@pytest.mark.parametrize(
    ("closing", "name"),
    [("<&-", "input"), (">&-", "output"), ("<&- >&-", "input"), ("<&- >&- 2>&-", "")],
)
@pytest.mark.parametrize("code", ["take()", "asyncio.run(later())"])
def test_a_closed_stream_is_said_and_not_a_crash(closing: str, name: str, code: str) -> None:
    # In a loop, whose own descriptors may have got the free numbers.
    program = f"""
def take():
    try:
        take_stdio()
    except McplumbError as error:
        if {name!r}:
            sys.stderr.write(f"{{type(error).__name__}}: {{error}}\\n")
        os._exit(0)
async def later():
    take()
{code}
"""
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {closing}', "sh", *command(program)],
        stderr=-1,
        cwd=ROOT,
        env=ENVIRONMENT,
        timeout=PATIENCE,
        check=True,
        text=True,
    )
    sentence = (
        f"ConnectError: Standard {name} is closed, so no client can be served there: "
        "start the process with a pipe in its place, or serve on a socket."
    )
    assert done.stderr == (f"{sentence}\n" if name else "")


@pytest.mark.parametrize("closing", ["sys.stdin.close()", "os.close(0)"])
def test_a_stream_that_the_program_closed_is_closed(closing: str) -> None:
    code = f"""
{closing}
try:
    take_stdio()
except McplumbError as error:
    print(error)
"""
    out, _ = child(code, b"")
    assert out.startswith(b"Standard input is closed")


def test_everything_is_as_before_after_a_restore() -> None:
    code = """
def state():
    descriptors = [(os.fstat(fd).st_ino, os.get_inheritable(fd), os.get_blocking(fd)) for fd in (0, 1, 2)]
    return descriptors, sys.stdout.line_buffering, sorted(os.listdir("/proc/self/fd"))
os.set_inheritable(0, False)
before = state()
for number in range(2):
    with take_stdio() as stdio:
        print("stray", number)
        sys.stdout.write("unfinished\\n")
        asyncio.run(echo(stdio))
    stdio.restore()
    assert state() == before, (before, state())
    print("printed", number, flush=True)
    print("read", input(), flush=True)
"""
    with started(code) as (process, to, from_):
        for number in range(2):
            to.write(request(number, "stop"))
            assert from_.readline() == answer(number)
            assert from_.readline() == b"printed %d\n" % number
            to.write(b"a line\n")
            assert from_.readline() == b"read a line\n"
        assert process.stderr is not None
        assert process.stderr.read() == b"stray 0\nunfinished\nstray 1\nunfinished\n"


# --- In this process: the same, where it can be measured ---


class Outside(NamedTuple):
    """The other ends of the standard streams."""

    input: int
    output: int
    error: int


@contextmanager
def seen_from_outside() -> Iterator[Outside]:
    """Pipes in place of this process's standard streams. (No fixture: pytest moves them between its phases, too.)"""
    with nothing_left(), pytest.MonkeyPatch.context() as patch:
        saved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in range(3)]
        pipes = [os.pipe() for _ in range(3)]
        inner = pipes[0][0], pipes[1][1], pipes[2][1]
        outer = Outside(pipes[0][1], pipes[1][0], pipes[2][0])
        for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
            os.dup2(inner[fd], fd)
            os.close(inner[fd])
            stream = open(fd, mode, closefd=False)  # noqa: SIM115 (it stays open as long as the pipes)
            patch.setattr(sys, name, stream)
            patch.setattr(sys, f"__{name}__", stream)
        try:
            yield outer
        finally:
            for fd, own in enumerate(saved):
                os.dup2(own, fd)
                os.close(own)
            for fd in outer:
                os.close(fd)


def test_the_streams_are_taken_and_given_back() -> None:
    async def main() -> None:
        with take_stdio() as stdio:
            print("late")
            os.write(outside.input, request(1) + request(2, "stop"))
            await echo(stdio)
            assert os.read(0, 1) == b""

    with seen_from_outside() as outside:
        files = [os.fstat(fd).st_ino for fd in range(3)]
        print("early")
        run(main())
        assert os.read(outside.output, 1000) == answer(1) + answer(2)
        assert os.read(outside.error, 1000) == b"early\nlate\n"
        assert [os.fstat(fd).st_ino for fd in range(3)] == files
        print("after", flush=True)
        assert os.read(outside.output, 1000) == b"after\n"
        os.write(outside.input, b"a line\n")
        assert os.read(0, 1000) == b"a line\n"


def test_the_streams_can_be_taken_once_at_a_time() -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="have been given back: take them again"):
            stdio.connection()

    with seen_from_outside():
        for _ in range(2):
            stdio = take_stdio()
            with pytest.raises(UsageError, match="already used by a server in this process: run one server at a time"):
                take_stdio()
            assert not stdio.is_terminal
            stdio.restore()
            stdio.restore()
            assert not stdio.is_terminal
        run(main())


def test_without_standard_error_nothing_is_shown() -> None:
    with seen_from_outside() as outside:
        vars(sys)["__stderr__"] = None  # as in a process that was started without
        with take_stdio():
            print("nowhere")
            os.write(1, b"nowhere")
        for fd in (outside.error, outside.output):
            os.set_blocking(fd, False)
            with pytest.raises(BlockingIOError):
                os.read(fd, 1)


@pytest.mark.parametrize("name", ["input", "output"])
@pytest.mark.parametrize("how", ["missing", "closed by the program", "closed below it"])
def test_what_is_closed_is_refused(name: str, how: str) -> None:
    stream = {"input": "__stdin__", "output": "__stdout__"}[name]
    with seen_from_outside():
        if how == "missing":
            setattr(sys, stream, None)
        elif how == "closed by the program":
            getattr(sys, stream).close()
        else:
            os.close(getattr(sys, stream).fileno())
        for _ in range(2):
            with pytest.raises(ConnectError, match=f"Standard {name} is closed, so no client can be served there"):
                take_stdio()


@pytest.mark.parametrize("stdout", [None, object(), io.StringIO()])
def test_any_object_may_be_standard_output(stdout: Any) -> None:
    with seen_from_outside() as outside:
        print("early")
        sys.stdout = stdout
        with take_stdio():
            assert os.read(outside.error, 1000) == b"early\n"


def test_a_stream_may_be_taken_out_of_its_wrapper() -> None:
    with seen_from_outside() as outside:
        assert isinstance(sys.stdout, io.TextIOWrapper)
        buffer = sys.stdout.detach()
        with take_stdio():
            buffer.write(b"late")
            buffer.flush()
            assert os.read(outside.error, 1000) == b"late"


def test_a_stream_may_be_closed_while_it_is_taken() -> None:
    with seen_from_outside() as outside:
        with take_stdio():
            sys.stdout.close()
        os.write(1, b"after")
        assert os.read(outside.output, 1000) == b"after"


@pytest.mark.parametrize("was_so", [False, True])
def test_a_line_is_shown_when_it_is_printed(was_so: bool) -> None:
    with seen_from_outside() as outside:
        assert isinstance(sys.stdout, io.TextIOWrapper)
        sys.stdout.reconfigure(line_buffering=was_so)
        with take_stdio():
            print("stray")
            assert os.read(outside.error, 1000) == b"stray\n"
        assert sys.stdout.line_buffering == was_so


def test_the_trace_and_the_limits_are_those_of_the_connection() -> None:
    seen: list[tuple[str, bytes]] = []

    async def main() -> None:
        with take_stdio() as stdio:
            connection = stdio.connection(limits=Limits(max_line=50), trace=lambda *line: seen.append(line))
            side = Recorder()
            connection.start(side)
            os.write(outside.input, b"x" * 100 + b"\n")
            await side.until_count(1)
            connection.send(Notification("n"))
            await connection.close()

    with seen_from_outside() as outside:
        run(main())
    assert seen == [("in", b"x" * 50), ("out", b'{"jsonrpc":"2.0","method":"n"}')]
