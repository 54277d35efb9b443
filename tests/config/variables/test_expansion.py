"""Variables in values."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.config.variables import Expander, UnknownVariable

ENVIRON = {"A": "1", "LONG_name2": "two", "EMPTY": "", "ODD": "${A}"}


def expander(*, bare: bool = False, **environ: str) -> Expander:
    answers = {"key": "secret"}
    return Expander(
        environ={**ENVIRON, **environ}, folder="/p/shop", home="/h/me", answer=answers.get, has_bare_names=bare
    )


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("", ""),
        ("plain", "plain"),
        ("${A}", "1"),
        ("x${A}y${LONG_name2}z", "x1ytwoz"),
        ("${env:A}", "1"),
        ("${A:-no}", "1"),
        ("${GONE:-yes}", "yes"),
        ("${GONE:-}", ""),
        ("${env:GONE:-yes}", "yes"),
        ("${GONE:-a:-b}", "a:-b"),
        ("${GONE:-${A}/${NOT:-b}}c", "1/bc"),
        ("${EMPTY:-no}", ""),
        ("${ODD}", "${A}"),
        ("$A", "$A"),
        ("5$", "5$"),
        ("$${A}", "${A}"),
        ("$$A", "$$A"),
        ("{A}", "{A}"),
        ("${workspaceFolder}/x", "/p/shop/x"),
        ("${workspaceFolderBasename}", "shop"),
        ("${userHome}", "/h/me"),
        ("${pathSeparator}${/}", "//"),
        ("${CLAUDE_PROJECT_DIR:-.}", "/p/shop"),
        ("${input:key}", "secret"),
    ],
)
def test_what_a_value_becomes(text: str, expanded: str) -> None:
    one = expander()
    assert one.expand(text) == expanded
    assert one.missing == []
    assert one.unanswered == []


def test_the_current_folder() -> None:
    assert expander().expand("${cwd}") == str(Path.cwd())


def test_a_variable_of_that_name_comes_first() -> None:
    assert expander(CLAUDE_PROJECT_DIR="/x").expand("${CLAUDE_PROJECT_DIR}") == "/x"
    assert expander(userHome="/x").expand("${env:userHome}") == "/x"


@pytest.mark.parametrize(
    ("text", "expanded"), [("$A/$LONG_name2.", "1/two."), ("$GONE $5 $", "$GONE $5 $"), ("${A}$A", "11")]
)
def test_names_without_braces_where_they_count(text: str, expanded: str) -> None:
    assert expander(bare=True).expand(text) == expanded


def test_what_has_no_value_is_remembered_once() -> None:
    one = expander()
    assert one.expand("${X}-${env:Y}-${X}-${input:a}${input:a}") == "---"
    assert one.missing == ["X", "Y"]
    assert one.unanswered == ["a"]


@pytest.mark.parametrize("inside", ["", "1x", "config:a.b", "command:x", "a-b", "workspaceFolder:api", ":-x", "env:"])
def test_what_means_nothing_is_told(inside: str) -> None:
    with pytest.raises(UnknownVariable) as caught:
        expander().expand(f"${{{inside}}}")
    assert f"does not know what ${{{inside}}} means. To keep it literally, write $${{{inside}}}" in str(caught.value)


@pytest.mark.parametrize("text", ["${A", "x${", "${A:-${B}"])
def test_an_open_brace_is_told(text: str) -> None:
    with pytest.raises(UnknownVariable, match="without its }"):
        expander().expand(text)


def test_defaults_within_defaults_have_an_end() -> None:
    assert expander().expand("${GONE:-" * 10 + "x" + "}" * 10) == "x"
    for count in (11, 100_000):
        with pytest.raises(UnknownVariable, match="more than 10 variables within each other"):
            expander().expand("${GONE:-" * count + "x" + "}" * count)


@given(st.text().filter(lambda text: "${" not in text))
def test_all_other_text_stays(text: str) -> None:
    assert expander().expand(text) == text
