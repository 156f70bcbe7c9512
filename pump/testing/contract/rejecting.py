"""Contract: a rejected message is routed with its reason, and failures follow their strategy."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import pytest

from ... import headers
from ...backoff import Backoff
from ...errors import ConfigurationError, GatewayError
from ...events import BestEffortOrderEvent
from ...message import Message
from ...outcome import DeferMessage, Fate, InvalidMessage, RejectionReason, RejectMessage
from ...subscription import (
    FailureStrategy,
    MakeChannels,
    OnRoutingFailure,
    QueueSpec,
    dead_letter,
    hybrid,
    retry,
)
from ..builders import a_message, abandon, ack, defer
from .rig import Channel, ContractTests, Rig
from .workshop import Job, Workshop, acked_ids


class RejectionContract(ContractTests):
    """R17–R19, R23–R35, T1, T2."""

    @pytest.mark.parametrize(
        ("raised", "reason", "goes_to"),
        [
            (RejectMessage("no"), RejectionReason.DELIVERY_ERROR, "dead"),
            (InvalidMessage("no"), RejectionReason.UNACCEPTABLE, "invalid"),
        ],
    )
    async def test_when_a_handler_rejects_then_the_copy_is_routed_with_its_reason(
        self, rig: Rig, raised: Exception, reason: RejectionReason, goes_to: str
    ) -> None:
        """R25, R26, R27, R28, R35: at the first attempt, without a detour."""
        shop = Workshop(
            rig,
            raising(raised),
            dead_letter_queue=rig.name("dead"),
            invalid_queue=rig.name("invalid"),
        )
        sent = a_message(
            b'{"task": "work"}',
            type="Job",
            correlation_id="c-1",
            headers={headers.TRACE_PARENT: "00-trace", "tenant": "north"},
        )
        async with shop.working():
            await shop.app.post(sent, queue=shop.subscription.queue)
            await shop.until(lambda: acked_ids(shop) == [sent.id])
            [copy] = await shop.find(rig.name(goes_to), 1)

        assert (copy.id, copy.body, copy.type) == (sent.id, sent.body, sent.type)
        assert copy.correlation_id == "c-1"
        assert copy.headers.items() >= dict(sent.headers).items()
        assert copy.headers[headers.ORIGINAL_TOPIC] == shop.subscription.queue
        assert copy.headers[headers.REJECTION_REASON] == reason.value
        assert copy.headers[headers.REJECTION_DETAIL] == "no"
        assert copy.headers[headers.ORIGINAL_TYPE] == "Job"
        assert copy.headers[headers.ATTEMPTS] == "1"
        assert copy.headers[headers.REJECTION_TIMESTAMP]

    async def test_when_there_is_no_invalid_queue_then_the_dead_letter_queue_serves(
        self, rig: Rig
    ) -> None:
        """R26: the reason stays UNACCEPTABLE."""
        shop = Workshop(rig, raising(InvalidMessage("no")), dead_letter_queue=rig.name("dead"))
        async with shop.working():
            [id_] = await shop.post("work")
            await shop.until(lambda: acked_ids(shop) == [id_])
            [copy] = await shop.find(shop.subscription.dead_letter_queue, 1)

        assert copy.id == id_
        assert copy.headers[headers.REJECTION_REASON] == RejectionReason.UNACCEPTABLE.value

    async def test_when_no_queue_is_configured_then_it_is_acked_and_counted(self, rig: Rig) -> None:
        """R29, R30."""
        shop = Workshop(rig, raising(RejectMessage("no")))
        async with shop.working():
            [id_] = await shop.post("work")
            await shop.until(lambda: acked_ids(shop) == [id_])

        assert shop.app.counters.value("pump_messages_discarded") == 1
        assert [(each.status.value, each.destination) for each in shop.outcomes] == [
            ("discarded", None)
        ]

    @pytest.mark.parametrize("policy", list(OnRoutingFailure))
    async def test_when_the_copy_cannot_be_sent_then_the_policy_decides(
        self, rig: Rig, policy: OnRoutingFailure
    ) -> None:
        """R32, T1: the dead-letter queue is missing."""
        shop = Workshop(
            rig,
            raising(RejectMessage("no")),
            dead_letter_queue=rig.name("missing"),
            make_channels=MakeChannels.ASSUME,
            on_routing_failure=policy,
            failure=every_tick(rig, retry),
        )
        await rig.open_queue("jobs")
        async with shop.working():
            [id_] = await shop.post("work")
            await shop.until(lambda: bool(shop.outcomes))
        spilled = await shop.spill.all()

        assert [each.message.id for each in spilled] == (
            [id_] if policy is OnRoutingFailure.SPILL else []
        )
        kept = policy is OnRoutingFailure.KEEP
        statuses = {"spill": "dead-lettered", "keep": "retrying", "delete": "discarded"}
        fates = {"spill": Fate.SPILLED, "keep": Fate.KEPT, "delete": Fate.DISCARDED}
        assert shop.outcomes[0].status.value == statuses[policy.value]
        assert shop.outcomes[0].fate is fates[policy.value]
        assert (id_ in acked_ids(shop)) is not kept

    @pytest.mark.parametrize(
        ("strategy", "statuses"),
        [
            (retry, ["retrying", "retrying", "dead-lettered"]),
            (hybrid, ["retrying", "retrying", "dead-lettered"]),
            (dead_letter, ["dead-lettered"]),
        ],
    )
    async def test_when_a_handler_keeps_failing_then_its_strategy_is_followed(
        self, rig: Rig, strategy: Any, statuses: list[str]
    ) -> None:
        """R17, R18, R19, R21, R24, T2, T5: two retries are three deliveries."""
        shop = Workshop(
            rig,
            raising(ValueError("broken")),
            dead_letter_queue=rig.name("dead"),
            failure=every_tick(rig, strategy),
        )
        async with shop.working():
            [id_] = await shop.post("work")
            await shop.until(lambda: acked_ids(shop) == [id_])
            [copy] = await shop.find(shop.subscription.dead_letter_queue, 1)

        assert [each.status.value for each in shop.outcomes] == statuses
        assert [each.attempt for each in shop.outcomes] == list(range(1, len(statuses) + 1))
        assert {each.message_id for each in shop.outcomes} == {id_}
        assert copy.headers[headers.REJECTION_DETAIL] == "ValueError: broken"
        assert copy.headers[headers.ATTEMPTS] == str(len(statuses))

    async def test_when_stopped_in_its_last_delivery_then_what_was_tried_is_a_dead_letter(
        self, rig: Rig
    ) -> None:
        """R20, T5: a drain whose time is over hands back what runs, and that was tried."""
        rig.needs("has_native_redrive")
        started = asyncio.Event()

        async def handle(job: Job) -> None:
            started.set()
            await asyncio.Event().wait()

        shop = Workshop(
            rig,
            handle,
            dead_letter_queue=rig.name("dead"),
            max_receive_count=1,
            drain_timeout=timedelta(seconds=rig.tick_s / 10),
        )
        async with shop.working():
            [id_] = await shop.post("work")
            await shop.until(started.is_set)
        queue = rig.channel(shop.subscription)
        await rig.let_redrive(queue)

        assert acked_ids(shop) == []
        assert [each.id for each in await shop.find(rig.name("dead"), 1)] == [id_]
        assert await queue.find_nothing()

    async def test_when_a_handler_defers_then_it_comes_again_after_that_delay(
        self, rig: Rig
    ) -> None:
        """R35."""
        seen: list[float] = []
        delay = timedelta(seconds=2 * rig.tick_s)

        async def handle(job: Job) -> None:
            seen.append(rig.clock.now_s())
            if len(seen) == 1:
                raise DeferMessage(delay)

        shop = Workshop(rig, handle, dead_letter_queue=rig.name("dead"))
        async with shop.working():
            [id_] = await shop.post("work")
            await shop.until(lambda: acked_ids(shop) == [id_])

        assert len(seen) == 2
        # Brokers round; a hundredth of a tick is no defect.
        assert seen[1] - seen[0] >= delay.total_seconds() - rig.tick_s / 100

    async def test_when_nobody_rejects_then_no_producer_is_made(self, rig: Rig) -> None:
        """R31: the dead-letter queue does not even exist."""

        async def handle(job: Job) -> None: ...

        shop = Workshop(
            rig,
            handle,
            dead_letter_queue=rig.name("missing"),
            make_channels=MakeChannels.ASSUME,
        )
        await rig.open_queue("jobs")
        async with shop.working():
            [id_] = await shop.post("work")
            await shop.until(lambda: acked_ids(shop) == [id_])

        assert [each.status.value for each in shop.outcomes] == ["processed"]

    async def test_when_a_foreign_producer_sends_plain_json_then_it_is_understood(
        self, rig: Rig
    ) -> None:
        """R35, T11: no header of ours, only a body."""
        seen: list[str] = []

        async def handle(job: Job) -> None:
            seen.append(job.task)

        shop = Workshop(rig, handle, dead_letter_queue=rig.name("dead"))
        async with shop.working():
            await shop.app.post(
                Message(body=b'{"task": "from afar"}'), queue=shop.subscription.queue
            )
            await shop.until(lambda: bool(shop.outcomes))

        assert seen == ["from afar"]

    async def test_when_order_is_not_guaranteed_then_an_event_says_so(self, rig: Rig) -> None:
        """R37."""

        async def handle(job: Job) -> None: ...

        shop = Workshop(rig, handle, dead_letter_queue=rig.name("dead"))
        async with shop.working():
            await shop.until(lambda: bool(shop.events))

        [said] = [event for event in shop.events if isinstance(event, BestEffortOrderEvent)]
        assert said.queue == shop.subscription.queue


def raising(error: Exception) -> Any:
    """A handler that always raises this."""

    async def handle(job: Job) -> None:
        raise error

    return handle


def every_tick(rig: Rig, strategy: Any) -> FailureStrategy:
    """The strategy with two retries, a tick apart."""
    pause = timedelta(seconds=rig.tick_s)
    backoff = Backoff(initial=pause, maximum=pause, jitter=0)
    made: FailureStrategy = (
        dead_letter() if strategy is dead_letter else strategy(2, backoff=backoff)
    )
    return made


# Contract: after `max_receive_count` deliveries the broker itself moves a message away.


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

    async def test_when_an_abandon_counts_then_at_the_last_delivery_it_is_a_dead_letter(
        self, rig: Rig
    ) -> None:
        """R20: where the broker cannot tell what was tried, what is abandoned does not go round."""
        if rig.abandons_uncounted:
            pytest.skip("tells what was tried, and is tested for it")
        queue = await open_redriving(rig, max_receive_count=2)
        sent = a_message()
        await queue.send(sent)

        for _ in range(2):
            [received] = await queue.receive()
            await queue.settle(abandon(received))
        await rig.let_redrive(queue)

        assert [each.id for each in await queue.dead_letters.take_and_ack(2)] == [sent.id]
        assert await queue.find_nothing()

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
