"""Commands: what users write, what servers are given, and which program that is."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcplumb.errors import ConnectError, UsageError
from mcplumb.transports.process.command import SAFE_VARIABLES, Command, find_program, read_command, start_failure


def program(path: Path, text: str = "#!/bin/sh\n", *, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def on_path(name: str, *folders: Path | str, cwd: Path | None = None) -> Command:
    path = ":".join(map(str, folders))
    return Command((name,), {"PATH": path}, None if cwd is None else str(cwd))


def refusal(command: Command) -> str:
    with pytest.raises(ConnectError) as refused:
        find_program(command)
    said = str(refused.value)
    assert said.startswith(f"The server {str(command)!r} could not be started: ")
    assert said.endswith(".")
    return said


# --- Arguments ---


@pytest.mark.req("LIF-1")
@pytest.mark.parametrize(
    ("target", "argv"),
    [
        (["python", "server.py"], ("python", "server.py")),
        (("a b", "", "c'd"), ("a b", "", "c'd")),
        ([Path("/bin/x"), Path("y")], ("/bin/x", "y")),
        (Path("/a b/c"), ("/a b/c",)),
        ("python server.py", ("python", "server.py")),
        ("  npx   -y\t@scope/server\n", ("npx", "-y", "@scope/server")),
        ("a 'b c' \"d 'e'\" f\\ g ''", ("a", "b c", "d 'e'", "f g", "")),
        ("server # no comment", ("server", "#", "no", "comment")),
        ("a | b >c && d; $E ~ * `f`", ("a", "|", "b", ">c", "&&", "d;", "$E", "~", "*", "`f`")),
        ("сервер -é", ("сервер", "-é")),
    ],
)
def test_what_is_a_command(target: Any, argv: tuple[str, ...]) -> None:
    assert read_command(target).argv == argv


@pytest.mark.req("LIF-1")
def test_no_shell_sees_a_string(tmp_path: Path) -> None:
    command = read_command(f"{sys.executable} -c 'import sys; print(sys.argv[1:])' $HOME > ~/x ; rm *")
    done = subprocess.run(command.argv, env=command.env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "['$HOME', '>', '~/x', ';', 'rm', '*']\n"


class Odd(os.PathLike[Any]):
    def __fspath__(self) -> Any:
        return b"x"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("", "The command is empty: it must begin with a program."),
        ("   ", "The command is empty"),
        ([], "The command is empty"),
        (["", "x"], "The command is empty"),
        ("''", "The command is empty"),
        ("a 'b", 'The command "a \'b" has a quote that is not closed'),
        ('a "b', "has a quote that is not closed: correct it, or give a list"),
        ("a \\", "has a backslash at its end"),
        ("a\0b", "Item 0 of the command contains a NUL character"),
        (["a", "b\0"], "Item 1 of the command contains a NUL character"),
        (["a", "\ud800"], "Item 1 of the command has a character that utf-8 cannot encode"),
        (["a", 8080], "Item 1 of the command is an int: it must be a string."),
        (["a", None], "Item 1 of the command is None"),
        (["a", b"b"], "Item 1 of the command is a bytes"),
        ([Odd()], "Item 0 of the command is a bytes"),
        (b"a b", "The command is a bytes: give a list"),
        (bytearray(b"a"), "The command is a bytearray"),
        (None, "The command is None"),
        (7, "The command is an int"),
        ({"a"}, "The command is a set"),
        (iter(["a"]), "The command is a list_iterator"),
    ],
)
def test_what_is_no_command(target: Any, said: str) -> None:
    with pytest.raises(UsageError, match=r"^The command|^Item") as refused:
        read_command(target)
    assert said in str(refused.value)
    assert str(refused.value).endswith(".")


def test_a_command_as_a_string() -> None:
    assert str(Command(("a b", "c", "$d"), {})) == "'a b' c '$d'"
    long = str(Command(("a", "b" * 1000), {}))
    assert len(long) == 200
    assert long.endswith("b…")


@pytest.mark.req("LIF-12")
def test_the_environment_is_not_shown() -> None:
    command = read_command(["a"], env={"TOKEN": "secret"}, cwd="/")
    assert "secret" not in repr(command) + str(command)
    assert repr(command).startswith("Command(argv=('a',), env=<")
    assert repr(command).endswith(" variables>, cwd='/')")
    with pytest.raises(UsageError) as refused:
        read_command(["a"], env={"TOKEN": "secret\0"})
    assert "secret" not in str(refused.value)


# --- The environment ---


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of this process, for the time of a test."""
    for name in list(os.environ):
        monkeypatch.delenv(name)
    variables = {
        "PATH": "/ours",
        "HOME": "/users/u",
        "LC_TIME": "C",
        "LC_": "x",
        "TERM": "() { :; }; echo gotcha",
        "AWS_SECRET_ACCESS_KEY": "k",
        "SSH_AUTH_SOCK": "/s",
        "HTTPS_PROXY": "http://u:p@h",
        "FUNCTION": "() { :; }",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


SAFE = {"PATH": "/ours", "HOME": "/users/u", "LC_TIME": "C", "LC_": "x"}


@pytest.mark.req("LIF-12")
def test_a_server_gets_what_is_safe(ours: dict[str, str]) -> None:
    assert read_command(["a"]).env == SAFE


@pytest.mark.req("LIF-12")
def test_more_goes_over_it(ours: dict[str, str]) -> None:
    assert read_command(["a"], env={"TOKEN": "t", "HOME": "/h"}).env == {**SAFE, "TOKEN": "t", "HOME": "/h"}
    assert read_command(["a"], env={"PATH": "/theirs"}).env == {**SAFE, "PATH": "/theirs"}
    assert read_command(["a"], env={}).env == SAFE


@pytest.mark.req("LIF-12")
def test_what_is_inherited_can_be_widened(ours: dict[str, str]) -> None:
    assert ours.items() <= os.environ.items()
    assert read_command(["a"], inherit_env=True).env == os.environ
    assert read_command(["a"], inherit_env=True, env={"X": ""}).env == {**os.environ, "X": ""}
    assert read_command(["a"], inherit_env=["SSH_AUTH_SOCK", "NOT_SET"]).env == {**SAFE, "SSH_AUTH_SOCK": "/s"}
    assert read_command(["a"], inherit_env=iter(["FUNCTION"])).env == {**SAFE, "FUNCTION": "() { :; }"}
    assert read_command(["a"], inherit_env=[], env={"X": "y"}).env == {**SAFE, "X": "y"}


def test_a_command_keeps_the_environment_of_its_time(ours: dict[str, str]) -> None:
    given = {"X": "1"}
    command = read_command(["a"], env=given)
    given["X"] = os.environ["HOME"] = "2"
    assert command.env == {**SAFE, "X": "1"}


@pytest.mark.req("LIF-12")
def test_nothing_that_is_safe_sounds_like_a_secret() -> None:
    for word in ("TOKEN", "SECRET", "PASS", "AUTH", "PROXY", "AGENT", "SOCK", "REGISTRY", "INDEX", "PRELOAD"):
        assert not [name for name in SAFE_VARIABLES if word in name]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"env": [("A", "b")]}, "env is a list: give a mapping of names to values."),
        ({"env": {"A": 1}}, "The value of A in env is an int: it must be a string."),
        ({"env": {"A": None}}, "The value of A in env is None"),
        ({"env": {"A": Path("/x")}}, "The value of A in env is a PosixPath"),
        ({"env": {"A": "x\0"}}, "The value of A in env contains a NUL"),
        ({"env": {"A": "\ud800"}}, "The value of A in env has a character"),
        ({"env": {1: "x"}}, "The name of a variable is an int"),
        ({"env": {"": "x"}}, "A variable cannot have the name ''."),
        ({"env": {"A=B": "x"}}, "A variable cannot have the name 'A=B'."),
        ({"env": {"A\0": "x"}}, "The name of a variable contains a NUL"),
        ({"inherit_env": "HOME"}, "inherit_env is a str: give True, False, or a list of names."),
        ({"inherit_env": None}, "inherit_env is None"),
        ({"inherit_env": 1}, "inherit_env is an int"),
        ({"inherit_env": ["A=B"]}, "A variable cannot have the name 'A=B'."),
        ({"inherit_env": [1]}, "The name of a variable is an int"),
        ({"cwd": ""}, "cwd is empty: give the path of a directory, or None for the current one."),
        ({"cwd": 1}, "cwd is an int"),
        ({"cwd": b"/"}, "cwd is a bytes"),
        ({"cwd": "/\0"}, "cwd contains a NUL"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_command(["a"], **options)
    assert said in str(refused.value)


# --- The directory ---


def test_a_directory_stays_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_command(["a"]).cwd is None
    assert read_command(["a"], cwd="b/../c").cwd == f"{tmp_path}/b/../c"
    assert read_command(["a"], cwd=Path("b")).cwd == f"{tmp_path}/b"
    assert read_command(["a"], cwd=tmp_path).cwd == str(tmp_path)


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    program(tmp_path / "bin/server")
    command = on_path("server", tmp_path / "bin", cwd=tmp_path / "away")
    assert f"its directory {tmp_path}/away does not exist." in refusal(command)
    command = on_path("server", tmp_path / "bin", cwd=tmp_path / "bin/server")
    assert f"its directory {tmp_path}/bin/server is not a directory." in refusal(command)


def test_a_current_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    path = program(tmp_path / "bin/server")
    assert find_program(on_path("server", tmp_path / "bin")) == str(path)
    with pytest.raises(ConnectError, match=r"^The current directory no longer exists: choose another"):
        find_program(on_path("server", "bin"))
    with pytest.raises(ConnectError, match=r"^The current directory no longer exists"):
        read_command(["a"], cwd="b")


# --- The search ---


def test_the_first_that_can_be_executed_is_found(tmp_path: Path) -> None:
    program(tmp_path / "a/server", mode=0o644)
    (tmp_path / "b/server").mkdir(parents=True)
    second, third = program(tmp_path / "c/server"), program(tmp_path / "d/server")
    folders = [tmp_path / name for name in ("none", "a", "b", "c", "d")]
    assert find_program(on_path("server", *folders)) == str(second)
    second.unlink()
    assert find_program(on_path("server", *folders)) == str(third)
    third.unlink()
    assert f"{tmp_path}/a/server is not executable: allow it with 'chmod +x" in refusal(on_path("server", *folders))
    assert refusal(on_path("server", *folders)).endswith(f"+x {tmp_path}/a/server', or start it with its interpreter.")


def test_the_path_is_that_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "ours/server")
    theirs = program(tmp_path / "theirs/server")
    monkeypatch.setenv("PATH", f"{tmp_path}/ours")
    assert find_program(read_command(["server"])) == f"{tmp_path}/ours/server"
    assert find_program(read_command(["server"], env={"PATH": f"{tmp_path}/theirs"})) == str(theirs)
    monkeypatch.delenv("PATH")
    assert find_program(read_command(["sh"])) in ("/bin/sh", "/usr/bin/sh")


