"""What the gateway asks of SQS is counted, and queues can be removed."""

from __future__ import annotations

import pytest

from gateways._aws.errors import RequestRefused
from gateways.sqs import SqsGateway
from pump.errors import QueueNotFound
from pump.message import Message

from .scripted import URL, ScriptedTransport


def gateway_on(transport: ScriptedTransport) -> SqsGateway:
    return SqsGateway(transport=transport)


async def test_when_requests_are_made_then_they_are_counted_with_the_sdks_repetitions() -> None:
    sent = {
        "Successful": [{"Id": "0", "MessageId": "m"}],
        "ResponseMetadata": {"RetryAttempts": 2},
    }
    transport = ScriptedTransport(
        get_queue_url=[{"QueueUrl": f"{URL}orders"}], send_message_batch=[sent]
    )
    gateway = gateway_on(transport)

    await gateway.producer("orders").send([Message(body=b"{}")])

    assert gateway.request_counts == {"get_queue_url": 1, "send_message_batch": 3}


async def test_when_a_request_is_refused_then_it_is_counted_too() -> None:
    refused = RequestRefused("orders", "InvalidParameterValue", "no")
    transport = ScriptedTransport(
        get_queue_url=[{"QueueUrl": f"{URL}orders"}], send_message_batch=[refused]
    )
    gateway = gateway_on(transport)

    with pytest.raises(RequestRefused):
        await gateway.producer("orders").send([Message(body=b"{}")])

    assert gateway.request_counts["send_message_batch"] == 1


async def test_when_queues_are_removed_then_one_that_is_not_there_is_no_error() -> None:
    transport = ScriptedTransport(
        get_queue_url=[QueueNotFound("gone"), {"QueueUrl": f"{URL}orders"}]
    )

    await gateway_on(transport).remove_queues(["gone", "orders"])

    assert transport.requests("delete_queue") == [{"QueueUrl": f"{URL}orders"}]
