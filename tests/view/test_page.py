"""The files of the page: nothing in them could run what a server says, and nothing comes from elsewhere."""

from __future__ import annotations

import re

import pytest

from mcplumb.view.view_app import page_files

FILES = {path: content.decode() for path, (_, content) in page_files().items()}
SCRIPTS = {path: text for path, text in FILES.items() if path.endswith(".js")}

#: What turns text into markup or code, or could send something elsewhere.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|setHTML|srcdoc"
    r"|\beval\b|\bFunction\(|new Function|setTimeout\(\s*[\"'`]|setInterval\(\s*[\"'`]|javascript:"
    r"|createPolicy|XMLHttpRequest|sendBeacon|WebSocket|importScripts|\bWorker\("
)


def without_comments(text: str) -> str:
    return re.sub(r"^\s*//[^\n]*$|/\*.*?\*/", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.req("VIW-1")
@pytest.mark.parametrize("path", SCRIPTS)
def test_no_script_makes_markup_or_code_of_text(path: str) -> None:
    assert FORBIDDEN.findall(without_comments(SCRIPTS[path])) == []


def test_the_search_finds_what_it_looks_for() -> None:
    for planted in ("a.innerHTML = b", "eval(x)", "new Function('x')", 'setTimeout("x")', "// a\nx.outerHTML = 1"):
        assert FORBIDDEN.findall(without_comments(planted)), planted


#: An address elsewhere where a script would load it; a script may show one, as an example.
LOADS = re.compile(r"""(?:import|from|fetch|EventSource|src|href|location|open)\W{0,4}["'`](?:\w+:)?//""")


@pytest.mark.req("VIW-1")
@pytest.mark.parametrize("path", FILES)
def test_nothing_comes_from_elsewhere(path: str) -> None:
    text = without_comments(FILES[path]).replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"@import|url\(", text) == []
    assert (LOADS if path in SCRIPTS else re.compile(r"(?:https?:)?//[\w.-]+")).findall(text) == []


def test_an_address_elsewhere_is_found() -> None:
    for planted in (
        'import "//x"',
        "fetch(`https://x`)",
        'src: "http://x"',
        'new EventSource("//x")',
        'location.href = "//x"',
    ):
        assert LOADS.findall(planted), planted
    assert not LOADS.findall('placeholder: "https://example.com/mcp"')


@pytest.mark.parametrize("path", [path for path in FILES if path.endswith(".html")])
def test_the_page_has_no_script_or_style_of_its_own_inside(path: str) -> None:
    text = FILES[path]
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text) == []


@pytest.mark.parametrize("path", SCRIPTS)
def test_what_a_script_imports_is_there(path: str) -> None:
    folder = path.rpartition("/")[0].split("/")
    for name in re.findall(r"""from "(\.[^"]+)";""", SCRIPTS[path]):
        parts = list(folder)
        for part in name.split("/"):
            if part == "..":
                parts.pop()
            elif part != ".":
                parts.append(part)
        assert "/".join(parts) in FILES, name


@pytest.mark.parametrize("path", FILES)
def test_a_file_is_one_topic(path: str) -> None:
    assert len(FILES[path].splitlines()) <= 800
