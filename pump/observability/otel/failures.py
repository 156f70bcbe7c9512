"""Failures on spans: what kind of error it was and where, without its text.

Texts quote what they complain about: a body's field, a key, a password in a URL. So the class and
the places in the code are recorded, and the text only where the program asked for it.
"""

from __future__ import annotations

import traceback

from opentelemetry.trace import Span, Status, StatusCode

from ...decide import MAX_DETAIL
from ...errors import text_of
from ..failure_names import failure_name
from . import attributes as names

_MAX_FRAMES = 30


def record_failure(span: Span, error: BaseException, *, with_text: bool) -> None:
    """Mark the span as failed by `error`."""
    if not span.is_recording():
        return
    kind = failure_name(error)
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, kind))
    details = {
        names.EXCEPTION_TYPE: _full_name(type(error)),
        names.EXCEPTION_STACKTRACE: places_of(error),
    }
    if with_text:
        details[names.EXCEPTION_MESSAGE] = text_of(error)[:MAX_DETAIL]
    span.add_event("exception", details)


def places_of(error: BaseException) -> str:
    """Where it came from, the raising place last: files, lines and functions.

    Without source lines, which a traceback would show and which take a file to read.
    """
    frames = traceback.walk_tb(error.__traceback__)
    summary = traceback.StackSummary.extract(frames, limit=-_MAX_FRAMES, lookup_lines=False)
    return "\n".join(
        f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}' for frame in summary
    )


def _full_name(kind: type[BaseException]) -> str:
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"
