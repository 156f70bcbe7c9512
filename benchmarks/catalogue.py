"""Catalogue: who is measured, in which group, and with how many messages."""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module

import attrs

from .reading import Reading


class Group(StrEnum):
    """Contenders that do the same; the first of a group is the bare one."""

    MEMORY = "In memory"
    DURABLE = "Durable"
    OVERHEAD = "Ports only"
    FLATNESS = "Memory flatness"


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
    is_repeated: bool = True
    """Whether each round measures it again."""
    note: str = ""

    def messages(self, count: int) -> int:
        """How many messages it gets when `count` were asked for."""
        return max(1, round(count * self.share))

    def run(self, count: int) -> Reading:
        """Measure it here and now. Raises ImportError when `needs` is not installed."""
        reading = import_module(f".contenders.{self.module}", __package__).run(count)
        assert isinstance(reading, Reading)
        return reading


CONTENDERS = (
    Contender(
        name="asyncio",
        title="bare asyncio.Queue",
        group=Group.MEMORY,
        module="asyncio_queue",
        note="no encoding, no acks",
    ),
    Contender(
        name="pump",
        title="Pumphouse memory, post_all",
        group=Group.MEMORY,
        module="pump_memory",
    ),
    Contender(
        name="pump-single",
        title="Pumphouse memory, post",
        group=Group.MEMORY,
        module="pump_memory_single",
    ),
    Contender(
        name="taskiq",
        title="taskiq InMemoryBroker",
        group=Group.MEMORY,
        module="taskiq_memory",
        share=0.5,
        needs="taskiq",
        note="no acks",
    ),
    Contender(
        name="dramatiq",
        title="dramatiq StubBroker",
        group=Group.MEMORY,
        module="dramatiq_stub",
        share=0.2,
        needs="dramatiq",
    ),
    Contender(
        name="faststream",
        title="FastStream test broker",
        group=Group.MEMORY,
        module="faststream_nats",
        share=0.1,
        needs="faststream[nats]",
        note="no acks",
    ),
    Contender(
        name="sqlite",
        title="raw sqlite3, groups of 100",
        group=Group.DURABLE,
        module="sqlite_groups",
        note="one writer, no leases",
    ),
    Contender(
        name="pump-local",
        title="Pumphouse local, post_all",
        group=Group.DURABLE,
        module="pump_local",
    ),
    Contender(
        name="huey",
        title="Huey SqliteHuey",
        group=Group.DURABLE,
        module="huey_sqlite",
        share=0.05,
        needs="huey",
        note="no acks",
    ),
    Contender(
        name="persist-queue",
        title="persist-queue SQLiteAckQueue",
        group=Group.DURABLE,
        module="persist_queue",
        share=0.03,
        needs="persist-queue",
    ),
    Contender(
        name="litequeue",
        title="litequeue",
        group=Group.DURABLE,
        module="lite_queue",
        share=0.03,
        needs="litequeue",
        note="not synced on commit",
    ),
    Contender(
        name="port",
        title="memory gateway without a pump",
        group=Group.OVERHEAD,
        module="port_memory",
        note="receive and settle only",
    ),
    Contender(
        name="flat",
        title="Pumphouse memory, endless stream",
        group=Group.FLATNESS,
        module="flat_memory",
        share=20.0,
        is_repeated=False,
    ),
)
BY_NAME = {contender.name: contender for contender in CONTENDERS}
