"""Server: metrics at `/metrics` for Prometheus to fetch, in a thread of its own.

Apart from the event loop, so that a blocked loop can still be seen to be blocked.
"""

from __future__ import annotations

import asyncio
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ..errors import ConfigurationError
from . import vocabulary
from .log import get_logger
from .metrics_catalogue import CONTENT_TYPE

_log = get_logger("pump.telemetry")
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9464
"""Where OpenTelemetry's own Prometheus exporters listen."""
_PATIENCE_S = 10.0
"""How long a connection may take to say what it wants."""


class MetricsServer:
    """Serves a text between `start` and `stop`; may be started again."""

    def __init__(self, text: Callable[[], bytes], host: str, port: int) -> None:
        self._text = text
        self._address = host, port
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str | None:
        """Where it is served; None while it is not."""
        if self._server is None:
            return None
        host, port = str(self._server.server_address[0]), self._server.server_address[1]
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{port}/metrics"

    def start(self) -> None:
        """Listen. `ConfigurationError` when the address cannot be had."""
        host, port = self._address
        try:
            self._server = _Listener(self._address, _handler_of(self._text))
        except (OSError, OverflowError) as error:
            raise ConfigurationError(
                "telemetry.prometheus", f"{host}:{port}", f"{error}; choose another port"
            ) from error
        threading.Thread(
            target=self._server.serve_forever, name="pump-metrics", daemon=True
        ).start()
        _log.info(vocabulary.METRICS_SERVED, address=self.url)

    async def stop(self) -> None:
        """Listen no more. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            # It asks twice a second whether to stop, and is waited for.
            await asyncio.to_thread(server.shutdown)
            server.server_close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    # A scrape that hangs must not keep the process from ending.
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def server_bind(self) -> None:
        # The parent's asks for the host's full name, and a name server may take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        # The parent's prints a traceback to stderr, between lines of JSON.
        error = sys.exception()
        if not isinstance(error, OSError):  # Else the client is gone, and that is no news.
            error_type = type(error).__name__
            _log.warning(vocabulary.TELEMETRY_FAILED, operation="metrics", error_type=error_type)


def _handler_of(text: Callable[[], bytes]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE_S

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            body = text()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A scrape every few seconds is no news."""

    return Handler
