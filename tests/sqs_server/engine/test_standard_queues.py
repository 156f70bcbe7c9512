"""Standard queues: what AWS says a receiver and a sender may rely on."""

from __future__ import annotations

import re

import attrs
import pytest

from gateways.sqs_server.engine import ReceiptProblem, queue as queue_module
from gateways.sqs_server.errors import SqsError
from gateways.sqs_server.model import Attribute, NewMessage
from pump.testing.virtual_clock import EPOCH_S, VirtualClock

from .shop import Shop


@pytest.fixture(autouse=True)
async def orders(shop: Shop) -> None:
    await shop.make("orders")


async def test_when_a_message_is_received_then_it_is_as_it_was_sent(shop: Shop) -> None:
    """R44."""
    attributes = {"n": Attribute("Number.int", "1"), "b": Attribute("Binary", b"\x00\xff")}
    message = NewMessage(
        body="grüße\x00",
        attributes=attributes,
        trace_header="Root=1",
        sender="AKIA",
        group="tenant",
    )

    [accepted] = await shop.engine.send(shop.queue, [message])
    [got] = await shop.receive()

    assert (got.id, got.body, got.attributes) == (accepted.id, "grüße\x00", attributes)
    assert (got.trace_header, got.sender, got.group) == ("Root=1", "AKIA", "tenant")
    assert (got.sequence_number, got.deduplication_id, got.dead_letter_source) == (None, None, None)
    assert (got.receive_count, got.sent_at_s, got.first_received_at_s) == (1, EPOCH_S, EPOCH_S)


async def test_when_messages_are_sent_then_their_ids_look_like_uuids_and_differ(shop: Shop) -> None:
    accepted = await shop.send(*"abcdefgh")

    pattern = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    assert all(re.fullmatch(pattern, each.id) for each in accepted)
    assert len({each.id for each in accepted}) == 8


async def test_when_nothing_returns_then_messages_come_in_the_order_they_were_sent(
    shop: Shop,
) -> None:
    await shop.send("a", "b", group="same")
    await shop.send("c", group="same")

    assert await shop.bodies(2) == ["a", "b"]
    assert await shop.bodies() == ["c"]


