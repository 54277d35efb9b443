"""What servers ask: answered beforehand, by a person, or not at all."""

from __future__ import annotations

import asyncio
import os
import select
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from mcplumb.cli.input_prompts import InputPrompter, input_options, read_line
from mcplumb.client.input_handlers import Elicitation
from mcplumb.errors import Closed, McplumbError, RemoteError, UsageError
from mcplumb.types.client_features import ElicitParams, ElicitResult
from mcplumb.wire.messages import MISSING_CAPABILITY, URL_ELICITATION_REQUIRED
from tests.cli.kit import PYTHON, SERVERS, on_terminal
from tests.cli.servers.kitchen import FORM
from tests.kit.loop import PATIENCE

KITCHEN = ["--", PYTHON, str(SERVERS / "kitchen.py")]


def form(schema: Any = FORM, message: str = "How?") -> Elicitation:
    return Elicitation(message, "form", schema, None, ElicitParams.for_form(message, schema))


def page(url: str) -> Elicitation:
    return Elicitation("Pay.", "url", None, url, ElicitParams.for_url("Pay.", url))


class Person:
    """Types one text after the other, and then Ctrl-D."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.prompts: list[str] = []

    async def read(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if not self.texts:
            raise EOFError
        return self.texts.pop(0)


def typed(question: Elicitation, *texts: str, answers: Sequence[str] = ()) -> ElicitResult:
    person = Person(*texts)
    result = asyncio.run(InputPrompter("kitchen", answers, read=person.read).answer(question))
    assert person.texts == []
    return result


def one_field(schema: dict[str, Any], *texts: str, needed: bool = True) -> Any:
    whole = {"type": "object", "properties": {"x": schema}, "required": ["x"] * needed}
    result = typed(form(whole), *texts, "y")
    assert result.action == "accept"
    assert result.content is not None
    return result.content.get("x", "left out")


# --- Beforehand ---


def beforehand(question: Elicitation, *answers: str) -> tuple[ElicitResult, UsageError | None]:
    prompter = InputPrompter("kitchen", answers)
    return asyncio.run(prompter.answer(question)), prompter.mistake


def test_answers_are_typed_by_the_form() -> None:
    result, mistake = beforehand(form(), "name=Ada", "size=large", "extras=ham", "extras=egg", "pieces=3", "other=1")
    assert mistake is None
    content = {"name": "Ada", "size": "large", "extras": ["ham", "egg"], "pieces": 3, "hot": True}
    assert result == ElicitResult("accept", content)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (["name=Ada"], "--answer has no size."),
        (["name=Ada", "size=tiny"], "size must be one of small, large, not 'tiny'.\n--answer has no size."),
        (["other=1"], "--answer has no name.\n--answer has no size."),
    ],
)
def test_what_is_missing_is_said_and_the_server_hears_that_nobody_answers(answers: list[str], said: str) -> None:
    result, mistake = beforehand(form(), *answers)
    assert result == ElicitResult("cancel")
    assert str(mistake).startswith(f"kitchen asks: How?\n{said}\n\nform(name, size, ")


def test_a_form_of_which_nothing_was_answered_is_not_accepted() -> None:
    schema = {"type": "object", "properties": {"sure": {"type": "boolean", "default": True}}}
    result, mistake = beforehand(form(schema), "other=1")
    assert result == ElicitResult("cancel")
    assert "No --answer matches it." in str(mistake)


def test_a_page_that_nobody_can_open_is_cancelled() -> None:
    assert beforehand(page("https://example.org"), "a=b") == (ElicitResult("cancel"), None)


def test_an_answer_is_a_pair() -> None:
    with pytest.raises(UsageError, match="'yes' is not an argument"):
        InputPrompter("kitchen", ["yes"])


def test_the_server_is_told_what_can_be_answered() -> None:
    assert InputPrompter("kitchen").options == {}
    assert InputPrompter("kitchen", roots=["a"]).options == {"roots": ["a"]}
    options = InputPrompter("kitchen", ["a=b"]).options
    assert options["capabilities"].elicitation.has_form
    assert not options["capabilities"].elicitation.has_url
    assert list(InputPrompter("kitchen", read=Person().read).options) == ["on_elicit"]


def test_a_call_that_fails_is_the_fault_of_the_answer_that_was_missing(capsys: pytest.CaptureFixture[str]) -> None:
    async def fail(code: int) -> None:
        raise RemoteError(code, "no")

    async def call(prompter: InputPrompter, code: int) -> None:
        with pytest.raises(McplumbError) as said:
            await prompter.wait_for(fail(code))
        assert isinstance(said.value, UsageError if prompter.mistake else RemoteError)

    prompter = InputPrompter("kitchen", ["a=b"])
    asyncio.run(call(prompter, MISSING_CAPABILITY))
    asyncio.run(prompter.answer(form()))
    asyncio.run(call(prompter, 1))
    assert capsys.readouterr().err == ""
    asyncio.run(call(InputPrompter("kitchen"), MISSING_CAPABILITY))
    assert "give --answer KEY=VALUE" in capsys.readouterr().err


def test_other_errors_go_through() -> None:
    async def call() -> None:
        raise Closed("gone")

    with pytest.raises(Closed, match="gone"):
        asyncio.run(InputPrompter("kitchen").wait_for(call()))


@pytest.mark.parametrize(
    "data", [None, {"elicitations": [{"mode": "url", "message": "Pay.", "url": "https://a.b\x1b"}]}]
)
def test_a_page_that_has_to_be_seen_first_is_shown(data: Any, capsys: pytest.CaptureFixture[str]) -> None:
    async def call() -> None:
        raise RemoteError(URL_ELICITATION_REQUIRED, "no", data)

    with pytest.raises(RemoteError):
        asyncio.run(InputPrompter("kitchen").wait_for(call()))
    said = "kitchen wants you to see a web page first: Pay.\n  https://a.b\\x1b\n"
    assert capsys.readouterr().err == ("" if data is None else said)


# --- By a person ---


def test_a_form_is_filled_in_field_by_field(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["Ada", "2", "Rye", "1, leek", "", "n", "", "2026-02-03", "y"]
    result = typed(form(message="How\x1b[2J?"), *lines)
    content = {"name": "Ada", "size": "large", "bread": "r", "extras": ["ham", "leek"], "pieces": 2, "hot": False}
    assert result == ElicitResult("accept", {**content, "day": "2026-02-03"})
    shown = capsys.readouterr().err
    assert shown.startswith("kitchen asks: How\\x1b[2J?\n")
    for line in ("  As on the bill.", "    1  Small one", "    2  Wheat", "    3  leek"):
        assert f"{line}\n" in shown


def test_prompts_say_what_can_be_typed() -> None:
    person = Person(*["Ada", "1", *[""] * 6, "y"])
    asyncio.run(InputPrompter("kitchen", read=person.read).answer(form()))
    assert person.prompts == [
        "  Your name (a text with at least 2 characters): ",
        "  size (1 to 2): ",
        "  bread (1 to 2, optional): ",
        "  extras (1 to 3, or several with commas, optional): ",
        "  pieces (an integer from 1 to 9) [2]: ",
        "  hot (y/n) [y]: ",
        "  mail (an email address, optional): ",
        "  day (a date such as 1999-12-31, optional): ",
        "Send it? [Y/d/c/e: yes, decline, cancel, edit]: ",
    ]


@pytest.mark.parametrize(
    ("schema", "texts", "value"),
    [
        ({"type": "integer"}, ["x", "", "3"], 3),
        ({"type": "number"}, ["2.5"], 2.5),
        ({"type": "boolean"}, ["perhaps", "no"], False),
        ({"type": "string", "format": "email"}, ["ada", "@", "a b@c", "ada@example.org"], "ada@example.org"),
        ({"type": "string", "format": "uri"}, ["example.org", "https:", "https://example.org"], "https://example.org"),
        ({"type": "string", "format": "date"}, ["tomorrow", "2026-02-30", "2026-02-03"], "2026-02-03"),
        (
            {"type": "string", "format": "date-time"},
            ["now", "2026-02-03T10:00:00", "2026-02-03T10:00:00Z"],
            "2026-02-03T10:00:00Z",
        ),
        ({"type": "string", "format": "new"}, ["x"], "x"),
        ({"enum": ["3", "2", "1"]}, ["4", "0", "1"], "1"),
        ({"type": "string", "enum": ["a"], "title": "Size"}, ["Size", "1"], "a"),
        ({"oneOf": [{"const": "a"}, {"const": "b", "title": 3}], "title": "T"}, ["T", "b"], "b"),
        ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}, ["B", "A"], ["a"]),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "default": ["a", "b"]}, [""], ["a", "b"]),
        ({"enum": ["a", "b"], "enumNames": ["A", 3]}, ["b"], "b"),
        ({"anyOf": [{"const": "a"}, {"type": "integer"}]}, ["7"], 7),
    ],
)
def test_a_field_is_asked_until_it_is_right(schema: dict[str, Any], texts: list[str], value: Any) -> None:
    assert one_field(schema, *texts) == value


def test_what_may_be_left_out_is() -> None:
    assert one_field({"type": "integer"}, "", needed=False) == "left out"


@pytest.mark.parametrize(
    ("texts", "action"),
    [
        (["Ada", "!decline"], "decline"),
        (["!cancel"], "cancel"),
        ([], "cancel"),
        ([*["Ada", "1", *[""] * 6], "d"], "decline"),
        ([*["Ada", "1", *[""] * 6], "c"], "cancel"),
    ],
)
def test_nobody_has_to_answer(texts: list[str], action: Any) -> None:
    assert typed(form(), *texts) == ElicitResult(action)


def test_answers_can_be_edited_before_they_are_sent() -> None:
    first = ["Ada", "1", *[""] * 6, "e"]
    result = typed(form(), *first, "Bob", *[""] * 7, "y")
    assert result.content == {"name": "Bob", "size": "small", "pieces": 2, "hot": True}


def test_what_is_neither_yes_nor_no_is_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert one_field({"type": "boolean"}, "maybe", "n") is False
    assert "It must be y or n, not 'maybe'." in capsys.readouterr().err
    # Neither is taken for an edit, nor for a no.
    person = Person("y", "maybe", "y")
    schema = {"type": "object", "properties": {"x": {"type": "boolean"}}}
    result = asyncio.run(InputPrompter("kitchen", read=person.read).answer(form(schema)))
    assert result == ElicitResult("accept", {"x": True})
    assert [prompt.strip()[:4] for prompt in person.prompts] == ["x (y", "Send", "Send"]
    assert "Type y, d, c or e." in capsys.readouterr().err


def test_only_what_was_not_answered_beforehand_is_asked() -> None:
    result = typed(form(), "1", *[""] * 6, "y", answers=["name=Ada"])
    assert result.content == {"name": "Ada", "size": "small", "pieces": 2, "hot": True}
    assert typed(form(), answers=["name=Ada", "size=large"]).action == "accept"


def test_a_wrong_answer_is_said_and_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(form(), "Ada", "1", *[""] * 6, "y", answers=["name=A"]).action == "accept"
    assert "name must be a text with at least 2 characters, not 'A'." in capsys.readouterr().err


def test_one_question_at_a_time_and_nothing_is_drawn_meanwhile() -> None:
    drawn = []

    @contextmanager
    def paused() -> Any:
        drawn.append("paused")
        yield
        drawn.append("goes on")

    async def ask() -> None:
        prompter = InputPrompter("kitchen", read=Person("!decline", "!cancel").read, paused=paused)
        assert await asyncio.gather(prompter.answer(form()), prompter.answer(form())) == [
            ElicitResult("decline"),
            ElicitResult("cancel"),
        ]

    asyncio.run(ask())
    assert drawn == ["paused", "goes on"] * 2


def test_a_new_way_to_ask_is_declined(capsys: pytest.CaptureFixture[str]) -> None:
    new = Elicitation("Sing.", "song", None, None, ElicitParams("Sing.", mode="song"))
    assert typed(new) == ElicitResult("decline")
    assert "kitchen asks in an unknown way (song), which was declined." in capsys.readouterr().err


# --- Pages ---


@pytest.mark.parametrize(
    ("texts", "action"),
    [(["o"], "accept"), (["", ], "decline"), (["what", "n"], "decline"), (["c"], "cancel"), ([], "cancel")],
)  # fmt: skip
def test_a_page_is_not_opened_unless_the_user_says_so(
    texts: list[str], action: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert typed(page("https://bank.example@xn--e1awd7f.example/"), *texts) == ElicitResult(action)
    assert opened == []
    shown = capsys.readouterr().err
    assert "  https://bank.example@xn--e1awd7f.example/\n" in shown
    assert "It is at xn--e1awd7f.example." in shown


def test_a_page_is_opened_when_the_user_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []

    def browse(url: str) -> bool:
        opened.append(url)
        return len(opened) > 1

    monkeypatch.setattr("webbrowser.open", browse)
    assert typed(page("https://пример.example/"), "y") == ElicitResult("accept")
    shown = capsys.readouterr().err
    assert "It is at xn--e1afmkfd.example." in shown
    assert "No browser could be started" in shown
    assert typed(page("https://пример.example/"), "y") == ElicitResult("accept")
    assert "No browser could be started" not in capsys.readouterr().err
    assert opened == ["https://xn--e1afmkfd.example/"] * 2
    assert typed(page("https://me@пример.example:8000/a?b#c"), "y") == ElicitResult("accept")
    assert opened[2] == "https://me@xn--e1afmkfd.example:8000/a?b#c"


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://",
        "http://[",
        "https://" + "a" * 70,
        "https://пример.example:x/",
        # A browser goes to the first of the two.
        "https://evil.example\\@bank.example/",
        "https://evil.example/\x1b[2J",
        " https://evil.example/",
        "https://evil.example/\0",
        "https://evil.example/\u202e",
        "ht\ntps://evil.example/",
    ],
)
def test_only_web_pages_are_opened(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(page(url)) == ElicitResult("decline")
    assert "That is not the address of a web page" in capsys.readouterr().err


def test_what_a_server_says_is_not_taken_for_ours(capsys: pytest.CaptureFixture[str]) -> None:
    fake = "Hello.\nError: log in again.\n\x1b[2JPassword: "
    for question in (form(message=fake), page("https://a.example/")):
        question = Elicitation(fake, question.mode, question.schema, question.url, question.params)
        typed(question)
        assert "Hello.\n  | Error: log in again.\n  | \\x1b[2JPassword:\n" in capsys.readouterr().err
    typed(form(message="x" * 1_000_000))
    assert len(capsys.readouterr().err) < 10_000


def test_a_server_that_asks_without_an_end_gets_no_answer_in_the_end() -> None:
    async def asks() -> list[str]:
        return [(await prompter.answer(form())).action for _ in range(102)]

    prompter = InputPrompter("kitchen", ["name=Ada", "size=large", "pieces=3"])
    assert asyncio.run(asks()) == ["accept"] * 100 + ["cancel"] * 2
    assert str(prompter.mistake) == "kitchen has asked 100 times, which is the limit."


# --- Lines ---


def at_terminal(monkeypatch: pytest.MonkeyPatch) -> int:
    """Makes our stdin a terminal; returns the end at which the user types."""
    ours, theirs = os.openpty()
    monkeypatch.setattr("sys.stdin", os.fdopen(theirs))
    return ours


def test_a_line_is_read_while_the_loop_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def reads() -> list[str]:
        loop = asyncio.get_running_loop()
        loop.call_soon(os.write, ours, b"one\ntwo\n")
        return [await read_line("First? "), await read_line("Second? ")]

    ours = at_terminal(monkeypatch)
    assert asyncio.run(reads()) == ["one", "two"]
    assert capsys.readouterr().err == "First? Second? "
    os.write(ours, b"\x04")
    with pytest.raises(EOFError):
        asyncio.run(read_line("Third? "))
    os.close(ours)
    sys.stdin.close()


def test_a_line_that_nobody_waits_for_any_more_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def reads() -> str:
        waiting = asyncio.create_task(read_line("First? "))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        os.write(ours, b"for the second\n")
        return await read_line("Second? ")

    ours = at_terminal(monkeypatch)
    assert asyncio.run(reads()) == "for the second"
    os.close(ours)
    sys.stdin.close()


def test_what_was_typed_before_a_question_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who is impatient presses Enter, and would send a form that nobody has read."""

    async def answers() -> ElicitResult:
        answer = asyncio.create_task(InputPrompter("kitchen", read=read_line).answer(form({"type": "object"})))
        shown = ""
        async with asyncio.timeout(PATIENCE):
            while "Send it?" not in shown:
                await asyncio.sleep(0.01)
                shown += capsys.readouterr().err
        os.write(ours, b"d\n")
        return await answer

    ours = at_terminal(monkeypatch)
    os.write(ours, b"\n\n")
    assert select.select([sys.stdin], [], [], PATIENCE)[0]
    assert asyncio.run(answers()) == ElicitResult("decline")
    os.close(ours)
    sys.stdin.close()