def test_relative_folders_count_from_where_the_server_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "a/bin/server")
    program(tmp_path / "b/bin/server")
    program(tmp_path / "b/server")
    monkeypatch.chdir(tmp_path / "a")
    assert find_program(on_path("server", "bin")) == f"{tmp_path}/a/bin/server"
    assert find_program(on_path("server", "bin", cwd=tmp_path / "b")) == f"{tmp_path}/b/bin/server"
    assert find_program(on_path("server", "none", "", cwd=tmp_path / "b")) == f"{tmp_path}/b/server"
    assert find_program(on_path("./server", "bin", cwd=tmp_path / "b")) == f"{tmp_path}/b/./server"
    assert find_program(on_path("bin/server", "none")) == f"{tmp_path}/a/bin/server"
    assert find_program(on_path(f"{tmp_path}/b/server", "none")) == f"{tmp_path}/b/server"


@pytest.mark.req("LIF-9")
def test_what_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = refusal(on_path("server", "/no/bin", "", "/no/sbin"))
    assert said.endswith("there is no 'server' in the PATH that it gets: /no/bin, (the current directory), /no/sbin.")
    (tmp_path / "server").write_text("")
    assert refusal(on_path("server", "/no")).endswith(
        f"PATH that it gets: /no. There is the file {tmp_path}/server: to start that, write './server'."
    )
    (tmp_path / "server.py").write_text("")
    assert refusal(on_path("server.py", "/no")).endswith(
        f" There is the file {tmp_path}/server.py: to start that, write 'python server.py'."
    )
    program(tmp_path / "server.py")
    assert refusal(on_path("server.py", "/no")).endswith("to start that, write './server.py'.")
    assert refusal(on_path("localhost:8000", "/no")).endswith(
        "/no. If it is an address, write http://localhost:8000/mcp, or tcp://localhost:8000."
    )
    assert refusal(on_path("localhost:8000/mcp", "/no")).endswith(
        "does not exist. If it is an address, write http://localhost:8000/mcp."
    )
    assert "address" not in refusal(on_path("./localhost:8000", "/no"))
    assert "Arguments are items of their own; or give" in refusal(on_path("python server.py", "/no"))
    assert refusal(on_path("$SERVER", "/no")).endswith("/no. No shell expands the '$' in it.")


