"""Rejection on SQS: where the copy goes, what travels along, what becomes of the original.

Named after the tests of Brighter's list; the result is looked at with a plain boto3 client.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import structlog.testing

from pump import headers
from pump.message import Delivery, Message
from pump.outcome import InvalidMessage, RejectionReason, RejectMessage
from pump.testing.builders import a_message

from .bench import Bench, Shop, raising
from .plain_sqs import headers_of, packed

pytestmark = pytest.mark.broker
DELIVERY_ERROR, UNACCEPTABLE = RejectionReason.DELIVERY_ERROR, RejectionReason.UNACCEPTABLE
TRACE = {
    headers.TRACE_PARENT: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    headers.TRACE_STATE: "congo=t61rcWkgMzE",
}


async def reject(shop: Shop, reason: Any, message: Message | None = None) -> Delivery:
    """Send a message, receive it, reject it, and see that the original is gone."""
    queue = shop.subscription.queue
    async with shop.by_hand() as consumer:
        await shop.app.post(message or a_message('{"task": "work"}'), queue=queue)
        [delivery] = await consumer.receive(wait=shop.subscription.lease)
        await consumer.reject(delivery, reason, "no stock")
    assert await shop.plain.depth(queue) == (0, 0, 0)
    return delivery


async def test_when_rejected_with_a_delivery_error_then_the_copy_goes_to_the_dead_letter_queue(
    bench: Bench, suffix: str
) -> None:
    """R25, R27, standard and FIFO."""
    shop = bench.shop(
        queue=f"jobs{suffix}", dead_letter_queue=f"dead{suffix}", invalid_queue=f"invalid{suffix}"
    )

    rejected = await reject(shop, DELIVERY_ERROR)

    [copy] = await bench.plain.take(f"dead{suffix}")
    assert packed(copy)["id"] == rejected.message.id
    assert copy["Body"] == '{"task": "work"}'
    assert headers_of(copy)[headers.REJECTION_REASON] == "DeliveryError"
    assert await bench.plain.depth(f"dead{suffix}") == (0, 0, 0)
    assert await bench.plain.depth(f"invalid{suffix}") == (0, 0, 0)


async def test_when_rejected_as_unacceptable_then_the_copy_goes_to_the_invalid_queue(
    bench: Bench, suffix: str
) -> None:
    """R26, R27, standard and FIFO."""
    shop = bench.shop(
        queue=f"jobs{suffix}", dead_letter_queue=f"dead{suffix}", invalid_queue=f"invalid{suffix}"
    )

    rejected = await reject(shop, UNACCEPTABLE)

    [copy] = await bench.plain.take(f"invalid{suffix}")
    assert packed(copy)["id"] == rejected.message.id
    assert headers_of(copy)[headers.REJECTION_REASON] == "Unacceptable"
    assert await bench.plain.depth(f"dead{suffix}") == (0, 0, 0)


async def test_when_there_is_no_invalid_queue_then_the_dead_letter_queue_serves(
    bench: Bench, suffix: str
) -> None:
    """R26: fallback, and the reason stays UNACCEPTABLE."""
    shop = bench.shop(queue=f"jobs{suffix}", dead_letter_queue=f"dead{suffix}")

    await reject(shop, UNACCEPTABLE)

    [copy] = await bench.plain.take(f"dead{suffix}")
    assert headers_of(copy)[headers.REJECTION_REASON] == "Unacceptable"


@pytest.mark.parametrize("reason", list(RejectionReason))
async def test_when_there_are_no_channels_then_it_is_acked_with_a_warning_and_a_count(
    bench: Bench, reason: RejectionReason
) -> None:
    """R29, R30."""
    shop = bench.shop()

    with structlog.testing.capture_logs() as lines:
        rejected = await reject(shop, reason)

    [line] = [line for line in lines if line["event"] == "message.discarded"]
    assert (line["log_level"], line["message_id"]) == ("warning", rejected.message.id)
    assert shop.app.counters.value("pump_messages_discarded", queue="jobs") == 1


@pytest.mark.parametrize("invalid", [None, "invalid"])
async def test_when_the_reason_is_unknown_then_the_copy_goes_to_the_dead_letter_queue(
    bench: Bench, invalid: str | None
) -> None:
    """R25: a reason of another program, or of a later version, is no reason to lose a message."""
    shop = bench.shop(dead_letter_queue="dead", invalid_queue=invalid)

    rejected = await reject(shop, "SomethingElse")

    [copy] = await bench.plain.take("dead")
    assert packed(copy)["id"] == rejected.message.id
    assert headers_of(copy)[headers.REJECTION_REASON] == "SomethingElse"


async def test_when_rejected_then_the_metadata_is_complete_and_the_original_untouched(
    bench: Bench, suffix: str
) -> None:
    """R21, R28: read by hand from the packed attribute, as a stranger would."""
    shop = bench.shop(queue=f"jobs{suffix}", dead_letter_queue=f"dead{suffix}")
    sent = a_message(
        '{"task": "ü"}',
        type="Job",
        content_type="application/json; charset=utf-8",
        correlation_id="c-1",
        reply_to="answers",
        group="g-1",
        created_at_s=1_700_000_000.5,
        headers={"tenant": "north", **TRACE},
    )

    rejected = await reject(shop, DELIVERY_ERROR, sent)

    assert rejected.message == sent
    [copy] = await bench.plain.take(f"dead{suffix}")
    assert copy["Body"] == '{"task": "ü"}'
    content = packed(copy)
    said = content.pop("h")
    rejected_at = datetime.fromisoformat(said.pop(headers.REJECTION_TIMESTAMP))
    assert rejected_at.tzinfo == UTC
    assert said == {
        "tenant": "north",
        **TRACE,
        "originalTopic": f"jobs{suffix}",
        "rejectionReason": "DeliveryError",
        "rejectionMessage": "no stock",
        "originalMessageType": "Job",
        "attempts": "1",
    }
    assert content.pop("d")
    assert content == {
        "v": 1,
        "id": sent.id,
        "type": "Job",
        "ct": "application/json; charset=utf-8",
        "cid": "c-1",
        "to": "answers",
        "g": "g-1",
        "at": 1_700_000_000.5,
    }
    assert copy["Attributes"]["MessageGroupId"] == "g-1"


async def test_when_a_dead_letter_is_read_by_us_then_trace_context_and_correlation_are_carried(
    bench: Bench, suffix: str
) -> None:
    """R28, R59: a consumer of the dead-letter queue finds the sender's trace."""
    shop = bench.shop(queue=f"jobs{suffix}", dead_letter_queue=f"dead{suffix}")
    sent = a_message('{"task": "work"}', correlation_id="c-1", headers=TRACE)
    await reject(shop, DELIVERY_ERROR, sent)
    morgue = bench.shop(queue=f"dead{suffix}")

    async with morgue.by_hand() as consumer:
        [dead] = await consumer.receive(wait=shop.subscription.lease)
        await consumer.ack(dead)

    assert dead.message.headers.items() >= TRACE.items()
    assert (dead.message.id, dead.message.correlation_id) == (sent.id, "c-1")


