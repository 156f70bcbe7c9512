"""Redrives on SQS, through `pump local`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateways.sqs import SqsGateway, TransportKind
from pump.clock import SYSTEM_CLOCK
from pump.message import Message
from pump.outcome import ACK, Settlement
from pump.ports import Gateway
from pump.redrive.folder import RedriveCounts
from pump.subscription import MakeChannels, QueueSpec, Subscription
from tests.brokers.aws_account import AwsAccount
from tests.contract.sqs_rigs import sqs_settings

from .rig import Redrive, Rig, a_dead_letter, a_plan

# Looks are long polls in real time, and the first test waits for the server.
pytestmark = pytest.mark.timeout(90)


@pytest.fixture
async def sqs(local_aws: AwsAccount) -> AsyncIterator[SqsGateway]:
    gateway = SqsGateway(sqs_settings(local_aws, TransportKind.AIOBOTO3))
    await gateway.open()
    yield gateway
    await gateway.aclose()


async def fill(gateway: Gateway, dead: str, target: str, letters: list[Message]) -> None:
    for queue in (dead, target):
        await gateway.admin().ensure(QueueSpec(name=queue), MakeChannels.CREATE)
    await gateway.producer(dead).send(letters)


async def taken(gateway: Gateway, queue: str, count: int) -> list[Message]:
    """So many messages, received and removed, as they come; after them there is none."""
    port = gateway.consumer(Subscription(queue=queue, request=Message))
    found: list[Message] = []
    while len(found) < count:
        deliveries = await port.receive(max_count=10, wait_s=5)
        assert deliveries, f"only {len(found)} came"
        found += [each.message for each in deliveries]
        await port.settle([Settlement(each, ACK) for each in deliveries])
    await port.aclose()
    stats = await gateway.admin().stats(queue)
    assert (stats.visible, stats.in_flight) == (0, 0)
    return found


def ids(messages: list[Message]) -> list[str]:
    return sorted((each.id for each in messages), key=lambda id: (len(id), id))


async def redrive(gateway: SqsGateway, folder: Path, **plan: str) -> tuple[RedriveCounts, Redrive]:
    rig = Rig(SYSTEM_CLOCK, gateway)  # type: ignore[arg-type]
    rig.capabilities = gateway.capabilities
    it = Redrive(rig, folder, a_plan(**plan), batch=50)
    return await it.run(), it


async def test_when_standard_queues_are_redriven_then_the_selected_are_moved_whole(
    sqs: SqsGateway, folder: Path
) -> None:
    """R78: packed headers, group and all."""
    letters = [
        a_dead_letter(n, type="Order" if n < 25 else "Payment", correlation_id="c")
        for n in range(40)
    ]
    await fill(sqs, "dead", "target", letters)

    counts, it = await redrive(sqs, folder, queue="dead", target="target")

    assert (counts.sent, counts.removed, counts.held, it.left) == (25, 25, 15, 0)
    moved = {each.id: each for each in await taken(sqs, "target", 25)}
    assert [replace(moved[each.id], deduplication_id=None) for each in letters[:25]] == (
        letters[:25]
    )
    assert ids(await taken(sqs, "dead", 15)) == [f"m-{n}" for n in range(25, 40)]


async def test_when_the_dead_letter_queue_is_fifo_then_a_group_is_moved_in_its_order(
    sqs: SqsGateway, folder: Path
) -> None:
    """R78: the rest of a group comes once its first ones are removed."""
    letters = [a_dead_letter(n, group=f"g{n % 2}") for n in range(30)]
    await fill(sqs, "dead.fifo", "target.fifo", letters)

    counts, it = await redrive(sqs, folder, queue="dead.fifo", target="target.fifo")
    assert it.prepared is not None
    assert it.prepared.seen_count + it.prepared.hidden_count == 30
    while it.prepared.hidden_count:
        more, it = await redrive(sqs, folder, queue="dead.fifo", target="target.fifo")
        counts += more
        assert it.prepared is not None

    assert (counts.sent, counts.removed, counts.repeated) == (30, 30, 0)
    moved = await taken(sqs, "target.fifo", 30)
    for group in ("g0", "g1"):
        assert [each.id for each in moved if each.group == group] == [
            each.id for each in letters if each.group == group
        ]


async def test_when_selected_messages_stand_behind_others_of_their_group_then_it_is_said(
    sqs: SqsGateway, folder: Path
) -> None:
    """R78: a FIFO queue shows them only when those before are gone; nothing is lost."""
    letters = [
        a_dead_letter(n, group="g", type="Payment" if n < 10 else "Order") for n in range(12)
    ]
    await fill(sqs, "dead.fifo", "target", letters)

    counts, it = await redrive(sqs, folder, queue="dead.fifo", target="target")

    assert it.prepared is not None
    assert (it.prepared.selected_count, it.prepared.hidden_count) == (0, 2)
    assert (counts.sent, counts.removed) == (0, 0)
    assert ids(await taken(sqs, "dead.fifo", 12)) == [each.id for each in letters]
