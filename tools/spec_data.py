"""Copies the official schemas and examples into tests/data/spec, without their prose.

    python tools/spec_data.py SOURCE

SOURCE is a folder with one folder a revision, as in the schema folder of the specification's repository: each has a
schema.json, and some an examples folder.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "tests" / "data" / "spec"

# Keywords whose value maps names to schemas: a name in there may be "description" without being that keyword.
NAMED = {"properties", "definitions", "$defs"}


def without_prose(schema: Any) -> Any:
    """The schema without its ``description`` keywords."""
    if isinstance(schema, list):
        return [without_prose(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {}
    for key, value in schema.items():
        if key in NAMED:
            plain[key] = {name: without_prose(inner) for name, inner in value.items()}
        elif key != "description":
            plain[key] = without_prose(value)
    return plain


def written(schema: dict[str, Any]) -> str:
    """The schema as text: one line a definition, so that a change shows as the lines that changed."""
    lines = ["{"]
    for key, value in schema.items():
        if key in NAMED:
            definitions = [f"  {json.dumps(name)}: {json.dumps(inner)}" for name, inner in value.items()]
            lines += [f" {json.dumps(key)}: {{", ",\n".join(definitions), " },"]
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)},")
    lines[-1] = lines[-1].removesuffix(",")
    return "\n".join([*lines, "}", ""])


def copy_spec(source: Path, target: Path) -> None:
    """Copies every revision found in ``source``."""
    for folder in sorted(path for path in source.iterdir() if (path / "schema.json").is_file()):
        into = target / folder.name
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        schema = json.loads((folder / "schema.json").read_text())
        (into / "schema.json").write_text(written(without_prose(schema)))
        if (folder / "examples").is_dir():
            for example in sorted((folder / "examples").glob("*/*.json")):
                copy = into / "examples" / example.parent.name / example.name
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_text(example.read_text())
        print(f"{folder.name}: copied to {into}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    copy_spec(Path(sys.argv[1]), TARGET)
