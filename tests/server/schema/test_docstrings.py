"""Docstrings in the styles that are in use."""

from __future__ import annotations

from inspect import cleandoc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.server.schema.docstrings import Docstring, read_docstring

GOOGLE = """
    Say what the weather will be.

    It asks a satellite.

    Args:
        city: Where.
        days (int, optional): How many days
            from now on.

            At most ten.
        *rest: More.
        units (Literal["a:b", (1)]): Which.

    Returns:
        A forecast.
"""

NUMPY = """
    Say what the weather will be.

    It asks a satellite.

    Parameters
    ----------
    city : str
        Where.
    days, hours : int, optional
        How long
        from now on.
    rest

    Returns
    -------
    str
        A forecast.
"""

SPHINX = """
    Say what the weather will be.

    It asks a satellite.

    :param city: Where.
    :type city: str
    :param int days: How many days
        from now on.
    :keyword units: Which.
    :returns: A forecast.
    :rtype: str
"""


def test_google() -> None:
    assert read_docstring(GOOGLE) == Docstring(
        "Say what the weather will be.\n\nIt asks a satellite.\n\nReturns:\n    A forecast.",
        {"city": "Where.", "days": "How many days\nfrom now on.\n\nAt most ten.", "rest": "More.", "units": "Which."},
    )


def test_numpy() -> None:
    assert read_docstring(NUMPY) == Docstring(
        "Say what the weather will be.\n\nIt asks a satellite.\n\nReturns\n-------\nstr\n    A forecast.",
        {"city": "Where.", "days": "How long\nfrom now on.", "hours": "How long\nfrom now on."},
    )


def test_sphinx() -> None:
    assert read_docstring(SPHINX) == Docstring(
        "Say what the weather will be.\n\nIt asks a satellite.\n\n:returns: A forecast.",
        {"city": "Where.", "days": "How many days\nfrom now on.", "units": "Which."},
    )


@pytest.mark.parametrize("title", ["Args", "Arguments", "Parameters", "Attributes", "Keyword Args", "PARAMS"])
def test_titles(title: str) -> None:
    assert read_docstring(f"Do.\n\n{title}:\n  a: One.\n") == Docstring("Do.", {"a": "One."})
    assert read_docstring(f"Do.\n\n{title}\n---\na\n  One.\n") == Docstring("Do.", {"a": "One."})


@pytest.mark.parametrize("text", [None, "", "   \n "])
def test_nothing(text: str | None) -> None:
    assert read_docstring(text) == Docstring("", {})


@pytest.mark.parametrize(
    "text",
    [
        "Do it.",
        "Do it.\n\nArgs: none.",
        "Do it.\n\nArgs:\nnothing",
        "Do it.\n\nArgs:",
        "Do it.\n\nParameters",
        "Do it.\n\n: no field",
        "Do it: now.\n\n:raises ValueError: if not.",
        "A title\n-------\n\nand text",
        "Do it.\n\n:param: what",
        "Do it.\n\n:param x",
    ],
)
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert read_docstring(text) == Docstring(text, {})


def test_a_section_ends_where_something_else_begins() -> None:
    found = read_docstring("Do.\n\nArgs:\n    a: One.\n    A remark, and no item.\n\nThe end.")
    assert found == Docstring("Do.\n\n    A remark, and no item.\n\nThe end.", {"a": "One."})
    found = read_docstring("Do.\n\nParameters\n----------\na : int\n    One.\n\nThe end of it.")
    assert found == Docstring("Do.\n\nThe end of it.", {"a": "One."})
    found = read_docstring("Do.\n\nParameters\n----------\na\n    One.\nReturns\n-------\nint")
    assert found == Docstring("Do.\n\nReturns\n-------\nint", {"a": "One."})
    found = read_docstring("Do.\n\nArgs:\n    a: One.\nArgs:\n    b: Two.")
    assert found == Docstring("Do.", {"a": "One.", "b": "Two."})


def test_the_summary_is_the_first_paragraph_in_one_line() -> None:
    assert read_docstring("Do\n    it.\n\n    More.").summary == "Do it."
    assert read_docstring("").summary == ""


def test_many_blank_lines_are_one() -> None:
    assert read_docstring("Do.\n\n\n\nMore.").description == "Do.\n\nMore."


@given(st.lists(st.sampled_from(["a", "word", " ", "    ", "\t", "\n", "\n\n", "\n    ", "é"])).map("".join))
def test_indentation_is_removed_as_inspect_does(text: str) -> None:
    # After an empty line: the first line is treated differently, and here it has been already.
    assert read_docstring(text) == read_docstring("\n" + cleandoc(text))
