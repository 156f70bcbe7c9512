"""Line handler: log lines on a stream, and a short way there for lines that are JSON already.

structlog's processors and the standard library's records are made for everything, and cost tens
of microseconds. The one line a delivery is written at the rate of deliveries, so where nobody but
us has a say in logging, it is encoded and written at once. Where anybody else has, it goes the
long way, and everybody sees it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from copy import copy
from typing import Any, TextIO

import msgspec
import structlog
from structlog.types import Processor

from .redaction import shown, shown_arguments
from .vocabulary import LINE_LOST

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
    """The handler to write JSON lines to at once; None when anybody else would see such a line.

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
