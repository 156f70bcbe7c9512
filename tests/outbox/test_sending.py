"""What becomes of a batch, by what its sends raise. Pure, but for the sends."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from pump.errors import (
    AccessDenied,
    ConnectionFailed,
    CryptoError,
    MessageTooLarge,
    PumpError,
    QueueNotFound,
    SendFailed,
    Throttled,
    UnsupportedOperation,
)
from pump.message import Message
from pump.outbox.sending import MAX_ATTEMPTS, Fault, Send, fault_of, rounded_up, send_batch
from pump.outbox.store import Relayed, WaitingRow
from pump.stores.packing import pack, pack_checked
from pump.testing.builders import a_message

TOO_LARGE = MessageTooLarge("orders", 9, 8)
AWAY = ConnectionFailed("broker", "refused")


def a_row(
    position: int, *, lane: int | None = None, delay_s: float = 0.0, **fields: int
) -> WaitingRow:
    id_ = f"m{position}"
    return WaitingRow(
        position=position,
        id=id_,
        lane=lane,
        attempts=fields.get("attempts", 0),
        age_s=0.0,
        delay_s=delay_s,
        packed=pack_checked(a_message(id=id_)),
    )


@attrs.define
class Broker:
    """Refuses some messages, whatever is sent with them."""

    refusals: dict[str, Exception] = attrs.field(factory=dict)
    names_them: bool = True
    """Whether it says which, as a gateway does with `SendFailed`."""
    calls: list[tuple[list[str], float]] = attrs.field(factory=list)
    accepted: list[str] = attrs.field(factory=list)

    async def send(self, messages: Sequence[Message], delay_s: float) -> None:
        ids = [each.id for each in messages]
        self.calls.append((ids, delay_s))
        failures = tuple((each, self.refusals[each]) for each in ids if each in self.refusals)
        if failures and not self.names_them:
            raise failures[0][1]
        self.accepted += [each for each in ids if each not in self.refusals]
        if failures:
            raise SendFailed("orders", failures)


async def sent_in_time(rows: Sequence[WaitingRow], send: Send) -> Relayed:
    """What becomes of them where the time is never up."""
    return await send_batch(rows, send, is_time_up=lambda: False)


def positions(rows: Sequence[WaitingRow]) -> list[int]:
    return [each.position for each in rows]


async def test_when_all_are_accepted_then_one_call_was_enough() -> None:
    broker = Broker()

    relayed = await sent_in_time([a_row(1), a_row(2, lane=7), a_row(3)], broker.send)

    assert positions(relayed.sent) == [1, 2, 3]
    assert broker.calls == [(["m1", "m2", "m3"], 0.0)]


@pytest.mark.parametrize("names_them", [True, False])
async def test_when_one_can_never_be_sent_then_it_alone_is_set_aside(names_them: bool) -> None:
    broker = Broker({"m3": TOO_LARGE}, names_them)

    relayed = await sent_in_time([a_row(each) for each in range(1, 9)], broker.send)

    assert positions(relayed.sent) == [1, 2, 4, 5, 6, 7, 8]
    assert [(row.position, reason) for row, reason in relayed.set_aside] == [
        (3, f"MessageTooLarge: {TOO_LARGE}")
    ]
    assert relayed.fault is None
    assert broker.accepted == ["m1", "m2", "m4", "m5", "m6", "m7", "m8"]


async def test_when_a_row_of_a_lane_is_set_aside_then_its_successors_go() -> None:
    broker = Broker({"m1": TOO_LARGE}, names_them=False)

    relayed = await sent_in_time([a_row(1, lane=7), a_row(2, lane=7)], broker.send)

    assert positions(relayed.sent) == [2]


@pytest.mark.parametrize("names_them", [True, False])
async def test_when_the_destination_is_away_then_nothing_is_counted_and_all_wait(
    names_them: bool,
) -> None:
    broker = Broker({"m1": AWAY}, names_them)

    relayed = await sent_in_time([a_row(1)], broker.send)

    assert relayed.fault is AWAY
    assert [*relayed.sent, *relayed.refused, *relayed.set_aside] == []


async def test_when_the_destination_goes_away_in_the_middle_then_the_rest_is_not_tried() -> None:
    broker = Broker({"m2": AWAY}, names_them=False)

    relayed = await sent_in_time(
        [a_row(1), a_row(2, delay_s=5.0), a_row(3, delay_s=9.0)], broker.send
    )

    assert positions(relayed.sent) == [1]
    assert relayed.fault is AWAY
    assert len(broker.calls) == 2


async def test_when_one_is_refused_for_an_unknown_reason_then_it_is_counted_and_others_go() -> None:
    broker = Broker({"m2": PumpError("what is this")}, names_them=False)

    relayed = await sent_in_time([a_row(1), a_row(2), a_row(3)], broker.send)

    assert positions(relayed.sent) == [1, 3]
    assert positions(relayed.refused) == [2]


async def test_when_one_of_a_lane_is_refused_then_those_behind_it_wait_too() -> None:
    broker = Broker({"m1": PumpError("what is this")}, names_them=False)
    rows = [a_row(1, lane=7), a_row(2, lane=8), a_row(3, lane=7), a_row(4)]

    relayed = await sent_in_time(rows, broker.send)

    assert positions(relayed.sent) == [2, 4]
    assert positions(relayed.refused) == [1]
    assert broker.accepted == ["m2", "m4"]


async def test_when_it_was_refused_often_enough_then_it_is_set_aside() -> None:
    broker = Broker({"m1": PumpError("what is this")})

    relayed = await sent_in_time([a_row(1, attempts=MAX_ATTEMPTS - 1)], broker.send)

    assert positions([row for row, _ in relayed.set_aside]) == [1]
    assert not relayed.refused


async def test_when_several_in_a_row_are_refused_then_it_is_taken_for_the_destination() -> None:
    broker = Broker({f"m{each}": PumpError("odd") for each in range(1, 101)}, names_them=False)

    relayed = await sent_in_time([a_row(each) for each in range(1, 101)], broker.send)

    assert relayed.fault is not None
    assert positions(relayed.refused) == [1, 2, 3]


async def test_when_a_row_is_not_what_was_posted_then_it_is_set_aside_and_not_sent() -> None:
    good = a_row(1)
    changed = attrs.evolve(good, position=2, packed=good.packed.replace(b"{}", b"[]"))
    unchecked = attrs.evolve(good, position=3, packed=pack(a_message()))
    foreign = attrs.evolve(good, position=4, packed=b"what is this")
    broker = Broker()

    relayed = await sent_in_time([good, changed, unchecked, foreign], broker.send)

    assert positions(relayed.sent) == [1]
    assert positions([row for row, _ in relayed.set_aside]) == [2, 3, 4]
    assert broker.accepted == ["m1"]


async def test_when_delays_differ_then_each_is_sent_with_what_is_left_of_it() -> None:
    broker = Broker()
    rows = [a_row(1, delay_s=0.51), a_row(2), a_row(3, delay_s=0.55), a_row(4, delay_s=61.2)]

    await sent_in_time(rows, broker.send)

    assert broker.calls == [(["m1", "m3"], 0.6), (["m2"], 0.0), (["m4"], 62.0)]


async def test_when_the_time_is_up_then_no_further_call_begins_and_the_rest_waits() -> None:
    broker = Broker()
    rows = [a_row(each, delay_s=each) for each in range(1, 6)]

    relayed = await send_batch(rows, broker.send, is_time_up=lambda: len(broker.calls) == 2)

    assert positions(relayed.sent) == [1, 2]
    assert (relayed.is_partial, relayed.fault) == (True, None)
    assert broker.accepted == ["m1", "m2"]


async def test_when_the_time_is_up_after_the_last_call_then_nothing_is_left() -> None:
    broker = Broker()

    relayed = await send_batch([a_row(1)], broker.send, is_time_up=lambda: bool(broker.calls))

    assert positions(relayed.sent) == [1]
    assert not relayed.is_partial


async def test_when_there_are_lanes_then_delays_change_no_order() -> None:
    broker = Broker()

    await sent_in_time(
        [a_row(1, lane=7, delay_s=1), a_row(2, lane=7), a_row(3, delay_s=1)], broker.send
    )

    assert [ids for ids, _ in broker.calls] == [["m1"], ["m2"], ["m3"]]


@pytest.mark.parametrize("left_s", [0.0, 0.01, 0.1, 3.14159, 10.0, 10.1, 86_399.5])
def test_a_rounded_delay_is_never_shorter(left_s: float) -> None:
    assert left_s <= rounded_up(left_s) <= left_s + 1


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (TOO_LARGE, Fault.MESSAGE),
        (UnsupportedOperation("sqs", "a delay", "it is too long"), Fault.MESSAGE),
        (CryptoError("no"), Fault.MESSAGE),
        (AWAY, Fault.DESTINATION),
        (QueueNotFound("orders"), Fault.DESTINATION),
        (AccessDenied("orders", "send"), Fault.DESTINATION),
        (Throttled("broker"), Fault.DESTINATION),
        (TimeoutError(), Fault.DESTINATION),
        (ConnectionResetError(), Fault.DESTINATION),
        (PumpError("odd"), Fault.UNKNOWN),
        (ValueError("odd"), Fault.UNKNOWN),
    ],
)
def test_an_error_is_of_the_message_or_of_the_destination(error: Exception, fault: Fault) -> None:
    assert fault_of(error) is fault
