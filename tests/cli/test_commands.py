"""The commands, as they are typed."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from mcpipe.cli.commands import cli, serve
from mcpipe.errors import UsageError
from tests.server.harness import lines, standard_streams, text_of

FILE = """
import os
print("while it is imported")
from mcpipe import Server

server = Server("weather")

@server.tool
def forecast(city: str) -> str:
    print("while it runs")
    os.write(1, b"even so\\n")
    return f"sun in {city}"

other = Server("other")
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "weather_to_serve.py"
    path.write_text(FILE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "weather_to_serve", None)
    return str(path)


CALL: dict[str, Any] = {"method": "tools/call", "params": {"name": "forecast", "arguments": {"city": "Oslo"}}}


def invoke(*arguments: str) -> list[dict[str, Any]]:
    """What ``serve`` answers to one call and the end of the input."""
    with standard_streams() as streams:
        streams.feed(lines(CALL))
        streams.end()
        serve.main(list(arguments), prog_name="mcpipe serve", standalone_mode=False)
        return streams.messages()


@pytest.mark.req("FRM-2")
def test_serve_runs_the_server_of_a_file_and_keeps_its_output_clean(file: str) -> None:
    (answer,) = invoke(f"{file}:server")
    assert text_of(answer["result"]) == "sun in Oslo"


def test_serve_traces_if_it_is_asked_to(file: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mcpipe.trace")
    invoke(f"{file}:server", "--trace", "--log-format", "plain")
    assert [record.getMessage()[:3] for record in caplog.records if record.name == "mcpipe.trace"] == ["<--", "-->"]


@pytest.mark.parametrize(("target", "words"), [("", "several servers"), (":nothing", "has no 'nothing'")])
def test_serve_says_which_server_it_wants(file: str, target: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        invoke(f"{file}{target}")


def test_serve_refuses_what_it_does_not_know(file: str) -> None:
    with pytest.raises(click.UsageError, match="'fancy' is not one of 'human', 'plain'"):
        invoke(file, "--log-format", "fancy")
    with pytest.raises(click.UsageError, match="Missing"):
        invoke()


def test_help_says_what_the_commands_do() -> None:
    runner = CliRunner()
    result = runner.invoke(cli, ["serve", "--help"], prog_name="mcpipe")
    assert result.exit_code == 0
    assert "Usage: mcpipe serve [OPTIONS] FILE[:NAME]" in result.output
    for word in ("--trace", "--log-format", "mcpipe serve weather.py:server --trace"):
        assert word in result.output
    assert runner.invoke(cli, [], prog_name="mcpipe").output.startswith("Usage: mcpipe")
