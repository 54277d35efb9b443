"""The docs are true: generated pages are fresh, links lead somewhere, examples run, and no private path is in a file.

Every block that is fenced as ``python`` is run, all blocks of a page in one program, from top to bottom.
"""

from __future__ import annotations

import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from xml.etree import ElementTree as ET

import pytest

import mcplumb
from mcplumb import Client, Context, Group, Server, errors, sync, types
from mcplumb.types import CallToolResult, Payload
from tests.repo.source import ROOT
from tools.doc_examples import PAGES, example
from tools.generate_docs import ARCHITECTURE, WALK_PYTHON, tables
from tools.generate_docs import PAGES as GENERATED
from tools.record_demo import FIRST_LOOK, FIRST_PAGE, first_look

FENCE = re.compile(r"^(```+|~~~+)[^\n]*\n.*?^\1\s*?$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)

# Written so that this file does not find itself. A path inside an address is an example, not a path of a machine.
PRIVATE = re.compile(
    r"(?<![\w./-])/(?:wor[k]|roo[t]|hom[e]/\w+|tm[p])(?=[/\s\"'`),;:]|$)|inde[x]-url|artifac[t]ory", re.MULTILINE
)
# Made by tools, not written by people; and the official files of the protocol, which are kept as they came.
UNWRITTEN = {
    ".git",
    ".venv",
    ".site",
    ".fuzz",
    ".bench",
    ".interop",
    ".conformance",
    ".hypothesis",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    "__pycache__",
    "dist",
}
OFFICIAL = ROOT / "tests" / "data"


# Packages with names that pages do not also use for a variable, such as ``server``; and what follows one in a name.
PACKAGES = "bridge|protocol|recording|rpc|stores|tap|telemetry|testing|transports|types|view|wire"
DOTTED = re.compile(rf"`(?:mcplumb\.)?((?:{PACKAGES})(?:\.\w+)+)[`(]")


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return {slug(heading) for heading in re.findall(r"^#+\s+(.*)$", text, re.MULTILINE)}


def dead_links(page: Path) -> Iterator[str]:
    for match in LINK.finditer(FENCE.sub("", page.read_text(encoding="utf-8"))):
        link = match[1] or match[2]
        if re.match(r"[a-z][a-z+.-]*:", link):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists():
            yield f"{page.name} links to {link}, which does not exist"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{page.name} links to {link}, but there is no such heading"


def written_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.iterdir()):
        if path.name in UNWRITTEN or path.name.endswith(".egg-info") or path == OFFICIAL:
            continue
        if path.is_dir():
            yield from written_files(path)
        else:
            yield path


def private_words(root: Path) -> Iterator[str]:
    for path in written_files(root):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for match in PRIVATE.finditer(text):
            yield f"{path.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1} has {match[0]!r}"


@pytest.mark.parametrize("page", sorted(GENERATED), ids=lambda page: page.name)
def test_a_generated_page_is_fresh(page: Path) -> None:
    if page == ARCHITECTURE and sys.version_info[:2] != WALK_PYTHON:
        pytest.skip("the walk of a call on this page is that of another Python")
    assert page.read_text(encoding="utf-8") == GENERATED[page](), "run make docs"


def test_the_state_machines_page_has_every_machine_once() -> None:
    names = [table.name for _, table in tables()]
    assert names
    assert len(names) == len(set(names))
    assert {slug(name) for name in names} <= anchors(ROOT / "docs" / "topics" / "state-machines.md")


def public_members(kind: type) -> list[str]:
    """The names of the documented members: a second name of a method is not documented."""
    return [
        name
        for name, member in vars(kind).items()
        if name[0] != "_"
        and (isinstance(member, property) or (type(member) is FunctionType and member.__name__ == name))
    ]


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        ("servers", Server),
        ("servers", Context),
        ("clients", Client),
        ("clients", Group),
        ("sync", sync.Client),
        ("sync", sync.Group),
        ("types", CallToolResult),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__qualname__,
)
def test_the_reference_has_each_method_with_its_types(page: str, kind: type) -> None:
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    for name in public_members(kind):
        found = re.search(rf"^### {kind.__name__}\.{name}\n\n```py\n(.*?)\n```\n\n\S", text, re.MULTILINE | re.DOTALL)
        assert found is not None, f"{kind.__name__}.{name} has no heading, signature and text"
        is_method = "def " in found[1]
        assert (" -> " in found[1]) if is_method else found[1].startswith(f"{name}: "), found[1]
        assert "Asked" not in found[1]


def test_the_reference_has_each_type() -> None:
    page = anchors(ROOT / "docs" / "reference" / "types.md")
    kinds = [name for name in types.__all__ if isinstance(getattr(types, name), type)]
    assert [name for name in kinds if issubclass(getattr(types, name), Payload) and slug(name) not in page] == []


