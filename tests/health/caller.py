"""A caller that sends bytes as they are, and reads the answer to its end."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import attrs


@attrs.frozen
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def parse(raw: bytes) -> Reply:
    """Read one whole answer, as strictly as a client may."""
    head, _, body = raw.partition(b"\r\n\r\n")
    line, *fields = head.decode("ascii").split("\r\n")
    version, status, _ = line.split(" ", 2)
    headers = {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}
    assert version == "HTTP/1.1"
    assert headers["connection"] == "close"
    return Reply(int(status), headers, body)


async def connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if url.startswith("unix:"):
        return await asyncio.open_unix_connection(url.removeprefix("unix:"))
    parts = urlsplit(url)
    assert parts.hostname is not None
    return await asyncio.open_connection(parts.hostname, parts.port)


async def send(url: str, raw: bytes) -> Reply:
    """Send these bytes, and read until the server ends."""
    reader, writer = await connect(url)
    try:
        writer.write(raw)
        return parse(await reader.read())
    finally:
        writer.close()


async def call(
    url: str,
    method: str,
    path: str,
    body: object | bytes | None = None,
    **headers: str | None,
) -> Reply:
    """A request as a well-meaning client sends it; a header of None is left out."""
    payload = (
        body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    )
    fields: dict[str, str | None] = {
        "host": "127.0.0.1",
        "content-type": "application/json",
        "content-length": str(len(payload)),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in fields.items() if value is not None]
    return await send(url, "\r\n".join([*lines, "", ""]).encode() + payload)
