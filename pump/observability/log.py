"""Logging: structlog in front of the standard library's levels.

An app that configured nothing hears warnings and errors only; the command line configures both
(`pump.cli.log_setup`). The library itself never configures anything. Whatever processors an
application has, a line of ours reaches them with the fields of the allow-list and no others.
"""

from __future__ import annotations

import logging
from typing import Any

import structlog

from .fields import vetted


class OwnLogger(structlog.stdlib.BoundLogger):
    """The logger behind every line of ours."""

    def _proxy_to_logger(
        self, method_name: str, event: str | None = None, *event_args: str, **event_kw: Any
    ) -> Any:
        return super()._proxy_to_logger(method_name, event, *event_args, **vetted(event_kw))


def get_logger(name: str) -> Any:
    """A structlog logger whose lines pass the level of the stdlib logger of that name."""
    return structlog.wrap_logger(logging.getLogger(name), wrapper_class=OwnLogger)