def test_the_reference_has_each_name_of_the_package() -> None:
    found = set().union(*(anchors(page) for page in (ROOT / "docs" / "reference").glob("*.md")))
    assert [name for name in mcplumb.__all__ if slug(name) not in found] == ["__version__", "sync"]


def test_the_reference_has_config_files_and_errors() -> None:
    assert {"load_config", "config", "serverentry"} <= anchors(ROOT / "docs" / "reference" / "config-files.md")
    assert {slug(name) for name in errors.__all__} <= anchors(ROOT / "docs" / "reference" / "errors.md")


def test_the_picture_of_the_first_page_is_what_its_commands_print() -> None:
    page = FIRST_PAGE.read_text(encoding="utf-8")
    assert f"]({FIRST_LOOK.name})" in page
    drawn = [" ".join(ET.fromstring(svg).itertext()) for svg in (FIRST_LOOK.read_text(encoding="utf-8"), first_look())]  # noqa: S314
    assert drawn[0] == drawn[1], "make the picture anew: python -m tools.record_demo first-look"


def unknown_names(text: str) -> Iterator[str]:
    for match in DOTTED.finditer(text):
        try:
            pkgutil.resolve_name(f"mcplumb.{match[1]}")
        except (ImportError, AttributeError):
            yield match[1]


def test_modules_on_pages_are_those_of_the_source() -> None:
    found = {page.name: [*unknown_names(page.read_text(encoding="utf-8"))] for page in PAGES}
    assert {page: names for page, names in found.items() if names} == {}


def test_the_guard_finds_unknown_modules() -> None:
    text = "`wire.lines.LineSplitter`, `mcplumb.wire.lines`, `types.read(…)`, `server.run`, `wire.gone`, `tap.gone(`"
    assert [*unknown_names(text)] == ["wire.gone", "tap.gone"]


def test_the_pythons_of_the_package_are_those_of_the_first_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    minors = [int(found[1]) for text in project["classifiers"] if (found := re.search(r":: 3\.(\d+)$", text))]
    assert minors == [*range(minors[0], minors[-1] + 1)]
    assert project["requires-python"] == f">=3.{minors[0]}"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"**Python versions.** CPython 3.{minors[0]} to 3.{minors[-1]}," in readme


def test_links_lead_somewhere() -> None:
    assert [said for page in PAGES for said in dead_links(page)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    code = example(page)
    if code.strip():
        program = tmp_path / "example.py"
        program.write_text(code, encoding="utf-8")
        # The server that pages about clients launch, with the Python that runs this.
        shutil.copy(ROOT / "examples" / "weather.py", tmp_path)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [sys.executable, "-E", "-s", "-W", "error", program],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,  # a server that a page runs ends at once
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr


TESTING = [page for page in PAGES if "\ndef test_" in example(page)]


@pytest.mark.parametrize("page", TESTING, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_tests_of_a_page_pass(page: Path, tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(example(page), encoding="utf-8")
    shutil.copy(ROOT / "examples" / "weather.py", tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_example.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    written = len(re.findall(r"^def test_", example(page), re.MULTILINE))
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= written


def test_no_private_path_is_in_a_file() -> None:
    assert list(private_words(ROOT)) == []


def test_the_guard_finds_dead_links(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One two\n[a](page.md) [b](gone.md) ![c](gone.png 'x') [d](#one-two) [e](page.md#three) [f](https://x.y/z)\n"
        "[g]: also-gone.md\n```\n# three\n[h](not-a-link.md)\n```\n"
    )
    assert list(dead_links(page)) == [
        "page.md links to gone.md, which does not exist",
        "page.md links to gone.png, which does not exist",
        "page.md links to page.md#three, but there is no such heading",
        "page.md links to also-gone.md, which does not exist",
    ]


def test_the_guard_finds_private_paths(tmp_path: Path) -> None:
    slash = "/"
    for name in ("work", "root", "tmp"):
        (tmp_path / f"{name}.txt").write_text(f"x\nsee {slash}{name}/x\n")
    (tmp_path / "fine.txt").write_text(f"network/work\nhttps://x.y/work\nfile://{slash}work/x\n{slash}workshop\n")
    (tmp_path / "binary").write_bytes(b"\xff" + f"{slash}work{slash}".encode())
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.txt").write_text(f"{slash}work{slash}")
    assert list(private_words(tmp_path)) == [f"{name}.txt:2 has '/{name}'" for name in ("root", "tmp", "work")]


def test_examples_keep_their_line_numbers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\na = 1\n```\n\n```sh\nls\n```\n\n```python\nprint(a)\n```\n")
    assert example(page).splitlines() == ["", "", "", "a = 1", "", "", "", "", "", "", "", "print(a)"]
