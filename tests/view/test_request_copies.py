"""Copies of a request: whatever is in it, they say the same, and all of it can be seen."""

from __future__ import annotations

import ast
import json
import shlex
import shutil
import subprocess
from typing import Any

import pytest

from mcplumb.recording.recorder import new_header
from mcplumb.recording.recording_format import Http, Record, Target
from mcplumb.view.request_copies import curl_command, mcplumb_command, python_program, shell_words, visible_json
from mcplumb.view.watch.copy_as import copies_of

#: Text that a shell, JSON, Python or a terminal would read differently.
TEXTS = [
    'it\'s "quoted" $HOME $(id) `id` !! \\n \\',
    "two\nlines\tand a tab\r",
    "éß 日本 🙂 e\u0301",
    "\u202eright to left\u2066 \u200bzero\ufeff \u2028 \x1b[31m \x7f \x9b \U000e0041",
    "\x00",
    "\x03\x1b[201~\nrm -rf /\n",
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
def test_a_name_and_a_server_hide_nothing(text: str) -> None:
    command = mcplumb_command("tools/call", {"name": f"a{text}"}, ["--", "python", f"{text}.py"])
    assert command is not None
    assert all(character.isprintable() for character in command)
    said = text.partition("\0")[0]  # no argument of a program has more
    assert words_of(command) == ["mcplumb", "call", f"a{said}", "--", "python", said if "\0" in text else f"{text}.py"]
    copies = copies_of(
        new_header("tap", "http", target=Target(url=f"http://x/{text}")),
        Record(
            t=1.0,
            sender="client",
            text='{"jsonrpc":"2.0","id":1,\t"method":"ping"}\r',
            http=Http(exchange=1, method="POST", headers=[("x-a", text)]),
        ),
    )
    assert all(character.isprintable() or character == "\n" for character in "".join(copies.values()))
    copies = copies_of(
        new_header("tap", "stdio", target=Target(command=["python", text])),
        Record(t=1.0, sender="client", text='{"jsonrpc":"2.0","id":1,"method":"ping"}'),
    )
    assert all(character.isprintable() or character == "\n" for character in "".join(copies.values()))


def words_of(command: str) -> list[str]:
    """Return the words that a shell makes of a command."""
    program = f"for word in {command}; do printf '%s\\0' \"$word\"; done"
    bash = shutil.which("bash") or "/bin/bash"
    done = subprocess.run([bash, "-c", program], check=True, capture_output=True, timeout=60)
    return done.stdout.decode().split("\0")[:-1]


def test_words_that_can_be_seen_are_quoted_as_ever() -> None:
    assert shell_words("a b", "é", "it's") == shlex.join(["a b", "é", "it's"])


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
