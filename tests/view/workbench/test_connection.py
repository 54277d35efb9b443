"""The workbench used by its API: connect, call, answer, cancel, and end."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from mcplumb.recording.recording_format import read_recording
from mcplumb.recording.recordings_folder import find_recordings
from mcplumb.view.workbench.server_choice import ChosenServer
from tests.client.auth.site import site
from tests.client.peers import LOOPS
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import PATIENCE, run, until
from tests.kit.servers import serving
from tests.view.workbench import bench_server
from tests.view.workbench.bench import SERVER, connected, first_found, working

pytestmark = leaves_nothing

#: A legacy server with resources, but without subscriptions.
PLAIN = """
import json, sys

known = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"resources": {}},
    "serverInfo": {"name": "plain", "version": "1"},
}
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": known}), flush=True)
    elif "id" in message:
        error = {"code": -32601, "message": "There is no such method."}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
"""


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_the_server_of_the_command_line_is_connected_at_once() -> None:
    async with connected() as bench:
        details = await bench.of()
        assert (details["state"], details["name"], details["title"]) == ("open", "bench", "bench")
        assert details["instructions"] == "Try everything."
        assert details["process"]["restarts"] == 0
        listed = await bench.ask("")
        assert (listed["start"], [each["id"] for each in listed["connections"]]) == ("bench", [1])
        pid = details["process"]["pid"]
        assert is_running(pid)
    assert not is_running(pid)


async def test_a_command_is_split_into_words_and_no_shell_sees_it(project: Path) -> None:
    async with working() as bench:
        line = shlex.join(SERVER) + " ; touch $HOME/owned"
        failed = await bench.connect(kind="command", command=line)
        assert failed["state"] == "failed"
        assert not (Path(os.environ["HOME"]) / "owned").exists()
        opened = await bench.connect(kind="command", command=shlex.join(SERVER), folder=str(project), env={"A": "b"})
        assert opened["state"] == "open"
        assert opened["place"] == SERVER


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ({"kind": "command", "command": "  "}, "Type the command"),
        ({"kind": "command", "command": "a 'b"}, "cannot be split into words: no closing quotation"),
        ({"kind": "command", "command": "http://127.0.0.1:1/mcp"}, "is an address"),
        ({"kind": "address", "address": "python x.py"}, "Type an address"),
        ({"kind": "address", "address": "unix:/run/x", "headers": {"a": "b"}}, "Headers are for"),
        ({"kind": "configured", "name": "nobody"}, "There is no server 'nobody'"),
        ({"kind": "start"}, "was started without a server"),
        ({"kind": "shell"}, "not as expected"),
    ],
    ids=str,
)
async def test_a_choice_that_cannot_work_gets_a_sentence(choice: dict[str, Any], sentence: str) -> None:
    async with working() as bench:
        got = await bench.got("/connections", "POST", choice)
        assert got.status in (200, 400, 404)
        assert sentence in got.json.get("error", got.json.get("failed"))
        assert (await bench.ask(""))["connections"] == []


async def test_a_program_that_ends_is_shown_with_its_last_words() -> None:
    async with working() as bench:
        failed = await bench.connect(kind="command", command="sh -c 'echo no luck >&2; exit 3'")
        assert failed["state"] == "failed"
        assert "exited with code 3" in failed["error"]["sentence"]
        assert (await bench.logged("no luck"))["kind"] == "stderr"
        got = await bench.got(f"/connections/{bench.number}/lists/tools")
        assert (got.status, got.json["error"]) == (409, "This server is not connected. Connect to it again.")
        assert (await bench.of("/reconnect", "POST"))["id"] != bench.number


async def test_an_address() -> None:
    async with serving(bench_server.server, "http://127.0.0.1:0/mcp") as [address], working() as bench:
        details = await bench.connect(kind="address", address=address, headers={"X-Team": "tea"})
        assert (details["state"], details["kind"]) == ("open", "address")
        assert (await bench.call("count", to=1, pause=0))["outcome"]["result"]["content"][0]["text"] == "counted to 1"
        assert (await bench.got(f"/connections/{bench.number}", "DELETE")).status == 200


@pytest.mark.req("AUT-4")
async def test_the_user_signs_in_at_a_protected_server(tmp_path: Path) -> None:
    async with site(tmp_path) as protected, working() as bench:
        bench.number = (await bench.ask("/connections", "POST", {"kind": "address", "address": protected.url}))["id"]
        question = await bench.question()
        assert (question["kind"], question["canBeOpened"]) == ("sign-in", True)
        assert question["url"].startswith(protected.auth.issuer)
        await bench.answer(question, action="accept")
        # The user's browser follows the redirect, to the port on which the workbench waits.
        async with bench.visitor.http.get(await protected.visit(question["url"])) as page:
            assert page.status == 200
        assert (await bench.settled())["state"] == "open"
        assert (await bench.call("whoami"))["outcome"]["result"]["content"][0]["text"] == "somebody"
        # The next connection uses the tokens that were kept.
        assert (await bench.connect(kind="address", address=protected.url))["state"] == "open"
        assert protected.visits == 1


async def test_a_sign_in_that_is_not_wanted_gets_a_sentence(tmp_path: Path) -> None:
    async with site(tmp_path) as protected, working() as bench:
        bench.number = (await bench.ask("/connections", "POST", {"kind": "address", "address": protected.url}))["id"]
        await bench.answer(await bench.question(), action="decline")
        details = await bench.settled()
        assert (details["state"], details["error"]["kind"]) == ("failed", "AuthorizationError")
        assert "You did not sign in at 127.0.0.1. Connect again to be asked again." in details["error"]["sentence"]
        assert not protected.auth.tokens


async def test_lists() -> None:
    async with connected() as bench:
        tools = (await bench.of("/lists/tools"))["items"]
        assert {"ship", "reserve", "media"} <= {tool["name"] for tool in tools}
        assert [each["uri"] for each in (await bench.of("/lists/resources"))["items"]] == [
            "bench://menu",
            "bench://logo",
        ]
        [template] = (await bench.of("/lists/templates"))["items"]
        assert (template["uriTemplate"], template["variables"]) == ("bench://{dish}/recipe", ["dish"])
        [prompt] = (await bench.of("/lists/prompts"))["items"]
        assert [each["name"] for each in prompt["arguments"]] == ["dish", "mood"]
        assert (await bench.got("/connections/1/lists/secrets")).status == 404


async def test_a_call_with_nested_arguments() -> None:
    async with connected() as bench:
        call = await bench.call("ship", to={"street": "Main"}, items=[{"name": "tea", "count": 2}, {"name": "cup"}])
        assert call["state"] == "done"
        assert call["outcome"]["result"]["structuredContent"]["pieces"] == 3
        assert call["outcome"]["warning"] is None
        assert call["params"]["arguments"]["to"] == {"street": "Main"}


async def test_errors_are_told_apart_and_in_words() -> None:
    async with connected() as bench:
        failed = await bench.call("fail")
        assert (failed["state"], failed["isError"]) == ("done", True)
        assert failed["outcome"]["result"]["content"][0]["text"] == "The kettle is empty. Fill it first."
        unknown = await bench.call("nothing")
        assert unknown["state"] == "failed"
        assert unknown["outcome"]["error"]["kind"] == "RemoteError"
        assert "nothing" in unknown["outcome"]["error"]["sentence"]
        raw = await bench.of("/calls", "POST", {"method": "no/such", "params": {}})
        assert (await bench.ended(raw["id"]))["outcome"]["error"]["code"] == -32601


async def test_media_and_links_arrive() -> None:
    async with connected() as bench:
        content = (await bench.call("media"))["outcome"]["result"]["content"]
        assert [block["type"] for block in content] == ["text", "image", "audio", "resource_link"]


async def test_progress_and_cancelling_reach_the_server() -> None:
    async with connected() as bench:
        number = await bench.start("wait")

        async def has_progress() -> Any:
            call = await bench.of(f"/calls/{number}")
            return None if call["progress"] is None else call

        running = await first_found(has_progress)
        assert (running["state"], running["total"], running["message"]) == ("running", 3, "waiting")
        await bench.of(f"/calls/{number}/cancel", "POST")
        ended = await bench.ended(number)
        assert ended["state"] == "cancelled"
        assert ended["outcome"]["error"]["sentence"] == "You have cancelled the call."
        await bench.logged("wait was cancelled")
        await bench.of(f"/calls/{number}/cancel", "POST")  # does nothing


async def test_a_form_is_asked_and_answered() -> None:
    async with connected() as bench:
        for answer, text in (
            ({"action": "accept", "content": {"name": "Ada", "seats": 3}}, "3 seats for Ada"),
            ({"action": "decline"}, "Not reserved: decline."),
            ({"action": "cancel"}, "Not reserved: cancel."),
        ):
            number = await bench.start("reserve")
            question = await bench.question()
            assert (question["kind"], question["mode"]) == ("elicitation", "form")
            assert question["message"] == "Who comes to dinner?"
            assert list(question["schema"]["properties"]) == ["name", "seats", "window"]
            await bench.answer(question, **answer)
            assert text in (await bench.ended(number))["outcome"]["result"]["content"][0]["text"]
            got = await bench.got(f"/connections/1/questions/{question['id']}", "POST", answer)
            assert (got.status, got.json) == (200, {"gone": "This question does not wait for an answer any more."})


async def test_a_question_ends_with_its_call() -> None:
    async with connected() as bench:
        number = await bench.start("reserve")
        await bench.question()
        await bench.of(f"/calls/{number}/cancel", "POST")
        assert (await bench.ended(number))["state"] == "cancelled"
        assert (await bench.of("/questions"))["questions"] == []


@pytest.mark.parametrize(
    ("url", "can"),
    [
        ("https://pay.example/", True),
        ("http://127.0.0.1:1/", True),
        ("javascript:alert(1)", False),
        ("data:text/html,x", False),
        ("file:///etc/passwd", False),
        ("https:", False),
        ("https://[", False),
    ],
)
@pytest.mark.req("VIW-1")
async def test_only_web_addresses_can_be_opened(url: str, can: bool) -> None:
    async with connected() as bench:
        number = await bench.start("pay", url=url)
        question = await bench.question()
        assert (question["mode"], question["url"], question["canBeOpened"]) == ("url", url, can)
        await bench.answer(question, action="accept")
        assert (await bench.ended(number))["outcome"]["result"]["content"][0]["text"] == "pay: accept"


async def test_sampling_is_answered_by_hand() -> None:
    async with connected() as bench:
        number = await bench.start("ask_model", question="Tea?")
        question = await bench.question()
        assert question["kind"] == "sampling"
        assert question["params"]["systemPrompt"] == "Be brief."
        bad = await bench.got(
            f"/connections/1/questions/{question['id']}", "POST", {"action": "accept", "content": {"role": "nobody"}}
        )
        assert bad.status == 400
        await bench.answer(question, action="accept", text="Yes.", model="me")
        assert (await bench.ended(number))["outcome"]["result"]["content"][0]["text"] == "It says: Yes."
        number = await bench.start("ask_model", question="Tea?")
        whole = {"role": "assistant", "content": {"type": "text", "text": "No."}, "model": "m"}
        await bench.answer(await bench.question(), action="accept", content=whole)
        assert (await bench.ended(number))["outcome"]["result"]["content"][0]["text"] == "It says: No."
        number = await bench.start("ask_model", question="Tea?")
        await bench.answer(await bench.question(), action="decline")
        ended = await bench.ended(number)
        assert ended["isError"]
        assert "rejected" in str(ended["outcome"])


async def test_completion() -> None:
    async with connected() as bench:
        for kind, of in (("prompt", "review"), ("template", "bench://{dish}/recipe")):
            asked = {"kind": kind, "of": of, "argument": "dish", "value": "s"}
            assert (await bench.of("/complete", "POST", asked))["values"] == ["soup", "salad", "stew"]


async def test_resources_templates_and_prompts_are_read() -> None:
    async with connected() as bench:
        menu = await bench.call("bench://menu", "resources/read")
        assert "soup" in menu["outcome"]["result"]["contents"][0]["text"]
        template = {"uriTemplate": "bench://{dish}/recipe", "values": {"dish": "soup"}}
        started = await bench.of("/calls", "POST", {"method": "resources/read", "params": template})
        recipe = await bench.ended(started["id"])
        assert recipe["outcome"]["result"]["contents"][0]["text"] == "Cook the soup."
        assert recipe["params"] == {"uri": "bench://soup/recipe"}
        prompt = await bench.call("review", "prompts/get", dish="stew")
        assert prompt["outcome"]["result"]["messages"][0]["content"]["text"] == "Write a kind review of the stew."
        lacking = {"method": "resources/read", "params": {**template, "values": {}}}
        assert "dish" in (await bench.got("/connections/1/calls", "POST", lacking)).json["failed"]


async def test_subscriptions_log_and_changed_lists() -> None:
    async with connected() as bench:
        await bench.of("/subscribe", "POST", {"uri": "bench://menu"})
        assert (await bench.of())["subscriptions"] == ["bench://menu"]
        await bench.of("/log-level", "POST", {"level": "debug"})
        assert (await bench.of())["logLevel"] == "debug"

        async def subscribed() -> None:
            # The acknowledgement of the server is not shown: change the menu until it is heard.
            while not any("Changed:" in line.get("text", "") for line in (await bench.of("/log"))["lines"]):
                await bench.call("change_menu", dish="pie")

        await asyncio.wait_for(subscribed(), PATIENCE)
        await bench.logged("The list of tools has changed")
        assert "eat_pie" in {tool["name"] for tool in (await bench.of("/lists/tools"))["items"]}
        await bench.call("speak", text="hello log")
        assert (await bench.logged("stderr: hello log"))["kind"] == "stderr"
        lines = (await bench.of("/log"))["lines"]
        assert [line["logger"] for line in lines if line.get("text") == "hello log"] == ["bench"]
        assert (await bench.logged("said"))["data"] == {"said": "hello log"}
        last = (await bench.of("/log"))["last"]
        assert (await bench.of(f"/log?after={last}"))["lines"] == []
        assert len((await bench.of(f"/log?after={last - 2}"))["lines"]) == 2
        await bench.of("/unsubscribe", "POST", {"uri": "bench://menu"})
        assert (await bench.got("/connections/1/unsubscribe", "POST", {"uri": "bench://other"})).status == 404


@pytest.mark.parametrize("eager", LOOPS)
def test_a_subscription_that_the_server_does_not_offer_is_not_shown(eager: bool) -> None:
    async def main() -> None:
        async with working(ChosenServer(title="plain", place=[sys.executable, "-c", PLAIN], words=())) as bench:
            await bench.of("/subscribe", "POST", {"uri": "plain://menu"})
            await bench.logged("does not offer subscriptions to resources: plain://menu")

            async def is_gone() -> bool | None:
                return (await bench.of())["subscriptions"] == [] or None

            assert await first_found(is_gone)

    run(main(), eager=eager)


async def test_roots() -> None:
    async with connected() as bench:
        assert (await bench.call("where"))["outcome"]["result"]["structuredContent"] == []
        await bench.of("/roots", "POST", {"roots": [{"uri": "file:///srv/tea", "name": "tea"}]})
        assert (await bench.call("where"))["outcome"]["result"]["structuredContent"] == ["file:///srv/tea"]
        too_many = {"roots": [{"uri": f"file:///{number}"} for number in range(101)]}
        assert (await bench.got("/connections/1/roots", "POST", too_many)).status == 400


async def test_there_can_only_be_so_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcplumb.view.workbench.workbench_section.MAX_WORKBENCH_CONNECTIONS", 1)
    async with connected() as bench:
        got = await bench.got("/connections", "POST", {"kind": "start"})
        assert (got.status, got.json["error"]) == (409, "1 servers are connected: close one first.")
        assert (await bench.got("/connections/1", "DELETE")).status == 200
        got = await bench.got("/connections/1")
        assert (got.status, got.json) == (200, {"gone": "This connection does not exist any more."})
        for never in ("2", "0", "x", "9" * 30):
            assert (await bench.got(f"/connections/{never}")).status == 404
        assert (await bench.connect(kind="start"))["state"] == "open"


async def test_only_so_many_calls_and_results_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcplumb.view.workbench.calls.MAX_WORKBENCH_CALLS", 3)
    monkeypatch.setattr("mcplumb.view.workbench.calls.MAX_WORKBENCH_RESULTS", 10)
    async with connected() as bench:
        for _ in range(4):
            await bench.call("media")
        calls = (await bench.of())["calls"]
        assert [call["id"] for call in calls] == [4, 3, 2]
        assert [call["size"] is not None for call in calls] == [True, False, False]
        assert (await bench.of("/calls/3"))["outcome"] is None
        assert (await bench.got("/connections/1/calls/1")).status == 404
        for _ in range(3):
            await bench.start("wait")
        got = await bench.got("/connections/1/calls", "POST", {"method": "tools/call", "params": {"name": "wait"}})
        assert (got.status, got.json["error"]) == (409, "3 calls are running: cancel some first.")


async def test_only_so_many_questions_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcplumb.view.workbench.questions.MAX_WORKBENCH_QUESTIONS", 1)
    async with connected() as bench:
        first = await bench.start("reserve")
        question = await bench.question()
        assert "wait for an answer already" in str((await bench.call("reserve"))["outcome"])
        await bench.answer(question, action="decline")
        await bench.ended(first)


@pytest.mark.req("VIW-1")
async def test_a_form_of_another_page_can_change_nothing() -> None:
    """What HTML forms can send without a preflight is refused, even with the secret."""
    async with connected() as bench:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            got = await bench.visitor.ask(
                "api/workbench/connections", "POST", data=b'{"kind":"start"}', headers={"content-type": kind}
            )
            assert got.status == 415
        for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}):
            got = await bench.visitor.ask(
                "api/workbench/connections",
                "POST",
                data=b'{"kind":"start"}',
                headers={"content-type": "application/json", **headers},
            )
            assert got.status == 403
        assert len((await bench.ask(""))["connections"]) == 1


async def test_everything_is_recorded(home: Path) -> None:
    async with connected() as bench:
        await bench.call("count", to=1, pause=0)
        await bench.call("speak", text="to stderr")
    [file] = find_recordings()
    assert file.is_relative_to(home)
    header, records = read_recording(file)
    assert (header.by, header.name, header.target.command) == ("client", "bench", SERVER)
    said = [record.text or "" for _, record in records]
    assert any('"tools/call"' in text and '"count"' in text for text in said)
    assert any(record.stderr == "stderr: to stderr" for _, record in records)


async def test_a_server_that_waits_for_an_answer_ends_with_the_page() -> None:
    async with connected() as bench:
        await bench.start("reserve")
        await bench.question()
        await bench.start("wait")
        pid = (await bench.of())["process"]["pid"]
    await until(lambda: not is_running(pid))


async def test_a_stubborn_server_does_not_survive_the_page() -> None:
    """One that ignores its closed stdin and SIGTERM takes longer to end than requests get to finish."""
    code = (
        "import runpy, signal, sys, atexit, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "atexit.register(time.sleep, 600)\n"
        f"sys.argv = sys.argv[1:]\nrunpy.run_path({SERVER[1]!r}, run_name='__main__')\n"
    )
    async with working() as bench:
        opened = await bench.connect(kind="command", command=shlex.join([SERVER[0], "-c", code, "x"]))
        assert opened["state"] == "open"
        pid = opened["process"]["pid"]
    assert not is_running(pid)
