"""A server that fails in the way that its argument names."""

from __future__ import annotations

import sys
import time

match sys.argv[1]:
    case "chatty":
        print("Starting up\x1b[2J …", flush=True)
        print("Listening on http://127.0.0.1:3000/mcp", flush=True)
        sys.stderr.write("ready\n")
        time.sleep(300)
    case "silent":
        time.sleep(300)
    case "variable":
        sys.stderr.write("Error: the environment variable WEATHER_API_KEY is not set\n")
        sys.exit(2)
    case "module":
        import nothing_of_this_name  # type: ignore[import-not-found] # noqa: F401
    case "done":
        sys.exit(0)
    case "mute":
        sys.exit(9)
