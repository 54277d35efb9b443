"""The server of ``official_http.py`` under uvicorn, with as many workers as the command line says, at that port."""

import sys
from pathlib import Path

import uvicorn
from official_http import server

app = server.streamable_http_app(stateless_http=True, json_response=True)

if __name__ == "__main__":
    uvicorn.run(
        "official_workers:app",
        app_dir=str(Path(__file__).parent),
        workers=int(sys.argv[1]),
        port=int(sys.argv[2]),
        log_level="warning",
        access_log=False,
    )
