"""Press Tab in real shells with the scripts of ``mcplumb completion``: ``python tools/check_completion.py [SHELL...]``.

Needs bash, zsh and fish, or those that are named. It installs nothing: one that is not there is a failure, and said so.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

PATIENCE = 60.0
SHELLS = ("bash", "zsh", "fish")
CONFIG = '{"mcpServers": {"teahouse": {"command": "true"}}}'


class Line(NamedTuple):
    typed: str
    #: The whole line after Tab. Shells put a space behind a word that is complete.
    completed: str


LINES = [
    Line("mcplumb to", "mcplumb tools "),
    Line("mcplumb -v completion z", "mcplumb -v completion zsh "),
    Line("mcplumb tools --sch", "mcplumb tools --schema "),
    Line("mcplumb tools --revision 2026", "mcplumb tools --revision 2026-07-28 "),
    Line("mcplumb tools -s te", "mcplumb tools -s teahouse "),
    Line("mcplumb serve wea", "mcplumb serve weather.py "),
    Line("mcplumb tools --cwd fol", "mcplumb tools --cwd folder/"),
    Line("mcplumb tools -- brewi", "mcplumb tools -- brewing-program "),
    Line("mcplumb tools -- python wea", "mcplumb tools -- python weather.py "),
    Line("mcplumb nothing xyz", "mcplumb nothing xyz"),
]

COMMANDS = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}
#: What each shell runs first: it shows ``<ready>`` then, and Ctrl-G writes the line as it is into the file `told`.
PREPARATIONS = {
    "bash": """
PS1="<ready>"
eval "$(mcplumb completion bash)"
tell() { printf '%s\\n' "$READLINE_LINE" >> told; }
bind -x '"\\C-g": tell'
""",
    "zsh": """
PS1="<ready>"
autoload -Uz compinit
compinit -u -D
eval "$(mcplumb completion zsh)"
tell() { print -r -- "$BUFFER" >> told }
zle -N tell
bindkey '^G' tell
""",
}


class Terminal:
    """A shell at a terminal, and somebody who types."""

    def __init__(self, shell: str, folder: Path, env: dict[str, str]) -> None:
        (folder / "prepare").write_text(PREPARATIONS[shell])
        self._told = folder / "told"
        self._shown = b""
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            COMMANDS[shell], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=env, start_new_session=True
        )
        os.close(theirs)
        self._type(". ./prepare\r")
        self._until(lambda: b"<ready>" in self._shown)

    def complete(self, line: str) -> str:
        """The line after a Tab at its end. It is removed then."""
        self._told.write_text("")
        self._type(f"{line}\t\x07")
        self._until(lambda: self._told.read_text().endswith("\n"))
        self._type("\x15")
        return self._told.read_text().removesuffix("\n")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)

    def _type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def _until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, f"The shell does not go on. It shows: {self._shown.decode()!r}"
            if select.select([self._ours], [], [], 0.01)[0]:
                self._shown += os.read(self._ours, 65536)


def typed(shell: str, folder: Path, env: dict[str, str]) -> list[str]:
    """Each line as it is after a Tab, typed at a terminal."""
    terminal = Terminal(shell, folder, env)
    try:
        return [terminal.complete(line.typed) for line in LINES]
    finally:
        terminal.close()


def asked(folder: Path, env: dict[str, str]) -> list[str]:
    """Return each line as fish would complete it, which says by itself what a Tab would give."""

    def fish(line: str) -> list[str]:
        program = "mcplumb completion fish | source; complete -C $argv[1]"
        command = ["fish", "--no-config", "-c", program, line]
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        assert done.stderr == "", done.stderr
        return done.stdout.splitlines()

    # What a word means is shown beside it, all of it.
    assert "demo\tTake a tour, with the built-in demo server." in fish("mcplumb ")
    lines = []
    for line in LINES:
        before, _, _ = line.typed.rpartition(" ")
        words = [word.partition("\t")[0] for word in fish(line.typed)]
        space = "" if words and words[0].endswith("/") else " "
        lines.append(f"{before} {words[0]}{space}" if len(words) == 1 else line.typed)
    return lines


def check(shell: str) -> list[str]:
    """What is wrong in this shell, a line each."""
    if shutil.which(shell) is None:
        return [f"{shell}: it is not installed, and so nothing is known of it. Install it, or name the others."]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = folder / "bin"
        programs.mkdir()
        for program, words in (("mcplumb", f'exec "{sys.executable}" -m mcplumb "$@"'), ("brewing-program", "")):
            (programs / program).write_text(f"#!/bin/sh\n{words}\n")
            (programs / program).chmod(0o755)
        (folder / "folder").mkdir()
        (folder / "weather.py").touch()
        (folder / "mcplumb").mkdir()
        (folder / "mcplumb" / "servers.json").write_text(CONFIG)
        env = {"HOME": name, "XDG_CONFIG_HOME": name, "PATH": f"{programs}:{os.environ['PATH']}", "TERM": "dumb"}
        found = asked(folder, env) if shell == "fish" else typed(shell, folder, env)
    return [
        f"{shell}: Tab behind {line.typed!r} gives {seen!r}, and not {line.completed!r}."
        for line, seen in zip(LINES, found, strict=True)
        if seen != line.completed
    ]


def main() -> int:
    shells = sys.argv[1:] or SHELLS
    wrong = [said for shell in shells for said in check(shell)]
    print("\n".join(wrong) or f"Tab does what it should in {', '.join(shells)}: {len(LINES)} lines each.")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
