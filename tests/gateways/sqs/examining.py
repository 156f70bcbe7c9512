"""What the tests of the doctor share: an AWS that answers its probes, and how to ask it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from gateways._aws.errors import RequestRefused
from gateways._aws.sdk_transport import Reply, Request
from gateways.sqs.doctor import examine
from pump import Command, Subscription
from pump.errors import AccessDenied
from pump.findings import Finding, HandlerTimes, Level
from pump.subscription import MakeChannels

from .clouds import Cloud
from .paper_aws import PaperAws

READING = {"get_queue_url", "get_queue_attributes", "list_queues"}
PROBES = {"delete_message_batch", "change_message_visibility_batch", "send_message_batch"}


class PlaceOrder(Command):
    """An order."""


def refuse_entries(request: Request) -> Reply:
    assert request["Entries"]
    return {
        "Successful": [],
        "Failed": [
            {"Id": each["Id"], "Code": "ReceiptHandleIsInvalid", "SenderFault": True}
            for each in request["Entries"]
        ],
    }


def refuse_empty_batch(request: Request) -> Reply:
    assert request["Entries"] == []
    raise RequestRefused("sqs", "EmptyBatchRequest", "there should be at least one")


def deny(action: str) -> Callable[[Request], Reply]:
    def answer(request: Request) -> Reply:
        raise AccessDenied("orders", action)

    return answer


def fail(error: Exception) -> Callable[[Request], Reply]:
    def answer(request: Request) -> Reply:
        raise error

    return answer


def paper_aws() -> PaperAws:
    paper = PaperAws()
    paper.answers["delete_message_batch"] = refuse_entries
    paper.answers["change_message_visibility_batch"] = refuse_entries
    paper.answers["send_message_batch"] = refuse_empty_batch
    return paper


def a_subscription(queue: str = "orders", **fields: Any) -> Subscription:
    named = {"dead_letter_queue": "dead", "invalid_queue": "odd", **fields}
    return Subscription(queue=queue, request=PlaceOrder, **named)


async def found(
    cloud: Cloud, *subscriptions: Subscription, observed: dict[str, HandlerTimes] | None = None
) -> list[Finding]:
    return await examine(cloud, cloud.urls, subscriptions or [a_subscription()], observed or {})


async def problems(cloud: Cloud, *subscriptions: Subscription) -> list[tuple[Level, str]]:
    told = await found(cloud, *subscriptions)
    return [(each.level, each.detail) for each in told if each.level is not Level.OK]


async def set_attributes(cloud: Cloud, queue: str, **attributes: str) -> None:
    await cloud.sqs("set_queue_attributes", queue, Attributes=attributes)


async def make_all(cloud: Cloud) -> None:
    await cloud.ensure("orders", MakeChannels.CREATE, lease=timedelta(seconds=30))
    for name in ("dead", "odd"):
        await cloud.create(name)
