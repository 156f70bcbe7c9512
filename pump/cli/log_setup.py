"""Log set-up: structlog over the standard library, JSON for machines and lines for people.

Only the command line configures logging; a program that embeds an App decides for itself.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, MutableMapping
from typing import Any

import structlog
from structlog.types import Processor

from ..observability.in_hand import add_message_in_hand
from ..observability.log import LineHandler, to_json, to_printable
from ..observability.redaction import redact, redact_arguments
from ..observability.sampling import sample_deliveries
from .console import stderr

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
