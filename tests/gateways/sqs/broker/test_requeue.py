"""What comes again on SQS: deferred with and without a delay, redriven, out of retries."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from pump import headers
from pump.backoff import Backoff
from pump.clock import SYSTEM_CLOCK
from pump.errors import InvalidReceipt
from pump.outcome import DeferMessage
from pump.subscription import FailureStrategy, dead_letter, hybrid, retry
from pump.testing.builders import a_message

from .bench import ONE_TRANSPORT, Bench, Job, raising
from .plain_sqs import headers_of, packed

pytestmark = [pytest.mark.broker, ONE_TRANSPORT]
A_SECOND = Backoff(initial=timedelta(seconds=1), maximum=timedelta(seconds=1), jitter=0)


async def test_when_deferred_without_a_delay_then_it_comes_again_at_once(
    bench: Bench, suffix: str
) -> None:
    """R35: by another attempt and with another receipt; the old one is good for nothing (R9)."""
    shop = bench.shop(queue=f"jobs{suffix}")
    async with shop.by_hand() as consumer:
        [id_] = await shop.post("work")
        [first] = await consumer.receive()
        await consumer.defer(first)
        [again] = await consumer.receive(wait=timedelta(seconds=10))
        with pytest.raises(InvalidReceipt):
            await consumer.ack(first)
        await consumer.ack(again)

    assert (first.message.id, again.message.id) == (id_, id_)
    assert (first.attempt, again.attempt) == (1, 2)
    assert first.receipt != again.receipt
    assert await bench.plain.depth(f"jobs{suffix}") == (0, 0, 0)


async def test_when_deferred_with_a_delay_then_it_is_hidden_until_the_delay_has_passed(
    bench: Bench, suffix: str
) -> None:
    """R35: hidden from a stranger as well, although its lease was longer."""
    shop = bench.shop(queue=f"jobs{suffix}")
    async with shop.by_hand() as consumer:
        await shop.post("work")
        [first] = await consumer.receive()
        deferred_at_s = SYSTEM_CLOCK.now_s()
        await consumer.defer(first, timedelta(seconds=3))
        hidden = await bench.plain.depth(f"jobs{suffix}")
        [again] = await consumer.receive(wait=timedelta(seconds=20))
        came_at_s = SYSTEM_CLOCK.now_s()
        await consumer.ack(again)

    assert hidden == (0, 1, 0)
    assert came_at_s - deferred_at_s >= 3 - 0.05, "it must not come early"
    assert again.attempt == 2


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(seconds=2)], ids=["at once", "later"])
async def test_when_a_handler_defers_then_it_is_handled_again(
    bench: Bench, suffix: str, delay: timedelta
) -> None:
    """R35, R17."""
    seen: list[float] = []

    async def handle(job: Job) -> None:
        seen.append(SYSTEM_CLOCK.now_s())
        if len(seen) == 1:
            raise DeferMessage(delay)

    shop = bench.shop(handle, queue=f"jobs{suffix}", dead_letter_queue=f"dead{suffix}")
    async with shop.working():
        await shop.post("work")
        await shop.diary.until_settled(2)

    assert shop.diary.statuses == ["retrying", "processed"]
    assert [each.attempt for each in shop.diary.outcomes] == [1, 2]
    assert seen[1] - seen[0] >= delay.total_seconds() - 0.05, "it must not come early"


@pytest.mark.parametrize(
    ("strategy", "statuses"),
    [
        (hybrid(1, backoff=A_SECOND), ["retrying", "dead-lettered"]),
        (retry(1, backoff=A_SECOND), ["retrying", "dead-lettered"]),
        (dead_letter(), ["dead-lettered"]),
    ],
    ids=["hybrid", "retry", "dead letter"],
)
async def test_when_the_retry_budget_is_exhausted_then_it_goes_to_the_dead_letter_queue(
    bench: Bench, suffix: str, strategy: FailureStrategy, statuses: list[str]
) -> None:
    """R17, R18, R19, T5: N retries are N + 1 deliveries, counted by SQS."""
    shop = bench.shop(
        raising(ValueError("broken")),
        queue=f"jobs{suffix}",
        dead_letter_queue=f"dead{suffix}",
        failure=strategy,
    )
    async with shop.working():
        [id_] = await shop.post("work")
        await shop.diary.until_settled(len(statuses))

    assert shop.diary.statuses == statuses
    [copy] = await bench.plain.take(f"dead{suffix}")
    assert packed(copy)["id"] == id_
    assert headers_of(copy)[headers.REJECTION_DETAIL] == "ValueError: broken"
    assert headers_of(copy)[headers.ATTEMPTS] == str(len(statuses))
    assert await bench.plain.depth(f"jobs{suffix}") == (0, 0, 0)


async def test_when_the_queue_has_its_own_redrive_policy_then_it_is_left_alone_and_respected(
    bench: Bench, suffix: str
) -> None:
    """R20, R21: SQS itself moves what was received too often, to a queue we never heard of."""
    morgue = await bench.plain.make(f"theirs{suffix}")
    policy = json.dumps({"deadLetterTargetArn": morgue, "maxReceiveCount": 2})
    await bench.plain.make(f"jobs{suffix}", RedrivePolicy=policy)
    shop = bench.shop(
        raising(ValueError("broken")),
        queue=f"jobs{suffix}",
        dead_letter_queue=f"ours{suffix}",
        failure=hybrid(10, backoff=A_SECOND),
    )

    async with shop.working():
        sent = a_message('{"task": "work"}', group="g-1", headers={"tenant": "north"})
        await shop.app.post(sent, queue=f"jobs{suffix}")
        [moved] = await bench.plain.take(f"theirs{suffix}")

    assert json.loads((await bench.plain.attributes(f"jobs{suffix}"))["RedrivePolicy"]) == (
        json.loads(policy)
    )
    assert packed(moved)["id"] == sent.id
    assert headers_of(moved) == {"tenant": "north"}
    assert shop.diary.statuses == ["retrying", "retrying"]
    assert await bench.plain.depth(f"jobs{suffix}") == (0, 0, 0)
    assert await bench.plain.depth(f"ours{suffix}") == (0, 0, 0)


async def test_when_the_subscription_asks_for_native_redrive_then_sqs_moves_the_message(
    bench: Bench, suffix: str
) -> None:
    """R20, R22, T5: two deliveries, and then the dead-letter queue, without our help."""
    shop = bench.shop(
        queue=f"jobs{suffix}",
        dead_letter_queue=f"dead{suffix}",
        max_receive_count=2,
    )
    async with shop.by_hand() as consumer:
        [id_] = await shop.post("work")
        attempts = []
        for _ in range(2):
            [delivery] = await consumer.receive(wait=timedelta(seconds=20))
            attempts.append(delivery.attempt)
            await consumer.abandon(delivery)
        # SQS moves it when the third receive meets it.
        assert not await consumer.receive(wait=timedelta(seconds=2))
        [moved] = await bench.plain.take(f"dead{suffix}")

    assert attempts == [1, 2]
    assert packed(moved)["id"] == id_


async def test_when_a_lease_runs_out_then_a_late_ack_is_refused_and_the_message_comes_again(
    bench: Bench, suffix: str
) -> None:
    """R6, R8, R9: SQS would let the late delete of a standard queue pass; we do not."""
    shop = bench.shop(queue=f"jobs{suffix}", lease=timedelta(seconds=1))
    async with shop.by_hand() as consumer:
        await shop.post("work")
        [first] = await consumer.receive()
        [again] = await consumer.receive(wait=timedelta(seconds=20))
        with pytest.raises(InvalidReceipt):
            await consumer.ack(first)

    assert again.attempt == 2
    assert sum(await bench.plain.depth(f"jobs{suffix}")) == 1


async def test_when_deferred_for_longer_than_sqs_hides_then_it_is_hidden_as_long_as_it_can_be(
    bench: Bench, suffix: str
) -> None:
    """R17: twelve hours after the receive, and not an error."""
    shop = bench.shop(raising(DeferMessage(timedelta(days=2))), queue=f"jobs{suffix}")
    async with shop.working():
        await shop.post("work")
        await shop.diary.until_settled(1)

    assert shop.diary.statuses == ["retrying"]
    assert await bench.plain.depth(f"jobs{suffix}") == (0, 1, 0)
