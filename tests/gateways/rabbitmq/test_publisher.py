"""Publishing where the broker is slow, or goes away in the middle: who was confirmed is told."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, cast

import pytest
from aiormq.exceptions import ChannelPreconditionFailed
from pamqp.commands import Basic

import gateways.rabbitmq.amqp  # noqa: F401  (as opening a gateway does: not on the loop)
from gateways.rabbitmq.connection import RabbitMQLink
from gateways.rabbitmq.names import PUBLISH_BATCH
from gateways.rabbitmq.publisher import Publisher, PublishResult
from gateways.rabbitmq.wire import Parcel
from pump.clock import yield_to_loop
from pump.errors import ConnectionFailed, MessageTooLarge, QueueNotFound, Throttled
from pump.testing import VirtualClock

from .fake_channel import FakeChannel

PATIENCE_S = 30.0


class FakeLink:
    """Gives out one channel, until the broker is away."""

    address = "amqp://broker"

    def __init__(self) -> None:
        self.the_channel = FakeChannel()
        self.is_away = False
        self.is_connected = True
        self.is_silent = False

    async def channel(self, *, confirms: bool) -> FakeChannel:
        if self.is_away:
            raise ConnectionFailed(self.address, "nobody listens")
        if self.is_silent:
            await asyncio.Event().wait()
        return self.the_channel


def parcels(count: int) -> list[Parcel]:
    return [Parcel(body=b"x", properties={"message_id": f"m{n}"}) for n in range(count)]


async def publish(
    link: FakeLink, clock: VirtualClock, count: int
) -> asyncio.Task[list[PublishResult]]:
    """Publish so many; returns when the first of them are written."""
    publisher = Publisher(cast(RabbitMQLink, link), clock=clock, patience_s=PATIENCE_S)
    publishing = asyncio.create_task(publisher.publish("orders", parcels(count)))
    while not link.the_channel.write_queue.qsize():
        await yield_to_loop()
    return publishing


def answer(link: FakeLink, tags: range, what: Any) -> None:
    for tag in tags:
        link.the_channel.confirmations[tag].set_result(what)


async def test_when_some_confirms_never_come_then_only_those_are_throttled() -> None:
    link, clock = FakeLink(), VirtualClock()
    publishing = await publish(link, clock, 4)

    answer(link, range(1, 3), Basic.Ack())
    answer(link, range(3, 4), "a message that came back")
    await clock.advance(PATIENCE_S + 1)

    confirmed, also_confirmed, returned, unanswered = await publishing
    assert confirmed is None
    assert also_confirmed is None
    assert isinstance(returned, QueueNotFound)
    assert isinstance(unanswered, Throttled)


async def test_when_a_part_is_not_confirmed_then_those_after_it_are_not_waited_for() -> None:
    """R51: a send has one limit, however large it is."""
    link, clock = FakeLink(), VirtualClock()
    publishing = await publish(link, clock, 3 * PUBLISH_BATCH)

    answer(link, range(1, PUBLISH_BATCH), Basic.Ack())
    await clock.advance(PATIENCE_S + 1)
    await yield_to_loop()

    assert publishing.done()
    fates = await publishing
    assert fates[: PUBLISH_BATCH - 1] == [None] * (PUBLISH_BATCH - 1)
    assert {type(fate) for fate in fates[PUBLISH_BATCH - 1 :]} == {Throttled}
    assert len(fates) == 3 * PUBLISH_BATCH


async def test_when_the_broker_goes_away_between_parts_then_the_part_before_is_confirmed() -> None:
    link, clock = FakeLink(), VirtualClock()
    publishing = await publish(link, clock, 2 * PUBLISH_BATCH + 1)

    link.is_away = link.the_channel.is_closed = True
    answer(link, range(1, PUBLISH_BATCH + 1), Basic.Ack())

    fates = await publishing
    assert fates[:PUBLISH_BATCH] == [None] * PUBLISH_BATCH
    assert {type(fate) for fate in fates[PUBLISH_BATCH:]} == {ConnectionFailed}
    assert len(fates) == 2 * PUBLISH_BATCH + 1


async def test_when_one_cannot_be_written_then_confirms_are_still_those_of_their_messages() -> None:
    """Law 2: a confirm that is taken for another message's would let that one be acked unsent."""
    link, clock = FakeLink(), VirtualClock()
    publisher = Publisher(cast(RabbitMQLink, link), clock=clock, patience_s=PATIENCE_S)
    odd = Parcel(body=b"x", properties={"message_id": "odd"}, headers={"k": object()})
    with pytest.raises(TypeError):
        await publisher.publish("orders", [*parcels(3), odd])

    publishing = await publish(link, clock, 1)
    answer(link, range(1, 2), Basic.Ack())

    assert await publishing == [None]


