"""An entry as it is used: variables, paths, inputs, consent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcplumb import connect
from mcplumb.config import ConfigError, Input, NotTrusted, ServerEntry, discover_config
from mcplumb.config.trust import remember
from tests.config.writing import entry, write

COMMAND = {"command": "x", "args": ["a"]}


def found(project: Path, raw: Any, **more: Any) -> ServerEntry:
    """The one server of a project."""
    return discover_config(write(project / ".mcp.json", {"mcpServers": {"it": raw}, **more}).parent)["it"]


def test_a_command(project: Path) -> None:
    assert entry(project, COMMAND).connect_arguments() == (["x", "a"], {"cwd": str(project)})
    raw = {**COMMAND, "env": {"A": "1"}, "inheritEnv": ["B"], "cwd": "sub"}
    options = {"env": {"A": "1"}, "inherit_env": ("B",), "cwd": f"{project}/sub"}
    assert entry(project, raw).connect_arguments() == (["x", "a"], options)
    assert entry(project, {**COMMAND, "cwd": "/abs"}).connect_arguments()[1]["cwd"] == "/abs"


def test_the_users_own_start_where_the_user_is(home: Path, project: Path) -> None:
    write(home / ".cursor" / "mcp.json", {"mcpServers": {"a": COMMAND, "b": {**COMMAND, "cwd": "sub"}}})
    config = discover_config()
    assert config["a"].connect_arguments() == (["x", "a"], {})
    assert config["b"].connect_arguments()[1] == {"cwd": f"{project}/sub"}


def test_an_address(project: Path) -> None:
    assert entry(project, {"url": "https://x.y/mcp"}).connect_arguments() == ("https://x.y/mcp", {})
    raw = {"type": "sse", "url": "https://x.y/sse", "headers": {"A": "b"}}
    assert entry(project, raw).connect_arguments() == ("https://x.y/sse", {"headers": {"A": "b"}, "http_sse": True})
    assert entry(project, {"url": "unix:/run/x.sock"}).connect_arguments() == ("unix:/run/x.sock", {})
    assert entry(project, {"url": "tcp://127.0.0.1:1"}).connect_arguments() == ("tcp://127.0.0.1:1", {})


def test_variables_everywhere(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("V", "1")
    write(project / "1.env", "A=file\nB=file")
    raw = {
        "command": "~/bin/${V}",
        "args": ["${workspaceFolder}", "${env:V}"],
        "env": {"A": "${V}"},
        "envFile": "${V}.env",
        "cwd": "~/${V}",
    }
    argv, options = entry(project, raw).connect_arguments()
    assert argv == [f"{home}/bin/1", str(project), "1"]
    assert options == {"env": {"A": "1", "B": "file"}, "cwd": f"{home}/1"}
    url = {"url": "http://${V}.x/", "headers": {"A": "${V}"}}
    assert entry(project, url).connect_arguments() == ("http://1.x/", {"headers": {"A": "1"}})


def test_claude_desktop_expands_nothing(project: Path) -> None:
    raw = {"command": "sh", "args": ["-c", "echo ${GONE}"]}
    assert entry(project, raw, file="claude_desktop_config.json").resolve().argv == ("sh", "-c", "echo ${GONE}")


def test_gemini_has_names_without_braces(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("V", "1")
    raw = {"command": "x", "env": {"A": "$V", "B": "$GONE"}}
    assert entry(project, raw, file=".gemini/settings.json").resolve().env == {"A": "1", "B": "$GONE"}
    assert entry(project, raw).resolve().env == {"A": "$V", "B": "$GONE"}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"command": "${GONE}"}, ": it needs the variable GONE, which is not set in the environment."),
        (
            {"command": "${GONE}", "args": ["${NOT}"], "envFile": "${GONE}/x"},
            ": it needs the variables GONE, NOT, which are not set in the environment.",
        ),
        (
            {"command": "x", "env": {"A": "${config:b}"}},
            ", key 'env.A': mcplumb does not know what ${config:b} means. To keep it literally, write $${config:b}.",
        ),
        (
            {"command": "x", "env": {"A": "${input:my-key}"}},
            ": it needs the input 'my-key'. Use it in a terminal, where you are asked, or set MCPLUMB_INPUT_MY_KEY.",
        ),
        ({"command": "x", "envFile": "gone.env"}, ", key 'envFile': there is no file {project}/gone.env."),
        ({"url": "x"}, ", key 'url': it is not an address: it must begin with http:// or https://."),
        (
            {"url": "http:/x?key=secret"},
            ", key 'url': The address 'http:/x?…' cannot be used: it must begin with http://.",
        ),
        (
            {"url": "tcp://x:1", "headers": {"A": "b"}},
            ", key 'url': only an http:// or https:// address has headers, or is of the type sse.",
        ),
        (
            {"url": "unix:/x", "type": "sse"},
            ", key 'url': only an http:// or https:// address has headers, or is of the type sse.",
        ),
    ],
)
def test_what_cannot_be_used_is_told(project: Path, raw: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        entry(project, raw).connect_arguments()
    assert str(caught.value) == f"In {project}/servers.json, server 'it'{said.replace('{project}', str(project))}"


def test_vs_code_means_http_by_a_unix_address(project: Path) -> None:
    with pytest.raises(ConfigError, match="mcplumb does not speak HTTP over Unix sockets"):
        entry(project, {"url": "unix:///x"}, file=".vscode/mcp.json").connect_arguments()


def test_a_pipe_is_no_file_with_variables(project: Path) -> None:
    import os

    os.mkfifo(project / "pipe")
    with pytest.raises(ConfigError, match="there is no file"):
        entry(project, {"command": "x", "envFile": "pipe"}).resolve()


def test_what_is_missing(project: Path) -> None:
    raw = {"command": "x", "env": {"A": "${GONE}", "B": "${input:key}", "C": "${input:more}"}}
    one = entry(project, raw, inputs=[{"id": "key", "description": "The key"}])
    assert one.missing() == ["GONE"]
    assert one.unanswered_inputs() == [Input("key", "The key"), Input("more")]


def test_inputs_are_answered_or_in_the_environment(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = {"command": "x", "env": {"A": "${input:my-key}", "B": "${input:b}"}}
    one = entry(project, raw, inputs=[{"id": "my-key", "description": "The key"}])
    with pytest.raises(ConfigError, match=r"it needs the input 'my-key' \(The key\)"):
        one.resolve()
    monkeypatch.setenv("MCPLUMB_INPUT_MY_KEY", "1")
    answered = one.with_answers({"b": "2"})
    assert answered.resolve().env == {"A": "1", "B": "2"}
    assert answered.unanswered_inputs() == []
    assert answered.with_answers({"my-key": "3"}).resolve().env == {"A": "3", "B": "2"}


def test_secrets_are_not_in_what_is_logged(project: Path) -> None:
    one = entry(project, {"command": "x", "args": ["hunter2"], "env": {"A": "hunter2"}})
    assert "hunter2" not in repr(one) + repr(one.resolve())
    assert repr(one) == f"<ServerEntry 'it' of {project}/servers.json>"
    assert "hunter2" not in repr(entry(project, {"url": "http://hunter2"}).resolve())


def test_a_projects_server_needs_consent(project: Path) -> None:
    one = found(project, COMMAND)
    with pytest.raises(NotTrusted) as caught:
        one.connect_arguments()
    assert str(caught.value) == (
        f"In {project}/.mcp.json, server 'it': a project's file wants to start a command, and you have not agreed to "
        "that. Use it once in a terminal, where you are asked: mcplumb probe -s it. Or allow it with --yes, or name "
        "the file: --config on the command line, load_config(path) in Python."
    )
    with pytest.raises(NotTrusted, match="wants to use an address"):
        found(project, {"url": "http://x"}).connect_arguments()
    with pytest.raises(NotTrusted):
        connect(one)
    assert one.with_consent().connect_arguments() == (["x", "a"], {"cwd": str(project)})
    assert not one.is_allowed()
    remember(one.digest(), name=one.name, source=one.source)
    assert one.is_allowed()
    assert one.connect_arguments() == (["x", "a"], {"cwd": str(project)})


def test_consent_is_for_a_server_as_it_is(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw: dict[str, Any] = {"command": "${TOOL:-x}", "env": {"KEY": "${KEY:-}", "B": "${input:b}"}, "envFile": ".env"}
    write(project / ".env", "A=1")
    one = found(project, raw)
    digest = one.digest()
    # What the user's environment says of secrets may change, and answers may.
    monkeypatch.setenv("KEY", "rotated")
    assert one.digest() == one.with_answers({"b": "2"}).digest() == digest
    # Nothing that the project says may, nor the command that it means.
    monkeypatch.setenv("TOOL", "y")
    assert one.digest() != digest
    monkeypatch.delenv("TOOL")
    write(project / ".env", "A=1\nLD_PRELOAD=evil.so")
    assert one.digest() != digest
    write(project / ".env", "A=1")
    changes: list[dict[str, Any]] = [{"args": ["z"]}, {"env": {"KEY": "x"}}, {"cwd": "sub"}, {"unknown": 1}]
    for change in changes:
        assert found(project, {**raw, **change}).digest() != digest
    assert msgspec.structs.replace(one, name="other").digest() != digest
    assert msgspec.structs.replace(one, source="/other/.mcp.json").digest() != digest
    assert found(project, dict(reversed(raw.items()))).digest() == digest


def test_a_file_with_variables_that_changes_at_the_last_moment(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project / ".env", "A=1")
    one = found(project, {**COMMAND, "envFile": ".env"})
    remember(one.digest(), name=one.name, source=one.source)
    assert one.connect_arguments()[1]["env"] == {"A": "1"}
    usable = ServerEntry.resolve

    def late(self: ServerEntry) -> Any:
        write(project / ".env", "LD_PRELOAD=evil.so")
        return usable(self)

    monkeypatch.setattr(ServerEntry, "resolve", late)
    with pytest.raises(NotTrusted):
        one.connect_arguments()


def test_what_to_type_is_quoted(project: Path) -> None:
    write(project / ".mcp.json", {"mcpServers": {"a; rm x": COMMAND}})
    with pytest.raises(NotTrusted, match="mcplumb probe -s 'a; rm x'"):
        discover_config()["a; rm x"].connect_arguments()


def test_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    write(folder / ".mcp.json", {"mcpServers": {"it": COMMAND}})
    one = discover_config(folder)["it"]
    assert not one.is_allowed()
    remember(one.digest(), name=one.name, source=one.source)
    assert one.is_allowed()


def test_values_that_are_too_deep_to_be_told(project: Path) -> None:
    one = found(project, COMMAND)
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ConfigError, match="nested too deeply"):
        msgspec.structs.replace(one, raw={"x": deep}).digest()
