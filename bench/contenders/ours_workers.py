"""The server of ``ours_http.py`` with as many workers as the command line says, at the port that it says then."""

import os
import sys
from pathlib import Path

workers, port = sys.argv[1:]
file = Path(__file__).with_name("ours_http.py")
command = [sys.executable, "-m", "mcplumb", "serve", str(file), "--http", f"127.0.0.1:{port}", "--workers", workers]
os.execv(sys.executable, command)  # noqa: S606 - no shell is involved
