"""Pumphouse: a message pump. Handlers in, queues out, and nothing lost on the way.

The names most programs need are here; everything else is in the module named after it.
A name is loaded when it is first used: `pump --help` needs none of them, and answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import App
    from .backoff import Backoff
    from .capabilities import OrderingMode
    from .consumer import Consumer
    from .context import Context, current_context
    from .errors import ConfigurationError, PumpError
    from .events import OutcomeEvent, Status
    from .message import Delivery, Message
    from .outcome import DeferMessage, Fate, InvalidMessage, RejectionReason, RejectMessage
    from .posting import PostOptions
    from .processor import Command, CommandProcessor, Event
    from .secret import Secret
    from .session import Session
    from .subscription import (
        MakeChannels,
        OnRoutingFailure,
        Subscription,
        UnacceptableLimit,
        dead_letter,
        hybrid,
        retry,
    )

__all__ = [
    "App",
    "Backoff",
    "Command",
    "CommandProcessor",
    "ConfigurationError",
    "Consumer",
    "Context",
    "DeferMessage",
    "Delivery",
    "Event",
    "Fate",
    "InvalidMessage",
    "MakeChannels",
    "Message",
    "OnRoutingFailure",
    "OrderingMode",
    "OutcomeEvent",
    "PostOptions",
    "PumpError",
    "RejectMessage",
    "RejectionReason",
    "Secret",
    "Session",
    "Status",
    "Subscription",
    "UnacceptableLimit",
    "current_context",
    "dead_letter",
    "hybrid",
    "retry",
]

_HOMES = {
    "App": "app",
    "Backoff": "backoff",
    "Command": "processor",
    "CommandProcessor": "processor",
    "ConfigurationError": "errors",
    "Consumer": "consumer",
    "Context": "context",
    "DeferMessage": "outcome",
    "Delivery": "message",
    "Event": "processor",
    "Fate": "outcome",
    "InvalidMessage": "outcome",
    "MakeChannels": "subscription",
    "Message": "message",
    "OnRoutingFailure": "subscription",
    "OrderingMode": "capabilities",
    "OutcomeEvent": "events",
    "PostOptions": "posting",
    "PumpError": "errors",
    "RejectMessage": "outcome",
    "RejectionReason": "outcome",
    "Secret": "secret",
    "Session": "session",
    "Status": "events",
    "Subscription": "subscription",
    "UnacceptableLimit": "subscription",
    "current_context": "context",
    "dead_letter": "subscription",
    "hybrid": "subscription",
    "retry": "subscription",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'pump' has no attribute {name!r}")
        value = getattr(import_module(f".{home}", __name__), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
