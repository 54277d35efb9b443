"""FastMCP's proxy in front of a server: fastmcp_proxy.py COMMAND [ARGUMENT ...]."""

import sys

from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    create_proxy(StdioTransport(command, arguments), name="proxy").run(show_banner=False)
