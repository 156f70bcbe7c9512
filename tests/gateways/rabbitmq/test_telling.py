"""Acks and requeues on one channel: none overtakes another, however busy the connection is."""

from __future__ import annotations

import asyncio
from typing import cast

import pamqp.frame
from pamqp.commands import Basic

from gateways.rabbitmq import amqp
from gateways.rabbitmq.settling import Outstanding
from pump.clock import yield_to_loop

from .fake_channel import FakeChannel


def frames_in(written: bytes) -> list[Basic.Ack | Basic.Nack]:
    frames: list[Basic.Ack | Basic.Nack] = []
    while written:
        size, _, frame = pamqp.frame.unmarshal(written)
        assert isinstance(frame, Basic.Ack | Basic.Nack)
        frames.append(frame)
        written = written[size:]
    return frames


async def tell(
    channel: FakeChannel, outstanding: Outstanding, done: list[int], undone: list[int]
) -> None:
    await amqp.tell(cast(amqp.Channel, channel), outstanding, done=done, undone=undone)


async def test_when_the_connection_is_busy_then_an_ack_does_not_overtake_a_requeue() -> None:
    """Law 1: "up to and with the third" would ack the second, which is to come again."""
    channel, outstanding = FakeChannel(room=1), Outstanding()
    for tag in (1, 2, 3):
        outstanding.add(tag)
    channel.write_queue.put_nowait(None)
    first = asyncio.create_task(tell(channel, outstanding, [1], [2]))
    for _ in range(5):
        await yield_to_loop()

    second = asyncio.create_task(tell(channel, outstanding, [3], []))
    await yield_to_loop()
    # There is room for one now, and both want it.
    channel.write_queue.get_nowait()
    for _ in range(5):
        await yield_to_loop()

    requeue, ack = frames_in(channel.written())
    await first
    await second
    [later] = frames_in(channel.written())
    assert (type(requeue), requeue.delivery_tag) == (Basic.Nack, 2)
    assert (type(ack), ack.delivery_tag, later.delivery_tag) == (Basic.Ack, 1, 3)
