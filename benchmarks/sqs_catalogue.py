"""The SQS contenders: all on the same stand-in, once near and once ten milliseconds away."""

from __future__ import annotations

import attrs

from .contender import Contender, Group

LATENCY_MS = 10.0
_ROUNDS = 3
"""Each starts two servers and two clients, which takes longer than the measuring."""

_NEAR = (
    Contender(
        name="sqs-boto3",
        title="raw boto3, one thread",
        group=Group.SQS,
        module="sqs_boto3",
        share=0.08,
        needs="boto3",
    ),
    Contender(
        name="sqs-aioboto3",
        title="raw aioboto3, four pollers",
        group=Group.SQS,
        module="sqs_aioboto3",
        share=0.12,
        needs="aioboto3",
    ),
    Contender(
        name="pump-sqs",
        title="Pumphouse SQS, aioboto3",
        group=Group.SQS,
        module="pump_sqs",
        share=0.12,
        needs="pumphouse[sqs]",
        options={"transport": "aioboto3"},
    ),
    Contender(
        name="pump-sqs-boto3",
        title="Pumphouse SQS, boto3",
        group=Group.SQS,
        module="pump_sqs",
        share=0.08,
        needs="pumphouse[sqs]",
        options={"transport": "boto3"},
    ),
    Contender(
        name="sqs-lean",
        title="the lean transport by hand, four pollers",
        group=Group.SQS,
        module="sqs_lean",
        share=0.4,
        needs="pumphouse[sqs]",
    ),
    Contender(
        name="pump-sqs-lean",
        title="Pumphouse SQS, lean",
        group=Group.SQS,
        module="pump_sqs",
        share=0.4,
        needs="pumphouse[sqs]",
        options={"transport": "lean"},
    ),
    Contender(
        name="sqs-workers",
        title="sqs-workers",
        group=Group.SQS,
        module="sqs_workers_queue",
        share=0.05,
        needs="sqs-workers",
        note="one thread",
    ),
    Contender(
        name="sqs-taskiq",
        title="taskiq-aio-sqs",
        group=Group.SQS,
        module="sqs_taskiq",
        share=0.02,
        needs="taskiq-aio-sqs",
    ),
    Contender(
        name="sqs-repid",
        title="repid",
        group=Group.SQS,
        module="sqs_repid",
        share=0.02,
        needs="repid[sqs]",
    ),
    Contender(
        name="sqs-dramatiq",
        title="dramatiq-sqs",
        group=Group.SQS,
        module="sqs_dramatiq",
        share=0.016,
        needs="dramatiq-sqs",
        note="eight threads",
    ),
    Contender(
        name="sqs-celery",
        title="Celery",
        group=Group.SQS,
        module="sqs_celery",
        share=0.012,
        needs="celery[sqs]",
        note="two pool processes",
    ),
)
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


def _far(near: Contender) -> Contender:
    return attrs.evolve(
        near,
        name=f"{near.name}-far",
        group=Group.SQS_FAR,
        share=_FAR_SHARES[near.name],
        options={**near.options, "latency_ms": LATENCY_MS},
    )


SQS_CONTENDERS = tuple(
    attrs.evolve(contender, max_rounds=_ROUNDS)
    for contender in (*_NEAR, *(_far(contender) for contender in _NEAR))
)
SQS_FRAMEWORKS = ("sqs-workers", "sqs-taskiq", "sqs-repid", "sqs-dramatiq", "sqs-celery")
"""Those that do what Pumphouse does: dispatch to handlers, and settle."""
