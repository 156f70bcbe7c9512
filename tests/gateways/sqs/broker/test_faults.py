"""Answers that are lost, late or errors: nothing is lost, and nothing is settled twice by us."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import structlog.testing

from pump.clock import SYSTEM_CLOCK
from pump.errors import ConnectionFailed, GatewayError, SendFailed, Throttled
from pump.outcome import DeferMessage, RejectMessage
from pump.testing.builders import a_message
from pump.testing.contract.workshop import Entry, Outage, WatchedGateway
from tests.brokers.fault_plan import (
    DROP_BEFORE,
    LOSE_RESPONSE,
    SERVER_ERROR,
    THROTTLE,
    TRUNCATE,
    UNAVAILABLE,
    Fault,
    FaultPlan,
)

from .bench import ONE_TRANSPORT, Bench, Job, Shop
from .plain_sqs import packed
from .wiretap import Wiretap

pytestmark = pytest.mark.broker
SINGLE_MINDED = pytest.mark.parametrize(
    "max_attempts", [1, 4], ids=["the SDK gives up", "the SDK asks again"]
)
"""With one attempt, the recovery is ours; with more, it is the SDK's."""


def twice_settled(diary: list[Entry]) -> list[str]:
    """The receipts that the broker has confirmed more than once."""
    receipts = Counter(what for verb, what in diary if verb == "settled receipt")
    return [receipt for receipt, count in receipts.items() if count > 1]


async def shop_behind(
    bench: Bench, proxy: Wiretap, *args: Any, max_attempts: int = 4, **fields: Any
) -> tuple[Shop, list[Entry]]:
    """A shop whose way to the server is the proxy, and the diary of what was settled."""
    gateway = await bench.gateway(bench.aws.through(proxy.url), max_attempts=max_attempts)
    diary: list[Entry] = []
    watched = WatchedGateway(gateway, diary, Outage())
    return bench.shop(*args, gateway=watched, **fields), diary


# -- sending ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [LOSE_RESPONSE, TRUNCATE], ids=["lost", "truncated"])
async def test_when_the_answer_to_a_send_is_lost_then_nothing_is_and_fifo_has_no_duplicate(
    bench: Bench, suffix: str, fault: Fault
) -> None:
    """R34, R39, R51: a standard queue may have the batch twice."""
    plan = FaultPlan.script({"SendMessageBatch": [None, fault]})
    async with Wiretap(bench.aws.endpoint_url, plan) as proxy:
        shop, _ = await shop_behind(bench, proxy, queue=f"jobs{suffix}")
        async with shop.app:
            ids = await shop.post(*map(str, range(25)))

    found = Counter(packed(raw)["id"] for raw in await bench.plain.take_all(f"jobs{suffix}"))
    assert set(found) == set(ids)
    assert proxy.counts["SendMessageBatch"] == 4
    doubled = [id_ for id_, count in found.items() if count > 1]
    assert doubled == ([] if suffix else doubled)
    assert set(doubled) <= set(ids[10:20]), "only of the batch whose answer was lost"


async def test_when_a_send_fails_then_the_error_names_those_and_only_those_not_known_as_sent(
    bench: Bench, suffix: str
) -> None:
    """R58: sent again as they are, a FIFO queue has each once."""
    messages = [a_message('{"task": "work"}') for _ in range(25)]
    plan = FaultPlan.script({"SendMessageBatch": [None, LOSE_RESPONSE]})
    async with Wiretap(bench.aws.endpoint_url, plan) as proxy:
        gateway = await bench.gateway(bench.aws.through(proxy.url), max_attempts=1)
        await bench.plain.make(f"jobs{suffix}")
        producer = gateway.producer(f"jobs{suffix}")
        with pytest.raises(SendFailed) as caught:
            await producer.send(messages)
        failed = [id_ for id_, _ in caught.value.failures]
        await producer.send([each for each in messages if each.id in failed])

    assert failed == [message.id for message in messages[10:]]
    assert all(isinstance(error, ConnectionFailed) for _, error in caught.value.failures)
    found = Counter(packed(raw)["id"] for raw in await bench.plain.take_all(f"jobs{suffix}"))
    assert set(found) == {message.id for message in messages}
    assert not suffix or set(found.values()) == {1}


async def test_when_a_send_is_throttled_for_good_then_it_says_so_after_bounded_attempts(
    bench: Bench,
) -> None:
    """R52: exponential backoff with jitter, a fixed number of attempts, an error of its own."""
    await bench.plain.make("jobs")
    plan = FaultPlan.script({"SendMessageBatch": [THROTTLE] * 4})
    async with Wiretap(bench.aws.endpoint_url, plan) as proxy:
        gateway = await bench.gateway(bench.aws.through(proxy.url))
        producer = gateway.producer("jobs")
        with pytest.raises(Throttled, match="jobs"):
            await producer.send([a_message()])
        throttled_count = proxy.counts["SendMessageBatch"]
        await producer.send([a_message()])

    assert throttled_count == 4
    assert (await bench.plain.depth("jobs"))[0] == 1


