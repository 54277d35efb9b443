from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.config.files import ConfigError
from mcplumb.config.json_spans import parse_spans
from mcplumb.tap.wrap_entry import is_wrapped, unwrap_entry, wrap_entry

TAP = ["/usr/bin/mcplumb"]
MODULE = ["/usr/bin/python3", "-m", "mcplumb"]

COMMENTED = """\ufeff{
  // the servers of this machine
  "mcpServers": {
    "other": {"command": "x",},
    "weather": { /* mine */ "args" : [ // first
        "-u", "weather.py" , ],   "env": {"TOKEN": "abc"},
      "command":"py\\u0074hon"   // a program
    },
  },
}
"""


def servers(**entry: Any) -> str:
    return json.dumps({"mcpServers": {"weather": entry}}, indent=2)


TEXTS = {
    "plain": servers(command="python", args=["weather.py"]),
    "compact": json.dumps({"mcpServers": {"weather": {"args": ["a"], "command": "b"}}}, separators=(",", ":")),
    "no arguments": servers(command="weather", env={"A": "b"}),
    "no arguments, compact": '{"mcpServers":{"weather":{"env":{},"command":"x"}}}',
    "empty arguments": servers(command="weather", args=[]),
    "empty arguments before": servers(args=[], command="weather"),
    "spaced empty arguments": '{"mcpServers": {"weather": {"args": [ ], "command": "x"}}}',
    "comments": COMMENTED,
    "a list as the command": servers(command=["python", "weather.py"]),
    "VS Code": json.dumps({"inputs": [], "servers": {"weather": {"type": "stdio", "command": "x", "args": ["y"]}}}),
    "settings of VS Code": json.dumps({"mcp": {"servers": {"weather": {"command": "x", "args": ["--", "y"]}}}}),
    "Windows line ends": servers(command="python", args=["weather.py"]).replace("\n", "\r\n"),
    "a tap of its own": servers(command="tap", args=["tap", "--", "x"]),
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("tap", [TAP, MODULE])
def test_wrapping_is_undone_byte_for_byte(name: str, tap: list[str]) -> None:
    text = TEXTS[name]
    assert not is_wrapped(text, "f", "weather")
    wrapped = wrap_entry(text, "f", "weather", tap)
    assert is_wrapped(wrapped, "f", "weather")
    assert unwrap_entry(wrapped, "f", "weather") == text


def test_the_command_becomes_an_argument() -> None:
    wrapped = json.loads(wrap_entry(TEXTS["plain"], "f", "weather", TAP))["mcpServers"]["weather"]
    assert wrapped == {
        "command": "/usr/bin/mcplumb",
        "args": ["tap", "--name", "weather", "--", "python", "weather.py"],
    }
    wrapped = json.loads(wrap_entry(TEXTS["no arguments"], "f", "weather", MODULE))["mcpServers"]["weather"]
    assert wrapped["command"] == "/usr/bin/python3"
    assert wrapped["args"] == ["-m", "mcplumb", "tap", "--name=weather", "--", "weather"]
    assert wrapped["env"] == {"A": "b"}
    wrapped = json.loads(wrap_entry(TEXTS["a list as the command"], "f", "weather", TAP))["mcpServers"]["weather"]
    assert wrapped["command"] == ["/usr/bin/mcplumb", "tap", "--name", "weather", "--", "python", "weather.py"]


def test_comments_and_formatting_stay() -> None:
    wrapped = wrap_entry(COMMENTED, "f", "weather", TAP)
    assert (
        '"args" : ["tap", "--name", "weather", "--", "py\\u0074hon",  // first\n        "-u", "weather.py" , ],'
        in wrapped
    )
    assert '"command":"/usr/bin/mcplumb"   // a program' in wrapped


@pytest.mark.parametrize("name", ["plain", "no arguments", "empty arguments", "a list as the command"])
def test_a_host_may_format_the_file_in_between(name: str) -> None:
    text = TEXTS[name]
    wrapped = json.dumps(json.loads(wrap_entry(text, "f", "weather", TAP)), indent=8)
    found = json.loads(unwrap_entry(wrapped, "f", "weather"))["mcpServers"]["weather"]
    was = json.loads(text)["mcpServers"]["weather"]
    assert {"args": [], **found} == {"args": [], **was}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"url": "http://x"}, "it is at an address"),
        ({"url": "https://x/a/mcp?key=1"}, r"-s https://x/a/mcp\?key=\*\*\*', .* use http://127.0.0.1:9000/a/mcp"),
        ({"httpUrl": "https://x/b"}, "-s https://x/b', .* use http://127.0.0.1:9000/b"),
        ({"url": "https://me:pw@h/mcp/sk-abcdefghijklmnopqrstuvwx"}, r"^((?!pw@|sk-abc).)*$"),
        ({"url": "http://[x"}, "it is at an address"),
        ({"url": 5}, "-s ADDRESS', .* use http://127.0.0.1:9000 instead"),
        ({"command": None}, "must be a string"),
        ({"command": []}, "must be a string"),
        ({"command": {"x": "y"}}, "must be a string"),
        ({"command": "x", "args": None}, "must be a list"),
    ],
)
def test_what_cannot_be_wrapped_is_reported(entry: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        wrap_entry(servers(**entry), "f", "weather", TAP)


def test_wrong_states_are_reported() -> None:
    with pytest.raises(ConfigError, match="not wrapped"):
        unwrap_entry(TEXTS["plain"], "f", "weather")
    with pytest.raises(ConfigError, match="wrapped already"):
        wrap_entry(wrap_entry(TEXTS["plain"], "f", "weather", TAP), "f", "weather", TAP)
    with pytest.raises(ConfigError, match="no such server"):
        wrap_entry(TEXTS["plain"], "f", "notes", TAP)
    with pytest.raises(ConfigError, match="not valid JSON"):
        wrap_entry("{", "f", "notes", TAP)
    assert not is_wrapped(servers(url="http://x"), "f", "weather")


def test_a_part_of_a_file_is_found() -> None:
    text = json.dumps({"projects": {"/x": {"mcpServers": {"weather": {"command": "a", "args": ["b"]}}}}})
    wrapped = wrap_entry(text, "f", "weather", TAP, ("projects", "/x"))
    assert unwrap_entry(wrapped, "f", "weather", ("projects", "/x")) == text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@given(
    value=VALUES, indent=st.none() | st.integers(0, 4), args=st.none() | st.lists(st.text(max_size=6), max_size=3),
    command=st.text(min_size=1, max_size=6), is_ascii=st.booleans(), is_first=st.booleans(),
)  # fmt: skip
def test_any_entry_is_put_back(
    value: Any, indent: int | None, args: list[str] | None, command: str, *, is_ascii: bool, is_first: bool
) -> None:
    entry: dict[str, Any] = {"env": value, "command": command}
    if args is not None:
        entry = {"args": args, **entry} if is_first else {**entry, "args": args}
    text = json.dumps({"x": value, "mcpServers": {"weather": entry, "y": value}}, indent=indent, ensure_ascii=is_ascii)
    if not text.isprintable() and any("\ud800" <= c <= "\udfff" for c in text):
        return
    wrapped = wrap_entry(text, "f", "weather", TAP)
    assert unwrap_entry(wrapped, "f", "weather") == text
    found = json.loads(wrapped)["mcpServers"]["weather"]
    assert found["args"][found["args"].index("--") + 1 :] == [command, *(args or [])]


@given(value=VALUES, indent=st.none() | st.integers(0, 3))
def test_spans_are_where_the_values_are(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)

    def check(span: Any, inner: Any) -> None:
        assert json.loads(text[span.start : span.end]) == inner
        if isinstance(inner, dict):
            assert list(span.members) == list(inner)
            for key, (start, member) in span.members.items():
                assert json.JSONDecoder().raw_decode(text, start)[0] == key
                check(member, inner[key])
        elif isinstance(inner, list):
            for item, one in zip(span.items, inner, strict=True):
                check(item, one)

    check(parse_spans(text), value)


def test_the_command_line_wraps_and_unwraps(tmp_path: Path) -> None:
    from tests.cli.kit import mcplumb

    file = tmp_path / "mcp.json"
    file.write_text(COMMENTED)
    file.chmod(0o640)
    refused = mcplumb("wrap", "weather", "--config", str(file))
    assert refused.code == 2
    assert "--yes" in refused.err
    assert file.read_text() == COMMENTED
    done = mcplumb("wrap", "weather", "--config", str(file), "--yes")
    assert done.code == 0, done.err
    assert '+    "weather"' in done.out
    assert file.stat().st_mode & 0o777 == 0o640
    backup = tmp_path / "mcp.json.before-wrap"
    assert backup.read_text() == COMMENTED
    assert mcplumb("wrap", "weather", "--config", str(file), "--yes").code == 2
    done = mcplumb("unwrap", "weather", "--config", str(file), "--yes")
    assert done.code == 0, done.err
    assert file.read_text() == COMMENTED
    assert not backup.exists()
    assert mcplumb("unwrap", "weather", "--config", str(file), "--yes").code == 2
    assert "no server 'nothing'" in mcplumb("wrap", "nothing", "--config", str(file), "-y").err


def test_a_file_that_changes_while_the_user_is_asked_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcplumb.cli.commands import wrap
    from tests.cli.kit import here

    file = tmp_path / "mcp.json"
    file.write_text(COMMENTED)
    changed = COMMENTED.replace("abc", "def")

    def agree(*_: Any, **__: Any) -> bool:
        file.write_text(changed)
        return True

    monkeypatch.setattr(wrap, "is_terminal", lambda: True)
    monkeypatch.setattr(click, "confirm", agree)
    done = here("wrap", "weather", "--config", str(file))
    assert done.code == 2
    assert "changed by another program" in done.err
    assert file.read_text() == changed
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_and_its_file_is_changed(tmp_path: Path) -> None:
    from tests.cli.kit import here

    file, link = tmp_path / "real.json", tmp_path / "link.json"
    file.write_text(COMMENTED)
    file.chmod(0o440)
    link.symlink_to(file)
    assert here("wrap", "weather", "--config", str(link), "-y").code == 0
    assert link.is_symlink()
    assert "tap" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o440
    assert here("unwrap", "weather", "--config", str(link), "-y").code == 0
    assert link.is_symlink()
    assert file.read_text() == COMMENTED
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_the_copy_is_not_written_through_a_link(tmp_path: Path) -> None:
    """A project of somebody else may have a link of that name, and in its config what suits the file it leads to."""
    from tests.cli.kit import here

    file, backup, other = tmp_path / "mcp.json", tmp_path / "mcp.json.before-wrap", tmp_path / "other"
    file.write_text(COMMENTED)
    other.write_text("keep")
    backup.symlink_to(other)
    assert here("wrap", "weather", "--config", str(file), "-y").code == 0
    assert other.read_text() == "keep"
    assert not backup.is_symlink()
    assert backup.read_text() == COMMENTED


def test_the_file_of_a_host_is_found_by_the_name(tmp_path: Path) -> None:
    from tests.cli.kit import mcplumb

    home = tmp_path / "home"
    cursor = home / ".cursor" / "mcp.json"
    cursor.parent.mkdir(parents=True)
    cursor.write_text(TEXTS["plain"])
    claude = home / ".claude.json"
    project = tmp_path / "project"
    project.mkdir()
    claude.write_text(json.dumps({"projects": {str(project): {"mcpServers": {"notes": {"command": "a"}}}}}))
    noted = claude.read_text()
    env = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "CLAUDE_CONFIG_DIR": ""}
    for name, file in (("weather", cursor), ("notes", claude)):
        before = file.read_text()
        assert mcplumb("wrap", name, "-y", cwd=project, env=env).code == 0
        assert "tap" in file.read_text()
        assert mcplumb("unwrap", name, "-y", cwd=project, env=env).code == 0
        assert file.read_text() == before
    # The part for a project is found in a file that is named, too.
    assert mcplumb("wrap", "notes", "-y", "--config", str(claude), cwd=project, env=env).code == 0
    assert "tap" in claude.read_text()
    assert mcplumb("unwrap", "notes", "-y", "--config", str(claude), cwd=home, env=env).code == 2
    assert mcplumb("unwrap", "notes", "-y", "--config", str(claude), cwd=project, env=env).code == 0
    assert claude.read_text() == noted
    assert "no server 'other'" in mcplumb("wrap", "other", "-y", cwd=project, env=env).err


