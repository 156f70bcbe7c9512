"""Catalogue: who is measured, in which group, and with how many messages."""

from __future__ import annotations

from .brokers.catalogue import BROKER_CONTENDERS
from .contender import Contender, Group
from .growth.catalogue import GROWTH_CONTENDERS
from .s3.catalogue import S3_CONTENDERS
from .server_catalogue import SQS_SERVERS
from .spark.catalogue import SPARK_CONTENDERS
from .sqs_catalogue import SQS_CONTENDERS
from .sqs_latency.catalogue import LATENCY_CONTENDERS
from .watching.catalogue import SEALING, WATCHED_CONTENDERS

__all__ = ["BY_NAME", "CONTENDERS", "Contender", "Group"]

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
        name="port-pump",
        title="with the pump",
        group=Group.OVERHEAD,
        module="pump_memory",
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
        max_rounds=1,
    ),
    *GROWTH_CONTENDERS,
    *SQS_CONTENDERS,
    *LATENCY_CONTENDERS,
    *SQS_SERVERS,
    *WATCHED_CONTENDERS,
    SEALING,
    *SPARK_CONTENDERS,
    *S3_CONTENDERS,
    *BROKER_CONTENDERS,
)
BY_NAME = {contender.name: contender for contender in CONTENDERS}
