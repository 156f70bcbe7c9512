"""The eight laws, at the level of a pump on the memory gateway."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings, strategies as st

from pump import (
    DeferMessage,
    Event,
    InvalidMessage,
    RejectionReason,
    RejectMessage,
    UnacceptableLimit,
)
from pump.clock import yield_to_loop
from pump.events import Status
from pump.message import Delivery
from pump.outcome import ACK, Defer
from pump.ports import ConsumerPort
from pump.subscription import Subscription
from pump.testing.builders import a_message
from pump.testing.virtual_clock import VirtualClock

from ..core.faulty_gateway import FaultyGateway
from ..core.rig import Gate, Rig, Work


async def test_when_a_message_is_handled_then_it_is_acked_once_and_gone() -> None:
    """Law 1, R5, R7."""
    async with Rig() as rig:
        await rig.start()
        [id_] = await rig.send(1)
        await rig.clock.settle()

        assert rig.started == [1]
        assert rig.record.actions() == [(id_, ACK)]
        assert await rig.total() == 0


async def test_when_a_message_is_settled_then_its_lease_is_not_kept_any_longer() -> None:
    async with Rig() as rig:
        await rig.start()
        await rig.send(1, 2, 3)
        await rig.clock.advance(300)

        assert rig.record.calls["extend"] == 0


@given(st.lists(st.sampled_from(["ok", "defer", "reject", "invalid", "error"]), max_size=12))
@settings(max_examples=25)
def test_when_handlers_end_in_every_way_then_each_delivery_is_settled_exactly_once(
    endings: list[str],
) -> None:
    """Law 1."""

    async def behave(work: Work) -> None:
        await yield_to_loop()
        match endings[work.n]:
            case "defer" if rig.attempts[work.n] < 3:
                raise DeferMessage(timedelta(seconds=2))
            case "reject":
                raise RejectMessage("no")
            case "invalid":
                raise InvalidMessage("what?")
            case "error":
                raise ValueError("boom")

    async def scenario() -> None:
        async with rig:
            await rig.send(*range(len(endings)))
            await rig.start()
            await rig.clock.advance(600)

            settled = Counter(delivery.receipt for delivery, _ in rig.record.settled)
            assert settled == Counter(delivery.receipt for delivery in rig.record.received)
            assert set(settled.values()) <= {1}
            finals = Counter(
                outcome.message_id for outcome in rig.outcomes if outcome.status != "retrying"
            )
            assert len(finals) == len(endings)
            assert set(finals.values()) <= {1}
            assert await rig.total() == 0
            failed = sum(ending in ("reject", "error") for ending in endings)
            assert len(await rig.messages("dead")) == failed
            assert len(await rig.messages("bad")) == endings.count("invalid")

    rig = Rig(behave, invalid_queue="bad", concurrency=3)
    asyncio.run(scenario())


async def test_when_a_handler_runs_then_its_message_is_not_acked_before_it_has_ended() -> None:
    """Law 2."""
    gate = Gate()
    async with Rig(gate) as rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.advance(300)
        assert rig.record.settled == []

        gate.open()
        await rig.clock.settle()

        assert [action for _, action in rig.record.actions()] == [ACK]


async def test_when_a_copy_is_being_routed_then_the_original_is_not_acked_before_it_is_sent() -> (
    None
):
    """Law 2, R27."""

    async def reject(work: Work) -> None:
        raise RejectMessage("no")

    async with Rig(reject) as rig:
        await rig.send(1)
        rig.gateway.hang("send")
        await rig.start()
        await rig.clock.advance(10)
        assert rig.record.calls["send"] == 2
        assert rig.record.settled == []

        rig.gateway.heal("send")
        await rig.clock.advance(30)

        assert [action for _, action in rig.record.actions()] == [ACK]


async def test_when_a_lease_is_lost_then_the_handler_is_cancelled_and_nothing_is_acked() -> None:
    """Law 3, R24."""
    async with Rig(Gate(), renew=False) as rig:
        await rig.start()
        [id_] = await rig.send(1)
        await rig.clock.advance(29.9)
        assert rig.cancelled == []

        await rig.clock.advance(0.2)

        assert rig.cancelled == [1]
        [event] = rig.lost
        assert (event.message_id, event.attempt, event.queue) == (id_, 1, "orders")
        assert rig.outcomes == []
        assert rig.record.settled == []
        assert rig.started == [1, 1], "the broker delivered it again"
        assert rig.dispatcher.performers[0].stats.leases_lost == 1


async def test_when_a_connection_is_lost_then_its_leases_are_and_only_what_runs_was_started() -> (
    None
):
    """Law 3: the port tells of it at once; what was prefetched is dropped, what runs is told."""
    async with Rig(Gate(), concurrency=1, prefetch=3) as rig:
        await rig.start()
        ids = await rig.send(1, 2, 3, 4)
        await rig.clock.settle()

        rig.gateway.tell_lost(list(rig.record.received))
        await rig.clock.settle()

        assert (rig.started, rig.cancelled) == ([1], [1])
        assert {event.message_id for event in rig.lost} == set(ids)
        assert rig.record.settled == []


async def test_when_the_broker_takes_a_lease_away_then_the_handler_is_told() -> None:
    """Law 3: the broker says so at the next extension, long before the end we knew of."""
    async with Rig(Gate()) as rig:
        await rig.start()
        [id_] = await rig.send(1)
        await rig.clock.settle()
        await rig.gateway.admin().purge("orders")

        await rig.clock.advance(15)

        assert rig.cancelled == [1]
        assert [event.message_id for event in rig.lost] == [id_]


async def test_when_a_handler_swallows_the_loss_of_its_lease_then_it_is_still_not_acked() -> None:
    """Law 3."""

    async def swallow(work: Work) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async with Rig(swallow, renew=False) as rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.advance(31)

        assert rig.ended == [1]
        assert len(rig.lost) == 1
        assert rig.record.settled == []
        assert rig.outcomes == []


@pytest.mark.parametrize("signal", [RejectMessage("late"), InvalidMessage("late")])
async def test_when_a_handler_answers_the_loss_with_a_rejection_then_nothing_is_routed(
    signal: Exception,
) -> None:
    """Law 3: the message is somebody else's by now."""

    async def stubborn(work: Work) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise signal from None

    limit = UnacceptableLimit(count=1)
    async with Rig(stubborn, renew=False, unacceptable_limit=limit) as rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.advance(31)

        assert len(rig.lost) == 1
        assert await rig.total("dead") == 0
        assert rig.running is not None
        assert not rig.running.done()


