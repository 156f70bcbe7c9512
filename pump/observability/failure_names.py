"""Failure names: what an error is called in metrics and on spans. Its text stays out of both:
texts quote bodies.
"""

from __future__ import annotations

import asyncio

from ..outcome import Outcome, Reject
from ..signals import carries_signal

CANCELLED = "cancelled"
"""A call or handler that was cut short; from inside, a timeout looks the same."""


def failure_name(error: BaseException) -> str:
    """The name of the error's class; for a group of one, that of its only member."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return CANCELLED if isinstance(error, asyncio.CancelledError) else type(error).__name__


def is_failed(outcome: Outcome, error: BaseException | None) -> bool:
    """Whether handling failed: it raised, or the message was rejected. A handler that asks for
    a delay has not failed.
    """
    if error is None:
        return False
    return isinstance(outcome, Reject) or not carries_signal(error)
