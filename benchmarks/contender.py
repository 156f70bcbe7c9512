"""Contender: one way to get messages from a sender to a handler, and how it is run."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module

import attrs

from .reading import Reading


class Group(StrEnum):
    """Contenders that do the same; the first of a group is the bare one."""

    MEMORY = "In memory"
    DURABLE = "Durable"
    OVERHEAD = "Ports only"
    GROWTH = "Growth"
    FLATNESS = "Memory flatness"
    SQS = "SQS"
    SQS_FAR = "SQS, 10 ms away"
    SQS_LATENCY = "SQS, far away"
    SQS_SERVERS = "SQS servers"
    WATCHED = "Watched"
    SPARK = "Spark"
    S3 = "S3"
    RABBITMQ = "RabbitMQ"
    NATS = "NATS JetStream"

    @property
    def key(self) -> str:
        """Its name on the command line, and of the file with its results."""
        return self.name.lower().replace("_", "-")


@attrs.frozen(kw_only=True)
class Contender:
    """One way to get messages from a sender to a handler."""

    name: str
    title: str
    group: Group
    module: str
    share: float = 1.0
    """Part of the messages asked for: slow ones get fewer, so that a round stays short."""
    needs: str = ""
    """What to install to measure it; Pumphouse and Python alone when empty."""
    max_rounds: int | None = None
    """How many rounds measure it; all of them when None."""
    warms_up_itself: bool = False
    """Whether it need not be run with a few messages first."""
    options: Mapping[str, str | float] = attrs.field(factory=dict)
    """What its module's `run` is told beside the count."""
    note: str = ""

    def messages(self, count: int) -> int:
        """How many messages it gets when `count` were asked for."""
        return max(1, round(count * self.share))

    def run(self, count: int) -> Reading:
        """Measure it here and now. Raises ImportError when `needs` is not installed."""
        module = import_module(f".contenders.{self.module}", __package__)
        reading = module.run(count, **self.options)
        assert isinstance(reading, Reading)
        return reading
