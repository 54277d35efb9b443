"""How Sphinx makes a site of these pages: ``make docs``.

The pages are written for a reader of the repository. On their way to the site, links to files outside of ``docs/`` go
to the repository, whose address ``MCPLUMB_REPOSITORY`` has, or become plain text; and commands with their output are
shown as such. The sections of the index become the tree of the site.
"""

import os
import re
import shutil
from importlib.metadata import version as installed_version
from pathlib import Path

HERE = Path(__file__).parent

project = "mcplumb"
version = release = installed_version("mcplumb")
root_doc = "README"
extensions = ["myst_parser", "sphinxcontrib.mermaid"]
myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]
# Diagrams in their own size, unless the page is narrower; not stretched to fill it.
mermaid_init_config = {"startOnLoad": False} | {
    kind: {"useMaxWidth": False} for kind in ("flowchart", "sequence", "state")
}
mermaid_width, mermaid_height = "revert-layer", "auto"
html_theme = "furo"
html_title = f"mcplumb {version}"
html_copy_source = False
html_show_sourcelink = False

REPOSITORY = os.environ.get("MCPLUMB_REPOSITORY", "").rstrip("/")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]*)(#[^)\s]*)?\)")
SECTION = re.compile(r"^\*\*(\w[\w-]*)\*\*", re.MULTILINE)
ENTRY = re.compile(r"^- \[[^\]]*\]\(([^)]+)\.md\)", re.MULTILINE)


def inside(page, text):
    """The text of a page, with no link that leaves ``docs/``."""

    def replaced(link):
        target = (page.parent / link[2]).resolve()
        if target.is_relative_to(HERE):
            return link[0]
        place = target.relative_to(HERE.parent)
        return f"[{link[1]}]({REPOSITORY}/{place}{link[3] or ''})" if REPOSITORY else link[1]

    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(replaced, part) for part in parts)


def tree(index):
    """A hidden table of contents for each section of the index."""
    _, *sections = SECTION.split(index)
    for name, listed in zip(sections[::2], sections[1::2], strict=True):
        entries = "\n".join(ENTRY.findall(listed))
        yield f"\n```{{toctree}}\n:hidden:\n:caption: {name}\n\n{entries}\n```\n"


def prepare(app, name, source):
    """Change a page on its way to the site."""
    page = HERE / f"{name}.md"
    source[0] = inside(page, source[0]).replace("```sh\n$ ", "```console\n$ ")
    if name == root_doc:
        source[0] += "".join(tree(source[0]))


def add_index(app, error):
    """Let the site begin where web servers look."""
    if error is None and app.builder.format == "html":
        shutil.copy(app.outdir / f"{root_doc}.html", app.outdir / "index.html")


def setup(app):
    """Sphinx calls this before it begins."""
    app.connect("source-read", prepare)
    app.connect("build-finished", add_index)
