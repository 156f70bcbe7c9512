"""Logging: structlog in front of the standard library's levels.

An app that configured nothing hears warnings and errors only; the command line configures both
(`pump.cli.log_setup`). The library itself never configures anything. Whatever processors an
application has, a line of ours reaches them with the fields of the allow-list and no others.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Mapping
from typing import Any, Final

import structlog

from .redaction import REDACTED, scrub, shown


class OwnLogger(structlog.stdlib.BoundLogger):
    """The logger behind every line of ours."""

    def _proxy_to_logger(
        self, method_name: str, event: str | None = None, *event_args: str, **event_kw: Any
    ) -> Any:
        return super()._proxy_to_logger(method_name, event, *event_args, **vetted(event_kw))


def get_logger(name: str) -> Any:
    """A structlog logger whose lines pass the level of the stdlib logger of that name."""
    return structlog.wrap_logger(logging.getLogger(name), wrapper_class=OwnLogger)


# Fields: the allow-list of our own log lines. What is not on it is not printed.
#
# A field goes on the list when no value it can take is a body, a header's value, a key or anything
# else that came from a user's code. Errors that a user's code raised are named by their type.

PLAIN: Final = frozenset(
    {
        # What it is about.
        *("subscription", "queue", "session", "handler", "function", "app", "observer", "told"),
        *("message_id", "correlation_id", "type", "spilled_id", "request_id", "key_id"),
        *("trace_id", "span_id", "process", "pid"),
        # What became of it.
        *("outcome", "status", "reason", "fate", "destination", "signal", "error_type", "policy"),
        *("state", "operation", "version", "encrypted", "active", "mode"),
        # How many, and how long.
        *("attempt", "tries", "count", "messages", "failed", "sent", "dropped", "recalled"),
        *("unsettled", "concurrency", "sampled", "run_s", "age_s", "delay_s", "retry_in_s"),
        *("received", "processed", "retried", "dead_lettered", "invalid", "released"),
        *("leases_lost", "restarts", "sealed", "key_count", "max_count"),
    }
)
"""Names, numbers, ids: printed as they are."""

TEXTS: Final = frozenset(
    {
        *("error", "detail", "remedy", "traceback", "exception"),
        *("gateway", "path", "files", "differences", "subscriptions", "address", "source"),
    }
)
"""Text, and values made of others: printed without the credentials they may quote."""

_EXCEPTION = "exc_info"


def vetted(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a line of ours says, whatever it was given.

    An exception becomes text here: a renderer that is handed one may print the variables of its
    frames, and bodies are among them.
    """
    kept: dict[str, Any] = {}
    for name, value in fields.items():
        if name in PLAIN:
            kept[name] = value if isinstance(value, str | int | float) else shown(value)
        elif name in TEXTS:
            kept[name] = shown(value)
        elif name != _EXCEPTION:
            kept[name] = REDACTED
        elif (text := _traceback_of(value)) is not None:
            kept["exception"] = text
    return kept


def _traceback_of(exc_info: object) -> str | None:
    error = exc_info
    if isinstance(exc_info, tuple):
        error = exc_info[1]
    elif exc_info and not isinstance(exc_info, BaseException):
        error = sys.exc_info()[1]
    if not isinstance(error, BaseException):
        return None
    return scrub("".join(traceback.format_exception(error)).rstrip())
