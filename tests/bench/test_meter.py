"""What a meter keeps of what the pump tells it, and that it is deaf once stopped."""

import pytest

from pump.bench.measuring import Meter
from pump.bench.report import Calls
from pump.errors import Throttled
from pump.loop.processing import DeliveryResult
from pump.message import Delivery
from pump.outcome import ABANDON, ACK, Action, Defer, Outcome, Reject, RejectionReason, Settlement
from pump.testing import VirtualClock, a_delivery, a_message, a_subscription

SUBSCRIPTION = a_subscription()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def meter(clock: VirtualClock) -> Meter:
    return Meter(clock)


def expected(meter: Meter, clock: VirtualClock) -> Delivery:
    """A delivery of a message that was due a while ago."""
    delivery = a_delivery(a_message())
    meter.expect({delivery.message.id: clock.now_s() - 2.5})
    return delivery


def handle(meter: Meter, delivery: Delivery, outcome: Outcome, action: Action) -> None:
    with meter.processing(SUBSCRIPTION, delivery) as processing:
        processing.ended(outcome, None)
    meter.settled(SUBSCRIPTION, [DeliveryResult(delivery, action, outcome, 0.5)])


def tell_of_everything(meter: Meter, delivery: Delivery) -> None:
    with meter.sending("orders", [delivery.message]):
        pass
    meter.received(SUBSCRIPTION, [delivery], waited_s=0.1)
    meter.received(SUBSCRIPTION, [], waited_s=0.1)
    meter.watching(SUBSCRIPTION, lambda: 1)
    with meter.settling(SUBSCRIPTION, [Settlement(delivery, ACK)]):
        pass
    meter.extended(SUBSCRIPTION, 3)
    meter.lost(SUBSCRIPTION, delivery)
    meter.failed("receive", "orders", Throttled("orders", 1.0))
    meter.spilled(1)
    handle(meter, delivery, ACK, ACK)


def test_what_was_handled_has_its_latency_and_its_time_in_hand(
    meter: Meter, clock: VirtualClock
) -> None:
    handle(meter, expected(meter, clock), ACK, ACK)

    assert (meter.handled, meter.done, meter.outstanding) == (1, 1, 0)
    assert (meter.latencies_s, meter.run_times_s) == ([2.5], [0.5])
    assert meter.timeline == [(clock.now_s(), 1)]


def test_what_was_rejected_is_done_without_a_latency(meter: Meter, clock: VirtualClock) -> None:
    rejected = Reject(RejectionReason.UNACCEPTABLE)

    handle(meter, expected(meter, clock), rejected, ACK)

    assert (meter.rejected, meter.done, meter.latencies_s) == (1, 1, [])


def test_what_comes_again_is_not_done(meter: Meter, clock: VirtualClock) -> None:
    delivery = expected(meter, clock)

    handle(meter, delivery, Defer(1.0), Defer(1.0))

    assert (meter.retried, meter.done, meter.outstanding, meter.timeline) == (1, 0, 1, [])


def test_what_was_handed_back_untried_is_nothing(meter: Meter, clock: VirtualClock) -> None:
    delivery = expected(meter, clock)

    meter.settled(SUBSCRIPTION, [DeliveryResult(delivery, ABANDON, ABANDON)])

    assert (meter.retried, meter.done, meter.run_times_s) == (0, 0, [])


def test_a_message_that_comes_twice_is_done_once(meter: Meter, clock: VirtualClock) -> None:
    delivery = expected(meter, clock)

    for _ in range(2):
        handle(meter, delivery, ACK, ACK)

    assert (meter.handled, len(meter.latencies_s)) == (1, 1)


def test_a_message_of_somebody_else_is_not_ours(meter: Meter) -> None:
    handle(meter, a_delivery(), ACK, ACK)

    assert (meter.done, meter.latencies_s) == (0, [])


def test_what_the_pump_asked_for_is_counted(meter: Meter, clock: VirtualClock) -> None:
    tell_of_everything(meter, expected(meter, clock))

    assert meter.calls == Calls(
        sends=1, receives=2, empty_receives=1, settles=1, extends=1, received=1, settled=1
    )
    assert (meter.lost_count, meter.errors) == (1, {"receive: Throttled": 1})


def test_once_stopped_it_hears_nothing(meter: Meter, clock: VirtualClock) -> None:
    delivery = expected(meter, clock)
    meter.stop()

    tell_of_everything(meter, delivery)

    assert meter.calls == Calls()
    assert (meter.done, meter.lost_count, meter.errors, meter.latencies_s) == (0, 0, {}, [])


def test_what_was_not_sent_is_not_waited_for(meter: Meter, clock: VirtualClock) -> None:
    delivery = expected(meter, clock)

    meter.give_up([delivery.message.id, "never expected"])

    assert meter.outstanding == 0
