"""The configuration file of `pump local`: queues to make, functions to feed from them."""

from __future__ import annotations

from .entry import InvalidLocalConfig, Problem
from .loading import LocalConfig, MappingConfig, QueueConfig, load_config
from .patterns import Filter

__all__ = [
    "Filter",
    "InvalidLocalConfig",
    "LocalConfig",
    "MappingConfig",
    "Problem",
    "QueueConfig",
    "load_config",
]
