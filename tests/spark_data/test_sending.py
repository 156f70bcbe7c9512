"""Bulk sends: in order per group, again for what was refused, and clear errors (R78)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from pump.errors import (
    ConfigurationError,
    ConnectionFailed,
    MessageTooLarge,
    SendFailed,
    Throttled,
)
from pump.message import Message
from pump.ports import ProducerPort
from pump.spark.data.options import QueueReference, SinkOptions
from pump.spark.data.rows import RowIds
from pump.spark.data.sending import RowsNotSent, send_batches
from pump.subscription import MakeChannels, QueueSpec
from pump.testing.virtual_clock import VirtualClock
from tests.core.faulty_gateway import FaultyGateway

from .bench import QUEUE, in_time

IDS = RowIds(job="job", partition=2)


class PickyGateway(FaultyGateway):
    """Refuses the bodies it is told to, once or always, and takes the others."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.refusals: dict[bytes, list[Exception]] = {}

    def producer(self, queue: str) -> ProducerPort:
        inner, refusals = super().producer(queue), self.refusals

        class Producer:
            aclose = staticmethod(inner.aclose)

            async def send(
                self, messages: Sequence[Message], *, delay_s: float = 0.0
            ) -> Sequence[str]:
                failures = []
                for message in messages:
                    if left := refusals.get(message.body):
                        failures.append((message.id, left.pop()))
                failed = {id_ for id_, _ in failures}
                taken = [each for each in messages if each.id not in failed]
                ids = await inner.send(taken, delay_s=delay_s)
                if failures:
                    raise SendFailed(queue, tuple(failures))
                return ids

        return Producer()


@pytest.fixture
async def shop(clock: VirtualClock) -> PickyGateway:
    gateway = PickyGateway(clock)
    await gateway.open()
    await gateway.admin().ensure(QueueSpec(name=QUEUE), MakeChannels.CREATE)
    return gateway


async def send(
    gateway: PickyGateway, clock: VirtualClock, *batches: Any, queue: str = QUEUE, lanes: int = 4
) -> int:
    options = SinkOptions(place=QueueReference(url="memory://", queue=queue), lanes=lanes)
    return await in_time(clock, send_batches(gateway, options, iter(batches), IDS, clock=clock))


def rows(count: int, start: int = 0, **columns: list[str]) -> Any:
    return pa.record_batch({"body": [b"%d" % at for at in range(start, start + count)], **columns})


def sent(gateway: PickyGateway) -> list[Message]:
    return [message for _, message in gateway.record.sent]


async def test_when_batches_are_sent_then_rows_are_counted_through(
    shop: PickyGateway, clock: VirtualClock
) -> None:
    """R78: the id of a row does not depend on how Spark cut its batches."""
    assert await send(shop, clock, rows(700), rows(300, 700)) == 1_000

    assert {each.id: each.body for each in sent(shop)} == {
        IDS.of(at): b"%d" % at for at in range(1_000)
    }


async def test_when_rows_have_groups_then_each_group_is_sent_in_order(
    shop: PickyGateway, clock: VirtualClock
) -> None:
    """R78: lanes run side by side, a group in one of them."""
    groups = [str(at % 7) for at in range(2_000)]

    await send(shop, clock, rows(2_000, group=groups))

    for group in set(groups):
        bodies = [int(each.body) for each in sent(shop) if each.group == group]
        assert bodies == sorted(bodies)
        assert len(bodies) in (285, 286)


async def test_when_there_is_one_lane_then_the_whole_partition_keeps_its_order(
    shop: PickyGateway, clock: VirtualClock
) -> None:
    """R78: for queues whose order matters without groups."""
    await send(shop, clock, rows(1_000), lanes=1)

    assert [int(each.body) for each in sent(shop)] == list(range(1_000))


async def test_when_some_rows_are_refused_for_now_then_only_they_are_sent_again(
    shop: PickyGateway, clock: VirtualClock
) -> None:
    """R78: what was taken is not sent twice."""
    shop.refusals = {b"3": [Throttled(QUEUE)], b"5": [Throttled(QUEUE), Throttled(QUEUE)]}

    await send(shop, clock, rows(10))

    assert sorted(int(each.body) for each in sent(shop)) == list(range(10))


async def test_when_the_broker_is_away_for_a_moment_then_the_send_is_repeated(
    shop: PickyGateway, clock: VirtualClock
) -> None:
    """R78: a bulk job does not fail for a moment's outage."""
    shop.fail("send", ConnectionFailed("the broker", "nobody answers"), times=3)

    assert await send(shop, clock, rows(10)) == 10


async def test_when_the_broker_stays_away_then_the_error_names_queue_and_row(
    shop: PickyGateway, clock: VirtualClock
) -> None:
    """R78: after a few tries it is for a person, or for Spark's own retry."""
    shop.fail("send", ConnectionFailed("the broker", "nobody answers"))

    with pytest.raises(RowsNotSent, match=r"10 row.*row 0 of partition 2.*nobody answers"):
        await send(shop, clock, rows(10))


async def test_when_a_row_can_never_be_sent_then_it_is_named_at_once(
    shop: PickyGateway, clock: VirtualClock
) -> None:
    """R78: the first row that is at fault, not one beside it that was only refused for now."""
    shop.refusals = {
        b"2": [Throttled(QUEUE)],
        b"4": [MessageTooLarge(QUEUE, 2, 1)],
        b"6": [MessageTooLarge(QUEUE, 2, 1)],
    }

    with pytest.raises(RowsNotSent, match="row 4 of partition 2") as raised:
        await send(shop, clock, rows(10))

    assert raised.value.message_id == IDS.of(4)
    assert raised.value.count == 3


async def test_when_there_is_no_such_queue_then_the_error_says_so(
    shop: PickyGateway, clock: VirtualClock
) -> None:
    """R78: nothing is tried again."""
    with pytest.raises(RowsNotSent, match="queue 'nowhere' does not exist"):
        await send(shop, clock, rows(3), queue="nowhere")

    assert shop.record.calls["send"] == 1


async def test_when_a_row_is_no_message_then_the_rows_before_its_batch_are_sent(
    shop: PickyGateway, clock: VirtualClock
) -> None:
    """R78: the error names the row by its place in the partition."""
    bad = pa.record_batch({"body": pa.array([b"x", None], pa.binary())})

    with pytest.raises(ConfigurationError, match="row 11 of partition 2"):
        await send(shop, clock, rows(10), bad)

    assert len(sent(shop)) == 10
