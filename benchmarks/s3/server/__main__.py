"""Runs the stand-in until its standard input ends."""

from __future__ import annotations

import asyncio
import socket
import sys

import uvloop

from .http import Connection, Control
from .service import Service


async def serve() -> None:
    """Print the address and serve until standard input ends."""
    loop = asyncio.get_running_loop()
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    service = Service()
    control = Control(service)
    server = await loop.create_server(lambda: Connection(service, control), sock=listening)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    uvloop.run(serve())