async def test_when_the_lease_went_unheard_while_it_was_handled_then_nothing_is_routed() -> None:
    """Law 3, R27: before a copy is sent the broker is asked, unless it has granted it just now."""
    gate = Gate()

    async def reject(work: Work) -> None:
        await gate(work)
        raise RejectMessage("no")

    async with Rig(reject, concurrency=1) as rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.advance(10)
        await rig.gateway.admin().purge("orders")
        await rig.send(2)

        gate.open()
        await rig.clock.advance(1)

        assert [event.message_id for event in rig.lost] == [rig.record.received[0].message.id]
        assert [message.id for message in await rig.messages("dead")] == [
            rig.record.received[1].message.id
        ], "the worker goes on with the next one"
        assert rig.record.calls["extend"] == 1, "the second one was granted just now"


async def test_when_renewal_is_off_then_a_rejected_message_is_still_held_for_its_copy() -> None:
    """R27: the copy is on its way past the end of the first lease, and no one else gets it."""

    async def reject(work: Work) -> None:
        await rig.clock.sleep(29)
        raise RejectMessage("no")

    async with Rig(reject, renew=False) as rig:
        await rig.start()
        rig.gateway.slow("send", 0)
        await rig.send(1)
        rig.gateway.slow("send", 10)
        await rig.clock.advance(60)

        assert rig.started == [1]
        assert rig.lost == []
        assert [event.status for event in rig.outcomes] == [Status.DEAD_LETTERED]


