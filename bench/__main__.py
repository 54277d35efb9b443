"""``python -m bench [PART ...]``: the benchmarks, one part after the other; the usual ones if none is named."""

from __future__ import annotations

import argparse
import platform
import sys

from bench import behaviour, client, http, server, starting, wire

PARTS = {
    "starting": starting.run,
    "wire": wire.run,
    "server": server.run,
    "client": client.run,
    "http": http.run,
    "behaviour": behaviour.run,
}
#: What runs if nothing is named: what measures. The rest only observes, and takes a minute.
USUAL = ["starting", "wire", "server", "client", "http"]


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m bench")
    arguments.add_argument("part", nargs="*", help=f"one of {', '.join(PARTS)}; {' and '.join(USUAL)} if none is named")
    chosen = arguments.parse_args().part or USUAL
    if unknown := set(chosen) - set(PARTS):
        arguments.error(f"there is no part {', '.join(sorted(unknown))}: the parts are {', '.join(PARTS)}")
    print(f"==> Python {platform.python_version()} on {platform.machine()}")
    for name in chosen:
        PARTS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
