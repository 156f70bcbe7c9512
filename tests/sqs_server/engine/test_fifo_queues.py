"""FIFO queues: order within groups, de-duplication, receipts that expire, repeated receives."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from gateways.sqs_server.engine import ReceiptProblem, SqsStore, queue as queue_module
from gateways.sqs_server.model import NewMessage
from pump.testing.virtual_clock import VirtualClock

from .shop import Shop


@pytest.fixture(autouse=True)
async def orders(shop: Shop) -> None:
    await shop.make("orders.fifo")


async def test_when_received_then_a_batch_is_filled_group_by_group(shop: Shop) -> None:
    await shop.send_fifo("g1-m1", group="1")
    await shop.send_fifo("g2-m1", group="2")
    await shop.send_fifo("g1-m2", "g1-m3", group="1")

    assert await shop.bodies() == ["g1-m1", "g1-m2", "g1-m3", "g2-m1"]


async def test_when_a_group_is_in_flight_then_only_other_groups_are_received(shop: Shop) -> None:
    await shop.send_fifo("a1", "a2", "a3", group="a")
    await shop.send_fifo("b1", group="b")
    a1, a2 = await shop.receive(2)

    assert await shop.bodies() == ["b1"]
    await shop.delete(a1)
    assert await shop.bodies() == [], "one of the group is still in flight"
    await shop.delete(a2)
    assert await shop.bodies() == ["a3"]


async def test_when_a_group_was_received_from_then_it_queues_up_behind_the_others(
    shop: Shop,
) -> None:
    await shop.send_fifo("g1-m1", group="1")
    await shop.send_fifo("g2-m1", "g2-m2", group="2")
    await shop.send_fifo("g3-m1", group="3")
    await shop.send_fifo("g1-m2", group="1")

    assert await shop.bodies(3, visibility_s=0) == ["g1-m1", "g1-m2", "g2-m1"]
    assert await shop.bodies(visibility_s=0) == ["g3-m1", "g1-m1", "g1-m2", "g2-m1", "g2-m2"]


async def test_when_the_first_of_a_group_is_visible_again_then_it_alone_is_received(
    shop: Shop,
) -> None:
    await shop.send_fifo("g1-m1", "g1-m2", "g1-m3", group="1")
    await shop.send_fifo("g2-m1", group="2")
    first, _ = await shop.receive(2)

    await shop.change(first, 0)

    assert await shop.bodies() == ["g2-m1", "g1-m1"]


async def test_when_visibility_ends_then_the_group_starts_over_in_order(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send_fifo("1", "2", "3")
    _, second = await shop.receive(2, visibility_s=10)
    await shop.change(second, 5)
    await clock.advance(5)
    assert await shop.bodies() == [], "the second one waits for the first"

    await clock.advance(5)

    assert await shop.bodies() == ["1", "2", "3"]


async def test_when_the_head_is_delayed_then_its_group_waits(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.make("slow.fifo")
    await shop.send_fifo("1", delay_s=10)
    await shop.send_fifo("2")
    await shop.send_fifo("other", group="o")

    assert await shop.bodies() == ["other"]
    await clock.advance(10)
    assert await shop.bodies() == ["1", "2"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_when_the_delay_of_a_fifo_queue_is_changed_then_messages_in_it_follow(
    tmp_path: Path, clock: VirtualClock, restarts: bool
) -> None:
    """R44: as AWS documents for FIFO queues; also after a restart."""

    async def look_again(shop: Shop) -> Shop:
        if not restarts:
            return shop
        await shop.engine.aclose()
        again = await Shop.open(clock, SqsStore(tmp_path))
        again.use("slow.fifo")
        return again

    shop = await Shop.open(clock, SqsStore(tmp_path))
    await shop.make("slow.fifo", delay_s=100)
    await shop.send_fifo("1")
    await clock.advance(10)
    await shop.send_fifo("2")
    await shop.engine.configure(shop.queue, attrs.evolve(shop.queue.settings, delay_s=8))
    shop = await look_again(shop)
    assert shop.counts() == (1, 0, 1), "the first one has waited for longer than eight seconds"

    await shop.engine.configure(shop.queue, attrs.evolve(shop.queue.settings, delay_s=30))
    shop = await look_again(shop)
    assert shop.counts() == (0, 0, 2)
    await clock.advance(20)
    assert await shop.bodies() == ["1"]
    await clock.advance(10)
    await shop.engine.configure(shop.queue, attrs.evolve(shop.queue.settings, delay_s=900))

    assert shop.counts() == (0, 1, 1), "who was received before is not delayed again"
    await shop.engine.aclose()


async def test_when_the_delay_of_a_standard_queue_is_changed_then_messages_in_it_do_not_follow(
    shop: Shop, clock: VirtualClock
) -> None:
    """R44."""
    await shop.make("slow", delay_s=100)
    await shop.send("1")

    await shop.engine.configure(shop.queue, attrs.evolve(shop.queue.settings, delay_s=0))

    assert await shop.bodies() == []
    await clock.advance(100)
    assert await shop.bodies() == ["1"]


async def test_when_messages_are_sent_then_their_sequence_numbers_have_20_digits_and_grow(
    shop: Shop,
) -> None:
    numbers = [each.sequence_number for each in await shop.send_fifo("1", "2")]
    numbers += [each.sequence_number for each in await shop.send_fifo("3", group="x")]
    got = await shop.receive()

    assert all(number is not None and len(number) == 20 for number in numbers)
    assert sorted(set(map(str, numbers))) == numbers
    assert [each.sequence_number for each in got] == numbers


async def test_when_a_duplicate_is_sent_then_it_is_told_what_its_original_was(
    shop: Shop, clock: VirtualClock
) -> None:
    [original] = await shop.send_fifo("1")
    [got] = await shop.receive()
    await shop.delete(got)
    await clock.advance(299)

    [same, new] = await shop.send_fifo("1", "2")
    [elsewhere] = await shop.send_fifo("1", group="other")

    assert same == elsewhere == original != new
    assert await shop.bodies() == ["2"]


async def test_when_five_minutes_have_passed_then_an_id_may_be_used_again(
    shop: Shop, clock: VirtualClock
) -> None:
    [original] = await shop.send_fifo("1")
    await clock.advance(300)

    assert await shop.send_fifo("1") != [original]
    assert shop.counts() == (2, 0, 0)


async def test_when_a_batch_repeats_an_id_then_it_is_stored_once(shop: Shop) -> None:
    first, second = await shop.send_fifo("1", "1")

    assert first == second
    assert shop.counts() == (1, 0, 0)


async def test_when_ids_count_per_group_then_another_group_may_use_the_same(shop: Shop) -> None:
    await shop.make("wide.fifo", deduplicates_per_group=True)
    [one] = await shop.send_fifo("1", group="a")
    [two] = await shop.send_fifo("1", group="b")

    assert one != two
    assert await shop.send_fifo("1", group="a") == [one]


async def test_when_the_scope_changes_then_ids_keep_the_scope_they_were_sent_with(
    shop: Shop, clock: VirtualClock
) -> None:
    [one] = await shop.send_fifo("1", group="a")
    await set_scope(shop, is_group=True)
    await clock.advance(60)
    assert await shop.send_fifo("1", group="b") == [one]

    [two] = await shop.send_fifo("2", group="a")
    await set_scope(shop, is_group=False)
    await clock.advance(60)

    assert await shop.send_fifo("2", group="b") != [two]
    assert await shop.send_fifo("2", group="a") != [one]


async def test_when_the_scope_changes_then_new_ids_follow_it_after_a_minute(
    shop: Shop, clock: VirtualClock
) -> None:
    """AWS was recorded to go on as before right after the change."""
    await set_scope(shop, is_group=True)
    await clock.advance(59)
    assert await shop.send_fifo("1", group="a") == await shop.send_fifo("1", group="b")

    await clock.advance(1)
    assert await shop.send_fifo("2", group="a") != await shop.send_fifo("2", group="b")


async def test_when_the_scope_is_changed_back_within_the_minute_then_nothing_changes(
    shop: Shop,
) -> None:
    await set_scope(shop, is_group=True)
    await set_scope(shop, is_group=False)

    assert await shop.send_fifo("1", group="a") == await shop.send_fifo("1", group="b")


async def set_scope(shop: Shop, *, is_group: bool) -> None:
    changed = attrs.evolve(shop.queue.settings, deduplicates_per_group=is_group)
    await shop.engine.configure(shop.queue, changed)


async def test_when_purged_then_ids_are_free_again(shop: Shop) -> None:
    [original] = await shop.send_fifo("1")
    await shop.engine.purge(shop.queue)

    assert await shop.send_fifo("1") != [original]
    assert await shop.bodies() == ["1"]


async def test_when_the_visibility_has_ended_then_the_receipt_is_expired(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send_fifo("1")
    [got] = await shop.receive(visibility_s=1)
    await clock.advance(2)

    assert await shop.delete(got) == [ReceiptProblem.EXPIRED]
    assert await shop.change(got, 9) is ReceiptProblem.EXPIRED

    [again] = await shop.receive()
    assert await shop.delete(got) == [ReceiptProblem.EXPIRED], "also when received again"
    assert await shop.delete(again) == [None]
    assert await shop.delete(got, again) == [ReceiptProblem.GONE] * 2


async def test_when_a_receive_is_repeated_then_it_has_the_same_answer_for_longer(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send_fifo("1", "2", "3")
    first = await shop.receive(2, visibility_s=10, attempt_id="try")
    await clock.advance(8)

    again = await shop.receive(2, visibility_s=10, attempt_id="try")

    assert [each.receipt for each in again] == [each.receipt for each in first]
    assert [each.receive_count for each in again] == [1, 1]
    await clock.advance(8)
    assert await shop.bodies() == []
    assert await shop.delete(*first) == [None, None]


async def test_when_one_of_the_answer_was_deleted_then_a_repeated_receive_is_a_new_one(
    shop: Shop,
) -> None:
    await shop.send_fifo("1", "2")
    one, _ = await shop.receive(2, attempt_id="try")
    await shop.delete(one)
    await shop.send_fifo("other", group="o")

    assert [each.body for each in await shop.receive(attempt_id="try")] == ["other"]


async def test_when_the_answers_visibility_has_ended_then_a_repeated_receive_counts_anew(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send_fifo("1")
    await shop.receive(visibility_s=1, attempt_id="try")
    await clock.advance(2)

    [again] = await shop.receive(attempt_id="try")

    assert again.receive_count == 2


async def test_when_five_minutes_have_passed_then_an_attempt_is_forgotten(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.send_fifo("1")
    await shop.receive(visibility_s=600, attempt_id="try")
    await clock.advance(300)

    assert await shop.receive(attempt_id="try") == []


async def test_when_too_many_are_in_flight_then_a_receive_gets_fewer(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "MAX_IN_FLIGHT_COUNT", 2)
    await shop.send_fifo("1", "2", "3")

    assert await shop.bodies() == ["1", "2"]
    assert await shop.bodies() == []


async def test_when_a_messages_retention_ends_then_its_group_goes_on(
    shop: Shop, clock: VirtualClock
) -> None:
    await shop.make("brief.fifo", retention_s=60)
    await shop.send_fifo("old")
    await shop.receive(visibility_s=600)
    await clock.advance(30)
    await shop.send_fifo("young")
    assert await shop.bodies() == []

    await clock.advance(30)

    assert await shop.bodies() == ["young"]


async def test_when_all_of_a_group_is_gone_then_nothing_of_it_is_kept(shop: Shop) -> None:
    message = NewMessage(body="x", group="once", deduplication_id="d")
    await shop.engine.send(shop.queue, [message])
    await shop.delete(*await shop.receive())

    assert not vars(shop.queue.state.order)["_groups"]
