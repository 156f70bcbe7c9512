"""Failures: which errors a middleware may act on. Signals and lost leases are not among them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from datetime import timedelta

from pump.context import Context
from pump.errors import ConfigurationError, LeaseLost, SessionLockLost
from pump.signals import Signal, carries_signal

FailureTypes = tuple[type[Exception], ...]
OneOrMore = type[Exception] | Iterable[type[Exception]]
_LOST = (LeaseLost, SessionLockLost)


def is_failure(error: Exception, context: Context) -> bool:
    """Whether the handler failed, and did not say by a signal what to do, or lose its lease.

    Law 8: a signal counts wherever it is: alone, in a group, or replaced on its way here by a
    middleware of the application.
    """
    if context.signal is not None or carries_signal(error):
        return False
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(_LOST) is None
    return not isinstance(error, _LOST)


def failure_types(field: str, given: object) -> FailureTypes:
    """Return `given`, one error class or several, as a tuple; refuse what may not be caught."""
    kinds = tuple(given) if isinstance(given, Iterable) else (given,)
    if not kinds:
        raise ConfigurationError(field, given, "name at least one error class")
    for kind in kinds:
        if not inspect.isclass(kind) or not issubclass(kind, Exception):
            raise ConfigurationError(
                field, given, "give subclasses of Exception; cancellation is never caught"
            )
        if issubclass(kind, Signal):
            raise ConfigurationError(field, given, "signals always get out; name errors only")
    return kinds


def positive(field: str, value: object) -> timedelta:
    """Return `value` if it is a timedelta above zero."""
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise ConfigurationError(field, value, "use a timedelta above zero")
    return value
