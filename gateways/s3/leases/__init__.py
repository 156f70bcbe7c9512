"""The layout of leases: one lease object a message."""

from __future__ import annotations

from .queue import LeasedQueue

__all__ = ["LeasedQueue"]
