"""What a server writes to stderr, what it tells the client instead, and that nobody has to read it."""

from __future__ import annotations

import pytest

from tests.kit.results import text_of
from tests.process.harness import LEGACY, MODERN, Client, ServerProcess

SECRET = "hunter2"


@pytest.mark.req("LIF-16")
@pytest.mark.parametrize("revision", [MODERN, LEGACY[0]])
@pytest.mark.parametrize("tool", ["fail", "plain_fail"])
def test_an_exception_is_told_to_the_log_and_not_to_the_client(revision: str, tool: str) -> None:
    with ServerProcess("workshop", may_fail=True) as server:
        client = Client(server, revision)
        for how in ("value", "exit"):
            result = client.call(tool, how=how)
            assert result["isError"]
            assert text_of(result)
            assert not any(word in str(result) for word in (SECRET, "ValueError", "SystemExit", "Traceback"))
        assert text_of(client.call(tool, how="tool")) == "The saw is blunt."
        assert client.error("tools/call", {"name": tool, "arguments": {"how": "request"}}) == {
            "code": -32099,
            "message": "Closed on Mondays.",
            "data": {"day": "Monday"},
        }
        assert server.finish() == []
        assert server.errors.count("Traceback") == 2
        assert "ValueError: password=hunter2" in server.errors
        assert f"in {tool}" in server.errors
        assert "blunt" not in server.errors


@pytest.mark.req("LIF-16")
def test_logs_for_people_have_a_time_and_a_level() -> None:
    with ServerProcess("workshop") as server:
        server.write(b"garbage\n")
        server.finish()
        (line,) = server.errors.splitlines()
        time, level, text = line.split(maxsplit=2)
        assert time.count(":") == 2
        assert level == "WARNING"
        assert "ignored" in text


@pytest.mark.req("LIF-16")
def test_the_plain_format_marks_errors_and_traces() -> None:
    with ServerProcess("workshop", env={"MCPLUMB_LOG": "plain", "MCPLUMB_TRACE": "1"}, may_fail=True) as server:
        client = Client(server, LEGACY[0])
        server.write("garbage é🦭 \x1b[31m\n".encode())
        assert client.call("fail", how="value")["isError"]
        assert client.say("echo", text="x" * 100_000) == "x" * 100_000
        server.finish()
        lines = server.errors.splitlines()
        traced = [line.removeprefix("[TRACE] ") for line in lines if line.startswith("[TRACE] ")]
        arrived = [line for line in traced if line.startswith("<-- ")]
        left = [line for line in traced if line.startswith("--> ")]
        assert [len(arrived), len(left)] == [5, 3]
        assert '"method": "initialize"' in arrived[0]
        assert '"serverInfo"' in left[0]
        # Readable, and harmless to a terminal.
        assert arrived[2] == "<-- garbage é🦭 \\x1b[31m"
        assert all(len(line) < 10_000 for line in lines)
        assert any(line.startswith("Error: ") and "failed" in line for line in lines)
        assert any("ignored" in line and not line.startswith("Error: ") for line in lines)


@pytest.mark.req("LIF-16")
def test_an_unknown_format_is_refused_at_the_start() -> None:
    with ServerProcess("workshop", env={"MCPLUMB_LOG": "fancy"}, may_fail=True) as server:
        assert server.exit_code() == 1
        server.wait_for_error_text("human and plain")


@pytest.mark.req("LIF-16")
def test_a_stderr_that_nobody_reads_holds_up_nothing() -> None:
    with ServerProcess("workshop", env={"MCPLUMB_TRACE": "1"}) as server:
        server.reads_errors = False
        client = Client(server)
        assert client.say("grumble", lines=5000) == "grumbled"
        for _ in range(300):
            assert client.say("echo", text="x" * 1000) == "x" * 1000
        assert server.finish() == []
        server.reads_errors = True


@pytest.mark.req("LIF-16")
def test_a_stderr_that_is_closed_holds_up_nothing() -> None:
    with ServerProcess("workshop", env={"MCPLUMB_TRACE": "1"}) as server:
        client = Client(server)
        server.close_errors()
        assert client.say("grumble", lines=100) == "grumbled"
        assert client.call("fail", how="value")["isError"]
        assert client.say("echo", text="next") == "next"
        assert server.finish() == []


@pytest.mark.req("LIF-16", "FRM-2")
def test_stray_output_to_a_closed_stderr_is_the_authors_problem_and_not_the_servers() -> None:
    with ServerProcess("noisy") as server:
        client = Client(server)
        server.close_errors()
        client.call("shout", how="print")
        client.call("shout", how="child")
        assert client.answer("server/discover")["result"]
        server.end_input()
        assert server.rest() == []
        server.exit_code()
