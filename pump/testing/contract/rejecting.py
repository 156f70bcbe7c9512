"""Contract: a rejected message is routed with its reason, and failures follow their strategy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ... import headers
from ...backoff import Backoff
from ...events import BestEffortOrderEvent
from ...message import Message
from ...outcome import DeferMessage, Fate, InvalidMessage, RejectionReason, RejectMessage
from ...subscription import (
    FailureStrategy,
    MakeChannels,
    OnRoutingFailure,
    dead_letter,
    hybrid,
    retry,
)
from ..builders import a_message
from .base import ContractTests
from .rig import Rig
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
