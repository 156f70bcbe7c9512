"""Session: a command's hold on an app, or on a bare gateway, while it works, and what it logs."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeVar

import structlog
from structlog.types import Processor

from ..app import DEFAULT_GATEWAY, App
from ..errors import GatewayError, QueueNotFound, UnsupportedOperation
from ..exit_codes import ExitCode, Failure
from ..loading import load_app
from ..observability.in_hand import add_message_in_hand
from ..observability.log import LineHandler, to_json, to_printable
from ..observability.redaction import redact, redact_arguments
from ..observability.sampling import sample_deliveries
from .console import stderr

# Log set-up: structlog over the standard library, JSON for machines and lines for people.
#
# Only the command line configures logging; a program that embeds an App decides for itself.

_TALKATIVE = (
    *("aiobotocore", "aioboto3", "boto3", "botocore", "s3transfer", "urllib3"),
    *("aio_pika", "aiormq", "aiosqlite", "azure", "nats"),
)
"""At debug these log what they send, message bodies and signatures included."""
_QUOTING = (
    *("opentelemetry.baggage.propagation", "opentelemetry.trace.span"),
    # Of OTEL_EXPORTER_OTLP_HEADERS, where the collector's password stands.
    "opentelemetry.util.re",
)
"""These warn of headers they cannot read, and quote them."""


def set_up_logging(level: str, format: str, *, sample: int = 1, process: int | None = None) -> str:
    """Log to stderr from this level on, and return the format that "auto" came to.

    With `sample`, one in so many messages that are processed at the first attempt has its line.
    With `process`, every line says that this process, of several, has written it.
    """
    chosen = format
    if format == "auto":
        chosen = "console" if sys.stderr.isatty() else "json"
    processors: list[Processor] = [
        structlog.stdlib.filter_by_level,
        *_shared(process),
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ]
    handler = LineHandler(sys.stderr, processors, is_json=chosen == "json", process=process)
    handler.setFormatter(_formatter(chosen, process))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    _hush(_TALKATIVE, logging.INFO)
    _hush(_QUOTING, logging.ERROR)
    sample_deliveries(sample)
    structlog.configure(
        processors=processors,
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return chosen


def _hush(names: Iterable[str], level: int) -> None:
    for name in names:
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(max(level, logging.getLogger().level))


def _formatter(format: str, process: int | None) -> structlog.stdlib.ProcessorFormatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*_shared(process), structlog.stdlib.ExtraAdder()],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            # As text, and the plain one: rich's prints local variables, and bodies among them.
            structlog.processors.format_exc_info,
            redact,
            *_renderers(format),
        ],
    )


def _shared(process: int | None) -> list[Processor]:
    return [
        *(() if process is None else (_numbered(process),)),
        structlog.contextvars.merge_contextvars,
        add_message_in_hand,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        redact_arguments,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _numbered(process: int) -> Processor:
    def add_process(
        logger: object, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        event.setdefault("process", process)
        return event

    return add_process


def _renderers(format: str) -> list[Processor]:
    if format == "json":
        return [to_json]
    console = stderr()
    return [
        to_printable,
        structlog.dev.ConsoleRenderer(colors=console.is_terminal and not console.no_color),
    ]


_T = TypeVar("_T")


def app_for(target: str | None, gateway: str | None) -> App:
    """The app that was named, or one without subscriptions, on the gateway that was given."""
    if target is None:
        return App(gateway or DEFAULT_GATEWAY)
    app = load_app(target)
    app.override(gateway=gateway)
    return app


def shown_gateway(app: App) -> str:
    """The gateway's URL, fit for a screen."""
    return app.gateway_name


def in_session(app: App, work: Callable[[App], Awaitable[_T]]) -> _T:
    """Open the app, do the work, close it; only warnings are logged meanwhile."""
    set_up_logging("warning", "console")
    return asyncio.run(_opened(app, work))


async def _opened(app: App, work: Callable[[App], Awaitable[_T]]) -> _T:
    async with app:
        try:
            return await work(app)
        except QueueNotFound as error:
            raise await _unknown_queue(app, error) from None


async def _unknown_queue(app: App, error: QueueNotFound) -> Exception:
    try:
        names = [stats.name for stats in await app.admin.queues()]
    except (GatewayError, UnsupportedOperation):
        return error
    known = f"there are {', '.join(names)}" if names else "there are none yet"
    return Failure(
        f"queue {error.queue!r} does not exist on {shown_gateway(app)}",
        remedy=f"{known}; run the app that makes it, or `pump send {error.queue} BODY --create`",
        exit_code=ExitCode.BROKER,
    )
