"""Sphinx settings: ``make docs`` builds a site from these pages.

The pages are written for readers of the repository. For the site, links to files outside of ``docs/`` are rewritten:
they point to the repository if ``MCPLUMB_REPOSITORY`` has its address, and become plain text otherwise. Commands with
their output are highlighted as console sessions. The sections of the first page, and their groups, become the table of
contents. Names in the headings of the reference become entries of the index.
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
#: A section of the index, or a group of pages in it.
SECTION = re.compile(r"^(?:\*\*(\w[\w-]*)\*\*.*|(\w.*):)$", re.MULTILINE)
NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)?")
#: The pages of the reference whose headings are names of the package.
NAMED = ("clients", "config-files", "errors", "servers", "sync", "transports", "types")
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
    """Yield a hidden table of contents for each section of the index, or for each of its groups."""
    _, *sections = SECTION.split(index)
    for section, group, listed in zip(sections[::3], sections[1::3], sections[2::3], strict=True):
        name, entries = section or group, "\n".join(ENTRY.findall(listed))
        if not entries:
            continue
        more = "\nIndex <genindex>" if name == "Reference" else ""
        yield f"\n```{{toctree}}\n:hidden:\n:caption: {name}\n\n{entries}{more}\n```\n"


def prepare(app, name, source):
    """Adapt a page to the site, as a handler of ``source-read``."""
    page = HERE / f"{name}.md"
    source[0] = inside(page, source[0]).replace("```sh\n$ ", "```console\n$ ")
    if name == root_doc:
        source[0] += "".join(tree(source[0]))


def index_entry(name, signature):
    """Return the entry of the index for a heading of the reference."""
    call = "()" if "def " in signature else ""
    owner, _, member = name.rpartition(".")
    if owner:
        return f"{member}{call} ({owner} {'method' if call else 'attribute'})"
    return f"{name}{call} ({'function' if call else 'class'})"


def index_names(document, docname):
    """Enter the names in the headings of a page of the reference into the index."""
    from docutils import nodes  # noqa: PLC0415 - the tests read these settings without Sphinx
    from sphinx import addnodes  # noqa: PLC0415

    folder, _, page = docname.partition("/")
    if folder != "reference" or page not in NAMED:
        return
    for section in list(document.findall(nodes.section)):
        name = section[0].astext()
        if isinstance(section.parent, nodes.section) and NAME.fullmatch(name):
            shown = next((child.astext() for child in section if isinstance(child, nodes.literal_block)), "")
            entry = ("single", index_entry(name, shown), section["ids"][0], "", None)
            section.insert(1, addnodes.index(entries=[entry]))


def copy_root(app, error):
    """Copy the root page to ``index.html``, where web servers look for it."""
    if error is None and app.builder.format == "html":
        shutil.copy(app.outdir / f"{root_doc}.html", app.outdir / "index.html")


def setup(app):
    """Register the handlers; Sphinx calls this function at start-up."""
    from sphinx.transforms import SphinxTransform  # noqa: PLC0415

    class IndexNames(SphinxTransform):
        """Enters names into the index of the site."""

        default_priority = 500  # before Sphinx collects the entries

        def apply(self, **kwargs):
            """Enter the names of one page."""
            index_names(self.document, self.env.docname)

    app.connect("source-read", prepare)
    app.add_transform(IndexNames)
    app.connect("build-finished", copy_root)
