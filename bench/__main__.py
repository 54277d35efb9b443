"""``python -m bench [PART ...]``: the benchmarks, one part after the other; all of them if none is named."""

from __future__ import annotations

import argparse
import platform
import sys

from bench import server, wire

PARTS = {"wire": wire.run, "server": server.run}


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m bench")
    arguments.add_argument("part", nargs="*", help=f"what to measure: {', '.join(PARTS)}; all of it if none is named")
    chosen = arguments.parse_args().part or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        arguments.error(f"there is no part {', '.join(sorted(unknown))}: the parts are {', '.join(PARTS)}")
    print(f"==> Python {platform.python_version()} on {platform.machine()}")
    for name in chosen:
        PARTS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
