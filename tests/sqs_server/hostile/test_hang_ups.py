"""Clients that go away in the middle of something."""

from __future__ import annotations

import asyncio
from collections import Counter

from .conftest import Host, json_request, read_answer

POLL = b'{"QueueUrl": "q", "MaxNumberOfMessages": 1, "WaitTimeSeconds": 20}'


async def test_when_half_of_a_hundred_long_polls_hang_up_then_the_others_get_each_message_once(
    host: Host,
) -> None:
    """R45: a receive that nobody waits for any more hides nothing."""
    connections = [await host.connect() for _ in range(100)]
    for _, writer in connections:
        writer.write(json_request("ReceiveMessage", POLL))
        await writer.drain()
    # Answered after the polls were read: nothing tells when a server has begun to wait.
    await host.call("ListQueues")

    for _, writer in connections[::2]:
        writer.close()
    sending = [host.call("SendMessage", QueueUrl="q", MessageBody=str(n)) for n in range(50)]
    await asyncio.gather(*sending)
    answers = await asyncio.gather(*(read_answer(reader) for reader, _ in connections[1::2]))

    received = Counter(answer["Messages"][0]["Body"] for answer in answers)
    assert received == {str(n): 1 for n in range(50)}


async def test_when_a_client_sends_on_behind_its_long_poll_then_it_is_not_read_for_ever(
    host: Host,
) -> None:
    """What is sent behind a request that waits is left to the network, not kept in memory."""
    _, writer = await host.connect()
    writer.write(json_request("ReceiveMessage", POLL))
    behind = b"GET /_health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000
    sent = 0
    try:
        async with asyncio.timeout(0.5):
            while sent < 200_000_000:
                writer.write(behind)
                sent += len(behind)
                await writer.drain()
    except TimeoutError:
        pass

    assert sent < 50_000_000
    assert "QueueUrls" in await host.call("ListQueues")


async def test_when_two_clients_delete_with_one_receipt_at_once_then_both_succeed(
    host: Host,
) -> None:
    await host.call("SendMessage", QueueUrl="q", MessageBody="once")
    [message] = (await host.call("ReceiveMessage", QueueUrl="q"))["Messages"]

    deleting = [
        host.call("DeleteMessage", QueueUrl="q", ReceiptHandle=message["ReceiptHandle"])
        for _ in range(20)
    ]
    assert await asyncio.gather(*deleting) == [{}] * 20
    counts = await host.call("GetQueueAttributes", QueueUrl="q", AttributeNames=["All"])

    assert counts["Attributes"]["ApproximateNumberOfMessages"] == "0"
    assert counts["Attributes"]["ApproximateNumberOfMessagesNotVisible"] == "0"
