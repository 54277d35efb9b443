"""The Python examples of the docs as programs: ``python tools/doc_examples.py`` checks their types.

All blocks of a page that are fenced as ``python`` make one program, from top to bottom.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PYTHON = re.compile(r"^```python\s*?\n(.*?)^```\s*?$", re.MULTILINE | re.DOTALL)


def example(page: Path) -> str:
    """The Python of a page as one program, in which each line has the number that it has on the page."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * text.count("\n")
    for block in PYTHON.finditer(text):
        first = text.count("\n", 0, block.start(1))
        code = block[1].splitlines()
        lines[first : first + len(code)] = code
    return "\n".join(lines)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        # The server that pages about clients use, some by its name.
        shutil.copy(ROOT / "examples" / "weather.py", folder)
        programs = []
        for page in PAGES:
            if example(page).strip():
                name = "_".join(page.relative_to(ROOT).with_suffix("").parts).replace("-", "_")
                program = Path(folder) / f"{name}.py"
                program.write_text(example(page), encoding="utf-8")
                programs.append(program)
        mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"]
        code = subprocess.run([*mypy, *programs], cwd=folder, check=False).returncode
    print(f"Examples on {len(programs)} pages: {'FAILED' if code else 'their types are right'}.")
    return code


if __name__ == "__main__":
    sys.exit(main())