# -- settling -----------------------------------------------------------------------------------


@SINGLE_MINDED
@pytest.mark.parametrize("fault", [LOSE_RESPONSE, TRUNCATE, THROTTLE], ids=lambda fault: fault.kind)
async def test_when_the_answer_to_an_ack_is_lost_then_it_is_settled_once_and_not_handled_again(
    bench: Bench, suffix: str, fault: Fault, max_attempts: int
) -> None:
    """Law 1: observers are told once, whatever became of the first request."""
    handled: list[str] = []

    async def handle(job: Job) -> None:
        handled.append(job.task)

    plan = FaultPlan.script({"DeleteMessageBatch": [fault, None, fault]})
    async with Wiretap(bench.aws.endpoint_url, plan) as proxy:
        shop, diary = await shop_behind(
            bench, proxy, handle, queue=f"jobs{suffix}", max_attempts=max_attempts
        )
        async with shop.working() as dispatcher:
            ids = await shop.post(*map(str, range(12)))
            await shop.diary.until_settled(12)
            stats = dispatcher.performers[0].stats

    assert sorted(handled, key=int) == [str(number) for number in range(12)]
    assert Counter(each.message_id for each in shop.diary.outcomes) == Counter(ids)
    assert twice_settled(diary) == []
    assert await bench.plain.depth(f"jobs{suffix}") == (0, 0, 0)
    assert (stats.restarts, stats.leases_lost) == (0, 0)


@ONE_TRANSPORT
@SINGLE_MINDED
async def test_when_answers_to_heartbeats_are_lost_then_a_long_handler_keeps_its_message(
    bench: Bench, suffix: str, max_attempts: int
) -> None:
    """R15: the handler takes longer than its lease, and is called once."""
    handled = 0

    async def handle(job: Job) -> None:
        nonlocal handled
        handled += 1
        await SYSTEM_CLOCK.sleep(16)

    faults: list[Fault | None] = [LOSE_RESPONSE, None, THROTTLE, None, TRUNCATE, None, SERVER_ERROR]
    plan = FaultPlan.script({"ChangeMessageVisibilityBatch": faults})
    async with Wiretap(bench.aws.endpoint_url, plan) as proxy:
        shop, _ = await shop_behind(
            bench,
            proxy,
            handle,
            queue=f"jobs{suffix}",
            lease=timedelta(seconds=10),
            max_attempts=max_attempts,
        )
        async with shop.working() as dispatcher:
            await shop.post("work")
            await shop.diary.until_settled(1)
            stats = dispatcher.performers[0].stats

    assert (handled, stats.leases_lost, stats.restarts) == (1, 0, 0)
    assert proxy.counts["ChangeMessageVisibilityBatch"] >= 2
    assert await bench.plain.depth(f"jobs{suffix}") == (0, 0, 0)


# -- receiving ----------------------------------------------------------------------------------


@ONE_TRANSPORT
@SINGLE_MINDED
async def test_when_the_answer_to_a_receive_is_lost_then_the_messages_come_after_their_lease(
    bench: Bench, suffix: str, max_attempts: int
) -> None:
    """R8, R51. On FIFO the request is repeated by its own name, for which AWS would give the
    same messages again; LocalStack does not, so only the name can be shown here.
    """
    plan = FaultPlan.script({"ReceiveMessage": [LOSE_RESPONSE]})
    async with Wiretap(bench.aws.endpoint_url, plan) as proxy:
        await bench.plain.make(f"jobs{suffix}")
        await bench.plain.send(f"jobs{suffix}", '{"task": "work"}')
        shop, diary = await shop_behind(
            bench,
            proxy,
            queue=f"jobs{suffix}",
            lease=timedelta(seconds=8),
            max_attempts=max_attempts,
        )
        async with shop.working() as dispatcher:
            await shop.diary.until_settled(1)
            stats = dispatcher.performers[0].stats

    [outcome] = shop.diary.outcomes
    assert (outcome.status.value, outcome.attempt) == ("processed", 2)
    assert twice_settled(diary) == []
    assert stats.restarts == 0
    first, second, third, *_ = proxy.asked["ReceiveMessage"]
    names = [each.get("ReceiveRequestAttemptId") for each in (first, second, third)]
    if suffix:
        assert names[0] is not None
        assert names[0] == names[1] != names[2]
        assert first == second
    else:
        assert names == [None, None, None]


