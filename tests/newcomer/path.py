"""A newcomer's path, from a built wheel in a fresh virtual environment: ``python -m tests.newcomer.path``.

Install, write the ten-line server, call it, serve it over HTTP, call it there, break it and read the errors, ship it.
Each step says what it runs; the first that does not do what the docs say ends the program with 1. Nothing of the
repository is used but the wheel, and the programs that the README and the tutorial print.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from tools.doc_examples import PYTHON, ROOT

SHIPPING = ROOT / "docs" / "tutorial" / "ship-your-server.md"
TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATIENCE = 300
#: A server that says nothing for this long does not start.
STARTING = 60


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="newcomer-") as folder:
        path = NewcomersPath(Path(folder).resolve())
        path.install()
        path.write_a_server()
        path.call_it()
        path.call_it_over_http()
        path.break_it()
        path.ship_it()
    print("The newcomer arrived.")
    return 0


class NewcomersPath:
    """One walk, in a folder that nothing else uses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        # As in a new account, in which the environment was activated.
        self.env = {
            "PATH": f"{self.bin}{os.pathsep}{os.defpath}",
            "HOME": str(folder),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
        }

    def install(self) -> None:
        say("install, from a wheel")
        self.pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", "wheels", str(ROOT))
        (wheel,) = (self.folder / "wheels").glob("mcplumb-*.whl")
        self.run(sys.executable, "-m", "venv", "venv", env=os.environ)
        self.pip(str(self.bin / "python"), "install", f"{wheel}[cli,http]")
        self.run("mcplumb", "--version", expect="mcplumb ")
        self.run("mcplumb", "--help", expect="Look at a server:")

    def write_a_server(self) -> None:
        say("write the server of the README")
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        _, _, section = readme.partition("## A server in ten lines")
        block = PYTHON.search(section)
        assert block is not None, "The README has no server."
        self.server = block[1]
        (self.folder / "weather.py").write_text(self.server, encoding="utf-8")

    def call_it(self) -> None:
        say("call it")
        command = ("--", "python", "weather.py")
        self.run("mcplumb", "tools", *command, expect="forecast(city, days=3)")
        self.run("mcplumb", "call", "forecast", "city=Oslo", *command, expect="Oslo: sun, for 3 days.\n")

    def call_it_over_http(self) -> None:
        say("start it over HTTP, and call it there")
        with self.serving() as address:
            expected = "Rome: sun, for 1 days.\n"
            self.run("mcplumb", "call", "forecast", "city=Rome", "days=1", "-s", address, expect=expected)
        self.run("mcplumb", "tools", "-s", address, code=3, expect="cannot be reached")

    def break_it(self) -> None:
        say("break it, and read the errors")
        command = ("--", "python", "weather.py")
        self.run("mcplumb", "call", "forecast", "town=Oslo", *command, code=2, expect="There is no argument 'town'")
        self.run(
            "mcplumb",
            "call",
            "forecast",
            "city=Oslo",
            "days=many",
            *command,
            code=2,
            expect="days must be an integer",
        )
        self.run("mcplumb", "tools", "--", "pyhton", "weather.py", code=3, expect="there is no 'pyhton' in the PATH")
        (self.folder / "weather.py").write_text(self.server.replace("import Server", "import Sever"), encoding="utf-8")
        expected = "ImportError: cannot import name 'Sever' from 'mcplumb'"
        self.run("mcplumb", "probe", *command, code=3, expect=expected)
        self.run("mcplumb", "serve", "weather.py", code=None, expect="cannot import name 'Sever'")

    def ship_it(self) -> None:
        say("ship it, as the tutorial does")
        page = SHIPPING.read_text(encoding="utf-8")
        (settings,) = TOML.findall(page)
        (program,) = PYTHON.findall(page)
        package = self.folder / "weather-server"
        (package / "src" / "weather_server").mkdir(parents=True)
        (package / "pyproject.toml").write_text(settings, encoding="utf-8")
        (package / "src" / "weather_server" / "__init__.py").write_text(program, encoding="utf-8")
        (mcplumb,) = (self.folder / "wheels").glob("mcplumb-*.whl")
        self.pip(str(self.bin / "python"), "wheel", "--no-deps", "--wheel-dir", "dist", "./weather-server")
        self.run("python", "-m", "venv", "try")
        wheel = "dist/weather_server-1.0.0-py3-none-any.whl"
        self.pip(str(self.folder / "try" / "bin" / "python"), "install", str(mcplumb), wheel)
        program = "try/bin/weather-server"
        self.run("mcplumb", "probe", "--quick", "--", program, expect="weather 1.0.0")
        self.run("mcplumb", "call", "forecast", "city=Oslo", "--", program, expect='["snow","sun","snow"]\n')

    def pip(self, python: str, *words: str) -> None:
        """With the settings of the machine: where packages come from is its own affair."""
        self.run(python, "-m", "pip", "--quiet", "--disable-pip-version-check", *words, env=os.environ)

    def run(self, *command: str, code: int | None = 0, expect: str = "", env: Mapping[str, str] | None = None) -> None:
        """Runs a command to its end; it has to end with this code (any but 0 if None), and to say what is expected."""
        shown = " ".join(command).replace(str(self.folder), ".")
        program = str(self.bin / command[0]) if (self.bin / command[0]).exists() else command[0]
        started = time.monotonic()
        done = subprocess.run(
            [program, *command[1:]],
            cwd=self.folder,
            env=self.env if env is None else env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        ended_well = done.returncode != 0 if code is None else done.returncode == code
        if not ended_well or expect not in done.stdout or (code != 0 and "mcplumb/cli" in done.stdout):
            fail(f"{shown}\nended with {done.returncode}; expected were {code} and {expect!r}. It said:\n{done.stdout}")
        print(f"  {shown}  ({time.monotonic() - started:.1f} s)", flush=True)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """The server over HTTP, at any port that is free; gives its address. It has to end well when it is told to."""
        command = [str(self.bin / "mcplumb"), "serve", "weather.py", "--http", "127.0.0.1:0"]
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        timer = threading.Timer(STARTING, process.kill)
        timer.start()
        try:
            assert process.stderr is not None
            said = ""
            for line in process.stderr:
                said += line
                if "Serving at " in line:
                    print("  mcplumb serve weather.py --http 127.0.0.1:0")
                    timer.cancel()
                    yield line.partition("Serving at ")[2].strip()
                    break
            else:
                fail(f"mcplumb serve did not say where it serves, but:\n{said}")
            process.send_signal(signal.SIGTERM)
            _, rest = process.communicate(timeout=STARTING)
            if process.returncode != 0:
                fail(f"mcplumb serve ended with {process.returncode} after SIGTERM, and said:\n{rest}")
        finally:
            timer.cancel()
            process.kill()
            process.wait()


def say(step: str) -> None:
    print(f"==> {step}", flush=True)


def fail(what: str) -> NoReturn:
    sys.exit(f"newcomer: {what}")


if __name__ == "__main__":
    sys.exit(main())
