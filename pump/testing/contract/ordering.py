"""Contract: oldest or newest first, and strict order across retries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ...capabilities import OrderingMode
from ...errors import ConfigurationError, UnsupportedOperation
from ...message import Delivery, Message
from ...subscription import MakeChannels, QueueSpec
from ..builders import a_message, ack, defer
from .base import ContractTests
from .rig import Channel, Rig


class OrderingContract(ContractTests):
    """R36, R37, T7."""

    async def test_when_nothing_else_is_asked_for_then_the_oldest_comes_first(
        self, rig: Rig
    ) -> None:
        """R36: FIFO is the default."""
        queue = await rig.open_queue()
        for name in "ABCDE":
            await queue.send(a_message(name))

        received = await queue.take_and_ack(5)

        assert text(received) == "ABCDE"

    async def test_when_one_send_holds_several_then_their_order_is_kept(self, rig: Rig) -> None:
        """R36, R58."""
        queue = await rig.open_queue()

        await queue.send(*map(a_message, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))

        assert text(await queue.take_and_ack(26)) == "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

    async def test_when_lifo_is_asked_for_then_the_newest_comes_first(self, rig: Rig) -> None:
        """R36."""
        needs_lifo(rig)
        queue = await rig.open_queue(ordering=OrderingMode.LIFO)
        for name in "ABC":
            await queue.send(a_message(name))

        [newest] = await queue.receive()
        await queue.send(a_message("D"))

        assert newest.message.body == b"C"
        assert text(await queue.take_and_ack(3)) == "DBA"

    async def test_when_lifo_is_not_to_be_had_then_asking_for_it_is_an_error(
        self, rig: Rig
    ) -> None:
        """R36, R76, T7: never a FIFO queue that was asked to be something else."""
        if OrderingMode.LIFO in rig.capabilities.ordering_modes:
            pytest.skip("has LIFO")
        spec = QueueSpec(name=rig.name("stack"), ordering=OrderingMode.LIFO, options=rig.options)

        with pytest.raises((UnsupportedOperation, ConfigurationError)):
            await rig.admin.ensure(spec, MakeChannels.CREATE)

        assert await rig.stats(spec.name) is None

    async def test_when_strict_order_is_not_to_be_had_then_asking_for_it_is_an_error(
        self, rig: Rig
    ) -> None:
        """R37, R76, T7."""
        if rig.capabilities.has_strict_order:
            pytest.skip("has strict order")
        spec = QueueSpec(name=rig.name("strict"), ordering_guarantee=True, options=rig.options)

        with pytest.raises((UnsupportedOperation, ConfigurationError)):
            await rig.admin.ensure(spec, MakeChannels.CREATE)

        assert await rig.stats(spec.name) is None

    async def test_when_order_is_strict_then_one_message_is_in_flight_at_a_time(
        self, rig: Rig
    ) -> None:
        """R37, T7."""
        queue = await open_strict(rig, "ABC")

        [head] = await queue.receive(10)

        assert await queue.find_nothing()
        await queue.settle(ack(head))
        [second] = await queue.receive(10)
        assert (head.message.body, second.message.body) == (b"A", b"B")

    async def test_when_order_is_strict_then_a_deferred_head_blocks_its_successors(
        self, rig: Rig
    ) -> None:
        """R37, T7: strict across retries."""
        queue = await open_strict(rig, "ABC")
        [head] = await queue.receive()

        await queue.settle(defer(head, seconds=rig.tick_s))

        assert await queue.find_nothing()
        await rig.advance(rig.tick_s)
        [again] = await queue.receive(10)
        assert (again.message.body, again.attempt) == (b"A", 2)
        await queue.settle(ack(again))
        assert text(await queue.take_and_ack(3)) == "BC"

    async def test_when_order_is_strict_then_an_expired_head_comes_before_its_successors(
        self, rig: Rig
    ) -> None:
        """R37: strict across visibility timeouts."""
        rig.needs("has_lease_expiry")
        queue = await open_strict(rig, "ABC")
        await queue.receive()

        await rig.advance(rig.lease_s)

        assert text(await queue.take_and_ack(4)) == "ABC"

    async def test_when_order_is_strict_then_the_next_is_received_as_soon_as_the_head_is_done(
        self, rig: Rig
    ) -> None:
        """R37, R4: an ack wakes whoever waits for the successor."""
        queue = await open_strict(rig, "AB")
        [head] = await queue.receive()
        waiting = queue.start_receive(wait_s=rig.long_s)
        await rig.settle()

        await queue.settle(ack(head))

        assert await rig.ends(waiting), rig.late(waiting)
        assert text_of(await waiting) == "B"

    async def test_when_a_strict_head_is_dead_lettered_then_its_successors_are_free(
        self, rig: Rig
    ) -> None:
        """R37, T7."""
        rig.needs("has_native_redrive")
        queue = await open_strict(
            rig, "AB", dead_letter_queue=rig.name("dead"), max_receive_count=1
        )
        [head] = await queue.receive()

        await queue.settle(defer(head))
        await rig.settle()

        assert text(await queue.take_and_ack(2)) == "B"


def needs_lifo(rig: Rig) -> None:
    """Skip where the newest cannot come first."""
    if OrderingMode.LIFO not in rig.capabilities.ordering_modes:
        pytest.skip("needs LIFO")


async def open_strict(rig: Rig, bodies: str, **fields: Any) -> Channel:
    """A strict queue that holds one message a letter."""
    rig.needs("has_strict_order")
    queue = await rig.open_ordered_queue(ordering_guarantee=True, **fields)
    await queue.send(*map(a_message, bodies))
    return queue


def text(messages: Sequence[Message]) -> str:
    """The bodies, put together."""
    return b"".join(message.body for message in messages).decode()


def text_of(deliveries: Sequence[Delivery]) -> str:
    """The bodies of what was delivered, put together."""
    return text([delivery.message for delivery in deliveries])
