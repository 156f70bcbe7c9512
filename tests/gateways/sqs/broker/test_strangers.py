"""Messages of others, and messages that are odd: understood, or routed as they came (T11)."""

from __future__ import annotations

from random import Random
from string import printable
from typing import Any

import pytest

from gateways.sqs.wire import encode
from pump import headers
from pump.errors import MessageTooLarge
from pump.message import Delivery, Message
from pump.outcome import RejectionReason
from pump.testing.builders import a_message

from .bench import Bench, Job
from .plain_sqs import headers_of, packed

pytestmark = pytest.mark.broker
GREATEST = 1_048_576


def text(value: str, kind: str = "String") -> dict[str, str]:
    return {"DataType": kind, "StringValue": value}


def binary(value: bytes, kind: str = "Binary") -> dict[str, Any]:
    return {"DataType": kind, "BinaryValue": value}


async def received(bench: Bench, queue: str) -> Delivery:
    """The next message as our consumer sees it, given back."""
    async with bench.shop(queue=queue).by_hand() as consumer:
        [delivery] = await consumer.receive(wait=bench.shop().subscription.lease)
        await consumer.abandon(delivery)
        return delivery


NO_JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("no json", {}),
    "white space": ("\t\n ", {}),
    "cut off": ('{"task": "cut off', {}),
    "deep": ("[" * 5_000, {}),
    "unknown type": ('{"task": "x"}', {"messageType": text("NobodyKnows")}),
    "pump attribute of somebody else": ("7", {"pump": text("not json")}),
    "pump attribute of a later version": ("8", {"pump": text('{"v": 99, "id": "x"}')}),
    "not the base64 it says": ("base64!", {"pump": text('{"v": 1, "id": "x", "e": "base64"}')}),
    "not the zlib it says": ("eJw=", {"pump": text('{"v": 1, "id": "x", "e": "zlib"}')}),
    "binary pump attribute": ("9", {"pump": binary(b"\x00\xff")}),
    "unknown content type": ("10", {"contentType": text("application/x-unheard-of")}),
    "attributes of all kinds": (
        "\U0001f4a9 is no job",
        {"a": binary(b"\x00"), "n": text("1.5", "Number.float"), "s": text("x", "String.y")},
    ),
}


async def test_when_strangers_send_what_is_no_job_then_it_is_routed_as_it_came(
    bench: Bench, suffix: str
) -> None:
    """R35, T11, law 4: never dropped, never looped, and the pump goes on."""
    await bench.plain.make(f"jobs{suffix}")
    sent = {
        await bench.plain.send(f"jobs{suffix}", body, MessageAttributes=attributes): (kind, body)
        for kind, (body, attributes) in NO_JOBS.items()
    }
    shop = bench.shop(
        queue=f"jobs{suffix}", dead_letter_queue=f"dead{suffix}", invalid_queue=f"invalid{suffix}"
    )

    async with shop.working() as dispatcher:
        await shop.post("work")
        await shop.diary.until_settled(len(sent) + 1)
        restarts = dispatcher.performers[0].stats.restarts

    assert sorted(shop.diary.statuses) == ["dead-lettered"] * len(sent) + ["processed"]
    copies = await bench.plain.take(f"invalid{suffix}", len(sent))
    assert {
        packed(copy)["id"]: (sent[packed(copy)["id"]][0], copy["Body"]) for copy in copies
    } == sent
    for copy in copies:
        assert headers_of(copy)[headers.REJECTION_REASON] == "Unacceptable"
        assert headers_of(copy)[headers.ATTEMPTS] == "1"
    assert await bench.plain.depth(f"jobs{suffix}") == (0, 0, 0)
    assert restarts == 0


