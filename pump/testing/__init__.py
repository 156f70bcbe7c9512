"""The test kit: a virtual clock, builders, an app harness, and the contract suite for gateways.

`pump.testing.contract` is imported when asked for, because it alone needs pytest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .builders import a_delivery, a_message, a_subscription, abandon, ack, defer
from .harness import Harness
from .virtual_clock import VirtualClock

if TYPE_CHECKING:
    from .contract import GatewayContract, Rig, WaitingClock

__all__ = [
    "GatewayContract",
    "Harness",
    "Rig",
    "VirtualClock",
    "WaitingClock",
    "a_delivery",
    "a_message",
    "a_subscription",
    "abandon",
    "ack",
    "defer",
]

_NEEDS_PYTEST = frozenset({"GatewayContract", "Rig", "WaitingClock"})


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_PYTEST:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(".contract", __name__), name)