async def test_when_a_signal_carries_no_text_then_it_is_still_the_signal_that_was_meant() -> None:
    """R25, R28: an error, say, is taken as its text."""
    details: list[object] = [ValueError("no stock"), None, 7]

    async def reject(work: Work) -> None:
        raise RejectMessage(details[work.n])  # type: ignore[arg-type]

    async with Rig(reject) as rig:
        await rig.start()
        await rig.send(0, 1, 2)
        await rig.clock.settle()

        copies = await rig.messages("dead")
        assert [each.headers["rejectionMessage"] for each in copies] == ["no stock", "", "7"]


async def test_when_a_waiting_messages_lease_is_lost_then_it_is_never_started() -> None:
    """Law 3, for what was received and not yet started."""
    gate = Gate()
    async with Rig(gate, renew=False, concurrency=1, prefetch=5) as rig:
        await rig.send(1, 2)
        await rig.start()
        await rig.clock.advance(29)
        assert rig.started == [1]

        await rig.clock.advance(2)
        gate.open()
        await rig.clock.settle()

        assert len(rig.lost) == 2
        receipts = {delivery.receipt for delivery, _ in rig.record.settled}
        assert receipts.isdisjoint(delivery.receipt for delivery in rig.record.received[:2])


async def test_when_the_process_stood_still_past_a_lease_then_what_waited_is_never_started() -> (
    None
):
    """Law 3: a stopped process wakes up in its handler, before the keeper could look."""
    gate = Gate()
    async with Rig(gate, concurrency=1, prefetch=5) as rig:
        await rig.send(1, 2)
        await rig.start()
        assert rig.started == [1]

        rig.clock.stand_still(31)
        gate.open()
        await yield_to_loop()
        await yield_to_loop()

        assert rig.started == [1]
        await rig.clock.settle()
        assert len(rig.lost) >= 1
        receipts = {delivery.receipt for delivery, _ in rig.record.settled}
        assert rig.record.received[1].receipt not in receipts


@pytest.mark.parametrize(
    ("body", "type_"),
    [(b"not json", "Work"), (b'{"n": "x"}', "Work"), (b"{}", "Work"), (b'{"n": 1}', "Stranger")],
)
async def test_when_a_message_cannot_be_read_then_it_is_routed_and_never_comes_again(
    body: bytes, type_: str
) -> None:
    """Law 4, R35, R26."""
    async with Rig(invalid_queue="bad") as rig:
        await rig.start()
        await rig.send_raw(a_message(body, type=type_, id="m-1"))
        await rig.clock.advance(600)

        assert rig.started == []
        assert [message.id for message in await rig.messages("bad")] == ["m-1"]
        assert len(rig.record.received) == 1
        assert [outcome.status for outcome in rig.outcomes] == [Status.DEAD_LETTERED]
        assert await rig.total() == 0


async def test_when_nobody_handles_a_type_then_its_message_is_routed_as_unacceptable() -> None:
    """Law 4: known to the resolver, and to no handler."""

    class Nobodys(Event):
        n: int

    rig = Rig()
    rig.app.subscribe(
        Subscription(queue="facts", resolver=lambda message: Nobodys, invalid_queue="bad")
    )
    async with rig:
        await rig.start()
        await rig.send_raw(a_message(b'{"n": 1}', id="m-1"), "facts")
        await rig.clock.settle()

        assert [message.id for message in await rig.messages("bad")] == ["m-1"]
        assert [outcome.reason for outcome in rig.outcomes] == [RejectionReason.UNACCEPTABLE]


@pytest.mark.parametrize(
    ("capability_s", "chosen_s"), [(None, 90), (90.0, None), (90.0, 3_600), (3_600.0, 90)]
)
async def test_when_a_lease_has_a_ceiling_then_the_handler_is_cancelled_at_it(
    capability_s: float | None, chosen_s: float | None
) -> None:
    """Law 3: the lower of the provider's ceiling and the subscription's counts."""
    clock = VirtualClock()
    gateway = FaultyGateway(clock, max_lease_s=capability_s)
    max_lease = None if chosen_s is None else timedelta(seconds=chosen_s)
    async with Rig(Gate(), clock=clock, gateway=gateway, max_lease=max_lease) as rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.advance(89.9)
        assert rig.cancelled == []

        await rig.clock.advance(0.2)

        assert rig.cancelled == [1]
        assert len(rig.lost) == 1


