"""Context: what a handler and its middleware may know about the current work."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from .clock import SYSTEM_CLOCK, Clock
from .message import Delivery, Message

if TYPE_CHECKING:
    from .processor import CommandProcessor
    from .subscription import Subscription


class Context(Struct, eq=False, kw_only=True, weakref=True):
    """One handler's invocation. `delivery` is None for a request sent inside the process."""

    handler: str
    """The handler's qualified name."""
    delivery: Delivery | None = None
    subscription: Subscription | None = None
    processor: CommandProcessor | None = None
    """Sends further requests; set by the app, None in a bare pipeline."""
    clock: Clock = SYSTEM_CLOCK
    bag: dict[str, Any] = field(default_factory=dict)
    """For middleware to leave notes for one another."""
    signal: BaseException | None = None
    """The signal that was raised, or the group that holds it; the pipeline gets it out."""

    @property
    def message(self) -> Message | None:
        """The current message, None for a request sent inside the process."""
        return None if self.delivery is None else self.delivery.message

    @property
    def attempt(self) -> int:
        """1 at the first delivery, as the provider counts."""
        return 1 if self.delivery is None else self.delivery.attempt


_current: ContextVar[Context | None] = ContextVar("pump_context", default=None)
enter_context = _current.set
leave_context = _current.reset


def current_context() -> Context | None:
    """The context of the handler that is running here, None outside of one."""
    return _current.get()
