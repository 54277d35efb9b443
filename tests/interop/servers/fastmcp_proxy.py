"""FastMCP's proxy in front of a server: fastmcp_proxy.py [--serve http|sse PORT] COMMAND [ARGUMENT ...], or its URL."""

import sys

from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from fastmcp.server import create_proxy

if __name__ == "__main__":
    arguments = sys.argv[1:]
    options = {}
    if arguments[0] == "--serve":
        _, transport, port, *arguments = arguments
        options = {"transport": transport, "port": int(port)}
    command, *arguments = arguments
    if not command.startswith("http"):
        back = StdioTransport(command, arguments)
    else:
        back = SSETransport(command) if command.endswith("/sse") else StreamableHttpTransport(command)
    # By default, the server has to be of the era of the client, and the name of the server is hidden.
    create_proxy(back, mode="auto", identity="upstream", name="proxy").run(show_banner=False, **options)
