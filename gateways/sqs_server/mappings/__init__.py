"""Event-source mappings: Lambda functions fed from the server's queues, in this process."""

from __future__ import annotations

from .event_source import EventSource, MappingCounters

Mapping = EventSource
"""What AWS calls it."""

__all__ = ["EventSource", "Mapping", "MappingCounters"]
