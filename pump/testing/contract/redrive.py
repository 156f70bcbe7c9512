"""Contract: after `max_receive_count` deliveries the broker itself moves a message away."""

from __future__ import annotations

import contextlib

import pytest

from ...errors import ConfigurationError, GatewayError
from ...message import Message
from ...subscription import MakeChannels, QueueSpec
from ..builders import a_message, abandon, ack, defer
from .base import ContractTests
from .rig import Channel, Rig


class RedriveContract(ContractTests):
    """R20, R21, R22, T5."""

    async def test_when_deferred_at_the_last_delivery_then_it_is_in_the_dead_letter_queue(
        self, rig: Rig
    ) -> None:
        """R20, T5: N deliveries, and no further receive on the source is needed."""
        queue = await open_redriving(rig, max_receive_count=3)
        sent = a_message()
        await queue.send(sent)

        for attempt in (1, 2, 3):
            [received] = await queue.receive()
            assert received.attempt == attempt
            await queue.settle(defer(received))
        await rig.let_redrive(queue)

        assert [each.id for each in await queue.dead_letters.take_and_ack(2)] == [sent.id]
        assert await queue.find_nothing()

    async def test_when_the_last_lease_runs_out_then_it_is_in_the_dead_letter_queue(
        self, rig: Rig
    ) -> None:
        """R20, T5, R8."""
        rig.needs("has_lease_expiry")
        queue = await open_redriving(rig, max_receive_count=2)
        sent = a_message()
        await queue.send(sent)
        await queue.receive()
        await rig.advance(rig.lease_s)
        [last] = await queue.receive()

        await rig.advance(rig.lease_s)
        await rig.let_redrive(queue)

        assert last.attempt == 2
        assert [each.id for each in await queue.dead_letters.take_and_ack(2)] == [sent.id]
        assert await queue.find_nothing()

    async def test_when_the_last_lease_runs_out_then_who_waits_for_dead_letters_receives_it(
        self, rig: Rig
    ) -> None:
        """R20, R4."""
        rig.needs("has_lease_expiry")
        queue = await open_redriving(rig, max_receive_count=1)
        await queue.send(a_message())
        await queue.receive()

        waiting = queue.dead_letters.start_receive(wait_s=rig.long_s)
        await rig.advance(rig.lease_s)
        await rig.let_redrive(queue)

        assert await rig.ends(waiting), rig.late(waiting)
        assert len(await waiting) == 1

    async def test_when_moved_then_never_delivered_by_the_source_again(self, rig: Rig) -> None:
        """R20; the old receipt is invalid (R9)."""
        queue = await open_redriving(rig, max_receive_count=1)
        await queue.send(a_message())
        [received] = await queue.receive()
        await queue.settle(defer(received))

        [refusal] = await queue.settle(ack(received))

        assert refusal.is_final
        await rig.advance(2 * rig.lease_s)
        assert await queue.find_nothing()
        assert len(await queue.dead_letters.take_and_ack(2)) == 1

    async def test_when_acked_at_the_last_delivery_then_nothing_is_dead_lettered(
        self, rig: Rig
    ) -> None:
        """R20, R5."""
        queue = await open_redriving(rig, max_receive_count=1)
        await queue.send(a_message())
        [received] = await queue.receive()

        await queue.settle(ack(received))

        await rig.advance(rig.lease_s)
        assert await queue.dead_letters.find_nothing()

    async def test_when_dead_lettered_then_the_message_is_what_was_sent(self, rig: Rig) -> None:
        """R21: everything the sender said survives; the broker may add headers."""
        queue = await open_redriving(rig, max_receive_count=1)
        sent = a_message(
            bytes(range(256)),
            type="PlaceOrder",
            correlation_id="correlation-1",
            headers={"tenant": "north"},
        )
        await queue.send(sent)
        [received] = await queue.receive()

        await queue.settle(defer(received))
        await rig.let_redrive(queue)

        [dead] = await queue.dead_letters.receive()
        if not rig.redrives_on_receive:
            # A provider that moves the message itself may keep its count.
            assert dead.attempt == 1
        assert essence(dead.message) == essence(sent)
        assert sent.headers.items() <= dead.message.headers.items()

    async def test_when_abandoned_at_the_last_delivery_then_it_stays(self, rig: Rig) -> None:
        """T5: what was not tried does not count."""
        rig.needs_uncounted_abandon()
        queue = await open_redriving(rig, max_receive_count=1)
        await queue.send(a_message())

        for _ in range(3):
            [received] = await queue.receive()
            await queue.settle(abandon(received))

        assert await queue.dead_letters.find_nothing()
        assert len(await queue.receive()) == 1

    async def test_when_the_dead_letter_queue_is_missing_then_it_is_made_or_the_queue_is_not(
        self, rig: Rig
    ) -> None:
        """R22: found when the channel is opened, not when the first message is lost."""
        rig.needs("has_native_redrive")
        spec = QueueSpec(
            name=rig.name("orders"),
            max_receive_count=3,
            dead_letter_queue=rig.name("dead"),
            options=rig.options,
        )

        with contextlib.suppress(GatewayError, ConfigurationError):
            await rig.admin.ensure(spec, MakeChannels.CREATE)

        is_made = await rig.stats(spec.name) is not None
        has_target = await rig.stats(rig.name("dead")) is not None
        assert is_made == has_target

    async def test_when_the_redrive_differs_then_validation_says_so(self, rig: Rig) -> None:
        """R22."""
        queue = await open_redriving(rig, max_receive_count=3)
        [*_, spec] = rig.subscription(
            max_receive_count=4, dead_letter_queue=queue.subscription.dead_letter_queue
        ).queue_specs()

        with pytest.raises(GatewayError) as caught:
            await rig.admin.ensure(spec, MakeChannels.VALIDATE)

        assert queue.name in str(caught.value)


async def open_redriving(rig: Rig, *, max_receive_count: int) -> Channel:
    """A queue that gives up on a message after so many deliveries."""
    rig.needs("has_native_redrive")
    return await rig.open_queue(
        dead_letter_queue=rig.name("dead"), max_receive_count=max_receive_count
    )


def essence(message: Message) -> tuple[object, ...]:
    """What may not change on the way to the dead-letter queue."""
    return (message.id, message.body, message.type, message.content_type, message.correlation_id)