async def test_when_a_handler_meets_a_cancellation_of_its_own_then_that_is_a_failure() -> None:
    """Law 6: nobody cancelled the worker, so it is neither stuck nor deaf."""

    async def await_a_cancelled_task(work: Work) -> None:
        if work.n == 1:
            task = asyncio.create_task(yield_to_loop())
            task.cancel()
            await task

    async with Rig(await_a_cancelled_task, concurrency=1) as rig:
        await rig.start()
        await rig.send(1)
        await rig.clock.advance(600)
        await rig.send(2)
        await rig.clock.settle()

        assert rig.started == [1, 1, 1, 1, 2]
        assert [outcome.status.value for outcome in rig.outcomes] == [
            *["retrying"] * 3,
            "dead-lettered",
            "processed",
        ]


async def test_when_one_of_an_events_handlers_meets_a_cancellation_then_the_pump_goes_on() -> None:
    """Law 6, law 7."""

    class Happened(Event):
        n: int

    async def cancelled(event: Happened) -> None:
        raise asyncio.CancelledError

    async def defer(event: Happened) -> None:
        raise DeferMessage(timedelta(hours=1))

    rig = Rig()
    rig.app.register(Happened, cancelled)
    rig.app.register(Happened, defer)
    rig.app.subscribe(Subscription(queue="facts", request=Happened))
    async with rig:
        await rig.start()
        await rig.app.post(Happened(n=1))
        await rig.clock.settle()

        assert [(e.status, e.queue) for e in rig.outcomes] == [(Status.RETRYING, "facts")]
        assert (await rig.depth("facts")).delayed == 1
        assert rig.states == ["running", "running"]


@pytest.mark.parametrize("many_handlers", [False, True])
async def test_when_a_middleware_swallows_a_signal_then_the_message_is_still_deferred(
    many_handlers: bool,
) -> None:
    """Law 8."""

    async def swallow_everything(request: object, context: object, proceed: object) -> None:
        try:
            await proceed(request)  # type: ignore[operator]
        except Exception:
            return

    class Told(Event):
        n: int

    async def later(event: Told) -> None:
        raise DeferMessage(timedelta(seconds=60))

    async def fine(event: Told) -> None:
        return

    rig = Rig(middleware=[swallow_everything])
    rig.app.register(Told, later)
    if many_handlers:
        rig.app.register(Told, fine)
    rig.app.subscribe(Subscription(queue="facts", request=Told))
    async with rig:
        await rig.start()
        await rig.app.post(Told(n=1))
        await rig.clock.settle()

        assert [action for _, action in rig.record.actions()] == [Defer(60)]


async def test_when_a_delivery_was_too_long_on_its_way_then_it_is_not_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Law 3: its lease is over, and somebody else may have it."""
    async with Rig(lease=timedelta(seconds=30)) as rig:
        port = type(rig.gateway.consumer(rig.subscription))
        receive = port.receive
        answers: list[Sequence[Delivery]] = []

        async def late(self: ConsumerPort, *, max_count: int, wait_s: float) -> Sequence[Delivery]:
            deliveries = await receive(self, max_count=max_count, wait_s=wait_s)
            if deliveries and not answers:
                answers.append(deliveries)
                await rig.clock.sleep(31)
            return deliveries

        monkeypatch.setattr(port, "receive", late)
        await rig.start()
        [id_] = await rig.send(1)
        await rig.clock.advance(120)

        assert [event.message_id for event in rig.lost] == [id_]
        assert rig.attempts == {1: 2}
        assert rig.started == [1]
        assert rig.record.actions() == [(id_, ACK)]
