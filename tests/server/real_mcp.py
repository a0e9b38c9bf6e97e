"""real_mcp.py stdio|http PORT: an MCP server made with the Python library of MCP, for tools_test.py."""

import asyncio
import os
import sys

from mcp.server import MCPServer

server = MCPServer("real")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ValueError("as it should")


@server.tool()
async def sleep(seconds: float) -> str:
    """Waits."""
    await asyncio.sleep(seconds)
    return "awake"


@server.tool()
def variables() -> str:
    """The names of the variables of the environment."""
    return " ".join(sorted(os.environ))


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
