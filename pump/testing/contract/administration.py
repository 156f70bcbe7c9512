"""Contract: queues are made, checked and looked at without touching what is in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs
import pytest

from ...capabilities import OrderingMode
from ...errors import PumpError, QueueMismatch, QueueNotFound
from ...subscription import MakeChannels, QueueSpec
from ..builders import a_message, ack
from .base import ContractTests
from .ordering import needs_lifo
from .rig import Rig


class AdministrationContract(ContractTests):
    """Ensure, list, peek, purge (R2, R22, R56)."""

    async def test_when_a_queue_is_made_then_it_is_listed_and_empty(self, rig: Rig) -> None:
        """R2."""
        spec = QueueSpec(name=rig.name("orders"), options=rig.options)

        await rig.admin.ensure(spec, MakeChannels.CREATE)

        stats = await rig.stats(spec.name)
        assert stats is not None
        assert (stats.visible, stats.in_flight, stats.delayed) == (0, 0, 0)

    async def test_when_a_queue_is_made_again_then_it_keeps_its_messages(self, rig: Rig) -> None:
        """R2: a second worker that starts must not empty the queue."""
        queue = await rig.open_queue()
        await queue.send(a_message())

        await rig.open_queue()

        assert len(await queue.take_and_ack(2)) == 1

    async def test_when_a_queue_is_assumed_then_nothing_is_made_or_asked(self, rig: Rig) -> None:
        """R2."""
        spec = QueueSpec(name=rig.name("missing"), options=rig.options)

        await rig.admin.ensure(spec, MakeChannels.ASSUME)

        assert await rig.stats(spec.name) is None

    async def test_when_validating_a_missing_queue_then_it_is_named_and_not_made(
        self, rig: Rig
    ) -> None:
        """R2, R56."""
        spec = QueueSpec(name=rig.name("missing"), options=rig.options)

        with pytest.raises(QueueNotFound) as caught:
            await rig.admin.ensure(spec, MakeChannels.VALIDATE)

        assert caught.value.queue == spec.name
        assert await rig.stats(spec.name) is None

    async def test_when_validating_a_queue_that_fits_then_all_is_well(self, rig: Rig) -> None:
        """R56."""
        queue = await rig.open_queue()
        await queue.send(a_message())

        for spec in queue.subscription.queue_specs():
            await rig.admin.ensure(spec, MakeChannels.VALIDATE)

        assert len(await queue.take_and_ack(2)) == 1

    async def test_when_validating_a_queue_of_another_order_then_the_difference_is_an_error(
        self, rig: Rig
    ) -> None:
        """R36, R56."""
        needs_lifo(rig)
        queue = await rig.open_queue()
        [spec] = queue.subscription.queue_specs()

        with pytest.raises(QueueMismatch) as caught:
            await rig.admin.ensure(
                attrs.evolve(spec, ordering=OrderingMode.LIFO), MakeChannels.VALIDATE
            )

        assert caught.value.queue == queue.name

    async def test_when_queues_are_listed_then_by_name_and_with_what_they_hold(
        self, rig: Rig
    ) -> None:
        """R2."""
        rig.needs("has_exact_stats")
        orders = await rig.open_queue("orders")
        invoices = await rig.open_queue("invoices")
        await invoices.send(a_message(), a_message(), a_message())
        await invoices.send(a_message(), delay_s=rig.lease_s)
        await invoices.receive()

        listed = {stats.name: stats for stats in await rig.admin.queues()}

        assert {orders.name, invoices.name} <= set(listed)
        assert list(listed) == sorted(listed)
        full = listed[invoices.name]
        assert (full.visible, full.in_flight, full.delayed) == (2, 1, 1)
        assert listed[orders.name].visible == 0

    async def test_when_one_queue_is_asked_about_then_it_and_no_other_is_told_of(
        self, rig: Rig
    ) -> None:
        """R2."""
        await rig.open_queue("invoices")
        orders = await rig.open_queue("orders")
        missing = rig.name("missing")

        stats = await rig.admin.stats(orders.name)
        with pytest.raises(QueueNotFound) as caught:
            await rig.admin.stats(missing)

        assert (stats.name, stats.visible) == (orders.name, 0)
        assert caught.value.queue == missing

    async def test_when_messages_come_and_go_then_the_counts_follow(self, rig: Rig) -> None:
        """R5, R8."""
        rig.needs("has_exact_stats")
        rig.needs("has_lease_expiry")
        queue = await rig.open_queue()
        await queue.send(a_message(), a_message())
        await queue.send(a_message(), delay_s=rig.tick_s)
        [done, _] = await queue.take(2)

        await queue.settle(ack(done))
        await rig.advance(rig.lease_s)

        stats = await rig.stats(queue.name)
        assert stats is not None
        assert (stats.visible, stats.in_flight, stats.delayed) == (2, 0, 0)

    async def test_when_a_message_waits_then_its_age_is_that_of_the_oldest(self, rig: Rig) -> None:
        """Port: `QueueStats.oldest_age_s`, which operators scale by."""
        rig.needs("has_exact_stats")
        queue = await rig.open_queue()
        await queue.send(a_message())
        await rig.clock.advance(rig.tick_s)
        await queue.send(a_message())

        stats = await rig.stats(queue.name)

        assert stats is not None
        if stats.oldest_age_s is not None:
            assert stats.oldest_age_s == pytest.approx(rig.tick_s, abs=rig.slack_s + 1e-6)

    async def test_when_peeked_at_then_nothing_is_leased_or_counted(self, rig: Rig) -> None:
        """R3."""
        rig.needs("has_peek")
        queue = await rig.open_queue()
        sent = [a_message("A"), a_message("B"), a_message("C")]
        await queue.send(*sent)

        seen = [*await rig.admin.peek(queue.name), *await rig.admin.peek(queue.name)]

        assert seen == [*sent, *sent]
        received = await queue.take(4)
        assert [(each.message.id, each.attempt) for each in received] == [
            (each.id, 1) for each in sent
        ]

    async def test_when_peeked_at_then_no_more_are_shown_than_asked_for(self, rig: Rig) -> None:
        """R3."""
        rig.needs("has_peek")
        queue = await rig.open_queue()
        await queue.send(*map(a_message, "ABCDE"))

        seen = await rig.admin.peek(queue.name, max_count=2)

        assert [message.body for message in seen] == [b"A", b"B"]

    async def test_when_peeking_at_a_missing_queue_then_it_is_named_and_not_made(
        self, rig: Rig
    ) -> None:
        """R2."""
        rig.needs("has_peek")
        missing = rig.name("missing")

        with pytest.raises(QueueNotFound) as caught:
            await rig.admin.peek(missing)

        assert caught.value.queue == missing
        assert await rig.stats(missing) is None

    async def test_when_purged_then_every_message_is_gone_and_counted(self, rig: Rig) -> None:
        """R5: visible, delayed and in flight alike."""
        rig.needs("has_purge")
        queue = await rig.open_queue()
        other = await rig.open_queue("other")
        await queue.send(a_message(), a_message(), a_message())
        await queue.send(a_message(), delay_s=rig.tick_s)
        await other.send(a_message())
        [held] = await queue.receive()

        count = await rig.admin.purge(queue.name)

        if rig.capabilities.has_exact_stats:
            assert count == 4
            # Exact also means that a receipt of a purged message is known to be void.
            [refusal] = await queue.settle(ack(held))
            assert refusal.is_final
        await rig.advance(rig.lease_s)
        assert await queue.find_nothing()
        assert len(await other.take_and_ack(2)) == 1

    async def test_when_purged_then_the_queue_goes_on_working(self, rig: Rig) -> None:
        """R5."""
        rig.needs("has_purge")
        queue = await rig.open_queue()
        await queue.send(a_message())
        await rig.admin.purge(queue.name)
        sent = a_message()

        await queue.send(sent)

        assert [each.id for each in await queue.take_and_ack(2)] == [sent.id]

    async def test_when_purging_a_missing_queue_then_it_is_named_and_not_made(
        self, rig: Rig
    ) -> None:
        """R2."""
        rig.needs("has_purge")
        missing = rig.name("missing")

        with pytest.raises(QueueNotFound) as caught:
            await rig.admin.purge(missing)

        assert caught.value.queue == missing
        assert await rig.stats(missing) is None

    async def test_when_a_queues_name_has_half_a_surrogate_pair_then_the_error_is_one_of_ours(
        self, rig: Rig
    ) -> None:
        """R2: such a name can come from the command line, and no UTF-8 carries it. The gateway goes
        on working.
        """
        queue = await rig.open_queue()
        odd = rig.name("odd") + "\ud800"
        asks: list[Callable[[], Awaitable[object]]] = [
            lambda: rig.gateway.producer(odd).send([a_message()]),
            lambda: rig.admin.stats(odd),
        ]
        if rig.capabilities.has_peek:
            asks.append(lambda: rig.admin.peek(odd))
        if rig.capabilities.has_purge:
            asks.append(lambda: rig.admin.purge(odd))

        for ask in asks:
            with pytest.raises(PumpError):
                await ask()

        sent = a_message()
        await queue.send(sent)
        assert [each.id for each in await queue.take_and_ack(1)] == [sent.id]
