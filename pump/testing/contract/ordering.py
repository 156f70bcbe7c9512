"""Contract: oldest or newest first, and strict order across retries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ...capabilities import OrderingMode
from ...clock import yield_to_loop
from ...errors import ConfigurationError, UnsupportedOperation
from ...message import Delivery, Message
from ...subscription import MakeChannels, QueueSpec
from ..builders import a_message, ack, defer
from .rig import Channel, ContractTests, Rig


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
        """R37, R4: an ack wakes the receive that waits for the successor."""
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


# Contract: order within a group, no order between groups.


class GroupContract(ContractTests):
    """R38: A, B, C within a group; groups run beside one another."""

    async def test_when_messages_share_a_group_then_they_are_delivered_in_order(
        self, rig: Rig
    ) -> None:
        """R38."""
        queue = await open_grouped(rig, "a1 a2 a3 a4")

        received = await queue.take_and_ack(4)

        assert text(received) == "a1a2a3a4"

    async def test_when_a_group_is_in_flight_then_other_groups_are_delivered_beside_it(
        self, rig: Rig
    ) -> None:
        """R38."""
        queue = await open_grouped(rig, "a1 b1 c1")

        held = await queue.take(3)

        assert sorted(each.message.body for each in held) == [b"a1", b"b1", b"c1"]

    async def test_when_the_head_of_a_group_is_in_flight_then_its_successors_wait(
        self, rig: Rig
    ) -> None:
        """R38."""
        queue = await open_grouped(rig, "a1 a2 b1")
        [head] = await queue.receive()

        meanwhile = await queue.take(3)

        assert text_of([head]) == "a1"
        assert text_of(meanwhile) == "b1"
        await queue.settle(*map(ack, [head, *meanwhile]))
        assert text(await queue.take_and_ack(2)) == "a2"

    async def test_when_the_head_of_a_group_is_deferred_then_only_its_group_waits(
        self, rig: Rig
    ) -> None:
        """R38, T7."""
        queue = await open_grouped(rig, "a1 a2 b1 b2")
        [head] = await queue.receive()

        await queue.settle(defer(head, seconds=2 * rig.tick_s))

        assert text(await queue.take_and_ack(4)) == "b1b2"
        await rig.advance(2 * rig.tick_s)
        assert text(await queue.take_and_ack(4)) == "a1a2"

    async def test_when_the_lease_on_a_groups_head_runs_out_then_it_comes_first_again(
        self, rig: Rig
    ) -> None:
        """R38, R8."""
        rig.needs("has_lease_expiry")
        queue = await open_grouped(rig, "a1 a2")
        await queue.receive()

        await rig.advance(rig.lease_s)

        assert text(await queue.take_and_ack(3)) == "a1a2"

    async def test_when_a_group_becomes_free_then_a_waiting_receive_returns_its_next(
        self, rig: Rig
    ) -> None:
        """R38, R4."""
        queue = await open_grouped(rig, "a1 a2")
        [head] = await queue.receive()
        waiting = queue.start_receive(wait_s=rig.long_s)
        await rig.settle()

        await queue.settle(ack(head))

        assert await rig.ends(waiting), rig.late(waiting)
        assert text_of(await waiting) == "a2"

    async def test_when_a_message_has_no_group_then_it_waits_for_no_group(self, rig: Rig) -> None:
        """R38."""
        queue = await open_grouped(rig, "a1 a2")
        await queue.receive()

        await queue.send(a_message("free"))

        assert text(await queue.take_and_ack(2)) == "free"

    async def test_when_many_consume_groups_at_once_then_each_group_stays_in_order(
        self, rig: Rig
    ) -> None:
        """R38, R43, T13: with retries, and however many work on them."""
        numbers = range(1, 9)
        queue = await open_grouped(rig, " ".join(f"{g}{n}" for n in numbers for g in "abcd"))
        done: list[Message] = []

        async def work(give_back_every: int) -> None:
            consumer = queue.another_consumer()
            count = 0
            while received := await consumer.receive(max_count=1, wait_s=rig.tick_s):
                count += 1
                await yield_to_loop()
                if count % give_back_every:
                    done.append(received[0].message)
                    await consumer.settle([ack(received[0])])
                else:
                    await consumer.settle([defer(received[0])])

        workers = [rig.start(work(every)) for every in (2, 3, 5, 7, 11, 13)]
        while not all(worker.done() for worker in workers):
            await rig.clock.advance(rig.tick_s)

        for group in "abcd":
            in_order = [f"{group}{number}".encode() for number in numbers]
            assert [each.body for each in done if each.group == group] == in_order

    async def test_when_strict_order_is_asked_for_with_groups_then_groups_still_run_in_parallel(
        self, rig: Rig
    ) -> None:
        """R37, R38, T7: one in flight per ordering domain."""
        rig.needs("has_strict_order")
        queue = await open_grouped(rig, "a1 a2 b1 b2", ordering_guarantee=True)

        held = await queue.take(4)

        assert sorted(each.message.body for each in held) == [b"a1", b"b1"]


async def open_grouped(rig: Rig, bodies: str, **fields: Any) -> Channel:
    """A queue that holds one message a word, in the group of its first letter."""
    rig.needs("has_groups")
    queue = await rig.open_ordered_queue(**fields)
    await queue.send(*(a_message(body, group=body[0]) for body in bodies.split()))
    return queue