@pytest.mark.req("LIF-9")
def test_paths_that_cannot_be_executed(tmp_path: Path) -> None:
    assert f"{tmp_path}/./no does not exist." in refusal(on_path("./no", "", cwd=tmp_path))
    assert refusal(on_path("~/server", cwd=tmp_path)).endswith(
        "/~/server does not exist. No shell expands the '~' in it."
    )
    assert f"{tmp_path} is a directory, not a program." in refusal(on_path(str(tmp_path)))
    file = program(tmp_path / "file", mode=0o600)
    assert f"{file} is not executable: allow it" in refusal(on_path(str(file)))
    assert f"{file}/x cannot be reached: Not a directory." in refusal(on_path(f"{file}/x"))
    (tmp_path / "link").symlink_to("nowhere")
    assert f"{tmp_path}/link is a link to nowhere, which does not exist." in refusal(on_path(f"{tmp_path}/link"))


# --- Programs that are there, and do not start ---


def failure(path: Path | str, **options: Any) -> str:
    """What is said when the system refuses to start the program."""
    command = Command((str(path), *options.pop("arguments", ())), {}, options.get("cwd"))
    try:
        subprocess.Popen(command.argv, executable=str(path), env={}, **options)
    except OSError as error:
        said = str(start_failure(command, str(path), error))
        assert said.startswith(f"The server {str(command)!r} could not be started: ")
        assert said.endswith(".")
        return said
    raise AssertionError