# -- everything -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [THROTTLE, SERVER_ERROR, UNAVAILABLE, DROP_BEFORE, TRUNCATE, LOSE_RESPONSE],
    ids=["throttled", "500", "503", "dropped", "truncated", "lost"],
)
async def test_when_every_operation_fails_twice_then_a_message_still_lives_its_whole_life(
    bench: Bench, suffix: str, fault: Fault
) -> None:
    """R51, R52: made, sent, received, deferred, received again, routed, deleted."""

    async def handle(job: Job) -> None:
        if not seen:
            seen.append(job.task)
            raise DeferMessage(timedelta(0))
        raise RejectMessage("no")

    seen: list[str] = []
    plan = FaultPlan(lambda operation, number: fault if number < 2 else None)
    async with Wiretap(bench.aws.endpoint_url, plan) as proxy:
        shop, diary = await shop_behind(
            bench,
            proxy,
            handle,
            queue=f"jobs{suffix}",
            dead_letter_queue=f"dead{suffix}",
            lease=timedelta(seconds=5),
        )
        async with shop.working() as dispatcher:
            [id_] = await shop.post("work")
            await shop.diary.until(lambda: "dead-lettered" in shop.diary.statuses)
            stats = dispatcher.performers[0].stats

    assert stats.restarts == 0
    # The deferral repeated after a lost answer may find the message visible already, as it asked
    # for; SQS then says that it is no longer ours.
    assert shop.diary.statuses.count("retrying") + stats.leases_lost >= 1
    copies = {packed(raw)["id"] for raw in await bench.plain.take_all(f"dead{suffix}")}
    assert copies == {id_}
    assert await shop.spill.all() == []
    assert twice_settled(diary) == []
    assert {"SendMessageBatch", "ReceiveMessage", "DeleteMessageBatch"} <= set(proxy.counts)
    assert proxy.counts["ChangeMessageVisibilityBatch"] >= 3


async def test_when_the_connection_is_severed_while_pumping_then_the_pump_recovers_by_itself(
    bench: Bench, suffix: str
) -> None:
    """R51: no restart, nothing lost, and each is confirmed once."""
    count = 120
    handled: Counter[str] = Counter()

    async def handle(job: Job) -> None:
        handled[job.task] += 1
        await SYSTEM_CLOCK.sleep(0.02)

    async with Wiretap(bench.aws.endpoint_url) as proxy:
        shop, diary = await shop_behind(
            bench,
            proxy,
            handle,
            queue=f"jobs{suffix}",
            dead_letter_queue=f"dead{suffix}",
            lease=timedelta(seconds=8),
        )
        with structlog.testing.capture_logs() as lines:
            async with shop.working() as dispatcher:
                for number in range(count):
                    await bench.plain.send(
                        f"jobs{suffix}", f'{{"task": "{number}"}}', MessageGroupId=str(number % 20)
                    )
                await shop.diary.until_settled(20)
                await proxy.sever()
                while not any(line["event"] == "receive.failed" for line in lines):
                    await SYSTEM_CLOCK.sleep(0.1)
                await SYSTEM_CLOCK.sleep(2)
                await proxy.restore()
                # Not until as many have settled: a delete of which the answer was lost, in an
                # outage that outlasts its lease, leaves nothing to settle.
                await shop.diary.until(lambda: len(handled) == count)
                await bench.plain.until_empty(f"jobs{suffix}")
                stats = dispatcher.performers[0].stats

    assert set(handled) == {str(number) for number in range(count)}
    assert stats.restarts == 0
    assert twice_settled(diary) == []
    assert sum(await bench.plain.depth(f"dead{suffix}")) == 0


@pytest.mark.parametrize(
    ("code", "error"),
    [("ExpiredToken", "CredentialsExpired"), ("AccessDenied", "AccessDenied")],
)
async def test_when_credentials_are_refused_for_a_while_then_the_pump_waits_and_goes_on(
    bench: Bench, code: str, error: str
) -> None:
    """R51, law 7: each has an error of its own; a role that is renewed ends the waiting."""
    async with Wiretap(bench.aws.endpoint_url) as proxy:
        shop, _ = await shop_behind(bench, proxy)
        proxy.refuse("ReceiveMessage", [code] * 3)
        with structlog.testing.capture_logs() as lines:
            async with shop.working() as dispatcher:
                await shop.post("work")
                await shop.diary.until_settled(1)
                stats = dispatcher.performers[0].stats

    failures = [line for line in lines if line["event"] == "receive.failed"]
    assert [line["error_type"] for line in failures] == [error] * 3
    assert (shop.diary.statuses, stats.restarts) == (["processed"], 0)


@pytest.mark.parametrize("code", ["ExpiredToken", "AccessDenied"])
async def test_when_credentials_are_refused_at_a_rejection_then_the_copy_is_spilled(
    bench: Bench, code: str
) -> None:
    """T1."""
    async with Wiretap(bench.aws.endpoint_url) as proxy:
        shop, _ = await shop_behind(bench, proxy, dead_letter_queue="dead")
        async with shop.by_hand() as consumer:
            [id_] = await shop.post("work")
            [delivery] = await consumer.receive()
            proxy.refuse("SendMessageBatch", [code] * 10)
            with pytest.raises(GatewayError, match="jobs"):
                await shop.post("more")
            await consumer.reject(delivery)

    assert [each.message.id for each in await shop.spill.all()] == [id_]
    assert await bench.plain.depth("jobs") == (0, 0, 0)
