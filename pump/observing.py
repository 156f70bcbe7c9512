"""Observing: tells any number of observers, and shields each from the others' failures."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator

from .events import Event, Observer
from .observability import vocabulary
from .observability.log import get_logger

_log = get_logger("pump.events")


class Observers:
    """Those who asked to be told of events."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = list(observers)

    def __bool__(self) -> bool:
        return bool(self._observers)

    def __iter__(self) -> Iterator[Observer]:
        return iter(self._observers)

    def add(self, observer: Observer) -> None:
        """Tell one more."""
        self._observers.append(observer)

    def tell(self, event: Event) -> None:
        """Tell everyone; an observer that fails is logged and does no harm."""
        for observer in self._observers:
            try:
                observer(event)
            except Exception as error:  # broad: an observer is the user's code
                _log.error(
                    vocabulary.OBSERVER_FAILED,
                    observer=getattr(observer, "__qualname__", type(observer).__qualname__),
                    told=type(event).__name__,
                    # By its type and place: its text may quote the event, and that a body.
                    error=type(error).__name__,
                    traceback="".join(traceback.format_tb(error.__traceback__)),
                )
