"""What a server writes to stderr: always read, shown where it is wanted, kept for diagnosis, and never an error."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from mcplumb import ConnectError, RequestLost, UsageError, connect
from tests.kit.loop import PATIENCE, run, until
from tests.launch.harness import EAGER, ERAS, HASTY_STOP, HASTY_WAITS, Stage, say

FLOOD = 16 << 20
MODES = ["inherit", "capture", "discard", "function"]


def sink(mode: str, lines: list[str]) -> Any:
    return lines.append if mode == "function" else mode


def connection(stage: Stage, program: str, options: dict[str, Any], **more: Any) -> Any:
    defaults: dict[str, Any] = {"waits": HASTY_WAITS, "stop": HASTY_STOP, "restart": False}
    return connect(stage.command(program, **options), **{**defaults, **more})


@pytest.mark.req("LIF-8")
@pytest.mark.parametrize("mode", MODES)
def test_a_flood_blocks_nobody(stage: Stage, mode: str, capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []

    async def main() -> None:
        async with connection(
            stage, "flooding", {"what": "stderr", "bytes": FLOOD}, stderr=sink(mode, lines)
        ) as client:
            assert await say(client, "echo", text="hello") == "hello"
            assert len(client.process.stderr) < 1 << 20

    run(main())
    shown = capfd.readouterr().err
    if mode in ("capture", "discard"):
        assert shown == ""
    if mode == "function":
        assert shown == ""
        assert set(lines) == {"something that nobody wants to know"}


@pytest.mark.req("LIF-8")
@pytest.mark.parametrize("mode", MODES)
def test_a_flood_without_an_end_blocks_nobody(stage: Stage, mode: str, capfd: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []

    async def main() -> None:
        async with connection(stage, "flooding", {"what": "stderr", "after": 1}, stderr=sink(mode, lines)) as client:
            for number in range(20):
                assert await say(client, "echo", text=str(number)) == str(number)

    run(main())
    capfd.readouterr()


@pytest.mark.req("LIF-8")
def test_a_line_without_an_end_is_not_kept_whole(stage: Stage) -> None:
    lines: list[str] = []

    async def main() -> None:
        options = {"what": "stderr line", "bytes": FLOOD}
        async with connection(stage, "flooding", options, stderr=lines.append) as client:
            assert await say(client, "echo", text="hello") == "hello"
            assert len(client.process.stderr) < 1 << 20

    run(main())
    assert max(map(len, lines), default=0) <= 1 << 20


@pytest.mark.req("LIF-8")
@pytest.mark.parametrize("revision", ERAS)
@pytest.mark.parametrize(
    "words", ["Error: this is fine\n", "Traceback (most recent call last):\n", '{"jsonrpc": "2.0", "id": 1}\n']
)
async def test_text_on_stderr_is_no_error(stage: Stage, words: str, revision: str) -> None:
    command = stage.command("good", revisions=[revision])
    shell = ["/bin/sh", "-c", 'printf %s "$0" >&2; exec "$@"', words, *command]
    async with connect(shell, waits=HASTY_WAITS, stderr="capture") as client:
        assert await say(client, "echo", text="hello") == "hello"
        await until(lambda: client.process is not None and client.process.stderr, "the words")
        assert client.process is not None
        assert client.process.stderr.strip() == words.strip()
        assert (client.stats.bad_lines, client.stats.violations) == (0, 0)


@pytest.mark.req("LIF-8")
def test_inherited_text_appears_on_our_own(stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with connection(stage, "good", {}) as client:
            with pytest.raises(RequestLost):
                await client.call_tool("crash", {"says": "héllo\nlast words without an end", "code": 1})

    run(main())
    assert capfd.readouterr().err.startswith("héllo\nlast words without an end")


@pytest.mark.req("LIF-8")
def test_a_function_gets_whole_lines(stage: Stage) -> None:
    lines: list[str] = []

    async def main() -> None:
        async with connection(stage, "good", {}, stderr=lines.append) as client:
            with pytest.raises(RequestLost):
                await client.call_tool("crash", {"says": "one\r\ntwo\n\nthrée\nlast", "code": 1})

    run(main())
    assert [line.rstrip("\r\n") for line in lines] == ["one", "two", "", "thrée", "last"]


@pytest.mark.req("LIF-8")
async def test_a_function_that_fails_harms_nothing(stage: Stage) -> None:
    def fail(_: str) -> None:
        raise KeyError

    options = {"what": "stderr", "bytes": 1 << 20}
    async with connection(stage, "flooding", options, stderr=fail) as client:
        assert await say(client, "echo", text="hello") == "hello"


@pytest.mark.req("LIF-8", "LIF-9")
@pytest.mark.parametrize("mode", ["inherit", "capture", "discard", "function"])
def test_the_end_of_it_is_in_the_error(stage: Stage, mode: str, capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        words = "".join(f"line {number}\n" for number in range(10_000)) + "the very reason\n"
        async with connection(stage, "good", {}, stderr=sink(mode, [])) as client:
            with pytest.raises(RequestLost) as caught:
                await client.call_tool("crash", {"says": words, "code": 1})
            if mode == "discard":
                return  # who wants none gets none
            assert "the very reason" in str(caught.value)
            assert "line 17\n" not in str(caught.value)
            assert len(str(caught.value)) < 20_000

    run(main())
    capfd.readouterr()


@pytest.mark.req("LIF-8", "LIF-5")
async def test_a_grandchild_that_holds_it_open_delays_nothing(stage: Stage) -> None:
    options = {"children": [{"holds": [2]}, {"holds": [1, 2], "session": True}]}
    async with connection(stage, "parent", options, stderr="capture") as client:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(RequestLost, match="the very reason"):
                await client.call_tool("crash", {"says": "the very reason\n", "code": 1})


@pytest.mark.req("LIF-8")
async def test_bytes_that_are_no_text_are_harmless(stage: Stage) -> None:
    words = r"import os; os.write(2, b'\xff\xfe \x1b[31mred\x1b[0m \x00 caf\xc3\xa9\n'); os._exit(2)"
    with pytest.raises(Exception, match="café") as caught:
        await connect([sys.executable, "-S", "-c", words], stderr="capture", waits=HASTY_WAITS)
    assert "\x1b" not in str(caught.value)
    assert "\x00" not in str(caught.value)


@pytest.mark.parametrize("bad", ["loud", None, 3])
def test_what_is_no_mode_is_refused_at_once(bad: Any) -> None:
    with pytest.raises(UsageError):
        connect(["server"], stderr=bad)


@pytest.mark.req("LIF-8")
async def test_a_log_gets_all_starts_of_a_server(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the host's current folder changes meanwhile."""
    (tmp_path / "logs").mkdir()
    monkeypatch.chdir(tmp_path)
    options = {"on": "tools/call", "code": 3, "says": "gone\n"}
    async with connect(
        stage.command("crashing", **options), stderr="logs/", restart=EAGER, retry="never", waits=HASTY_WAITS
    ) as client:
        monkeypatch.chdir("/")
        for _ in range(2):
            with pytest.raises(RequestLost, match="gone"):
                await client.call_tool("act")
    (log,) = (tmp_path / "logs").iterdir()
    assert log.name.startswith("python")
    assert log.read_text() == "gone\ngone\n"


async def test_a_log_that_cannot_be_opened_is_reported_before_the_start(stage: Stage) -> None:
    with pytest.raises(ConnectError, match="cannot be opened: No such file or directory"):
        await connect(stage.command("good"), stderr=stage.folder / "nowhere" / "log")
    assert stage.log.entries == []
