"""Messages of others, and messages that are odd: understood, or routed as they came (law 4)."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing

import pytest
from nats.aio.client import Client

from gateways.nats.client import PumpClient
from pump import App, Command
from pump.clock import SYSTEM_CLOCK
from pump.headers import REJECTION_REASON
from pump.message import Message
from pump.outcome import RejectionReason
from pump.stores.spill import MemorySpill
from pump.testing.builders import a_message
from tests.brokers.nats_server import NatsServer

from .bench import PATIENTLY, Bench, gateway_at

pytestmark = pytest.mark.broker


class Job(Command):
    task: str


def publish(port: int, subject: bytes, headers: bytes | None, body: bytes) -> None:
    """Publish as no SDK would, byte by byte."""
    size = len(headers or b"") + len(body)
    with closing(socket.create_connection(("127.0.0.1", port), 5.0)) as line:
        if headers is None:
            said = b"PUB %s %d\r\n%s\r\n" % (subject, size, body)
        else:
            said = b"HPUB %s %d %d\r\n%s%s\r\n" % (subject, len(headers), size, headers, body)
        line.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n' + said + b"PING\r\n")
        answer = b""
        while b"PONG" not in answer:
            answer += line.recv(65_536)
    assert b"-ERR" not in answer


ODD = {
    "headers that are no text": (b"", b"NATS/1.0\r\n\xff\xfe: \xff\r\n\r\n", b"1"),
    "headers without a version": (b"", b"N", b"2"),
    "headers without an end": (b"", b"NATS/1.0", b"3"),
    "no headers in a block of them": (b"", b"garbage, nothing but garbage", b"4"),
    "a status that is no text": (b"", b"NATS/1.0 \xff\xfe\xfd bad\r\n\r\n", b"5"),
    "the server's own words, empty": (b"", b"NATS/1.0 404 No Messages\r\n\r\n", b""),
    "the server's own words, full": (b"", b"NATS/1.0 409 Consumer Deleted\r\n\r\n", b"7"),
    "a group that is no text": (b".g.\xff\xfe", None, b"8"),
    "a group that is no name of ours": (b".g.%ZZ%~", None, b"9"),
    "our header, not JSON": (b"", b"NATS/1.0\r\nPump: nonsense\r\n\r\n", b"10"),
    "our header, another version": (b"", b'NATS/1.0\r\nPump: {"v":9,"id":"x"}\r\n\r\n', b"11"),
    "our header, without an id": (b"", b'NATS/1.0\r\nPump: {"v":1,"id":""}\r\n\r\n', b"12"),
    "nothing at all": (b"", None, b""),
}


async def test_when_strangers_send_what_is_no_job_then_it_is_routed_as_it_came(
    bench: Bench, nats: NatsServer
) -> None:
    """R35, law 4: never dropped, never looped, and the pump goes on. The SDK's own reader ends
    with some of these.
    """
    for tail, headers, body in ODD.values():
        await asyncio.to_thread(publish, nats.port, bench.queue.encode() + tail, headers, body)
    handled = asyncio.Event()

    async def handle(job: Job) -> None:
        handled.set()

    invalid = f"{bench.queue}-invalid"
    app = App(gateway_at(nats.url), clock=SYSTEM_CLOCK, spill=MemorySpill())
    app.register(Job, handle)
    app.subscribe(bench.subscription(request=Job, invalid_queue=invalid))
    async with app, app.pumping() as dispatcher:
        await app.post(Job("work"))
        await handled.wait()
        routed = [await routed_next(app, bench, invalid) for _ in ODD]
        restarts = dispatcher.performers[0].stats.restarts

    assert sorted(each.body for each in routed) == sorted(body for _, _, body in ODD.values())
    reasons = {each.headers[REJECTION_REASON] for each in routed}
    assert reasons == {RejectionReason.UNACCEPTABLE}
    assert restarts == 0


async def routed_next(app: App, bench: Bench, queue: str) -> Message:
    async with app.consumer(bench.subscription(queue=queue)) as consumer:
        [delivery] = await consumer.receive(1, wait=PATIENTLY)
        await consumer.ack(delivery)
        return delivery.message


async def test_when_a_stranger_publishes_then_its_headers_are_understood(
    bench: Bench, nats: NatsServer
) -> None:
    """R55: by the SDK alone, to the subject that is named like the queue, or to a group's."""
    client = Client()
    await client.connect(nats.url)
    stream = client.jetstream()
    headers = {
        "Nats-Msg-Id": "theirs",
        "Type": "Job",
        "content-type": "text/plain",
        "Correlation-ID": "c-1",
        "Reply_To": "answers",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    await stream.publish(bench.queue, b"\x00 body", headers=headers)
    await stream.publish(f"{bench.queue}.g.a", b"plain")
    await client.close()

    async with bench.client() as consumer:
        received = [each.message for each in await consumer.receive(5)]

    first, second = received
    assert (first.id, first.body, first.type, first.group) == ("theirs", b"\x00 body", "Job", None)
    assert (first.content_type, first.correlation_id) == ("text/plain", "c-1")
    assert first.reply_to == "answers"
    assert first.headers == {"traceparent": headers["traceparent"]}
    assert (second.id, second.body, second.group) == (f"{bench.queue}-2", b"plain", "a")
    assert second.created_at_s is not None


async def test_when_a_queue_has_subjects_of_others_then_what_is_published_there_is_received(
    nats: NatsServer,
) -> None:
    """R55: `options={"subjects": …}`."""
    bench = Bench(nats.url)
    subject = f"shop.{bench.queue}.*"
    async with bench.client(options={"subjects": [subject]}) as consumer:
        client = Client()
        await client.connect(nats.url)
        await client.jetstream().publish(subject.replace("*", "placed"), b"order")
        await client.close()

        [delivery] = await consumer.receive(1)

    assert delivery.message.body == b"order"


async def test_when_somebody_reads_our_messages_then_the_body_is_as_it_was_sent(
    bench: Bench, nats: NatsServer
) -> None:
    """R55: a stranger needs nothing of ours to read it."""
    async with bench.gateway() as gateway:
        await gateway.producer(bench.queue).send([a_message(b"\x00\xff", deduplication_id="d")])
    client = Client()
    await client.connect(nats.url)
    stored = await client.jetstream().get_msg(bench.queue, 1)
    await client.close()

    assert stored.data == b"\x00\xff"
    assert (stored.headers or {})["Nats-Msg-Id"] == "d"


async def test_when_an_sdk_reads_in_another_way_then_messages_still_come(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R77: the reader is the SDK's own business, and may change."""
    monkeypatch.delattr(PumpClient, "_process_msg")

    await bench.send(None, "a", "b")

    taken = await bench.take_all()
    assert [each.message.id for each in taken] == ["a", "b"]
