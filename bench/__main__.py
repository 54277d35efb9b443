"""``python -m bench``: every benchmark, one part after the other."""

from __future__ import annotations

import platform
import sys

from bench import wire

PARTS = (wire.run,)


def main() -> int:
    print(f"==> Python {platform.python_version()} on {platform.machine()}")
    for part in PARTS:
        part()
    return 0


if __name__ == "__main__":
    sys.exit(main())
