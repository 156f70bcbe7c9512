"""Logging: structlog in front of the standard library's levels.

An app that configured nothing hears warnings and errors only; the command line configures both
(`pump.cli.session`). The library itself never configures anything. Whatever processors an
application has, a line of ours reaches them with the fields of the allow-list and no others.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from copy import copy
from typing import Any, Final, TextIO

import msgspec
import structlog
from structlog.types import Processor

from ..errors import trace_of
from .redaction import REDACTED, scrub, shown, shown_arguments
from .vocabulary import LINE_LOST


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
        *("relayed", "set_aside", "lag_s"),
    }
)
"""Names, numbers, ids: printed as they are."""

TEXTS: Final = frozenset(
    {
        *("error", "detail", "remedy", "traceback", "exception"),
        *(
            "gateway",
            "outbox",
            "path",
            "files",
            "differences",
            "subscriptions",
            "address",
            "source",
        ),
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
    return scrub(trace_of(error).rstrip())


# Line handler: log lines on a stream, and a short way there for lines that are JSON already.
#
# structlog's processors and the standard library's records are made for everything, and cost tens
# of microseconds. The one line a delivery is written at the rate of deliveries, so where only
# our handler is configured, it is encoded and written at once. Where there are others, it goes the
# long way, and all of them see it.

_encode = msgspec.json.Encoder(enc_hook=repr).encode


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes whole lines, one write each; what it cannot print it names, without quoting it."""

    def __init__(
        self,
        stream: TextIO,
        processors: Sequence[Processor],
        *,
        is_json: bool,
        process: int | None = None,
    ) -> None:
        super().__init__(stream)
        self.processors = list(processors)
        """What structlog was configured with, together with this handler."""
        self.is_json = is_json
        self._ending = "" if process is None else f',"process":{process}}}\n'

    def emit(self, record: logging.LogRecord) -> None:
        is_from_structlog = hasattr(record, "_logger")
        if not is_from_structlog and (record.args or not isinstance(record.msg, str)):
            # A copy: other handlers have the same record, and are none of our business.
            record = copy(record)
            record.args = shown_arguments(record.args or ())
            record.msg = record.msg if isinstance(record.msg, str) else str(shown(record.msg))
        super().emit(record)

    def write_line(self, line: str) -> None:
        """Write a line of JSON that needs no more processing than the number of the process, if it
        has one; like every log line, it never fails.
        """
        if self._ending:
            line = line.removesuffix("}\n") + self._ending
        self.acquire()
        try:
            self.stream.write(line)
            if not getattr(self.stream, "line_buffering", False):
                self.flush()
        except (OSError, ValueError):
            return  # The stream is closed, or its disk is full: there is nowhere to say so.
        finally:
            self.release()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the stdlib's name
        """Say which logger's line was lost, and why; the stdlib would print what was in it."""
        error = type(sys.exc_info()[1]).__name__
        lost = {"event": LINE_LOST, "level": "error", "logger": record.name, "error": error}
        line = to_json(None, "", lost) if self.is_json else " ".join(map("=".join, lost.items()))
        with suppress(OSError, ValueError):
            self.stream.write(line + "\n")
            self.flush()


def short_way(logger: logging.Logger) -> LineHandler | None:
    """The handler to write JSON lines to at once; None when another handler would see such a line.

    Asked anew for every batch: an application may configure logging at any time.
    """
    handler = _only_handler(logger)
    if not isinstance(handler, LineHandler) or not handler.is_json or handler.filters:
        return None
    if logging.getLogRecordFactory() is not logging.LogRecord:
        return None
    # Equal, not just the same: `structlog.testing.capture_logs` changes the list in place.
    if structlog.get_config()["processors"] != handler.processors:
        return None
    return None if structlog.contextvars.get_contextvars() else handler


def _only_handler(logger: logging.Logger) -> logging.Handler | None:
    only: logging.Handler | None = None
    asked: logging.Logger | None = logger
    while asked is not None:
        for handler in asked.handlers:
            if only is not None:
                return None
            only = handler
        asked = asked.parent if asked.propagate else None
    return only


def to_json(logger: object, method: str, event: MutableMapping[str, Any]) -> str:
    """A structlog renderer: a JSON object on one line, whatever is in it."""
    try:
        return _encode(event).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        # Half a surrogate pair, a number of more than 64 bits: rare, and no reason to be silent.
        return json.dumps(event, default=repr)


def to_printable(
    logger: object, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A structlog processor for terminals: no character is left that would move the cursor."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = "".join(
                c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in value
            )
    return event