async def test_when_the_broker_finds_one_too_large_then_the_others_are_only_in_doubt() -> None:
    """The channel is closed over it, with everything that was published on it."""
    link, clock = FakeLink(), VirtualClock()
    publisher = Publisher(cast(RabbitMQLink, link), clock=clock, patience_s=PATIENCE_S)
    large = Parcel(body=b"x" * 2000, properties={"message_id": "large"})

    publishing = asyncio.create_task(publisher.publish("orders", [*parcels(1), large]))
    while not link.the_channel.write_queue.qsize():
        await yield_to_loop()
    words = "PRECONDITION_FAILED - message size 2000 is larger than configured max size 1000"
    for confirmation in link.the_channel.confirmations.values():
        confirmation.set_exception(ChannelPreconditionFailed(words))

    small, too_large = await publishing
    assert isinstance(small, ConnectionFailed)
    assert isinstance(too_large, MessageTooLarge)
    assert (too_large.size, too_large.max_size) == (2000, 1000)


async def test_when_the_connection_dies_after_the_caller_has_gone_then_asyncio_is_content() -> None:
    """Nothing that was waited for any longer is reported as never retrieved."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    link, clock = FakeLink(), VirtualClock()
    publishing = await publish(link, clock, 2)
    await clock.advance(PATIENCE_S + 1)
    await publishing

    for tag in (1, 2):
        link.the_channel.confirmations.pop(tag).set_exception(ConnectionResetError())
    await yield_to_loop()
    gc.collect()
    await yield_to_loop()

    assert complaints == []


async def test_when_the_channel_is_not_opened_in_time_then_the_send_is_throttled() -> None:
    """R51: a broker that is short of memory answers nothing on a connection that publishes."""
    link, clock = FakeLink(), VirtualClock()
    link.is_silent = True
    publisher = Publisher(cast(RabbitMQLink, link), clock=clock, patience_s=PATIENCE_S)

    publishing = [
        asyncio.create_task(publisher.publish("orders", [parcel])) for parcel in parcels(2)
    ]
    await clock.advance(PATIENCE_S)

    for [fate] in await asyncio.gather(*publishing):
        assert isinstance(fate, Throttled)


async def test_when_headers_are_over_a_frame_then_only_that_message_is_refused() -> None:
    """The broker would close the connection, and with it every send on it, again and again."""
    link, clock = FakeLink(), VirtualClock()
    publisher = Publisher(cast(RabbitMQLink, link), clock=clock, patience_s=PATIENCE_S)
    large = Parcel(body=b"x", properties={"message_id": "large"}, headers={"k": "y" * 100_000})
    first, second = parcels(2)

    publishing = asyncio.create_task(publisher.publish("orders", [first, large, second]))
    while not link.the_channel.write_queue.qsize():
        await yield_to_loop()
    answer(link, range(1, 3), Basic.Ack())

    sent, refused, also_sent = await publishing
    assert (sent, also_sent) == (None, None)
    assert isinstance(refused, MessageTooLarge)
    assert b"y" not in link.the_channel.written()
