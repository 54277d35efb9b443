"""Sphinx settings: ``make docs`` builds a site from these pages.

The pages are written for readers of the repository. For the site, links to files outside of ``docs/`` are rewritten:
they point to the repository if ``MCPLUMB_REPOSITORY`` has its address, and become plain text otherwise. Commands with
their output are highlighted as console sessions. The sections of the index become the table of contents.
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
# Show diagrams at their own size, or smaller if the page is narrower; do not stretch them.
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
    """Return the text of a page without links to files outside of ``docs/``."""

    def replaced(link):
        target = (page.parent / link[2]).resolve()
        if target.is_relative_to(HERE):
            return link[0]
        place = target.relative_to(HERE.parent)
        return f"[{link[1]}]({REPOSITORY}/{place}{link[3] or ''})" if REPOSITORY else link[1]

    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(replaced, part) for part in parts)


def tree(index):
    """Yield a hidden table of contents for each section of the index."""
    _, *sections = SECTION.split(index)
    for name, listed in zip(sections[::2], sections[1::2], strict=True):
        entries = "\n".join(ENTRY.findall(listed))
        yield f"\n```{{toctree}}\n:hidden:\n:caption: {name}\n\n{entries}\n```\n"


def prepare(app, name, source):
    """Adapt a page to the site, as a handler of ``source-read``."""
    page = HERE / f"{name}.md"
    source[0] = inside(page, source[0]).replace("```sh\n$ ", "```console\n$ ")
    if name == root_doc:
        source[0] += "".join(tree(source[0]))


def add_index(app, error):
    """Copy the root page to ``index.html``, where web servers look for it."""
    if error is None and app.builder.format == "html":
        shutil.copy(app.outdir / f"{root_doc}.html", app.outdir / "index.html")


def setup(app):
    """Register the handlers; Sphinx calls this function at start-up."""
    app.connect("source-read", prepare)
    app.connect("build-finished", add_index)
