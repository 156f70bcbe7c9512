"""A server that takes a connection, and then nothing."""

from __future__ import annotations

import asyncio
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator

import pytest

from pump.errors import ConnectionFailed

from ..conftest import Connect

# More than the buffers on the way hold.
LARGE = b"x" * 20_000_000


@pytest.fixture
async def deaf_url() -> AsyncIterator[str]:
    """A server that reads none of what it is sent."""
    end = asyncio.Event()

    async def accept(_: StreamReader, writer: StreamWriter) -> None:
        await end.wait()
        writer.transport.abort()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        end.set()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux only")
async def test_when_a_request_is_not_taken_then_the_call_fails_in_time(
    deaf_url: str, connect: Connect
) -> None:
    """R51: there is no reply to wait for while the request is still being sent."""
    transport = connect(endpoint_url=deaf_url, max_attempts=1)
    # Shorter than settings allow, so that the test does not take that long.
    object.__setattr__(transport._sdk._settings, "read_timeout_s", 0.3)  # type: ignore[attr-defined]

    with pytest.raises(ConnectionFailed, match="claims/k"):
        await transport.call(
            "s3", "put_object", {"Bucket": "claims", "Key": "k", "Body": LARGE}, target="claims/k"
        )
