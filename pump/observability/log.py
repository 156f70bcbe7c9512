"""Logging: structlog in front of the standard library's levels.

An app that configured nothing hears warnings and errors only; the command line configures both
(`pump.cli.log_setup`). The library itself never configures anything.
"""

from __future__ import annotations

import logging
from typing import Any

import structlog

_delivery_level = logging.getLogger("pump.delivery")


def get_logger(name: str) -> Any:
    """A structlog logger whose lines pass the level of the stdlib logger of that name."""
    return structlog.wrap_logger(
        logging.getLogger(name), wrapper_class=structlog.stdlib.BoundLogger
    )


def wants_delivery_lines() -> bool:
    """Whether anyone listens to the one line a delivery; asked before it is put together."""
    return _delivery_level.isEnabledFor(logging.INFO)
