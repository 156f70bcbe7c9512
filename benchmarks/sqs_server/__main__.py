"""Runs the stand-in until its standard input ends."""

from __future__ import annotations

import asyncio
import socket
import sys

from .http import Connection, Control
from .service import Service


async def serve() -> None:
    """Print the address and serve until standard input ends."""
    loop = asyncio.get_running_loop()
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    service = Service(address, loop)
    control = Control(service)
    server = await loop.create_server(lambda: Connection(service, control), sock=listening)
    print(address, flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve())
