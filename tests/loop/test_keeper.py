"""LeaseKeeper: one heartbeat for all leases (R15, law 3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Literal

import attrs
import pytest
from hypothesis import given, strategies as st

from pump.errors import AccessDenied, ConnectionFailed, GatewayError, InvalidReceipt, Throttled
from pump.loop.leases import LeaseBook, LeaseKeeper
from pump.message import Delivery
from pump.outcome import Refusal, Settlement
from pump.subscription import Subscription
from pump.testing.builders import a_delivery
from pump.testing.virtual_clock import START_S, VirtualClock

LEASE_S = 30.0
Answer = Literal["grant", "fail", "hang", "refuse for now", "refuse for good"]


@attrs.define(eq=False)
class FakeBroker:
    """Grants, refuses, fails or hangs; notes every request."""

    clock: VirtualClock
    answer: Answer = "grant"
    latency_s: float = 0.0
    refuses: Callable[[Delivery], bool] = lambda delivery: True
    error: GatewayError = ConnectionFailed("broker", "away")
    requests: list[tuple[float, list[Delivery]]] = attrs.field(factory=list)
    lose: Callable[[Sequence[Delivery]], None] = lambda deliveries: None

    async def extend(self, deliveries: Sequence[Delivery], *, lease_s: float) -> Sequence[Refusal]:
        assert lease_s == LEASE_S
        self.requests.append((self.clock.now_s() - START_S, list(deliveries)))
        await self.clock.sleep(self.latency_s)
        match self.answer:
            case "fail":
                raise self.error
            case "hang":
                await asyncio.Event().wait()
            case "refuse for now":
                return [Refusal(d, Throttled("broker")) for d in deliveries if self.refuses(d)]
            case "refuse for good":
                return [
                    Refusal(d, InvalidReceipt("q", d.receipt))
                    for d in deliveries
                    if self.refuses(d)
                ]
            case "grant":
                pass
        return []

    def when_lost(self, tell: Callable[[Sequence[Delivery]], None]) -> None:
        self.lose = tell

    @property
    def moments(self) -> list[float]:
        return [moment for moment, _ in self.requests]

    async def receive(self, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
        raise NotImplementedError

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Refusal]:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


class Bench:
    """A keeper at work."""

    def __init__(
        self, *, batch: int = 10, renew: bool = True, max_lease_s: float | None = None
    ) -> None:
        self.clock = VirtualClock(chance=0.0)
        self.broker = FakeBroker(self.clock)
        self.lost: list[tuple[float, Delivery]] = []
        self.keeper = LeaseKeeper(
            LeaseBook(lease_s=LEASE_S, renew=renew, max_lease_s=max_lease_s),
            self.broker,
            Subscription(queue="orders", request=dict, lease=timedelta(seconds=LEASE_S)),
            batch=batch,
            clock=self.clock,
            on_lost=lambda delivery: self.lost.append((self.clock.now_s() - START_S, delivery)),
        )
        self.running = asyncio.create_task(self.keeper.run())

    def watch(self, count: int = 1) -> list[Delivery]:
        end_s = self.clock.now_s() + LEASE_S
        deliveries = [a_delivery(lease_expires_at_s=end_s) for _ in range(count)]
        self.keeper.watch(deliveries)
        return deliveries

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])
        assert self.running.cancelled()


async def test_when_half_a_lease_is_over_then_it_is_extended_again_and_again() -> None:
    """R15."""
    bench = Bench()
    [delivery] = bench.watch()

    await bench.clock.advance(14.9)
    assert bench.broker.requests == []
    await bench.clock.advance(40.1)

    assert bench.broker.requests == [(15, [delivery]), (30, [delivery]), (45, [delivery])]
    assert bench.keeper.holds(delivery)
    assert bench.lost == []
    await bench.stop()


async def test_when_the_port_says_that_leases_ended_then_they_are_lost_at_once_and_once() -> None:
    """Law 3: a lost connection ends the leases of its deliveries."""
    bench = Bench()
    first, second, third = bench.watch(3)
    await bench.clock.advance(1)

    bench.broker.lose([first, third])
    bench.broker.lose([first])

    assert bench.lost == [(1, first), (1, third)]
    assert bench.keeper.holds(second)
    await bench.stop()


async def test_when_many_leases_are_due_then_they_are_extended_in_batches() -> None:
    bench = Bench(batch=10)
    deliveries = bench.watch(25)

    await bench.clock.advance(15)

    assert [len(batch) for _, batch in bench.broker.requests] == [10, 10, 5]
    assert [each for _, batch in bench.broker.requests for each in batch] == deliveries
    await bench.stop()


async def test_when_leases_are_due_soon_after_one_another_then_one_request_is_enough() -> None:
    bench = Bench()
    first = bench.watch()
    await bench.clock.advance(3)
    second = bench.watch()
    await bench.clock.advance(0.5)
    third = bench.watch()

    await bench.clock.advance(12)

    assert bench.broker.requests == [(15, [*first, *second])]
    await bench.clock.advance(3)
    assert bench.broker.requests[1] == (18.5, third)
    await bench.stop()


async def test_when_a_message_is_settled_then_its_lease_is_not_extended_any_more() -> None:
    bench = Bench()
    gone, kept = bench.watch(2)

    assert bench.keeper.forget(gone)
    await bench.clock.advance(100)

    assert all(batch == [kept] for _, batch in bench.broker.requests)
    assert not bench.keeper.holds(gone)
    assert not bench.keeper.forget(gone)
    assert bench.lost == []
    await bench.stop()


async def test_when_one_is_settled_while_a_batch_is_extended_then_it_is_left_out() -> None:
    bench = Bench(batch=1)
    bench.watch()
    [second] = bench.watch()
    bench.broker.answer = "hang"
    await bench.clock.advance(15)

    bench.keeper.forget(second)
    bench.broker.answer = "grant"
    await bench.clock.advance(8)

    assert all(second not in batch for _, batch in bench.broker.requests)
    await bench.stop()


async def test_when_everything_is_settled_then_the_keeper_sleeps_until_the_next_message() -> None:
    bench = Bench()
    [delivery] = bench.watch()
    bench.keeper.forget(delivery)
    await bench.clock.advance(1_000)
    assert bench.broker.requests == []

    bench.watch()
    await bench.clock.advance(15)

    assert bench.broker.moments == [1_015]
    await bench.stop()


async def test_when_the_broker_refuses_for_good_then_the_loss_is_reported_once() -> None:
    """Law 3."""
    bench = Bench()
    lost, kept = bench.watch(2)
    bench.broker.answer = "refuse for good"
    bench.broker.refuses = lambda delivery: delivery is lost

    await bench.clock.advance(100)

    assert bench.lost == [(15, lost)]
    assert not bench.keeper.holds(lost)
    assert bench.keeper.holds(kept)
    await bench.stop()


async def test_when_a_message_is_settled_while_its_extension_is_refused_then_it_is_not_lost() -> (
    None
):
    bench = Bench()
    [delivery] = bench.watch()
    bench.broker.answer, bench.broker.latency_s = "refuse for good", 1
    await bench.clock.advance(15.5)

    assert bench.keeper.forget(delivery)
    await bench.clock.advance(100)

    assert len(bench.broker.requests) == 1
    assert bench.lost == []
    await bench.stop()


@pytest.mark.parametrize(
    "error",
    [ConnectionFailed("broker", "away"), Throttled("broker"), AccessDenied("q", "extend")],
    ids=lambda error: type(error).__name__,
)
async def test_when_extending_fails_then_it_is_tried_again_until_the_lease_ends(
    error: GatewayError,
) -> None:
    bench = Bench()
    [delivery] = bench.watch()
    bench.broker.answer, bench.broker.error = "fail", error

    await bench.clock.advance(29.9)
    assert bench.lost == []
    await bench.clock.advance(LEASE_S / 8)

    # The pauses grow, but never so long that the lease would end between two of them.
    gaps_s = [b - a for a, b in pairwise(bench.broker.moments)]
    assert bench.broker.moments[:4] == pytest.approx([15, 15.1, 15.3, 15.7])
    assert max(gaps_s) <= LEASE_S / 8
    [(moment, lost)] = bench.lost
    assert lost is delivery
    assert LEASE_S <= moment <= LEASE_S + LEASE_S / 8
    await bench.stop()


async def test_when_the_broker_is_back_in_time_then_nothing_is_lost() -> None:
    bench = Bench()
    [delivery] = bench.watch()
    bench.broker.answer = "fail"
    await bench.clock.advance(25)
    bench.broker.answer = "grant"

    await bench.clock.advance(100)

    assert bench.lost == []
    assert bench.keeper.holds(delivery)
    await bench.stop()


async def test_when_the_broker_refuses_for_now_then_it_is_asked_again_with_pauses() -> None:
    bench = Bench()
    [delivery] = bench.watch()
    bench.broker.answer = "refuse for now"

    await bench.clock.advance(16)
    assert bench.broker.moments == pytest.approx([15, 15.1, 15.3, 15.7])
    bench.broker.answer = "grant"
    await bench.clock.advance(100)

    assert bench.lost == []
    assert bench.keeper.holds(delivery)
    await bench.stop()


async def test_when_the_reply_never_comes_then_the_request_is_given_up_and_made_again() -> None:
    bench = Bench()
    bench.watch()
    bench.broker.answer = "hang"
    await bench.clock.advance(22)
    bench.broker.answer = "grant"

    await bench.clock.advance(2)

    assert bench.broker.moments == pytest.approx([15, 22.6])
    assert bench.lost == []
    await bench.stop()


async def test_when_every_batch_hangs_then_the_losses_are_still_reported_on_time() -> None:
    """Law 3: the handler must be told, though the last batch was never even tried."""
    bench = Bench(batch=1)
    deliveries = bench.watch(20)
    bench.broker.answer = "hang"

    await bench.clock.advance(LEASE_S + LEASE_S / 4)

    assert {delivery for _, delivery in bench.lost} == set(deliveries)
    assert len(bench.lost) == 20
    await bench.stop()


async def test_when_a_grant_arrives_late_then_the_lease_counts_from_when_it_was_asked_for() -> None:
    bench = Bench()
    bench.broker.latency_s = 5
    bench.watch()

    await bench.clock.advance(31)

    assert bench.broker.moments == [15, 30]
    await bench.stop()


async def test_when_renewal_is_off_then_nothing_is_extended_and_the_end_is_reported() -> None:
    bench = Bench(renew=False)
    [delivery] = bench.watch()

    await bench.clock.advance(100)

    assert bench.broker.requests == []
    assert bench.lost == [(30, delivery)]
    await bench.stop()


async def test_when_the_ceiling_is_reached_then_extending_stops_and_the_end_is_reported() -> None:
    bench = Bench(max_lease_s=60)
    [delivery] = bench.watch()

    await bench.clock.advance(200)

    assert bench.broker.moments == [15, 30]
    assert bench.lost == [(60, delivery)]
    await bench.stop()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["watch", "forget", "grant", "fail", "hang", "refuse for now"]),
            st.integers(0, 20),
        ),
        max_size=25,
    )
)
def test_when_anything_happens_then_a_lease_is_held_or_reported_and_never_both(
    steps: list[tuple[str, int]],
) -> None:
    """Law 3, for any run of grants, failures and silence."""

    async def scenario() -> None:
        bench = Bench(batch=3)
        watched: list[Delivery] = []
        forgotten: set[Delivery] = set()
        for step, number in steps:
            match step:
                case "watch":
                    watched += bench.watch(number % 4 + 1)
                case "forget" if watched:
                    delivery = watched[number % len(watched)]
                    if bench.keeper.forget(delivery):
                        forgotten.add(delivery)
                case "grant" | "fail" | "hang" | "refuse for now":
                    bench.broker.answer = step
            await bench.clock.advance(number)
        lost = [delivery for _, delivery in bench.lost]
        held = {delivery for delivery in watched if bench.keeper.holds(delivery)}

        assert len(lost) == len(set(lost))
        assert set(watched) == held | forgotten | set(lost)
        assert not held & set(lost)
        assert not forgotten & set(lost)
        await bench.stop()

    asyncio.run(scenario())
