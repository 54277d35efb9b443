"""``mcplumb view``: the address it prints, how it ends, and how it is used wrongly."""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cli.kit import PYTHON, mcplumb
from tests.cli.reading import Watched, path_with_mcplumb
from tests.kit.loop import PATIENCE, blocking_until


def viewing(*words: str, cwd: Path | None = None) -> Watched:
    return Watched([PYTHON, "-m", "mcplumb", "view", *words], cwd=cwd)


def get(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE) as response:  # noqa: S310 - an address of this machine
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.mark.req("VIW-1")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_the_printed_address_until_a_signal(number: int) -> None:
    with viewing("--no-browser") as running:
        url = "http://127.0.0.1:" + running.wait_for("http://127.0.0.1:")
        status, page = get(url)
        assert status == 200
        assert b"mcplumb view" in page
        assert get(url.rpartition("/")[0].rpartition("/")[0] + "/")[0] == 403
        running.send_signal(number)
        assert running.wait(PATIENCE) == 128 + number
        assert "Traceback" not in "\n".join(running.said)


def test_the_browser_gets_an_address_that_works_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users of the machine see the arguments of a browser."""
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{tmp_path}/new"; mv "{tmp_path}/new" "{tmp_path}/opened"\n')
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    monkeypatch.setenv("PATH", path_with_mcplumb(tmp_path))
    with viewing() as running:
        url = "http://127.0.0.1:" + running.wait_for("http://127.0.0.1:")
        running.wait_for("browser")
        blocking_until((tmp_path / "opened").exists, "the browser")
        opened = (tmp_path / "opened").read_text().strip()
        assert url.split("/")[3] not in opened
        status, page = get(opened)
        assert status == 200
        assert b"mcplumb view" in page
        assert get(opened)[0] == 403


def test_a_port_that_is_taken_is_said_to_be() -> None:
    with viewing("--no-browser") as running:
        port = running.wait_for("http://127.0.0.1:").partition("/")[0]
        done = mcplumb("view", "--no-browser", "--port", port)
    assert done.code == 3
    assert "in use" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing.mcp.jsonl"], "nothing.mcp.jsonl"),
        (["--timeout", "3"], "--timeout is for a server: name it with -s or after --."),
        ([str(Path(__file__)), "-s", "tcp://127.0.0.1:1"], "Name a recording, or a server with -s or after --"),
        (["--port", "70000"], "70000"),
    ],
)
def test_wrong_usage_is_explained(words: list[str], said: str) -> None:
    done = mcplumb("view", "--no-browser", *words)
    assert done.code == 2
    assert said in done.err


def test_with_a_server_it_begins_at_the_workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with viewing("--no-browser", "--", PYTHON, "-c", "import sys; sys.stdin.read()", cwd=tmp_path) as running:
        assert running.wait_for("http://127.0.0.1:").endswith("/#/workbench")
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE) == 128 + signal.SIGINT


def test_a_browser_that_stays_does_not_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(
        f'#!/bin/sh\necho $$ > "{opened}.new"; mv "{opened}.new" "{opened}"\nexec sleep 60 > /dev/null 2>&1\n'
    )
    browser.chmod(0o700)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    with viewing() as running:
        running.wait_for("Ctrl-C ends it")
        blocking_until(opened.exists, "the browser")
        try:
            running.send_signal(signal.SIGINT)
            assert running.wait(PATIENCE) == 128 + signal.SIGINT
        finally:
            os.kill(int(opened.read_text()), signal.SIGKILL)