@pytest.mark.parametrize(
    ("raised", "goes_to"),
    [(RejectMessage("no"), "dead"), (InvalidMessage("no"), "invalid")],
    ids=["reject", "invalid"],
)
async def test_when_a_handler_rejects_then_the_pump_routes_the_copy_and_deletes_the_original(
    bench: Bench, raised: Exception, goes_to: str
) -> None:
    """R25, R26, R27, R33, R35."""
    shop = bench.shop(raising(raised), dead_letter_queue="dead", invalid_queue="invalid")

    with structlog.testing.capture_logs() as lines:
        async with shop.working():
            [id_] = await shop.post("work")
            await shop.diary.until_settled(1)

    [copy] = await bench.plain.take(goes_to)
    assert packed(copy)["id"] == id_
    assert await bench.plain.depth("jobs") == (0, 0, 0)
    assert shop.diary.statuses == ["dead-lettered"]
    [line] = [line for line in lines if line["event"] == "message.rejected"]
    assert (line["message_id"], line["destination"]) == (id_, goes_to)


async def test_when_messages_cannot_be_mapped_then_they_go_to_the_invalid_queue_as_they_came(
    bench: Bench,
) -> None:
    """R35, law 4: undecodable messages are routed, never dropped, never looped."""
    shop = bench.shop(dead_letter_queue="dead", invalid_queue="invalid")
    bodies = ["", "no json", '{"task": 7}', "[]"]
    sent = [a_message(body, type="Job") for body in bodies]

    async with shop.working():
        await shop.app.post_all(sent, queue="jobs")
        await shop.diary.until_settled(4)

    copies = {packed(copy)["id"]: copy for copy in await bench.plain.take("invalid", 4)}
    assert [copies[each.id]["Body"] for each in sent] == ["-", *bodies[1:]]
    assert packed(copies[sent[0].id])["e"] == "empty"
    assert {headers_of(copy)[headers.ATTEMPTS] for copy in copies.values()} == {"1"}
    assert await bench.plain.depth("jobs") == (0, 0, 0)


async def test_when_a_strangers_message_is_rejected_then_boto3_reads_it_as_it_was_and_why(
    bench: Bench,
) -> None:
    """R28: typed attributes as they came, the rejection beside them, and both after a redrive."""
    shop = bench.shop(dead_letter_queue="dead")
    given: dict[str, Any] = {
        "messageType": {"DataType": "String", "StringValue": "MT_COMMAND"},
        "amount": {"DataType": "Number.float", "StringValue": "12.50"},
        "picture": {"DataType": "Binary", "BinaryValue": b"GIF\x00\xff"},
    }
    async with shop.by_hand() as consumer:
        await bench.plain.send("jobs", "{}", MessageAttributes=given)
        [delivery] = await consumer.receive(wait=shop.subscription.lease)
        await consumer.reject(delivery, DELIVERY_ERROR, "no stock")

    [copy] = await bench.plain.take("dead")

    attributes = copy["MessageAttributes"]
    assert {name: attributes[name] for name in given} == given
    assert attributes[headers.REJECTION_REASON]["StringValue"] == "DeliveryError"
    assert attributes[headers.REJECTION_DETAIL]["StringValue"] == "no stock"
    assert attributes[headers.ORIGINAL_TOPIC]["StringValue"] == "jobs"
    assert attributes[headers.ORIGINAL_TYPE]["StringValue"] == "MT_COMMAND"
    assert len(attributes) == 10
