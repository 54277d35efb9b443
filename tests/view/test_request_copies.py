"""Copies of a request: whatever is in it, they say the same, and all of it can be seen."""

from __future__ import annotations

import ast
import json
import shlex
from typing import Any

import pytest

from mcplumb.view.request_copies import curl_command, mcplumb_command, python_program, visible_json

#: Text that a shell, JSON, Python or a terminal would read differently.
TEXTS = [
    'it\'s "quoted" $HOME $(id) `id` !! \\n \\',
    "two\nlines\tand a tab\r",
    "éß 日本 🙂 e\u0301",
    "\u202eright to left\u2066 \u200bzero\ufeff \u2028 \x1b[31m \x7f \x9b \U000e0041",
    "\x00",
    "-",
]


def request(text: str) -> dict[str, Any]:
    return {"name": "echo", "arguments": {"text": text, text: [1.5, None, 12345678901234567890]}}


@pytest.mark.parametrize("text", TEXTS)
def test_a_command_says_the_same_and_hides_nothing(text: str) -> None:
    params = request(text)
    command = mcplumb_command("tools/call", params, ["--", "python", "my server.py"])
    assert command is not None
    assert all(character.isprintable() for character in command)
    *words, _, given = shlex.split(command.partition(" -- ")[0])
    assert words == ["mcplumb", "call", "echo"]
    assert json.loads(given) == params["arguments"]
    body = json.dumps(params, ensure_ascii=False)
    curl = curl_command("http://127.0.0.1:1/", [], body)
    assert all(character.isprintable() or character == "\n" for character in curl)
    assert json.loads(shlex.split(curl)[-1]) == params


@pytest.mark.parametrize("text", TEXTS)
def test_a_program_says_the_same_and_hides_nothing(text: str) -> None:
    program = python_program("tools/call", request(text), ["python", "my server.py"])
    assert all(character.isprintable() or character == "\n" for character in program)
    calls = [node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Call)]
    (call,) = (each for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr == "call_tool")
    assert [ast.literal_eval(each) for each in call.args] == ["echo", request(text)["arguments"]]


def test_text_that_can_be_seen_stays_as_it_is() -> None:
    text = json.dumps({"a": "é 日本 🙂 \\ \n"}, ensure_ascii=False)
    assert visible_json(text) == text