@pytest.mark.req("LIF-9")
def test_programs_that_do_not_start(tmp_path: Path) -> None:
    script = program(tmp_path / "script", "#!/no/such/python -u\nprint()\n")
    assert (
        f"the interpreter of the script {script} does not exist. Its first line is '#!/no/such/python -u'."
        in failure(script)
    )
    script = program(tmp_path / "windows", "#!/bin/sh\r\necho\r\n")
    assert "Its first line is '#!/bin/sh\\r'." in failure(script)
    assert "is neither a program for this machine nor a script" in failure(program(tmp_path / "text", "echo hello\n"))
    folder = tmp_path / "folder"
    folder.mkdir()
    assert f"the system does not allow {folder} to be executed." in failure(folder)
    assert "its arguments and its environment are larger" in failure("/bin/sh", arguments=["x" * 10_000_000])
    assert f"{tmp_path}/gone no longer exists." in failure(tmp_path / "gone")
    assert f"its directory {tmp_path}/gone cannot be entered: No such file" in failure(
        "/bin/sh", cwd=f"{tmp_path}/gone"
    )


def test_a_program_for_another_system(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    sh = Path("/bin/sh").read_bytes()
    start = sh.index(b"/lib")  # the name of its loader
    foreign.write_bytes(sh[:start] + b"/LIB" + sh[start + 4 :])
    foreign.chmod(0o755)
    assert f"the loader that {foreign} needs does not exist here" in failure(foreign)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EAGAIN, "limit of processes is reached"),
        (errno.ENOMEM, "out of memory"),
        (errno.EMFILE, "this process has reached its limit of open files"),
        (errno.ENFILE, "the system's limit of open files is reached"),
        (errno.ETXTBSY, "Text file busy."),
        (None, "odd."),
    ],
)
def test_systems_that_cannot(number: int | None, said: str) -> None:
    error = OSError(number, os.strerror(number)) if number else OSError("odd")
    assert said in str(start_failure(Command(("a",), {}), "/a", error))
