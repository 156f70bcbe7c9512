"""The configuration file of `pump local`: queues to make, functions to feed from them."""

from __future__ import annotations

from .filters import Filter
from .loading import load_config
from .model import LocalConfig, MappingConfig, QueueConfig
from .problems import InvalidLocalConfig, Problem

__all__ = [
    "Filter",
    "InvalidLocalConfig",
    "LocalConfig",
    "MappingConfig",
    "Problem",
    "QueueConfig",
    "load_config",
]
