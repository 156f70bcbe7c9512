"""Contract: the laws of the pump, each with a test of its name, on the gateway under test."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from ...backoff import Backoff
from ...context import Context, current_context
from ...events import LeaseLostEvent
from ...outcome import DeferMessage, InvalidMessage, RejectMessage
from ...pipeline import Proceed
from ...subscription import hybrid
from ..builders import a_message
from .rig import ContractTests, Rig
from .workshop import Job, Outage, Workshop, acked_ids, current_message_id


class LawContract(ContractTests):
    """The eight laws."""

    async def test_law_1_a_delivery_is_settled_exactly_once(self, rig: Rig) -> None:
        """R5, R11, R24: whatever handlers do, each receipt is settled once."""

        async def handle(job: Job) -> None:
            await act(job, attempt_now())

        shop = Workshop(rig, handle, dead_letter_queue=rig.name("dead"), failure=quick(rig))
        tasks = ["work", "defer", "reject", "invalid", "fail once", "fail"] * 5
        async with shop.working():
            ids = await shop.post(*tasks)
            await shop.until(lambda: set(acked_ids(shop)) == set(ids))

        receipts = Counter(receipt for _, receipt in shop.noted("settled receipt"))
        assert set(receipts.values()) == {1}
        assert len(shop.outcomes) == len(receipts)

    async def test_law_2_nothing_is_acked_before_the_work_or_its_copy_is_durable(
        self, rig: Rig
    ) -> None:
        """R25, R27: handled, then acked; routed, then acked."""
        may_go = asyncio.Event()

        async def handle(job: Job) -> None:
            await may_go.wait()
            if job.task == "reject":
                raise RejectMessage("no")
            shop.diary.append(("handled", current_message_id()))

        shop = Workshop(rig, handle, dead_letter_queue=rig.name("dead"))
        async with shop.working():
            done, routed = await shop.post("work", "reject")
            shop.diary.clear()
            may_go.set()
            await shop.until(lambda: len(acked_ids(shop)) == 2)

        assert [entry for entry in shop.noted("handled", "ack") if entry[1] == done] == [
            ("handled", done),
            ("ack", done),
        ]
        assert [entry for entry in shop.noted("sent", "ack") if entry[1] == routed] == [
            ("sent", routed),
            ("ack", routed),
        ]

    async def test_law_3_a_lost_lease_is_abandoned_never_acked_and_its_handler_is_told(
        self, rig: Rig
    ) -> None:
        """R8, R9: the handler is cancelled, and the message comes again."""
        rig.needs("has_lease_expiry")
        told = []

        async def handle(job: Job) -> None:
            if attempt_now() > 1:
                return
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                told.append(attempt_now())
                raise

        shop = Workshop(
            rig, handle, renew=False, lease=a_lease(rig), dead_letter_queue=rig.name("dead")
        )
        async with shop.working():
            [id_] = await shop.post("work")
            await shop.until(lambda: acked_ids(shop) == [id_])

        assert told == [1]
        assert [(each.status.value, each.attempt) for each in shop.outcomes] == [("processed", 2)]
        lost = [event for event in shop.events if isinstance(event, LeaseLostEvent)]
        assert [event.message_id for event in lost] == [id_]

    async def test_law_4_unknown_and_undecodable_messages_are_routed_never_dropped(
        self, rig: Rig
    ) -> None:
        """R26, R35."""

        async def handle(job: Job) -> None: ...

        shop = Workshop(rig, handle, invalid_queue=rig.name("invalid"))
        garbage = a_message(b"\xff\x00 not JSON", type="Job")
        unknown = a_message(b"{}", type="SomethingElse")
        async with shop.working():
            await shop.app.post_all([garbage, unknown], queue=shop.subscription.queue)
            await shop.until(lambda: len(acked_ids(shop)) == 2)
            found = await shop.find(shop.subscription.invalid_queue, 2)

        assert {message.id: message.body for message in found} == {
            garbage.id: garbage.body,
            unknown.id: unknown.body,
        }

    async def test_law_5_draining_changes_no_outcome(self, rig: Rig) -> None:
        """R45: what was not started is available at once, what was finishes and is acked."""
        started, may_end = [], asyncio.Event()

        async def handle(job: Job) -> None:
            started.append(current_message_id())
            await may_end.wait()

        shop = Workshop(
            rig,
            handle,
            concurrency=2,
            prefetch=3,
            lease=a_lease(rig),
            dead_letter_queue=rig.name("dead"),
            drain_timeout=timedelta(seconds=10 * rig.lease_s),
        )
        async with shop.working() as dispatcher:
            ids = await shop.post(*["work"] * 5)
            [performer] = dispatcher.performers
            # A broker may give some of them only: then the pump asks for more when it has capacity.
            await shop.until(lambda: len(started) == 2 and performer.stats.received > 2)
            dispatcher.drain()
            # A settler may wait for more to settle before it hands anything back.
            await rig.advance(rig.tick_s / 10)
            unstarted = await rig.channel(shop.subscription).take(3)
            acked_before = acked_ids(shop)
            # Longer than a lease: what runs must have been renewed, or it would be lost.
            await rig.advance(2 * rig.lease_s)
            may_end.set()

        assert {each.message.id for each in unstarted} == set(ids) - set(started)
        assert acked_before == []
        assert sorted(acked_ids(shop)) == sorted(started)

    async def test_law_5_a_restart_costs_what_was_not_started_no_retry(self, rig: Rig) -> None:
        """T5: `max_retries=N` is N+1 runs, however often the message was handed back unread."""
        rig.needs_uncounted_abandon()
        may_end, started, failed = asyncio.Event(), asyncio.Event(), Counter[str]()

        async def handle(job: Job) -> None:
            if not may_end.is_set():
                started.set()
                await may_end.wait()
                return
            failed[current_message_id()] += 1
            raise ValueError(job.task)

        shop = Workshop(
            rig,
            handle,
            concurrency=1,
            prefetch=4,
            failure=quick(rig),
            dead_letter_queue=rig.name("dead"),
            drain_timeout=timedelta(seconds=10 * rig.lease_s),
        )
        # Each of three restarts ends the one message that runs and hands back the others.
        ids: list[str] = []
        for _ in range(3):
            may_end.clear()
            started.clear()
            async with shop.working() as dispatcher:
                ids = ids or await shop.post(*["work"] * 5)
                await shop.until(started.is_set)
                await rig.settle()
                dispatcher.drain()
                await rig.settle()
                may_end.set()
        left = set(ids) - set(acked_ids(shop))
        async with shop.working():
            await shop.until(lambda: len(acked_ids(shop)) == len(ids))

        assert len(left) == 2
        assert failed == dict.fromkeys(left, 3)

    async def test_law_6_cancellation_is_never_swallowed(self, rig: Rig) -> None:
        """R45: a cancelled pump hands everything back, and stays cancelled."""
        started = asyncio.Event()

        async def handle(job: Job) -> None:
            started.set()
            await asyncio.Event().wait()

        shop = Workshop(rig, handle, concurrency=1, prefetch=1, dead_letter_queue=rig.name("dead"))
        async with shop.app:
            dispatcher = shop.app.dispatcher()
            running = rig.start(dispatcher.run())
            await shop.until(dispatcher.channels_made.is_set)
            ids = await shop.post("work", "work")
            await shop.until(started.is_set)
            running.cancel()
            await shop.until(running.done)
            back = await rig.channel(shop.subscription).take(2)

        assert running.cancelled()
        assert {each.message.id for each in back} == set(ids)
        assert acked_ids(shop) == []

    async def test_law_7_a_broker_error_never_kills_a_pump(self, rig: Rig) -> None:
        """R51, R52: receiving, settling and extending fail for a while, and all is handled."""
        outage = Outage(receive=3, settle=3, extend=2)

        async def handle(job: Job) -> None:
            if job.task == "long":
                await rig.clock.sleep(1.5 * rig.lease_s)

        shop = Workshop(
            rig, handle, outage=outage, lease=a_lease(rig), dead_letter_queue=rig.name("dead")
        )
        async with shop.working() as dispatcher:
            ids = await shop.post("work", "long", "work")
            await shop.until(lambda: sorted(acked_ids(shop)) == sorted(ids))
            [performer] = dispatcher.performers

        assert performer.stats.restarts == 0
        assert {each.attempt for each in shop.outcomes} == {1}
        assert outage.is_over

    @pytest.mark.parametrize("signal", ["defer", "reject", "invalid"])
    async def test_law_8_an_action_a_handler_raised_is_never_swallowed_by_a_middleware(
        self, rig: Rig, signal: str
    ) -> None:
        """R35."""

        async def swallow(request: Any, context: Context, proceed: Proceed) -> Any:
            with contextlib.suppress(Exception):  # broad: the careless middleware law 8 is about
                return await proceed(request)

        async def handle(job: Job) -> None:
            await act(job, attempt_now())

        shop = Workshop(rig, handle, middleware=[swallow], dead_letter_queue=rig.name("dead"))
        async with shop.working():
            await shop.post(signal)
            await shop.until(lambda: bool(shop.outcomes))

        expected = "retrying" if signal == "defer" else "dead-lettered"
        assert shop.outcomes[0].status.value == expected


def a_lease(rig: Rig) -> timedelta:
    """A short one, for what happens when it ends or is extended."""
    return timedelta(seconds=rig.lease_s)


def quick(rig: Rig) -> Any:
    """Two retries, a tick apart."""
    pause = timedelta(seconds=rig.tick_s)
    return hybrid(2, backoff=Backoff(initial=pause, maximum=pause, jitter=0))


async def act(job: Job, attempt: int) -> None:
    """Do what the task says, once where it says so."""
    match job.task:
        case "defer" if attempt == 1:
            raise DeferMessage(timedelta(0))
        case "reject":
            raise RejectMessage("told to")
        case "invalid":
            raise InvalidMessage("told to")
        case "fail once" if attempt == 1:
            raise ValueError("once")
        case "fail":
            raise ValueError("always")


def attempt_now() -> int:
    """The attempt of the current delivery."""
    context = current_context()
    assert context is not None
    return context.attempt
