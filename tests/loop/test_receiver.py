"""Receiver: as many receives as help, never more messages than there is room for (law 7)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import attrs
import pytest
import structlog.testing

from pump.capabilities import Capabilities
from pump.errors import AccessDenied, ConnectionFailed, GatewayError, QueueNotFound, Throttled
from pump.loop.receiving import AttemptBudget, Receiver
from pump.message import Delivery
from pump.outcome import Refusal, Settlement
from pump.subscription import dead_letter, hybrid, retry
from pump.testing.builders import a_delivery, a_subscription
from pump.testing.virtual_clock import START_S, VirtualClock

WAIT_S = 20.0


@attrs.define(eq=False)
class FakeBroker:
    """Has `stock` messages, answers an empty receive after its whole wait."""

    clock: VirtualClock
    stock: int = 0
    latency_s: float = 0.0
    errors: list[GatewayError] = attrs.field(factory=list)
    asked: list[tuple[float, int]] = attrs.field(factory=list)
    under_way: int = 0
    most_under_way: int = 0
    attempts: list[int] = attrs.field(factory=list)
    """Of what is received next; all others come for the first time."""

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        assert wait_s == WAIT_S
        self.asked.append((self.clock.now_s() - START_S, max_count))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if self.errors:
                await self.clock.sleep(self.latency_s)
                raise self.errors.pop(0)
            if not self.stock:
                await self.clock.sleep(wait_s)
                return []
            count = min(self.stock, max_count)
            self.stock -= count
            await self.clock.sleep(self.latency_s)
            return [
                a_delivery(attempt=self.attempts.pop(0) if self.attempts else 1)
                for _ in range(count)
            ]
        finally:
            self.under_way -= 1

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        raise NotImplementedError

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


class Bench:
    """A receiver at work; `ready` is how many received messages wait for a worker."""

    def __init__(
        self,
        *,
        in_flight: int = 20,
        concurrency: int = 1,
        prefetch: int | None = -1,
        batch: int = 10,
        max_pollers: int = 1,
        stock: int = 0,
        has_uncounted_abandon: bool = True,
        **fields: Any,
    ) -> None:
        self.clock = VirtualClock(chance=0.0)
        self.broker = FakeBroker(self.clock, stock)
        self.received: list[Delivery] = []
        self.batches: list[int] = []
        self.ready = 0
        self.receiver = Receiver(
            self.broker,
            a_subscription(
                concurrency=concurrency,
                prefetch=in_flight - concurrency if prefetch == -1 else prefetch,
                wait=timedelta(seconds=WAIT_S),
                name="orders",
                **fields,
            ),
            Capabilities(
                gateway="fake",
                receive_batch=batch,
                max_pollers=max_pollers,
                has_uncounted_abandon=has_uncounted_abandon,
            ),
            clock=self.clock,
            ready_count=lambda: self.ready,
            waiting_count=lambda: self.ready,
            on_received=self._accept,
            on_poller_ended=lambda ended: None,
        )
        self.running = asyncio.create_task(self.receiver.run())

    def _accept(self, deliveries: Sequence[Delivery]) -> None:
        self.received.extend(deliveries)
        self.batches.append(len(deliveries))

    async def have_it_grown(self) -> None:
        """All that comes is handled at once, again and again; then a last hand is full."""
        for _ in range(10):
            await self.clock.advance(self.broker.latency_s)
            self.receiver.ran_dry()
            self.receiver.give_back(len(self.received))
            self.received.clear()
        await self.clock.advance(self.broker.latency_s)

    async def stop(self) -> None:
        assert not self.running.done(), "the receiver ended by itself"
        self.running.cancel()
        await asyncio.wait([self.running])
        assert self.running.cancelled()


async def test_when_there_is_plenty_then_no_more_is_received_than_there_is_room_for() -> None:
    bench = Bench(in_flight=25, stock=1_000)

    await bench.clock.settle()

    assert [count for _, count in bench.broker.asked] == [10, 10, 5]
    assert len(bench.received) == bench.receiver.in_flight == 25
    await bench.stop()


async def test_when_messages_are_settled_then_as_many_are_asked_for() -> None:
    bench = Bench(in_flight=10, stock=1_000)
    await bench.clock.settle()

    bench.receiver.give_back(4)
    await bench.clock.settle()

    assert [count for _, count in bench.broker.asked] == [10, 4]
    await bench.stop()


async def test_when_messages_wait_for_workers_then_only_whole_batches_are_asked_for() -> None:
    bench = Bench(in_flight=10, stock=1_000)
    await bench.clock.settle()
    bench.ready = 3

    bench.receiver.give_back(4)
    await bench.clock.settle()
    assert [count for _, count in bench.broker.asked] == [10]
    bench.ready = 0
    bench.receiver.look_again()
    await bench.clock.settle()

    assert [count for _, count in bench.broker.asked] == [10, 4]
    await bench.stop()


async def test_when_a_receive_comes_back_empty_then_its_credit_does_too() -> None:
    bench = Bench(in_flight=10)

    await bench.clock.advance(3 * WAIT_S + 1)

    assert bench.broker.asked == [(0, 10), (20, 10), (40, 10), (60, 10)]
    assert bench.receiver.in_flight == 10
    await bench.stop()


async def test_when_scaled_down_then_receiving_waits_and_when_scaled_up_it_goes_on() -> None:
    bench = Bench(concurrency=6, prefetch=4, stock=1_000)
    await bench.clock.settle()
    assert bench.receiver.in_flight == 10

    bench.receiver.scale(1)
    bench.receiver.give_back(5)
    await bench.clock.settle()
    assert len(bench.received) == 10
    bench.receiver.scale(4)
    await bench.clock.settle()

    assert len(bench.received) == 13
    assert bench.receiver.in_flight == 8
    await bench.stop()


async def test_when_workers_run_dry_and_prefetch_is_ours_to_choose_then_it_grows() -> None:
    bench = Bench(concurrency=2, prefetch=None, batch=10, stock=10_000)
    await bench.have_it_grown()

    # Up to what the pollers could bring at once: one of them, ten messages.
    assert bench.receiver.in_flight == 2 + 10
    await bench.stop()


async def test_when_the_broker_is_far_away_then_the_prefetch_grows_all_the_same() -> None:
    bench = Bench(concurrency=2, prefetch=None, batch=10, stock=10_000)
    bench.broker.latency_s = 0.2
    await bench.have_it_grown()

    assert bench.receiver.in_flight == 2 + 10
    await bench.stop()


async def test_when_workers_run_dry_with_credit_left_then_the_prefetch_stays() -> None:
    bench = Bench(concurrency=20, prefetch=None, batch=10, max_pollers=8, stock=10)
    await bench.clock.settle()

    bench.receiver.ran_dry()
    bench.broker.stock = 1_000
    await bench.clock.advance(WAIT_S)

    assert bench.receiver.in_flight == 40
    await bench.stop()


async def test_when_handlers_are_slow_again_then_the_prefetch_shrinks_to_what_runs_at_once() -> (
    None
):
    bench = Bench(concurrency=2, prefetch=None, batch=2, max_pollers=5, stock=10_000)
    await bench.have_it_grown()
    assert bench.receiver.in_flight == 2 + 10
    # Two at a time, and all the others wait.
    for _ in range(20):
        bench.ready = bench.receiver.in_flight - 2
        await bench.clock.advance(60)
        bench.receiver.give_back(2)
    await bench.clock.settle()

    assert bench.receiver.in_flight == 4
    await bench.stop()


async def test_when_the_prefetch_was_chosen_then_it_stays_however_fast_the_handlers_are() -> None:
    bench = Bench(concurrency=2, prefetch=3, batch=10, stock=10_000)
    await bench.have_it_grown()

    assert bench.receiver.in_flight == 5
    await bench.stop()


async def test_when_receives_come_back_full_then_more_pollers_ask_at_once() -> None:
    bench = Bench(in_flight=1_000, max_pollers=4, stock=1_000)
    bench.broker.latency_s = 1.0

    await bench.clock.advance(10)

    assert bench.broker.most_under_way == 4
    assert bench.broker.under_way <= 4
    await bench.stop()


async def test_when_the_queue_runs_dry_then_one_poller_is_left() -> None:
    bench = Bench(in_flight=1_000, max_pollers=4, stock=100)
    bench.broker.latency_s = 1.0
    await bench.clock.advance(10)

    await bench.clock.advance(10 * WAIT_S)

    assert bench.broker.under_way == 1
    await bench.stop()


async def test_when_all_pollers_come_back_empty_at_one_moment_then_one_goes_on() -> None:
    bench = Bench(in_flight=1_000, max_pollers=4, stock=30)
    await bench.clock.settle()
    assert bench.broker.under_way == 4

    await bench.clock.advance(WAIT_S)
    assert not bench.running.done()
    bench.broker.stock = 5
    await bench.clock.advance(WAIT_S)

    assert len(bench.received) == 35
    await bench.stop()


async def test_when_the_poller_that_held_all_credit_ends_then_one_that_waited_for_it_asks() -> None:
    """The pump stood still for ever: the last credits came back and nobody was told."""
    bench = Bench(in_flight=10, max_pollers=4, stock=10)
    await bench.clock.settle()
    bench.receiver.give_back(10)
    await bench.clock.settle()
    assert bench.broker.under_way == 1

    await bench.clock.advance(WAIT_S)
    bench.broker.stock = 5
    await bench.clock.advance(WAIT_S)

    assert len(bench.received) == 15
    await bench.stop()


@pytest.mark.parametrize(("given", "asking"), [(10, 1), (20, 2), (35, 4), (40, 4)])
async def test_when_room_comes_for_several_then_as_many_pollers_ask_at_once(
    given: int, asking: int
) -> None:
    bench = Bench(in_flight=40, max_pollers=4, stock=1_000)
    await bench.clock.settle()
    assert len(bench.received) == 40
    bench.broker.latency_s = 1.0

    bench.receiver.give_back(given)
    await bench.clock.settle()

    assert bench.broker.under_way == asking
    await bench.stop()


async def test_when_paused_and_resumed_at_once_then_pollers_that_wait_are_not_forgotten() -> None:
    bench = Bench(in_flight=10, stock=1_000)
    await bench.clock.settle()

    bench.receiver.pause()
    bench.receiver.give_back(10)
    bench.receiver.resume()
    await bench.clock.settle()

    assert len(bench.received) == 20
    await bench.stop()


async def test_when_receiving_fails_then_another_poller_uses_its_credit_at_once() -> None:
    bench = Bench(in_flight=10, max_pollers=4, stock=10)
    await bench.clock.settle()
    bench.broker.errors = [ConnectionFailed("broker", "away")]
    bench.broker.latency_s = 1.0

    bench.receiver.give_back(10)
    await bench.clock.advance(1.0)

    assert [moment for moment, _ in bench.broker.asked] == [0.0, 0.0, 1.0]
    await bench.stop()


async def test_when_there_is_room_for_one_then_a_second_poller_waits_for_credit() -> None:
    bench = Bench(in_flight=10, max_pollers=4, stock=1_000)

    await bench.clock.advance(100)

    assert len(bench.received) == 10
    await bench.stop()


async def test_when_the_broker_is_back_after_a_long_outage_then_it_is_asked_within_seconds() -> (
    None
):
    """R51: however often it could not be reached before."""
    bench = Bench(in_flight=10, stock=3)
    bench.broker.errors = [ConnectionFailed("broker", "away")] * 1000
    await bench.clock.advance(600)

    bench.broker.errors = []
    await bench.clock.advance(5)

    assert len(bench.received) == 3
    await bench.stop()


@pytest.mark.parametrize(
    "error",
    [
        ConnectionFailed("broker", "away"),
        Throttled("broker", 1.0),
        QueueNotFound("orders"),
        AccessDenied("orders", "receive"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_when_receiving_fails_then_it_is_tried_again_with_growing_pauses(
    error: GatewayError,
) -> None:
    """Law 7, R51, R52."""
    bench = Bench(in_flight=10, stock=3)
    bench.broker.errors = [error] * 4

    with structlog.testing.capture_logs() as lines:
        await bench.clock.advance(2)

    assert [moment for moment, _ in bench.broker.asked] == pytest.approx(
        [0, 0.1, 0.3, 0.7, 1.5, 1.5]
    )
    assert len(bench.received) == 3
    assert bench.receiver.in_flight == 3 + 7
    failures = [line for line in lines if line["event"] == "receive.failed"]
    assert [line["retry_in_s"] for line in failures] == [0.1, 0.2, 0.4, 0.8]
    assert {line["error_type"] for line in failures} == {type(error).__name__}
    assert [line["event"] for line in lines].count("gateway.recovered") == 1
    await bench.stop()


def handing_back_costs(**fields: Any) -> Bench:
    """A receiver of two workers, on a broker like SQS."""
    return Bench(in_flight=12, concurrency=2, has_uncounted_abandon=False, **fields)


async def test_when_handing_back_costs_an_attempt_then_it_looks_before_it_prefetches() -> None:
    """T5: what the first receive brings is not known, so no more than can start."""
    bench = handing_back_costs(stock=1_000)

    await bench.clock.settle()

    assert [count for _, count in bench.broker.asked] == [2, 10]
    await bench.stop()


async def test_when_a_message_near_its_last_attempt_comes_then_no_more_is_held_than_can_start() -> (
    None
):
    """T5: until a receive brings none of them."""
    bench = handing_back_costs(stock=1_000, failure=hybrid(3))
    bench.broker.attempts = [1, 3, 4, 2]

    await bench.clock.settle()
    for _ in range(2):
        bench.receiver.give_back(2)
        await bench.clock.settle()

    assert [count for _, count in bench.broker.asked] == [2, 2, 2, 10]
    await bench.stop()


@pytest.mark.parametrize(
    ("fields", "attempt", "is_nearly_spent"),
    [
        ({"failure": hybrid(3)}, 2, False),
        ({"failure": hybrid(3)}, 3, True),
        ({"failure": retry(3)}, 3, True),
        ({"failure": hybrid(3), "max_receive_count": 3, "dead_letter_queue": "dead"}, 2, True),
        ({"failure": hybrid(0), "max_receive_count": 1, "dead_letter_queue": "dead"}, 1, True),
    ],
)
def test_when_one_more_hand_back_would_cost_a_run_then_the_budget_is_nearly_spent(
    fields: dict[str, Any], attempt: int, is_nearly_spent: bool
) -> None:
    """T5."""
    budget = AttemptBudget.of(a_subscription(**fields), Capabilities(gateway="fake"))

    assert budget is not None
    assert budget.is_nearly_spent(attempt) is is_nearly_spent


@pytest.mark.parametrize(
    ("fields", "has_uncounted_abandon"),
    [
        ({"failure": hybrid(3)}, True),
        ({"failure": hybrid(0)}, False),
        ({"failure": retry(None)}, False),
        ({"failure": dead_letter("dead")}, False),
    ],
)
def test_when_a_hand_back_costs_no_run_then_there_is_no_budget(
    fields: dict[str, Any], has_uncounted_abandon: bool
) -> None:
    """T5."""
    capabilities = Capabilities(gateway="fake", has_uncounted_abandon=has_uncounted_abandon)

    assert AttemptBudget.of(a_subscription(**fields), capabilities) is None
