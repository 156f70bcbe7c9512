"""The scripted AWS behind TLS, with a certificate of a test's own authority."""

from __future__ import annotations

import asyncio
import ssl

from .fake_aws import FakeAws


class TlsAws(FakeAws):
    """The scripted AWS behind TLS."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context

    async def start(self, port: int) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", port, ssl=self._context)
        self._server = server
        self._port = server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"https://localhost:{self._port}"
