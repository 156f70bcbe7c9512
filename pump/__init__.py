"""Pumphouse: a message pump. Handlers in, queues out, and nothing lost on the way.

The names most programs need are here; everything else is in the module named after it.
"""

from .app import App
from .backoff import Backoff
from .capabilities import OrderingMode
from .consumer import Consumer
from .context import Context, current_context
from .errors import ConfigurationError, PumpError
from .events import OutcomeEvent, Status
from .message import Delivery, Message
from .outcome import RejectionReason
from .posting import PostOptions
from .processor import CommandProcessor
from .requests import Command, Event
from .signals import DeferMessage, InvalidMessage, RejectMessage
from .strategy import dead_letter, hybrid, retry
from .subscription import MakeChannels, OnRoutingFailure, Subscription, UnacceptableLimit

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
    "Status",
    "Subscription",
    "UnacceptableLimit",
    "current_context",
    "dead_letter",
    "hybrid",
    "retry",
]