async def test_when_a_stranger_uses_ten_attributes_then_all_of_them_travel_into_the_dead_letters(
    bench: Bench, suffix: str
) -> None:
    """R28, T11: SQS takes ten, and ours is one more: they are packed."""
    attributes = {
        "messageType": text("Job"),
        "correlationId": text("c-1"),
        "traceparent": text("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        "number": text("7", "Number"),
        "custom": text("x", "String.custom"),
        "octets": binary(b"\x00\xff"),
        **{f"h{number}": text("ü") for number in range(4)},
    }
    shop = bench.shop(queue=f"jobs{suffix}", dead_letter_queue=f"dead{suffix}")
    async with shop.by_hand() as consumer:
        await bench.plain.send(f"jobs{suffix}", '{"task": "x"}', MessageAttributes=attributes)
        [delivery] = await consumer.receive()
        await consumer.reject(delivery)

    assert len(attributes) == 10
    [copy] = await bench.plain.take(f"dead{suffix}")
    content, said = packed(copy), headers_of(copy)
    assert (content["type"], content["cid"]) == ("Job", "c-1")
    assert (said["number"], said["custom"], said["octets"]) == ("7", "x", "AP8=")
    assert [said[f"h{number}"] for number in range(4)] == ["ü"] * 4
    assert said["traceparent"].startswith("00-0af7")


async def test_when_a_strangers_message_is_a_job_then_it_is_handled(
    bench: Bench, suffix: str
) -> None:
    """T11: plain JSON, without an attribute of ours."""
    seen: list[str] = []

    async def handle(job: Job) -> None:
        seen.append(job.task)

    shop = bench.shop(handle, queue=f"jobs{suffix}")
    async with shop.working():
        await bench.plain.send(f"jobs{suffix}", '{"task": "from afar"}')
        await shop.diary.until_settled(1)

    assert seen == ["from afar"]


BODIES = [
    b"\x00\x01\xff" * 1_000,
    b"",
    b"\xed\xa0\x80",
    "\ufffe".encode(),
    b"a\x0bb",
    "é\r\n".encode(),
]


async def test_when_a_body_is_no_text_of_xml_then_it_arrives_exactly_and_so_does_its_dead_letter(
    bench: Bench, suffix: str
) -> None:
    """R1, T11."""
    said = {"x": "\x00 \ud800 \uffff"}
    sent = {
        each.id: each for body in BODIES for each in [a_message(body, group="ü 1", headers=said)]
    }
    shop = bench.shop(queue=f"jobs{suffix}", dead_letter_queue=f"dead{suffix}")
    found: dict[str, Message] = {}
    dead: dict[str, Message] = {}
    async with shop.by_hand() as consumer:
        await shop.app.post_all(list(sent.values()), queue=f"jobs{suffix}")
        while len(found) < len(sent):
            for delivery in await consumer.receive(10):
                found[delivery.message.id] = delivery.message
                await consumer.reject(delivery, detail="\x00 \ud800")
    async with bench.shop(queue=f"dead{suffix}").by_hand() as morgue:
        while len(dead) < len(sent):
            for delivery in await morgue.receive(10):
                dead[delivery.message.id] = delivery.message
                await morgue.ack(delivery)

    assert found == sent
    assert {id_: each.body for id_, each in dead.items()} == {
        id_: each.body for id_, each in sent.items()
    }
    for each in dead.values():
        assert each.headers["x"] == "\x00 \ud800 \uffff"
        assert (each.group, each.headers[headers.REJECTION_DETAIL]) == ("ü 1", "\x00 \ud800")


async def test_when_a_batch_is_larger_than_one_request_then_it_is_sent_in_parts(
    bench: Bench, suffix: str
) -> None:
    """R58: by bytes, not only by count; in order."""
    messages = [a_message(b"%d" % number + b"x" * 300_000) for number in range(7)]
    shop = bench.shop(queue=f"jobs{suffix}")
    async with shop.by_hand() as consumer:
        await shop.app.post_all(messages, queue=f"jobs{suffix}")
        found: list[Message] = []
        while len(found) < len(messages):
            for delivery in await consumer.receive(10):
                found.append(delivery.message)
                await consumer.ack(delivery)

    assert sorted(found, key=lambda each: each.body[:1]) == messages
    assert not suffix or found == messages


async def test_when_a_message_is_as_large_as_sqs_takes_then_it_arrives_and_one_more_is_refused(
    bench: Bench,
) -> None:
    """R58: the limit is body and attribute together; of noise, for text is compressed first."""
    noise = "".join(Random(1).choices(printable[:94], k=GREATEST))
    shop = bench.shop()
    async with shop.by_hand() as consumer:
        room = GREATEST - (encode(a_message("x", id="m-1"), is_fifo=False).size - 1)
        with pytest.raises(MessageTooLarge):
            await shop.app.post(a_message(noise[: room + 1], id="m-1"), queue="jobs")
        largest = a_message(noise[:room], id="m-1")
        await shop.app.post(largest, queue="jobs")
        [delivery] = await consumer.receive()

    assert delivery.message == largest


@pytest.mark.parametrize("sender", ["we", "a stranger"])
async def test_when_a_message_of_the_greatest_size_is_rejected_then_it_still_reaches_its_queue(
    bench: Bench, suffix: str, sender: str
) -> None:
    """R25, R28: the metadata must find room."""
    body = '{"task": "' + "work " * 209_000
    body += "x" * (GREATEST - len(body) - 2) + '"}'
    shop = bench.shop(queue=f"jobs{suffix}", dead_letter_queue=f"dead{suffix}")
    async with shop.by_hand() as consumer:
        if sender == "we":
            body = body[:10] + body[10 + 200 :]
            await shop.app.post(a_message(body), queue=f"jobs{suffix}")
        else:
            await bench.plain.send(f"jobs{suffix}", body)
        [delivery] = await consumer.receive()
        await consumer.reject(delivery, RejectionReason.DELIVERY_ERROR, "x" * 1_000)
    dead = await received(bench, f"dead{suffix}")

    assert dead.message.body == body.encode()
    assert dead.message.headers[headers.REJECTION_DETAIL] == "x" * 1_000
    assert await shop.spill.all() == []