@pytest.mark.parametrize("order", [("weather", "other"), ("other", "weather")])
def test_the_copy_is_of_the_file_without_any_tap(tmp_path: Path, order: tuple[str, str]) -> None:
    from tests.cli.kit import mcplumb

    file, backup = tmp_path / "mcp.json", tmp_path / "mcp.json.before-wrap"
    file.write_text(COMMENTED)
    for name in ("weather", "other"):
        assert mcplumb("wrap", name, "--config", str(file), "--yes").code == 0
        assert backup.read_text() == COMMENTED
    for name in order:
        assert mcplumb("unwrap", name, "--config", str(file), "--yes").code == 0
    assert file.read_text() == COMMENTED
    assert not backup.exists()
    # A copy of another state of the file is replaced.
    backup.write_text("{}")
    assert mcplumb("wrap", "weather", "--config", str(file), "--yes").code == 0
    assert backup.read_text() == COMMENTED


def test_the_change_is_shown_before_it_is_made(tmp_path: Path) -> None:
    from tests.cli.kit import on_terminal

    file = tmp_path / "mcp.json"
    file.write_text(COMMENTED)
    seen: list[str] = []

    def answer(text: str, shown: str) -> str:
        assert '"command":"py\\u0074hon"' in shown
        seen.append(file.read_text())
        return text

    for command, reply, outcome in (
        ("wrap", "n\n", "Nothing was changed."),
        ("wrap", "y\n", "Changed."),
        ("unwrap", "n\n", "Nothing was changed."),
        ("unwrap", "y\n", "Changed back."),
    ):
        before = file.read_text()
        typed = [("Change the file?", partial(answer, reply))]
        done = on_terminal(command, "weather", "--config", str(file), typed=typed, columns=300)
        assert done.code == 0, done.out
        assert outcome in done.out
        assert seen.pop() == before
        assert (file.read_text() == before) == (reply == "n\n")
    assert file.read_text() == COMMENTED
