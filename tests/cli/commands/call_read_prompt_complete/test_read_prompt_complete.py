"""``mcplumb read``, ``mcplumb prompt`` and ``mcplumb complete``, as their users run them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.kit import LEGACY, PYTHON, SERVERS, WEATHER, here, on_terminal
from tests.cli.servers.kitchen import PNG
from tests.kit.loop import PATIENCE

KITCHEN = ["--", PYTHON, str(SERVERS / "kitchen.py")]
#: A server that answers every completion, with no values, and lists nothing.
UNCHECKED = ["--", PYTHON, str(SERVERS / "incomplete.py")]
LEGACY_KITCHEN = ["--revision", "2025-11-25", *KITCHEN]

both = pytest.mark.parametrize("server", [KITCHEN, LEGACY_KITCHEN], ids=["modern", "legacy"])


# --- read ---


@both
def test_text_is_read_to_the_byte(server: list[str]) -> None:
    assert here("read", "kitchen://menu", *server) == (0, "soup\nbread", "")
    assert here("read", "kitchen://soup/recipe", *server) == (0, "Cook the soup.", "")


def test_bytes_go_into_a_pipe() -> None:
    command = [PYTHON, "-m", "mcplumb", "read", "kitchen://photo.png", *KITCHEN]
    assert subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True).stdout == PNG


def test_bytes_at_a_terminal_go_to_a_file(tmp_path: Path) -> None:
    done = on_terminal("read", "kitchen://photo.png", *KITCHEN, cwd=tmp_path)
    assert (done.code, done.out) == (0, "Saved 32 bytes (image/png) as photo.png.\n")
    assert (tmp_path / "photo.png").read_bytes() == PNG
    assert on_terminal("read", "kitchen://menu", *KITCHEN).out == "soup\nbread\n"


def test_what_is_read_can_go_to_a_place(tmp_path: Path) -> None:
    done = here("read", "kitchen://menu", "-o", "menu.txt", *KITCHEN, cwd=tmp_path)
    assert done == (0, "", "Saved 10 bytes (text/plain) as menu.txt.\n")
    assert (tmp_path / "menu.txt").read_text(encoding="utf-8") == "soup\nbread"
    again = here("read", "kitchen://menu", "-o", "menu.txt", *KITCHEN, cwd=tmp_path)
    assert again == (2, "", "Error: --output menu.txt: the file exists already, and is not overwritten.\n")


def test_what_is_read_as_json() -> None:
    contents = here("read", "kitchen://menu", "--json", *KITCHEN).json["contents"]
    assert contents == [{"uri": "kitchen://menu", "mimeType": "text/plain", "text": "soup\nbread"}]


def test_a_resource_that_is_not_there() -> None:
    done = here("read", "kitchen://cellar", *KITCHEN)
    assert (done.code, done.out) == (4, "")
    assert "kitchen://cellar" in done.err


@both
def test_reading_may_take_an_answer(server: list[str]) -> None:
    words = ["read", "kitchen://guest", "--answer", "name=Ada"]
    assert here(*words, "--answer", "size=small", *server) == (0, "for Ada", "")
    done = here(*words, *server)
    assert (done.code, done.out) == (2, "for cancel")


# --- prompt ---


@both
def test_a_pipe_gets_what_is_said(server: list[str]) -> None:
    assert here("prompt", "plan", "meal=lunch", *server) == (0, "Plan a lunch for two.\n\nWith soup?\n", "")


def test_a_terminal_also_gets_who_says_it() -> None:
    done = on_terminal("--no-color", "prompt", "plan", "meal=lunch", *KITCHEN, env={"TERM": "dumb"})
    assert done.out == "user:\nPlan a lunch for two.\nassistant:\nWith soup?\n"


def test_a_prompt_as_json() -> None:
    messages = here("prompt", "plan", "meal:=3", "--args", '{"guests": [1]}', "--json", *KITCHEN).json["messages"]
    assert messages[0] == {"role": "user", "content": {"type": "text", "text": "Plan a 3 for [1]."}}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["plan"],
            "Error: The argument 'meal' is missing.\n\nplan(meal, guests?)\n  meal    string, required.\n  guests  ",
        ),
        (
            ["plan", "meals=x"],
            "Error: There is no argument 'meals', did you mean \"meal\"?\nThe argument 'meal' is missing.\n",
        ),
        (["plans"], "Error: The server has no prompt 'plans'. Did you mean plan?\n"),
        (["plan", "x"], "Error: 'x' is not an argument: write key=value"),
    ],
)
def test_mistakes_are_explained(words: list[str], said: str) -> None:
    done = here("prompt", *words, *KITCHEN)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(said)


# --- complete ---


@both
def test_values_are_completed(server: list[str]) -> None:
    assert here("complete", "plan", "meal=br", *server) == (0, "breakfast\nbrunch\n", "")


def test_variables_of_templates_are_completed_and_cleaned() -> None:
    done = here("complete", "kitchen://{dish}/recipe", "dish=so", *KITCHEN)
    assert done == (0, "soup\n\\x1b]0;owned\\x07\\x1b[2J[red]x[/red]\n", "")


def test_what_is_known_already_counts() -> None:
    done = here("complete", "plan", "meal=lunch", "guests=", *KITCHEN)
    assert done.code == 0
    assert done.out.splitlines() == [f"{number} for lunch" for number in range(100)]
    assert done.err == "There are 150 in all.\n"


def test_completion_as_json() -> None:
    assert here("complete", "plan", "meal=lu", "--json", *KITCHEN).json["values"] == ["lunch"]


def test_a_completion_without_values_says_so() -> None:
    assert here("complete", "plan", "meal=x", *KITCHEN) == (0, "", "There are no completions for 'meal=x'.\n")
    done = here("complete", "plan", "meal=x", "--json", *KITCHEN)
    assert (done.code, done.json["values"], done.err) == (0, [], "")


@both
@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize("words", [["meals="], ["meal=x", "meals=y"], ["meals=y", "meal=x"]])
def test_an_argument_that_the_prompt_does_not_have_is_an_error(
    server: list[str], form: list[str], words: list[str]
) -> None:
    done = here("complete", "plan", *words, *form, *server)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "Error: There is no argument 'meals', did you mean \"meal\"?\n\nplan(meal, guests?)\n  meal    string, req"
    )


def test_a_variable_that_the_template_does_not_have_is_an_error() -> None:
    for template, said in {
        "a://{dish}/recipe": "The URI template 'a://{dish}/recipe' has no variable 'dishes'. It has 'dish'.",
        "a://soup/recipe": "The URI 'a://soup/recipe' has no variables.",
    }.items():
        done = here("complete", template, "dishes=so", *UNCHECKED)
        assert done == (2, "", f"Error: {said}\n")


@pytest.mark.parametrize("ref", ["hidden", "a:{b*}://"])
def test_without_a_definition_there_is_no_error(ref: str) -> None:
    """The server lists no prompts, and the template is of a form that mcplumb does not know."""
    assert here("complete", ref, "b=c", *UNCHECKED) == (0, "", "There are no completions for 'b=c'.\n")


def test_there_is_something_to_complete() -> None:
    done = here("complete", "plan", *KITCHEN)
    assert done.code == 2
    assert "Missing argument" in done.err


def test_what_is_completed_is_a_text() -> None:
    done = here("complete", "plan", "meal", *KITCHEN)
    assert done == (2, "", "Error: 'meal' is not an argument: write key=value.\n")


def test_a_server_that_cannot_complete() -> None:
    done = here("complete", "plan", "meal=", *LEGACY)
    assert (done.code, done.out) == (4, "")
    assert "Method not found" in done.err


def test_a_template_is_filled_in() -> None:
    template = "weather://{city}/today"
    assert here("read", template, "city=Oslo", *WEATHER) == (0, "snow", "")
    for words, said in {
        ("read", template): f"The URI template '{template}' needs a value for city.",
        ("read", template, "city=Oslo", "x=y"): f"The URI template '{template}' has no variable 'x'. It has 'city'.",
        ("read", template, "town=Oslo"): f"The URI template '{template}' has no variable 'town'. It has 'city'.",
        ("read", "weather://Oslo/today", "city=Oslo"): "The URI 'weather://Oslo/today' has no variables.",
        ("read", template, "city"): "'city' is not an argument: write key=value.",
    }.items():
        done = here(*words, *WEATHER)
        assert (done.code, done.out) == (2, "")
        assert said in done.err
