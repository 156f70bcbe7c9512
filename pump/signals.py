"""Signals: what a handler raises to say what should become of its message. Not errors."""

from __future__ import annotations

from datetime import timedelta

from .errors import ConfigurationError, text_of


class Signal(Exception):
    """The root of the signals; `decide` is the only place that reads them."""


class DeferMessage(Signal):
    """Deliver this message again after `delay` (None: the failure strategy's backoff)."""

    def __init__(self, delay: timedelta | None = None) -> None:
        super().__init__(delay)
        given: object = delay
        if not isinstance(given, timedelta | None):
            raise ConfigurationError(
                "DeferMessage.delay",
                given,
                "give a timedelta, or None for the backoff",
            )
        self.delay = delay

    def __str__(self) -> str:
        return "deferred" if self.delay is None else f"deferred by {self.delay}"


class RejectMessage(Signal):
    """This message can never be handled: send it to the dead-letter queue now.

    A detail that is no text, such as an error, is taken as its text.
    """

    def __init__(self, detail: str = "") -> None:
        detail = _text(detail)
        super().__init__(detail)
        self.detail = detail


class InvalidMessage(Signal):
    """This is not an acceptable message: send it to the invalid-message queue now.

    A detail that is no text, such as an error, is taken as its text.
    """

    def __init__(self, detail: str = "") -> None:
        detail = _text(detail)
        super().__init__(detail)
        self.detail = detail


def _text(detail: object) -> str:
    """The detail as text: a signal with a wrong one is still the signal that was meant."""
    if isinstance(detail, str):
        return detail
    return "" if detail is None else text_of(detail)


def carries_signal(error: BaseException) -> bool:
    """Whether `error` is a signal, or a group of errors (of a TaskGroup, say) with one inside."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(Signal) is not None
    return isinstance(error, Signal)