async def test_when_the_visibility_ends_then_the_message_comes_again_and_is_counted(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send("a", "b")
    await shop.receive(1, visibility_s=10)
    assert shop.counts() == (1, 1, 0)

    await clock.advance(10)
    got = await shop.receive()

    assert [(each.body, each.receive_count) for each in got] == [("a", 2), ("b", 1)]
    assert got[0].first_received_at_s == EPOCH_S


async def test_when_a_message_was_received_three_times_then_it_goes_to_the_back(
    shop: Shop,
) -> None:
    await shop.send("poison", "b")
    for _ in range(3):
        assert await shop.bodies(1, visibility_s=0) == ["poison"]

    assert await shop.bodies() == ["b", "poison"]


async def test_when_a_delay_is_not_over_then_the_message_is_hidden(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send("later", delay_s=5)
    await shop.send("now")
    assert shop.counts() == (1, 0, 1)
    assert await shop.bodies() == ["now"]

    await clock.advance(5)

    assert await shop.bodies() == ["later"]


async def test_when_the_queue_has_a_delay_then_a_message_may_still_go_without(shop: Shop) -> None:
    await shop.make("slow", delay_s=60)
    await shop.send("queue's")
    await shop.send("own", delay_s=0)

    assert await shop.bodies() == ["own"]


async def test_when_deleted_then_a_message_is_gone_and_deleting_again_finds_nothing(
    shop: Shop,
) -> None:
    await shop.send("a")
    [got] = await shop.receive(visibility_s=0)

    assert await shop.delete(got) == [None]
    assert await shop.delete(got) == [ReceiptProblem.GONE]
    assert shop.counts() == (0, 0, 0)


async def test_when_a_message_is_visible_again_then_its_receipt_still_deletes_it(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send("a")
    [got] = await shop.receive(visibility_s=1)
    await clock.advance(2)

    assert await shop.delete(got) == [None]
    assert await shop.bodies() == []


async def test_when_a_message_was_received_again_then_the_older_receipt_deletes_it_too(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send("a")
    [first] = await shop.receive(visibility_s=1)
    await clock.advance(2)
    [second] = await shop.receive()

    assert first.receipt != second.receipt
    assert await shop.delete(first) == [None]
    assert await shop.delete(second) == [ReceiptProblem.GONE]


async def test_when_a_receipt_is_garbage_or_another_queues_then_it_is_told_so(
    shop: Shop,
) -> None:
    await shop.send("a")
    [got] = await shop.receive()
    await shop.make("other")

    problems = await shop.engine.delete(shop.queue, ["garbage", "a.b.c", "", got.receipt])

    assert problems == [ReceiptProblem.MALFORMED] * 3 + [ReceiptProblem.OTHER_QUEUE]


async def test_when_visibility_is_changed_then_it_counts_from_now(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send("a", "b")
    a, _ = await shop.receive(visibility_s=10)
    await clock.advance(9)

    assert await shop.change(a, 10) is None

    await clock.advance(1)
    assert await shop.bodies(visibility_s=60) == ["b"]
    await clock.advance(9)
    assert await shop.bodies() == ["a"]


async def test_when_visibility_is_changed_to_zero_then_the_message_is_visible_at_once(
    shop: Shop,
) -> None:
    await shop.send("a")
    [got] = await shop.receive()

    assert await shop.change(got, 0) is None

    assert shop.counts() == (1, 0, 0)
    assert [each.receive_count for each in await shop.receive()] == [2]


async def test_when_a_message_is_visible_again_then_its_receipt_hides_it_once_more(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send("a")
    [got] = await shop.receive(visibility_s=1)
    await clock.advance(2)

    assert await shop.change(got, 10) is None

    assert await shop.bodies() == []
    await clock.advance(10)
    assert await shop.bodies() == ["a"]


async def test_when_a_message_was_received_again_then_the_older_receipt_changes_it_too(
    shop: Shop,
) -> None:
    await shop.send("a")
    [old] = await shop.receive(visibility_s=0)
    [new] = await shop.receive()

    assert await shop.change(old, 0) is None
    assert shop.counts() == (1, 0, 0)
    await shop.delete(new)
    assert await shop.change(new, 0) is ReceiptProblem.GONE


async def test_when_in_flight_for_twelve_hours_in_total_then_no_longer(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send("a")
    [got] = await shop.receive(visibility_s=43_200)
    await clock.advance(1)

    assert await shop.change(got, 43_200) is ReceiptProblem.BEYOND_LIMIT
    assert await shop.change(got, 43_199) is None


async def test_when_a_messages_retention_ends_then_it_vanishes_wherever_it_is(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.make("brief", retention_s=60)
    await shop.send("in flight", "visible")
    await shop.send("delayed", delay_s=900)
    [held] = await shop.receive(1, visibility_s=600)
    await clock.advance(30)
    await shop.send("younger")

    await clock.advance(30)

    assert len(shop.queue.state.records) == 1, "without anybody looking"
    assert shop.counts() == (1, 0, 0)
    assert await shop.delete(held) == [ReceiptProblem.GONE]
    assert await shop.bodies() == ["younger"]
    await clock.advance(30)
    assert shop.counts() == (0, 0, 0)


async def test_when_the_retention_is_shortened_then_old_messages_vanish(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send("a")
    await clock.advance(120)

    await shop.engine.configure(shop.queue, attrs.evolve(shop.queue.settings, retention_s=60))

    assert shop.counts() == (0, 0, 0)


async def test_when_purged_then_nothing_is_left_and_receipts_are_void(shop: Shop) -> None:
    await shop.send("a", "b")
    await shop.send("c", delay_s=9)
    [got] = await shop.receive(1)

    assert await shop.engine.purge(shop.queue) == 3

    assert shop.counts() == (0, 0, 0)
    assert await shop.delete(got) == [ReceiptProblem.GONE]
    await shop.send("d")
    assert await shop.bodies() == ["d"]


async def test_when_a_queue_is_deleted_then_its_name_can_be_used_for_another(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send("a")
    before = shop.queue
    await shop.engine.delete_queue(before)
    assert shop.engine.find(before.address) is None
    assert shop.engine.was_deleted_recently(before.address)

    after = await shop.make("orders")

    assert after is not before
    assert await shop.bodies() == []
    await clock.advance(60)
    assert not shop.engine.was_deleted_recently(before.address)


async def test_when_a_queue_is_created_twice_then_there_is_one(shop: Shop) -> None:
    assert await shop.make("orders", delay_s=9) is await shop.make("orders")
    assert shop.queue.settings.delay_s == 0


async def test_when_too_many_are_in_flight_then_a_receive_is_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "MAX_IN_FLIGHT_COUNT", 2)
    await shop.send("a", "b", "c")
    assert await shop.bodies() == ["a", "b"]

    with pytest.raises(SqsError, match="OverLimit"):
        await shop.receive()


async def test_when_a_text_cannot_be_stored_then_only_its_batch_is_refused(shop: Shop) -> None:
    with pytest.raises(UnicodeEncodeError):
        await shop.send("fine", "\ud800")

    assert shop.counts() == (0, 0, 0)


async def test_when_many_are_deleted_while_visible_then_nothing_of_them_is_kept(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send(*map(str, range(500)))
    got = await shop.receive(500, visibility_s=1)
    await clock.advance(2)
    shop.counts()

    await shop.delete(*got[:499])

    assert shop.counts() == (1, 0, 0)
    assert len(shop.queue.state.timers) == 0
    assert await shop.bodies() == ["499"]
