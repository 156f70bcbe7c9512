"""Metrics server: metrics at `/metrics` for Prometheus to fetch."""

from __future__ import annotations

import inspect
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

from ..clock import SYSTEM_CLOCK
from ..errors import ConfigurationError
from ..http.server import Answering, Server, ServerThread, url_of
from ..http.wire import Answer, Refused, Request, refuse_changes
from . import vocabulary
from .log import get_logger
from .metrics_catalogue import CONTENT_TYPE

_log = get_logger("pump.telemetry")
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9464
"""Where OpenTelemetry's own Prometheus exporters listen."""


class MetricsServer:
    """Serves a text between `start` and `stop`; may be started again.

    In a thread of its own, so that a blocked event loop can still be seen to be blocked.
    """

    def __init__(self, text: Callable[[], bytes], host: str, port: int) -> None:
        self._text = text
        self._address = host, port
        self._thread: ServerThread | None = None
        self._url: str | None = None

    @property
    def url(self) -> str | None:
        """Where it is served; None while it is not."""
        return self._url

    def start(self) -> None:
        """Listen. `ConfigurationError` when the address cannot be had."""
        made = _bound(*self._address)
        self._url = _url_of(made)
        self._thread = ServerThread(_answering(self._text), _note_failure, name="pump-metrics")
        self._thread.start(made)
        _log.info(vocabulary.METRICS_SERVED, address=self._url)

    async def stop(self) -> None:
        """Listen no more. Idempotent."""
        thread, self._thread, self._url = self._thread, None, None
        if thread is not None:
            await thread.aclose()


@asynccontextmanager
async def serving_metrics(
    text: Callable[[], Awaitable[bytes]], host: str, port: int
) -> AsyncIterator[None]:
    """Serve a text that has to be waited for until the block ends, on the loop that runs."""
    made = _bound(host, port)
    url = _url_of(made)
    server = Server(_answering(text), SYSTEM_CLOCK, _note_failure)
    await server.listen_on(made)
    try:
        _log.info(vocabulary.METRICS_SERVED, address=url)
        yield
    finally:
        await server.aclose()


def _answering(text: Callable[[], bytes | Awaitable[bytes]]) -> Answering:
    async def answer(request: Request) -> Answer:
        refuse_changes(request)
        if request.path != ("metrics",):
            raise Refused(HTTPStatus.NOT_FOUND, "there is /metrics")
        found = text()
        body = await found if inspect.isawaitable(found) else found
        return Answer(body=body, content_type=CONTENT_TYPE)

    return answer


def _note_failure(request: Request, error: Exception) -> None:
    error_type = type(error).__name__
    _log.warning(vocabulary.TELEMETRY_FAILED, operation="metrics", error_type=error_type)


def _bound(host: str, port: int) -> socket.socket:
    is_ipv6 = ":" in host
    try:
        return socket.create_server(
            (host, port),
            family=socket.AF_INET6 if is_ipv6 else socket.AF_INET,
            dualstack_ipv6=is_ipv6 and socket.has_dualstack_ipv6(),
        )
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            "telemetry.prometheus", f"{host}:{port}", f"{error}; choose another port"
        ) from error


def _url_of(made: socket.socket) -> str:
    return f"{url_of(made.getsockname())}/metrics"
