"""Log set-up: structlog over the standard library, JSON for machines and lines for people.

Only the command line configures logging; a program that embeds an App decides for itself.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping, Sequence
from typing import Any

import structlog
from structlog.types import Processor

from ..context import current_context
from .console import stderr


def set_up_logging(level: str, format: str) -> str:
    """Log to stderr from this level on, and return the format that "auto" came to."""
    chosen = format
    if format == "auto":
        chosen = "console" if sys.stderr.isatty() else "json"
    _to_stderr(level, _renderers(chosen))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return chosen


def add_message_in_hand(
    logger: object, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Say, on a line logged inside a handler, which message it was about."""
    context = current_context()
    if context is None:
        return event
    event.setdefault("handler", context.handler)
    if context.subscription is not None:
        event.setdefault("subscription", context.subscription.name)
    message = context.message
    if message is not None:
        event.setdefault("message_id", message.id)
        event.setdefault("attempt", context.attempt)
        if message.correlation_id:
            event.setdefault("correlation_id", message.correlation_id)
    return event


def _to_stderr(level: str, renderers: Sequence[Processor]) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_shared(), structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        add_message_in_hand,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _renderers(format: str) -> list[Processor]:
    if format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    console = stderr()
    # The plain traceback: the rich one prints local variables, and with them message bodies.
    return [
        structlog.dev.ConsoleRenderer(
            colors=console.is_terminal and not console.no_color,
            exception_formatter=structlog.dev.plain_traceback,
        )
    ]
