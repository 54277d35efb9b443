from __future__ import annotations

import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcplumb.tap.recorder_link import CLIENT, RecorderLink, RecorderOptions
from tests.kit.loop import PATIENCE, blocking_until
from tests.tap.tapping import (
    MCPLUMB,
    children,
    complete,
    is_alive,
    python,
    read_line,
    recorder_of,
    records_of,
    run_tapped,
    said_by,
    tap_command,
    tapped,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

# Copies stdin to stdout in odd pieces, and a digest of it to stderr.
COPY = """
import hashlib, os, sys
digest, size = hashlib.sha256(), 1
while data := os.read(0, size):
    digest.update(data)
    while data: data = data[os.write(1, data):]
    size = size * 3 % 100003 + 1
os.write(2, digest.hexdigest().encode())
sys.exit(7)
"""


# --- Bytes ---


@pytest.mark.req("TAP-1")
@settings(max_examples=12)
@given(
    pieces=st.lists(
        st.binary(max_size=3000) | st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\xff\xfe", b"{}\n"]), max_size=20
    )
)
def test_any_bytes_pass_both_ways_and_are_recorded(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    place = tmp_path_factory.mktemp("tap") / "a.mcp.jsonl"
    data = b"".join(pieces)
    done = run_tapped(place, *python(COPY), data=data)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()
    assert done.stderr.decode() == hashlib.sha256(data).hexdigest()
    assert done.returncode == 7
    records = complete(place)
    assert said_by(records, "client") == data
    assert said_by(records, "server") == data


@pytest.mark.req("TAP-1")
@pytest.mark.parametrize("kind", ["random bytes", "one line of 50 MB", "short lines", "a torn end"])
def test_much_passes_both_ways_at_once(tmp_path: Path, kind: str) -> None:
    data = {
        "random bytes": lambda: random.Random(1).randbytes(10_000_000),
        "one line of 50 MB": lambda: b'{"jsonrpc":"2.0","id":1,"result":"' + b"x" * 50_000_000 + b'"}\n',
        "short lines": lambda: b'{"jsonrpc":"2.0","method":"notifications/x"}\n' * 50_000,
        "a torn end": lambda: b"a\n" * 1000 + b"\xc3",
    }[kind]()
    place = tmp_path / "a.mcp.jsonl"
    done = run_tapped(place, *python(COPY), data=data)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()
    assert done.stderr.decode() == hashlib.sha256(data).hexdigest()
    records = complete(place)
    if kind == "one line of 50 MB":
        lines = [record for record in records if record.text is not None]
        lost = [record for record in records if record.event == "lost"]
        assert lost or [record.cut for record in lines] == [len(data) - 1] * 2
    elif not any(record.event == "lost" for record in records):
        assert said_by(records, "server") == data


@pytest.mark.req("TAP-1")
def test_stdout_and_stderr_in_one_pipe_keep_their_order(tmp_path: Path) -> None:
    code = "import os\nfor n in range(2000): os.write(1 + n % 2, b'%d\\n' % n)"
    done = subprocess.run(
        tap_command(tmp_path / "a", *python(code)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == [b"%d" % n for n in range(2000)]


@pytest.mark.req("TAP-1")
def test_files_and_closed_streams_work_as_well(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"hello\n")
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as taken:
        command = tap_command(tmp_path / "a", *python(COPY))
        done = subprocess.run(command, stdin=given, stdout=taken, stderr=subprocess.DEVNULL, check=False, timeout=60)
    assert done.returncode == 7
    assert (tmp_path / "out").read_bytes() == b"hello\n"
    shell = " ".join(["exec", *map(repr, tap_command(tmp_path / "b", "sh", "-c", "exit 5")), "0<&-", "1>&-", "2>&-"])
    assert subprocess.run(["/bin/sh", "-c", shell], check=False, timeout=60).returncode == 5


@pytest.mark.req("TAP-1")
def test_the_host_s_pipe_stays_blocking(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with tapped(tmp_path / "a", *python("import os; os.read(0, 1)"), stdout=writer) as process:
        recorder_of(process.pid)
        assert os.get_blocking(writer)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
    os.close(reader)
    os.close(writer)


# --- Ends ---


@pytest.mark.req("TAP-1")
@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_exit_codes_pass(tmp_path: Path, code: int) -> None:
    assert run_tapped(tmp_path / "a", "sh", "-c", f"exit {code}").returncode == code
    assert [record.code for record in complete(tmp_path / "a") if record.event == "exit"] == [code]


@pytest.mark.req("TAP-1")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGABRT, signal.SIGPIPE])
def test_death_by_a_signal_passes(tmp_path: Path, number: signal.Signals) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    assert run_tapped(tmp_path / "a", "sh", "-c", f"kill -{number.value} $$").returncode == -number
    assert [record.signal for record in complete(tmp_path / "a") if record.event == "exit"] == [number.name]


# Writes the numbers of the signals that it gets. They come through a pipe: a signal that arrives just before a read of
# stdin would not interrupt it.
COUNT = """
import os, select, signal
reader, writer = os.pipe()
os.set_blocking(writer, False)
signal.set_wakeup_fd(writer)
for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGALRM"):
    signal.signal(getattr(signal, name), lambda number, frame: None)
os.write(1, b"ready\\n")
while True:
    ready = select.select([0, reader], [], [])[0]
    if reader in ready:
        os.write(1, b"".join(b"%d\\n" % number for number in os.read(reader, 100)))
    elif not os.read(0, 100):
        break
"""


@pytest.mark.req("TAP-1")
@pytest.mark.parametrize("target", ["the tap", "its group"])
def test_signals_reach_the_server_once(tmp_path: Path, target: str) -> None:
    numbers = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM]
    with tapped(tmp_path / "a", *python(COUNT), start_new_session=True) as process:
        assert read_line(process) == b"ready\n"
        for number in numbers:
            (os.kill if target == "the tap" else os.killpg)(process.pid, number)
            assert read_line(process) == b"%d\n" % number
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait(60) == 0
    found = [record.signal for record in complete(tmp_path / "a") if record.event == "signal"]
    assert found == [number.name for number in numbers]


@pytest.mark.req("TAP-1")
def test_a_host_may_have_blocked_signals(tmp_path: Path) -> None:
    """The exit of the server is noticed all the same, and the server has the mask of the host."""
    code = "import signal\nprint(*sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))))"
    blocked = {signal.SIGCHLD, signal.SIGUSR1}
    host = (
        f"import signal, subprocess\nsignal.pthread_sigmask(signal.SIG_BLOCK, {set(map(int, blocked))})\n"
        f"subprocess.run({tap_command(tmp_path / 'a', *python(code))}, check=True, timeout=60)"
    )
    done = subprocess.run([sys.executable, "-c", host], stdout=subprocess.PIPE, check=True, timeout=120)
    assert {*map(int, done.stdout.split())} == blocked


@pytest.mark.req("TAP-1")
@pytest.mark.parametrize("target", ["the tap", "its group"])
def test_signals_pass_also_if_the_host_ignores_them(tmp_path: Path, target: str) -> None:
    """As behind nohup: a server that handles such a signal gets it, and one that does not keeps ignoring it."""
    ignored = [signal.SIGHUP, signal.SIGQUIT]
    code = f"import signal\nfor each in {list(map(int, ignored))}: signal.signal(each, signal.SIG_IGN)\n"
    run = "import os, sys\nos.execv(sys.argv[1], sys.argv[1:])"
    server = "import signal\nprint(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, end=' ', flush=True)\n" + COUNT
    command = [sys.executable, "-c", code + run, *tap_command(tmp_path / "a", *python(server))]
    with subprocess.Popen(
        command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert read_line(process) == b"True ready\n"
        for number in ignored:
            (os.kill if target == "the tap" else os.killpg)(process.pid, number)
            assert read_line(process) == b"%d\n" % number
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.mark.req("TAP-1")
def test_a_group_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    with tapped(tmp_path / "a", *python(COUNT), start_new_session=True) as process:
        assert read_line(process) == b"ready\n"
        family = children(process.pid)
        assert len(family) == 3  # the server, the recorder, and who tells signals apart
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
        blocking_until(lambda: not any(map(is_alive, family)), "all to be gone", lambda: list(filter(is_alive, family)))


@pytest.mark.req("TAP-1", "LIF-4")
def test_a_tap_that_is_killed_takes_its_server_with_it(tmp_path: Path) -> None:
    deaf = "import os, time\nos.write(1, b'ready\\n')\nwhile True: time.sleep(60)"
    with tapped(tmp_path / "a", *python(deaf)) as process:
        assert read_line(process) == b"ready\n"
        family = children(process.pid)
        process.kill()
        process.wait(60)
        blocking_until(lambda: not any(map(is_alive, family)), "all to be gone", lambda: list(filter(is_alive, family)))
    assert complete(tmp_path / "a", "disconnected")[-1].event == "disconnected"


@pytest.mark.req("TAP-1", "TAP-2", "LIF-4")
def test_a_tap_with_its_second_recorder_takes_its_server_with_it_as_well(tmp_path: Path) -> None:
    stubborn = "import os\nos.write(1, b'ready\\n')\nimport time; time.sleep(3600)"
    place = tmp_path / "a.mcp.jsonl"
    with tapped(place, *python(stubborn)) as process:
        assert read_line(process) == b"ready\n"
        first = recorder_of(process.pid)
        complete_text(place, "ready")
        kill(first)
        complete(place, "restart")
        family = children(process.pid)
        assert first not in family
        process.kill()
        process.wait(60)
        blocking_until(lambda: not any(map(is_alive, family)), "all to be gone", lambda: list(filter(is_alive, family)))
    events = [record.event for record in complete(place, "disconnected")]
    assert events[-2:] == ["restart", "disconnected"]


@pytest.mark.req("TAP-1")
def test_a_server_that_closes_its_input_breaks_the_host_s_pipe(tmp_path: Path) -> None:
    code = "import os\nos.close(0)\nos.write(1, b'closed\\n')\nimport time; time.sleep(60)"
    with tapped(tmp_path / "a", *python(code)) as process:
        assert read_line(process) == b"closed\n"
        assert process.stdin is not None
        stdin = process.stdin

        def is_broken() -> bool:
            try:
                stdin.write(b"x")
            except BrokenPipeError:
                return True
            return False

        blocking_until(is_broken, "a broken pipe")
        process.terminate()
        assert process.wait(60) == -signal.SIGTERM
    assert any(record.event == "closed_pipe" and record.sender == "server" for record in complete(tmp_path / "a"))


@pytest.mark.req("TAP-1")
def test_a_server_that_closes_its_output_ends_the_host_s_input(tmp_path: Path) -> None:
    code = "import os\nos.write(1, b'bye')\nos.close(1)\nos.write(2, os.read(0, 9))"
    with tapped(tmp_path / "a", *python(code)) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stderr is not None
        assert process.stdout.read() == b"bye"
        assert process.poll() is None
        process.stdin.write(b"still")
        assert process.stderr.read() == b"still"
        assert process.wait(60) == 0


@pytest.mark.req("TAP-1")
def test_a_host_that_closes_its_input_breaks_the_server_s_pipe(tmp_path: Path) -> None:
    code = """
import os, sys
os.read(0, 1)
try:
    while True: os.write(1, b"x" * 1000)
except BrokenPipeError:
    sys.exit(33)
"""
    with tapped(tmp_path / "a", sys.executable, "-I", "-c", code) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.close()
        process.stdin.write(b"!")
        assert process.wait(60) == 33


@pytest.mark.req("TAP-1")
def test_an_end_of_input_leaves_the_output_open(tmp_path: Path) -> None:
    code = "import os\nwhile os.read(0, 9): pass\nfor n in range(3): os.write(1, b'%d\\n' % n)"
    assert run_tapped(tmp_path / "a", *python(code), data=b"x").stdout == b"0\n1\n2\n"


@pytest.mark.req("TAP-1")
def test_descendants_keep_the_pipes_and_do_not_delay_the_exit(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    code = f"""
import os, sys
os.write(1, b"first\\n")
if os.fork() == 0:
    open({str(go)!r}, "rb").read()
    os.write(1, b"late\\n")
    os.write(2, b"later\\n")
    os._exit(0)
os._exit(3)
"""
    with tapped(tmp_path / "a", *python(code)) as process:
        assert process.wait(60) == 3
        assert read_line(process) == b"first\n"
        go.write_bytes(b"x")
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == b"late\n"
        assert process.stderr.read() == b"later\n"
    records = complete(tmp_path / "a")
    blocking_until(lambda: b"late" in (tmp_path / "a").read_bytes(), "the last record", lambda: records)


@pytest.mark.req("TAP-1")
def test_what_was_written_before_the_exit_arrives_before_it(tmp_path: Path) -> None:
    for n in range(10):
        with tapped(tmp_path / f"{n}", *python("import os; os.write(1, b'x' * 60000)")) as process:
            process.wait(60)
            assert process.stdout is not None
            os.set_blocking(process.stdout.fileno(), False)
            assert len(process.stdout.read()) == 60000


# --- What else a server sees ---


# In Perl, because Python itself adds a variable to its environment in this locale.
SEEN = """
use Cwd; open(F, "<&=$ARGV[0]"); $SIG{PIPE} = $SIG{PIPE} // "";
print join("|", (map { "$_=$ENV{$_}" } sort keys %ENV), getcwd(), @ARGV[1, 2], -s F, "pipe=$SIG{PIPE}");
"""


@pytest.mark.req("TAP-1")
@pytest.mark.skipif(which("perl") is None, reason="there is no Perl")
def test_the_server_sees_what_the_host_gave(tmp_path: Path) -> None:
    (tmp_path / "nine").write_bytes(b"123456789")
    env = {"PATH": os.environ["PATH"], "LANG": "C", "ODD": "a=b\nc"}
    with (tmp_path / "nine").open("rb") as file:
        command = tap_command(tmp_path / "a", "perl", "-e", SEEN, str(file.fileno()), "one", "--two")
        options: Any = {"env": env, "cwd": tmp_path, "pass_fds": (file.fileno(),), "stdin": subprocess.DEVNULL}
        done = subprocess.run(command, capture_output=True, check=True, timeout=60, **options)
    assert done.stdout.decode() == f"LANG=C|ODD=a=b\nc|PATH={env['PATH']}|{tmp_path}|one|--two|9|pipe="


@pytest.mark.parametrize("command", ["/no/such/program", "no-such-program", "/", ""])
def test_a_server_that_cannot_be_started_is_reported(tmp_path: Path, command: str) -> None:
    done = run_tapped(tmp_path / "a", command)
    assert done.returncode == 3
    assert done.stderr.decode().startswith(f"Error: mcplumb tap cannot start {command!r}: ")
    assert done.stdout == b""


def test_a_tap_imports_next_to_nothing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "mcplumb",
        "tap",
        "--record",
        str(tmp_path / "a"),
        "--",
        "true",
    ]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60, stdin=subprocess.DEVNULL)
    imported = {line.rpartition(b"|")[2].strip().decode() for line in done.stderr.splitlines()}
    assert "mcplumb.tap.pipe_tap" in imported
    heavy = {"msgspec", "click", "asyncio", "subprocess", "signal", "pathlib", "socket", "logging", "threading", "rich"}
    assert imported & heavy == set()


# --- The recorder ---

ECHO = """
import os
while data := os.read(0, 65536):
    while data: data = data[os.write(1, data):]
"""


def exchange(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    assert read_line(process) == line


@pytest.mark.req("TAP-2")
def test_a_recorder_that_is_killed_is_replaced_and_what_it_lost_is_counted(tmp_path: Path) -> None:
    place = tmp_path / "a.mcp.jsonl"
    with tapped(place, *python(ECHO)) as process:
        exchange(process, b"zero\n")
        complete_text(place, "zero")
        # What was lost with the first one is not lost again with the second.
        for n in range(2):
            recorder = recorder_of(process.pid)
            os.kill(recorder, signal.SIGSTOP)
            exchange(process, b"two %d\n" % n)
            exchange(process, b"three %d\n" % n)
            kill(recorder)
            exchange(process, b"four %d\n" % n)
            assert recorder_of(process.pid) != recorder
            exchange(process, b"five %d\n" % n)
            complete_text(place, f"five {n}")
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
    records = complete(place)
    text = [record.text for record in records if record.sender == "client" and record.text is not None]
    assert text[0] == "zero"
    assert text[-1] == "five 1"
    # All that was said is either there or counted.
    for side in ("client", "server"):
        there = sum(record.sent_size + 1 for record in records if record.sender == side and record.text is not None)
        lost = sum(record.byte_count or 0 for record in records if record.sender == side and record.event == "lost")
        assert there + lost == len("zero ") + 2 * len("two 0 three 0 four 0 five 0 ")
    assert [record.event for record in records].count("restart") == 2


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    blocking_until(lambda: not is_alive(pid), "its end")


def complete_text(place: Path, text: str) -> None:
    blocking_until(lambda: place.exists() and f'"{text}"' in place.read_text(), f"{text} to be recorded")


@pytest.mark.req("TAP-2")
def test_a_recorder_that_is_killed_again_and_again_is_given_up(tmp_path: Path) -> None:
    with tapped(tmp_path / "a", *python(ECHO)) as process:
        for n in range(12):
            exchange(process, b"%d\n" % n)
            for recorder in children(process.pid, leaders=True):
                with suppress(ProcessLookupError):  # the tap has reaped it meanwhile
                    os.kill(recorder, signal.SIGKILL)
        exchange(process, b"the end\n")
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.mark.req("TAP-2")
def test_when_recorders_are_given_up_a_last_one_counts_what_was_lost(tmp_path: Path) -> None:
    place = tmp_path / "a.mcp.jsonl"
    said = b""
    with tapped(place, *python(ECHO)) as process:
        for n in range(6):
            recorder = recorder_of(process.pid)
            line = b"%d\n" % n
            exchange(process, line)
            said += line
            kill(recorder)
        for n in range(3):
            line = b"unrecorded %d\n" % n
            exchange(process, line)
            said += line
        assert children(process.pid, leaders=True) == []
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stderr is None or process.stderr.read() == b""
    records = complete(place)
    for side in ("client", "server"):
        there = sum(record.sent_size + 1 for record in records if record.sender == side and record.text is not None)
        lost = [record for record in records if record.sender == side and record.event == "lost"]
        assert there + sum(record.byte_count or 0 for record in lost) == len(said)
        assert {record.reason for record in lost} == {"The recorder died."}
    assert records[-1].event == "exit"


@pytest.mark.req("TAP-2")
def test_a_recorder_that_is_stopped_delays_nothing_and_what_is_lost_is_counted(tmp_path: Path) -> None:
    place = tmp_path / "a.mcp.jsonl"
    line = b"x" * 999_999 + b"\n"
    count = 100  # 200 MB, both ways together, and 64 MiB may wait
    with tapped(place, *python(ECHO)) as process:
        exchange(process, b"one\n")
        complete_text(place, "one")
        recorder = recorder_of(process.pid)
        os.kill(recorder, signal.SIGSTOP)
        digest = hashlib.sha256()

        def read() -> None:
            assert process.stdout is not None
            left = len(line) * count
            while left:
                data = os.read(process.stdout.fileno(), 1 << 20)
                digest.update(data)
                left -= len(data)

        reader = threading.Thread(target=read)
        reader.start()
        assert process.stdin is not None
        for _ in range(count):
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(process.stdin.fileno(), rest) :]
        reader.join(PATIENCE)
        assert digest.digest() == hashlib.sha256(line * count).digest()
        memory = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096
        assert memory < 150 << 20
        os.kill(recorder, signal.SIGCONT)
        exchange(process, b"last\n")
        process.stdin.close()
        assert process.wait(60) == 0
    records = complete(place)
    lost = sum(record.byte_count or 0 for record in records if record.event == "lost")
    assert lost > 100_000_000
    there = sum(
        record.sent_size + (not record.torn) for record in records if record.sender is not None and record.event is None
    )
    # The rest of a line that a loss tears is not counted.
    assert 0 <= 2 * (len(line) * count + len(b"one\nlast\n")) - there - lost <= 2 * len(line)


@pytest.mark.req("TAP-2")
@pytest.mark.parametrize("place", ["/dev/full", "/no/such/folder/a", "/proc/nothing"])
def test_a_recording_that_cannot_be_written_harms_nothing(place: str) -> None:
    done = run_tapped(place, *python(COPY), data=b"hello\n" * 1000)
    assert done.stdout == b"hello\n" * 1000
    assert done.stderr.decode() == hashlib.sha256(done.stdout).hexdigest()
    assert done.returncode == 7


@pytest.mark.req("TAP-2")
def test_a_reader_of_the_recording_that_is_stopped_delays_nothing(tmp_path: Path) -> None:
    place = tmp_path / "a"
    os.mkfifo(place)
    reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK)  # never reads
    done = run_tapped(place, *python(COPY), data=b"x" * 99 + b"\n" * 1_000_000)
    os.close(reader)
    assert done.returncode == 7
    assert len(done.stdout) == 1_000_099


@pytest.mark.req("TAP-3")
def test_secrets_do_not_reach_the_recording(tmp_path: Path) -> None:
    secret = b"sk-abcdefghijklmnop0123"
    data = b'{"jsonrpc":"2.0","id":1,"params":{"password":"hunter22","note":"' + secret + b'"}}\n'
    code = "import os,sys\nos.write(2, b'API_KEY=topsecret1\\n')\nos.write(1, os.read(0, 999))"
    words = ("--token", "abcd1234", "--header", "Authorization: Bearer efgh5678", "--db=postgres://me:ijkl9@db/x")
    done = run_tapped(tmp_path / "a", *python(code), *words, data=data)
    assert done.stdout == data
    complete(tmp_path / "a")
    written = (tmp_path / "a").read_bytes()
    for hidden in (b"hunter22", secret, b"topsecret1", b"abcd1234", b"efgh5678", b"ijkl9"):
        assert hidden not in written
    command = tap_command(tmp_path / "b", *python(code), options=("--unmasked",))
    subprocess.run(command, input=data, capture_output=True, check=True, timeout=60)
    complete(tmp_path / "b")
    assert b"hunter22" in (tmp_path / "b").read_bytes()


def test_the_default_folder_gets_a_file_for_each_session(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    for _ in range(3):
        command = [*MCPLUMB, "tap", "--keep", "2", "--name", "my server", "--", "true"]
        subprocess.run(command, env=env, check=True, stdin=subprocess.DEVNULL, timeout=60)
        time.sleep(0)
    folder = tmp_path / "mcplumb" / "recordings"
    blocking_until(lambda: len(list(folder.iterdir())) == 2, "the oldest to be deleted", lambda: list(folder.iterdir()))
    assert all(path.name.endswith("-my-server.mcp.jsonl") for path in folder.iterdir())


def test_wrong_usage_is_reported(tmp_path: Path) -> None:
    def fail(*words: str) -> str:
        done = subprocess.run([*MCPLUMB, "tap", *words], capture_output=True, check=False, timeout=60)
        assert done.returncode == 2
        return done.stderr.decode()

    assert "no command after the --" in fail("--")
    assert "--keep" in fail("--keep", "0", "--", "true")
    assert "No such option" in fail("--nonsense", "--", "true")
    assert "Which server?" in fail()
    assert "Where shall the tap listen?" in fail("-s", "http://127.0.0.1:1/mcp")
    assert "--http is for a server over HTTP" in fail("--http", ":0", "--", "true")


def test_nothing_is_left_of_a_session(tmp_path: Path) -> None:
    done: Any = run_tapped(tmp_path / "a", *python(ECHO), data=b"x\n")
    assert done.returncode == 0
    name = str(tmp_path / "a").encode()

    def left() -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    if name in (entry / "cmdline").read_bytes() and int(entry.name) != os.getpid():
                        found.append(entry.name)
                except OSError:
                    continue
        return found

    blocking_until(lambda: left() == [], "all processes to end", left)


@pytest.mark.req("TAP-2")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM])
def test_a_signal_to_the_group_in_the_first_moment_leaves_the_recorder_alone(
    tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave = os.setsid

    def signalled_before() -> None:
        os.kill(os.getpid(), number)
        leave()

    monkeypatch.setattr(os, "setsid", signalled_before)
    link = RecorderLink(RecorderOptions(["x"], place=str(tmp_path / "a")))
    link.put(CLIENT, memoryview(b"one\n"), time.monotonic_ns())
    complete_text(tmp_path / "a", "one")
    link.close()
    os.waitpid(-1, 0)
    records = records_of(tmp_path / "a")
    assert [record.text for record in records if record.text is not None] == ["one"]
    assert [record for record in records if record.event == "restart"] == []


@pytest.mark.req("TAP-2")
def test_a_recorder_that_dies_within_a_write_loses_no_count(tmp_path: Path) -> None:
    """The tap may notice the death by its write, before the system tells it."""
    link = RecorderLink(RecorderOptions(["x"], place=str(tmp_path / "a")))
    link.put(CLIENT, memoryview(b"one\n"), time.monotonic_ns())
    complete_text(tmp_path / "a", "one")
    kill(link._pid)
    link.put(CLIENT, memoryview(b"two\n"), time.monotonic_ns())
    link.put(CLIENT, memoryview(b"three\n"), time.monotonic_ns())
    link.flush()
    complete_text(tmp_path / "a", "three")
    link.close()
    os.waitpid(-1, 0)
    records = complete(tmp_path / "a", "restart")
    assert [record.text for record in records if record.text is not None] == ["one", "two", "three"]
    assert [record for record in records if record.event == "lost"] == []
