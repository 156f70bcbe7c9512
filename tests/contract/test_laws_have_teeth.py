"""Each law's test, and each test of rejection, fails on a pump that breaks what it is about."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateways.memory import MemoryGateway
from pump.clock import yield_to_loop
from pump.consumer import Consumer
from pump.errors import MappingError
from pump.loop.leases import LeaseKeeper
from pump.loop.processing import DeliveryProcessor, DeliveryResult, Orders
from pump.loop.pump import Pump
from pump.loop.receiving import Receiver
from pump.loop.reporting import Reporter
from pump.loop.workers import Workers
from pump.mapping import Mapper
from pump.message import Delivery
from pump.outcome import ABANDON, ACK, Defer, RejectionReason
from pump.rejection import Copied, RejectionRouter, Routed
from pump.runtime import Runtime
from pump.session import Session
from pump.subscription import MakeChannels, Subscription
from pump.testing import VirtualClock
from pump.testing.contract import PumpContract, Rig

Sabotage = Callable[[pytest.MonkeyPatch], None]


def reports_twice(patch: pytest.MonkeyPatch) -> None:
    honest = Reporter.settled

    def settled(self: Reporter, results: Any) -> None:
        honest(self, results)
        honest(self, results)

    patch.setattr(Reporter, "settled", settled)


def acks_before_the_work(patch: pytest.MonkeyPatch) -> None:
    async def work(self: Pump, delivery: Delivery) -> None:
        self._settler.submit(DeliveryResult(delivery, ACK, ACK))
        for _ in range(20):
            await yield_to_loop()
        await self._process(delivery, self._workers)
        self._lanes.finish(delivery, is_gone=True)

    patch.setattr(Pump, "_work", work)


def does_not_tell_the_handler(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Workers, "recall", lambda self, delivery: delivery in self._running)


def drops_what_it_rejects(patch: pytest.MonkeyPatch) -> None:
    async def route(self: RejectionRouter, *ignored: Any) -> Routed:
        return Routed(ACK, None)

    patch.setattr(RejectionRouter, "route", route)


def keeps_what_was_not_started(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pump, "_release", lambda self, deliveries: None)


def counts_what_was_not_started(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("pump.loop.pump.ABANDON", Defer())


def hands_back_as_untried_what_was_tried(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "pump.loop.pump._tried", lambda delivery: DeliveryResult(delivery, ABANDON, ABANDON)
    )


def hands_nothing_back(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Pump) -> None: ...

    patch.setattr(Pump, "_hand_back_everything", nothing)


def dies_of_a_broker_error(patch: pytest.MonkeyPatch) -> None:
    async def give_up(self: Receiver, failure_count: int, error: Exception) -> None:
        raise RuntimeError("no patience") from error

    patch.setattr(Receiver, "_back_off", give_up)


def forgets_signals(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("pump.pipeline._noting_signals", lambda handler: handler)


def enriches_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("pump.rejection.enrich", lambda delivery, *_, **__: delivery.message)


def has_no_ladder(patch: pytest.MonkeyPatch) -> None:
    def destination_of(subscription: Subscription, reason: RejectionReason) -> str | None:
        if reason is RejectionReason.UNACCEPTABLE:
            return subscription.invalid_queue
        return subscription.dead_letter_queue or subscription.invalid_queue

    patch.setattr("pump.rejection.destination_of", destination_of)


def counts_no_discards(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RejectionRouter, "_discard", lambda self, *_: Routed(ACK, None))


def ignores_the_policy(patch: pytest.MonkeyPatch) -> None:
    async def meet(self: RejectionRouter, *ignored: Any) -> Routed:
        return Routed(ACK, None)

    patch.setattr(RejectionRouter, "_meet_failure", meet)


def keeps_whatever_the_policy(patch: pytest.MonkeyPatch) -> None:
    async def meet(self: RejectionRouter, *ignored: Any) -> Routed:
        return Routed(Defer(1_000_000.0), None)

    patch.setattr(RejectionRouter, "_meet_failure", meet)


def retries_once_more(patch: pytest.MonkeyPatch) -> None:
    import pump.decide as decide

    honest = decide._after_failure

    def after_failure(error: Any, attempt: int, strategy: Any, chance: float) -> Any:
        return honest(error, attempt - 1, strategy, chance) if attempt > 1 else Defer(1.0)

    patch.setattr(decide, "_after_failure", after_failure)


def ignores_the_delay(patch: pytest.MonkeyPatch) -> None:
    honest = DeliveryProcessor.__call__

    async def process(
        self: DeliveryProcessor, delivery: Delivery, orders: Orders
    ) -> DeliveryResult | None:
        result = await honest(self, delivery, orders)
        if result is None or not isinstance(result.outcome, Defer):
            return result
        return DeliveryResult(delivery, Defer(), result.outcome)

    patch.setattr(DeliveryProcessor, "__call__", process)


def looks_queues_up_early(patch: pytest.MonkeyPatch) -> None:
    async def make_channels(self: Runtime, subscription: Subscription) -> None:
        for spec in subscription.queue_specs():
            await self.gateway.admin().ensure(spec, MakeChannels.VALIDATE)

    patch.setattr(Runtime, "make_channels", make_channels)


def understands_only_its_own(patch: pytest.MonkeyPatch) -> None:
    honest = Mapper.read

    def read(self: Mapper, message: Any, subscription: Any) -> Any:
        if not message.type:
            raise MappingError("", "a stranger")
        return honest(self, message, subscription)

    patch.setattr(Mapper, "read", read)


def says_nothing_of_order(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reporter, "started", lambda self: None)


def copies_what_is_not_ours(patch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def settling(self: Consumer, delivery: Delivery) -> Iterator[Any]:
        yield self._known(delivery)

    never_asks(patch)
    patch.setattr(Consumer, "_settling", settling)


def copies_whatever_a_session_had(patch: pytest.MonkeyPatch) -> None:
    honest = Session.reject

    async def reject(self: Session, delivery: Delivery, *args: Any) -> Routed:
        if delivery not in self._in_flight:
            await self._router.route(delivery, RejectionReason.DELIVERY_ERROR, "")
        return await honest(self, delivery, *args)

    patch.setattr(Session, "reject", reject)


def never_asks(patch: pytest.MonkeyPatch) -> None:
    async def hold(self: Consumer, *ignored: Any) -> None: ...

    async def is_held(self: LeaseKeeper, delivery: Delivery) -> bool:
        return True

    patch.setattr(Consumer, "_hold", hold)
    patch.setattr(LeaseKeeper, "hold", is_held)


def forgets_its_copies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Copied, "by", lambda rejection, routed: None)


def tells_no_observer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reporter, "_tell", lambda self, result, emit: None)


def forgets_what_became_of_it(patch: pytest.MonkeyPatch) -> None:
    honest = RejectionRouter.route

    async def route(self: RejectionRouter, *args: Any) -> Routed:
        routed = await honest(self, *args)
        return Routed(routed.action, routed.destination)

    patch.setattr(RejectionRouter, "route", route)


def cuts_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("pump.rejection.MAX_DETAIL", 1_000_000)


def makes_producers_early(patch: pytest.MonkeyPatch) -> None:
    honest = Runtime.router

    def router(self: Runtime, subscription: Subscription) -> RejectionRouter:
        made = honest(self, subscription)
        if subscription.dead_letter_queue is not None:
            made._producer(subscription.dead_letter_queue)
        return made

    patch.setattr(Runtime, "router", router)


def ends_with_a_handlers_own_cancellation(patch: pytest.MonkeyPatch) -> None:
    async def run_once(self: Workers) -> None:
        task = asyncio.current_task()
        assert task is not None
        await self._take_turns(task)

    patch.setattr(Workers, "_run", run_once)
    patch.setattr(Workers, "_ended", lambda self, task: None)


def believes_that_errors_have_text(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("pump.decide.text_of", str)


def believes_that_errors_say_what_they_are(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("pump.loop.processing.examined", lambda error: error)


def takes_a_generator_for_work_done(patch: pytest.MonkeyPatch) -> None:
    async def done(result: Any, handler: Any) -> Any:
        return await result if inspect.isawaitable(result) else result

    patch.setattr("pump.pipeline._done", done)


def forgets_whom_it_recalled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Workers, "is_recalled", lambda self, delivery: False)


REJECTS = "test_when_a_handler_rejects_then_the_copy_is_routed_with_its_reason"
POLICY = "test_when_the_copy_cannot_be_sent_then_the_policy_decides"
STRATEGY = "test_when_a_handler_keeps_failing_then_its_strategy_is_followed"
TEETH: dict[str, tuple[Sabotage, ...]] = {
    "test_law_1_a_delivery_is_settled_exactly_once": (reports_twice,),
    "test_law_2_nothing_is_acked_before_the_work_or_its_copy_is_durable": (
        acks_before_the_work,
        drops_what_it_rejects,
    ),
    "test_law_3_a_lost_lease_is_abandoned_never_acked_and_its_handler_is_told": (
        does_not_tell_the_handler,
    ),
    "test_law_4_unknown_and_undecodable_messages_are_routed_never_dropped": (
        drops_what_it_rejects,
    ),
    "test_law_5_draining_changes_no_outcome": (keeps_what_was_not_started,),
    "test_law_5_a_restart_costs_what_was_not_started_no_retry": (counts_what_was_not_started,),
    "test_law_6_cancellation_is_never_swallowed": (hands_nothing_back,),
    "test_law_7_a_broker_error_never_kills_a_pump": (dies_of_a_broker_error,),
    "test_law_8_an_action_a_handler_raised_is_never_swallowed_by_a_middleware": (forgets_signals,),
    REJECTS: (enriches_nothing, drops_what_it_rejects),
    "test_when_there_is_no_invalid_queue_then_the_dead_letter_queue_serves": (has_no_ladder,),
    "test_when_no_queue_is_configured_then_it_is_acked_and_counted": (counts_no_discards,),
    POLICY: (ignores_the_policy, keeps_whatever_the_policy),
    STRATEGY: (retries_once_more,),
    "test_when_a_handler_defers_then_it_comes_again_after_that_delay": (ignores_the_delay,),
    "test_when_nobody_rejects_then_no_producer_is_made": (looks_queues_up_early,),
    "test_when_a_foreign_producer_sends_plain_json_then_it_is_understood": (
        understands_only_its_own,
    ),
    "test_when_coroutines_end_in_any_way_then_each_is_settled_and_neighbours_go_on": (
        ends_with_a_handlers_own_cancellation,
        believes_that_errors_have_text,
        believes_that_errors_say_what_they_are,
    ),
    "test_when_threads_end_in_any_way_then_each_is_settled_and_neighbours_go_on": (
        takes_a_generator_for_work_done,
    ),
    "test_when_told_to_stop_in_vain_then_the_pump_drains_and_the_message_comes_again": (
        forgets_whom_it_recalled,
    ),
    "test_when_stopped_in_its_last_delivery_then_what_was_tried_is_a_dead_letter": (
        hands_back_as_untried_what_was_tried,
    ),
    "test_when_order_is_not_guaranteed_then_an_event_says_so": (says_nothing_of_order,),
    "test_when_a_delivery_is_not_ours_any_more_then_rejecting_it_copies_nothing": (
        copies_what_is_not_ours,
    ),
    "test_when_a_session_has_let_go_of_it_then_rejecting_it_copies_nothing": (
        copies_whatever_a_session_had,
    ),
    "test_when_another_consumer_has_settled_it_then_rejecting_it_copies_nothing": (never_asks,),
    "test_when_the_original_cannot_be_removed_then_rejecting_again_copies_nothing_more": (
        forgets_its_copies,
    ),
    "test_when_settled_by_hand_then_observers_are_told_as_by_the_pump": (
        tells_no_observer,
        reports_twice,
    ),
    "test_when_the_copy_of_a_reject_cannot_be_sent_then_its_answer_says_so": (
        forgets_what_became_of_it,
        ignores_the_policy,
    ),
    "test_when_rejected_by_hand_then_the_answer_says_where_it_went": (
        cuts_nothing,
        drops_what_it_rejects,
    ),
    "test_when_there_is_no_queue_for_it_then_a_reject_discards_and_says_so": (
        forgets_what_became_of_it,
    ),
    "test_when_nothing_was_rejected_then_no_producer_for_its_queue_exists": (
        makes_producers_early,
    ),
    "test_when_two_race_over_an_ending_lease_then_what_was_acked_is_no_dead_letter": (never_asks,),
}


def variants(test: str) -> list[dict[str, Any]]:
    """The arguments a parametrised test is called with, as pytest would."""
    marks = getattr(getattr(PumpContract, test), "pytestmark", [])
    found = [mark for mark in marks if mark.name == "parametrize"]
    if not found:
        return [{}]
    names, values = found[0].args
    keys = [names] if isinstance(names, str) else list(names)
    return [dict(zip(keys, each if len(keys) > 1 else (each,), strict=True)) for each in values]


def cases() -> Iterator[Any]:
    for test, sabotages in TEETH.items():
        for sabotage in sabotages:
            yield pytest.param(test, sabotage, id=f"{sabotage.__name__}-{test[5:25]}")


@pytest.mark.parametrize(("test", "sabotage"), list(cases()))
async def test_when_a_pump_breaks_a_law_then_its_test_fails(
    test: str, sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)

    failures = [kwargs for kwargs in variants(test) if await fails(test, kwargs)]

    assert failures, f"{test} does not notice a pump that {sabotage.__name__}"


async def fails(test: str, kwargs: dict[str, Any]) -> bool:
    clock = VirtualClock()
    rig = Rig(gateway=MemoryGateway(clock=clock), clock=clock)
    await rig.gateway.open()
    try:
        await getattr(PumpContract(), test)(rig, **kwargs)
    except (Exception, BaseExceptionGroup):  # broad: however it fails, it notices
        return True
    finally:
        await rig.aclose()
    return False


def test_every_test_of_the_pump_has_a_saboteur() -> None:
    tests = {
        name
        for name, _ in inspect.getmembers(PumpContract, inspect.isfunction)
        if name.startswith("test_")
    }

    assert tests == set(TEETH)