def test_a_command_that_asks_has_two_options() -> None:
    @click.command()
    @input_options
    def command(**options: Any) -> None:
        assert options == {"answers": ("a=b", "c=d"), "roots": (".",)}

    command(["--answer", "a=b", "--root", ".", "--answer", "c=d"], standalone_mode=False)


# --- At a real terminal ---


def test_a_form_at_a_terminal() -> None:
    said = [("Your name", "Ada\n"), ("size (", "2\n"), ("bread (", "\n"), ("extras (", "ham\n"), ("pieces (", "99\n")]
    said += [("It must be", "3\n"), ("hot (", "n\n"), ("mail (", "\n"), ("day (", "\n"), ("Send it?", "\n")]
    done = on_terminal("call", "order", "--json", *KITCHEN, typed=said, columns=200)
    assert done.code == 0, done.out
    assert '"extras": [\n        "ham"\n      ]' in done.out
    assert '"pieces": 3' in done.out


def test_a_legacy_server_asks_in_the_same_way() -> None:
    words = ["call", "order", "--revision", "2025-11-25", *KITCHEN]
    done = on_terminal(*words, typed=[("Your name", "!decline\n")])
    assert done.code == 0, done.out
    assert '"action": "decline"' in done.out


def test_the_end_of_the_input_cancels() -> None:
    done = on_terminal("call", "confirm", *KITCHEN, typed=[("Send it?", "\x04")])
    assert (done.code, done.out.splitlines()[-1]) == (0, "cancel")


def test_ctrl_c_at_a_question_ends_everything() -> None:
    done = on_terminal("call", "confirm", *KITCHEN, typed=[("Send it?", "\x03")])
    assert done.code == 130, done.out
    assert "Traceback" not in done.out


def test_a_browser_is_started_only_after_a_yes(tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n', encoding="utf-8")
    browser.chmod(0o755)
    env = {"BROWSER": str(browser)}
    done = on_terminal("call", "pay", *KITCHEN, typed=[("Open it", "n\n")], env=env)
    assert done.out.splitlines()[-1] == "decline"
    assert not (tmp_path / "opened").exists()
    done = on_terminal("call", "pay", *KITCHEN, typed=[("Open it", "y\n")], env=env)
    assert done.out.splitlines()[-1] == "accept"
    assert (tmp_path / "opened").read_text(encoding="utf-8") == "https://example.org/pay\n"


def test_at_a_terminal_the_server_may_ask_in_both_ways() -> None:
    done = on_terminal("call", "abilities", *KITCHEN)
    assert done.out == "elicitation: form url, sampling: False, roots: False\n"
