"""Finding the server in a file, and saying why it cannot be found."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from mcplumb.cli.commands.serve_file import CannotLoad, find_file, load_server
from mcplumb.errors import UsageError
from mcplumb.server.server import Server


@pytest.fixture(autouse=True)
def _own_modules() -> Iterator[None]:
    """What a test imports is gone after it."""
    modules, path, run = dict(sys.modules), list(sys.path), Server.run
    yield
    assert Server.run is run
    sys.modules.clear()
    sys.modules.update(modules)
    sys.path[:] = path


def write(folder: Path, text: str, name: str = "weather.py") -> str:
    path = folder / name
    path.write_text(dedent(text), encoding="utf-8")
    return str(path)


def refusal(target: str) -> str:
    with pytest.raises(UsageError) as caught:
        load_server(target)
    return str(caught.value)


ONE = """
from mcplumb import Server
server = Server("weather")
"""
TWO = """
from mcplumb import Server
first = Server("first")
second = Server("second")
"""


def test_the_only_server_of_a_file_is_found(tmp_path: Path) -> None:
    assert load_server(write(tmp_path, ONE)).name == "weather"


def test_a_server_may_have_several_names(tmp_path: Path) -> None:
    assert load_server(write(tmp_path, ONE + "app = server\n")).name == "weather"


@pytest.mark.parametrize("name", ["first", "second"])
def test_a_server_may_be_named(tmp_path: Path, name: str) -> None:
    assert load_server(f"{write(tmp_path, TWO)}:{name}").name == name


def test_a_path_may_have_colons(tmp_path: Path) -> None:
    folder = tmp_path / "a:b"
    folder.mkdir()
    path = write(folder, TWO, "c:d.py")
    assert load_server(f"{path}:first").name == "first"
    assert "several servers" in refusal(path)


def test_a_relative_path_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, ONE)
    monkeypatch.chdir(tmp_path)
    assert load_server("weather.py").name == "weather"


def test_its_neighbours_can_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "NAME = 'from a neighbour'", "neighbour_of_weather.py")
    write(tmp_path, "from mcplumb import Server\nimport neighbour_of_weather\ns = Server(neighbour_of_weather.NAME)")
    monkeypatch.chdir("/")
    assert load_server(str(tmp_path / "weather.py")).name == "from a neighbour"


def test_it_may_be_a_program_of_its_own(tmp_path: Path) -> None:
    """What it does only when it is run is not done."""
    text = ONE + "if __name__ == '__main__':\n    raise SystemExit('run')\n"
    assert load_server(write(tmp_path, text)).name == "weather"


@pytest.mark.parametrize("ends_with", ["server.run()", "server.run(trace=True)"])
def test_a_file_that_runs_its_server_at_once_is_not_run_twice(tmp_path: Path, ends_with: str) -> None:
    path = write(tmp_path, TWO + ends_with.replace("server", "second") + "\nraise RuntimeError('not reached')\n")
    assert load_server(path).name == "second"
    assert load_server(f"{path}:first").name == "first"


def test_its_classes_know_their_module(tmp_path: Path) -> None:
    """Annotations that are texts are looked up there."""
    text = """
    from __future__ import annotations
    from dataclasses import dataclass
    from mcplumb import Server

    server = Server("weather")

    @dataclass
    class City:
        name: str

    @server.tool
    def forecast(city: City) -> str:
        return city.name
    """
    assert load_server(write(tmp_path, text)).name == "weather"


@pytest.mark.parametrize("name", ["nothing.py", "nothing.py:server", "", ":server"])
def test_a_file_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(name).startswith("There is no file ")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert refusal(str(tmp_path)).startswith("There is no file ")


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    assert refusal(write(tmp_path, "x", "weather.txt")).endswith("cannot be imported: its name must end in .py.")


def test_a_file_without_a_server(tmp_path: Path) -> None:
    said = refusal(write(tmp_path, "x = 5"))
    assert said.endswith("has no server at its top level. Make one with: server = Server('name')")


def test_a_file_with_several_servers(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    assert refusal(path).endswith(f"has several servers at its top level. Choose one: {path}:first, {path}:second.")


def test_a_name_that_is_not_there(tmp_path: Path) -> None:
    path = write(tmp_path, ONE)
    assert refusal(f"{path}:app").endswith(f"has no server 'app'. Choose one: {path}:server.")


def test_a_name_of_something_else(tmp_path: Path) -> None:
    path = write(tmp_path, f"{ONE}app = 5")
    assert refusal(f"{path}:app").endswith(f"has no server 'app': it is of the type int. Choose one: {path}:server.")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\n\nx = 1 / 0\n", "Line 3: ZeroDivisionError: division by zero"),
        ("import nothing_of_this_name\n", "Line 1: ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("x = 1\nx = = 2\n", "Line 2: invalid syntax."),
        ("import sys\nsys.exit('no')\n", "Line 2: SystemExit: no"),
        (
            "from mcplumb import Server\nServer('x', page_size=0)\n",
            "Line 2: The page size is 0: it must be at least 1.",
        ),
        ("def f():\n    raise KeyError('a')\n\nf()\n", "Line 2: KeyError: 'a'"),
    ],
)
def test_a_file_that_fails_says_where_and_why(tmp_path: Path, text: str, words: str) -> None:
    said = refusal(write(tmp_path, text))
    assert said == f"{tmp_path / 'weather.py'} cannot be imported. {words}"


def test_a_mistake_in_a_neighbour_is_the_neighbour_s(tmp_path: Path) -> None:
    other = write(tmp_path, "x = 1\nx = = 2\n", "broken_neighbour.py")
    said = refusal(write(tmp_path, "import broken_neighbour\n"))
    assert said == f"{tmp_path / 'weather.py'} cannot be imported. Line 2 of {other}: invalid syntax."


def test_what_a_neighbour_raises_is_shown_where_it_is_raised(tmp_path: Path) -> None:
    other = write(tmp_path, "def helps():\n    return 1 / 0\n", "failing_neighbour.py")
    said = refusal(write(tmp_path, "import failing_neighbour\nfailing_neighbour.helps()\n"))
    assert said.endswith(f" cannot be imported. Line 2 of {other}: ZeroDivisionError: division by zero")


def test_what_an_installed_package_raises_is_shown_where_it_is_used(tmp_path: Path) -> None:
    packages = tmp_path / ".venv" / "site-packages"
    packages.mkdir(parents=True)
    write(packages, "raise RuntimeError('no licence')\n", "failing_package.py")
    said = refusal(write(tmp_path, f"import sys\nsys.path.append({str(packages)!r})\nimport failing_package\n"))
    assert said.endswith(" cannot be imported. Line 3: RuntimeError: no licence")


def test_what_was_raised_is_the_cause(tmp_path: Path) -> None:
    with pytest.raises(CannotLoad) as caught:
        load_server(write(tmp_path, "x = 1 / 0"))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert find_file(f"{tmp_path / 'weather.py'}:app") == (tmp_path / "weather.py", "app")


def test_code_that_comes_from_no_file(tmp_path: Path) -> None:
    assert "invalid syntax" in refusal(write(tmp_path, "exec('x = = 2')"))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "weather.py"
    path.write_bytes(b"x = '\xff\xfe'")
    assert "cannot be imported" in refusal(str(path))


def test_a_file_with_null_bytes_has_no_lines_to_name(tmp_path: Path) -> None:
    path = tmp_path / "weather.py"
    path.write_bytes(b"x = 1\0")
    assert "cannot be imported" in refusal(str(path))


def test_an_interrupt_is_for_the_program(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        load_server(write(tmp_path, "raise KeyboardInterrupt"))
