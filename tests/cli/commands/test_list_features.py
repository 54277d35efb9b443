"""``mcplumb tools``, ``resources`` and ``prompts``."""

from __future__ import annotations

import re

import pytest

from mcplumb.cli.commands.list_features import find
from mcplumb.errors import UsageError
from tests.cli.kit import LEGACY, PYTHON, SERVERS, WEATHER, here, on_terminal

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def lists(mode: str) -> list[str]:
    return ["--", PYTHON, str(SERVERS / "lists.py"), mode]


def test_tools_are_a_table() -> None:
    done = here("tools", *WEATHER)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "TOOL                    DESCRIPTION\n"
        "forecast(city, days=3)  The weather of the next days.\n"
        "measure(samples)        Measure the temperature, slowly.\n"
    )


def test_tools_come_from_all_pages_and_with_all_that_the_server_says() -> None:
    done = here("tools", "--json", *LEGACY)
    assert [tool["name"] for tool in done.json["tools"]] == ["first", "second"]
    assert done.json["tools"][0]["x-unknown"] == 1


def test_a_tool_s_arguments_are_a_table() -> None:
    assert here("tools", "--schema", "forecast", *WEATHER).out == (
        "forecast(city, days=3)\n"
        "The weather of the next days.\n"
        "\n"
        "ARGUMENT  TYPE     REQUIRED  DEFAULT  DESCRIPTION\n"
        "city      string   yes                The name of a city.\n"
        "days      integer            3        How many days, up to three.\n"
    )
    assert here("tools", "--schema", "first", *LEGACY).out == "first()\nThe first.\n\nIt takes no arguments.\n"
    assert here("tools", "--schema", "second", *LEGACY).out.startswith("second(a)\n\nARGUMENT")


def test_arguments_are_no_table_where_that_would_be_broken_words() -> None:
    done = on_terminal("tools", "--schema", "forecast", "--no-color", *WEATHER, columns=40)
    lines = [line.rstrip() for line in _STYLE.sub("", done.out).splitlines()]
    assert lines[3:] == [
        "city  string, required. The name of a",
        "      city.",
        "days  integer, default 3. How many days,",
        "      up to three.",
    ]


def test_a_tool_s_schema_can_be_had_as_it_is() -> None:
    assert here("tools", "--schema", "second", "--json", *LEGACY).json == {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
    }


def test_resources_are_a_table_with_the_templates() -> None:
    assert here("resources", *WEATHER).out == (
        "URI                     NAME   TYPE        DESCRIPTION\n"
        "weather://{city}/today  today  text/plain  The weather of today.\n"
    )
    found = here("resources", "--json", *WEATHER).json
    assert found["resources"] == []
    assert [template["name"] for template in found["resourceTemplates"]] == ["today"]


def test_prompts_are_a_table() -> None:
    assert here("prompts", *WEATHER) == (0, "PROMPT      DESCRIPTION\nplan(city)  Plan a day.\n", "")
    assert [prompt["name"] for prompt in here("prompts", "--json", *WEATHER).json["prompts"]] == ["plan"]


def test_a_prompt_s_arguments_are_a_table() -> None:
    done = here("prompts", "--schema", "plan", *WEATHER)
    assert done.out == ("plan(city)\nPlan a day.\n\nARGUMENT  TYPE    REQUIRED\ncity      string  yes\n")
    assert here("prompts", "--schema", "plan", "--json", *WEATHER).json == [{"name": "city", "required": True}]


@pytest.mark.parametrize("mode", ["empty", "unknown"])
@pytest.mark.parametrize("what", ["tools", "resources", "prompts"])
def test_a_server_may_have_none(what: str, mode: str) -> None:
    if what == "resources" and mode == "empty":
        return  # the other list of theirs is not an empty one
    assert here(what, *lists(mode)) == (0, "", f"The server has no {what}.\n")


@pytest.mark.parametrize("mode", ["circle", "number", "none", "text", "texts"])
def test_a_list_that_is_none_breaks_the_protocol(mode: str) -> None:
    done = here("tools", *lists(mode))
    assert (done.code, done.out) == (4, "")
    said = "repeats pages of tools/list" if mode in ("circle", "number") else "without a list of objects in 'tools'"
    assert said in done.err


def test_a_list_that_ends_in_an_error_has_failed() -> None:
    assert here("tools", *lists("late")).code == 4
    assert "No tools today." in here("tools", *lists("failing")).err


def test_an_entry_with_a_fault_does_not_hide_the_others() -> None:
    assert here("tools", *lists("odd")).out == "TOOL    DESCRIPTION\n()\ngood()  Good\n"
    assert here("prompts", *lists("odd")).out == "PROMPT  DESCRIPTION\n(a?)\ngood()  Good\n"


def test_definitions_that_are_broken_are_reported() -> None:
    done = here("tools", *lists("broken"))
    assert done.code == 0
    assert done.out.splitlines()[1].split() == ["number()"]
    text = "The tool 'text' is broken: its inputSchema is of type 'string', and must be of type 'object'"
    unnamed = (
        "The tool number 4 is broken: it has no name; the properties in its inputSchema are [], and must be an object"
    )
    said = [
        "The tool 'number' is broken: its description is 5, and must be a string.",
        "The tool 'bare' is broken: it has no inputSchema; its title is null, and must be a string.",
        f"{text}; its outputSchema is [], and must be an object.",
        f"{unnamed}; the required in its inputSchema is 'x', and must be a list.",
        "The tool 'good' is broken: its name is listed twice.",
    ]
    assert done.err.splitlines() == said
    document = here("tools", "--json", *lists("broken"))
    assert (len(document.json["tools"]), document.err.splitlines()) == (6, said)


def test_other_definitions_that_are_broken_are_reported() -> None:
    done = here("prompts", *lists("broken"))
    assert done.err == "The prompt 'p' is broken: its argument number 1 has no name.\n"
    done = here("resources", "--json", *lists("broken"))
    assert done.err.splitlines() == [
        "The resource 'a://b' is broken: it has no name; its mimeType is 7, and must be a string.",
        "The resource template number 1 is broken: it has no uriTemplate.",
    ]


def test_a_name_that_is_not_there_is_told_its_neighbours() -> None:
    names = [{"name": name} for name in ("forecast", "foresight", "measure", "plan")]
    assert find(names, "plan", "tool") == {"name": "plan"}
    for name, hint in {
        "forecas": "Did you mean forecast or foresight?",
        "xyz": "It has forecast, foresight, measure, plan.",
    }.items():
        with pytest.raises(UsageError) as caught:
            find(names, name, "tool")
        assert str(caught.value) == f"The server has no tool {name!r}. {hint}"
    with pytest.raises(UsageError, match="It has none"):
        find([], "x", "tool")
    with pytest.raises(UsageError, match="n18, n19 …"):
        find([{"name": f"n{number}"} for number in range(30)], "---", "tool")


@pytest.mark.parametrize(("command", "what"), [("call", "tool"), ("prompt", "prompt")])
def test_what_a_server_does_not_know_at_all_it_has_none_of(command: str, what: str) -> None:
    said = f"Error: The server has no {what} 'x'. It has none.\n"
    assert here(command, "x", *lists("unknown")) == (2, "", said)
    assert "No tools today." in here("call", "x", *lists("failing")).err
