"""What Lambda hands to a function is read as if it had been received, and settled beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from binascii import b2a_base64
from typing import Any

import pytest
import structlog.testing
from hypothesis import given

from gateways._aws.sdk_transport import Polling, Reply, Request
from gateways.sqs import AwsSettings, ClaimCheck, SqsGateway, SqsSettings, TransportKind
from gateways.sqs.wire import decode
from pump import App, RejectMessage, Subscription
from pump.errors import ConfigurationError, ConnectionFailed
from pump.message import Message
from pump.outcome import ABANDON, ACK, Defer, Settlement
from pump.ports import PushedRecord, PushGateway
from pump.stores.spill import MemorySpill
from pump.testing import VirtualClock, a_message, a_subscription

from .bucket import LARGE, Bucket, claims
from .carrier import carry
from .messages import messages
from .scripted import ScriptedTransport

ARN = "arn:aws:sqs:eu-west-1:123456789012:"


def pushed(received: dict[str, Any], *, queue: str = "orders", **more: Any) -> dict[str, Any]:
    """One of ReceiveMessage's messages as Lambda spells it."""
    attributes = {
        name: {
            "stringListValues": [],
            "binaryListValues": [],
            "dataType": each["DataType"],
            **({"stringValue": each["StringValue"]} if "StringValue" in each else {}),
            **(
                {"binaryValue": b2a_base64(each["BinaryValue"], newline=False).decode()}
                if "BinaryValue" in each
                else {}
            ),
        }
        for name, each in received.get("MessageAttributes", {}).items()
    }
    record = {
        "messageId": received.get("MessageId", "m-1"),
        "receiptHandle": received.get("ReceiptHandle", "r-1"),
        "body": received["Body"],
        "attributes": {"SenderId": "AIDA", **received.get("Attributes", {})},
        "messageAttributes": attributes,
        "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
        "eventSource": "aws:sqs",
        "eventSourceARN": ARN + queue,
        "awsRegion": "eu-west-1",
        **more,
    }
    as_sent: dict[str, Any] = json.loads(json.dumps(record))
    return as_sent


def read(record: dict[str, Any], *, queue: str = "orders", **fields: Any) -> Message:
    gateway = SqsGateway(transport=ScriptedTransport())
    [each] = gateway.pushed_records({"Records": [record]})
    assert each.defect == ""
    return gateway.push_port(a_subscription(queue, **fields)).read(each, lease_s=30).message


def test_the_gateway_invokes_functions() -> None:
    assert isinstance(SqsGateway(), PushGateway)


@given(message=messages)
def test_when_a_message_of_ours_is_handed_over_then_it_arrives_exactly(message: Message) -> None:
    """R1, T11."""
    assert read(pushed(carry(message, is_fifo=True), queue="orders.fifo"), queue="orders.fifo") == (
        message
    )


def test_when_a_stranger_sent_it_then_it_is_read_as_a_receive_reads_it() -> None:
    """T11: text, numbers and bytes."""
    received = {
        "MessageId": "5fea7756-0ea4-451a-a703-a558b933e274",
        "ReceiptHandle": "r",
        "Body": '{"order_id": "o-1"}',
        "Attributes": {
            "ApproximateReceiveCount": "3",
            "SentTimestamp": "1794830400500",
            "MessageGroupId": "north",
            "AWSTraceHeader": "Root=1",
        },
        "MessageAttributes": {
            "messageType": {"DataType": "String", "StringValue": "Order"},
            "weight": {"DataType": "Number.kg", "StringValue": "12"},
            "seal": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
        },
    }

    message = read(pushed(received))

    assert message == decode(received)
    assert message.headers["seal"] == "AP8="


def test_when_it_came_through_sns_then_it_is_unwrapped_unless_told_otherwise() -> None:
    """T11."""
    body = json.dumps(
        {"Type": "Notification", "MessageId": "s-1", "TopicArn": "arn:t", "Message": "{}"}
    )

    assert read(pushed({"Body": body})).id == "s-1"
    assert read(pushed({"Body": body}), options={"unwrap_sns": False}).body == body.encode()


def test_when_brighter_sent_it_then_its_headers_are_understood() -> None:
    """T11."""
    attributes = {
        "id": {"DataType": "String", "StringValue": "b-1"},
        "messageType": {"DataType": "String", "StringValue": "MT_COMMAND"},
        "cloudeventheaders": {"DataType": "String", "StringValue": '{"type": "order.placed"}'},
    }

    message = read(pushed({"Body": "{}", "MessageAttributes": attributes}))

    assert (message.id, message.type) == ("b-1", "order.placed")


def test_when_an_attribute_makes_no_sense_then_the_rest_is_read() -> None:
    odd = {
        "bytes": {"dataType": "Binary", "binaryValue": "no base64"},
        "nothing": None,
        "empty": {"dataType": "String", "stringValue": None},
    }

    message = read(pushed({"Body": "{}"}, messageAttributes=odd, attributes=None))

    assert message.headers == {"bytes": "no base64"}


@pytest.mark.parametrize(("queue", "is_ordered"), [("orders", False), ("orders.fifo", True)])
def test_when_a_record_is_read_then_the_delivery_is_as_a_received_one(
    queue: str, is_ordered: bool
) -> None:
    """R3, R38."""
    clock = VirtualClock()
    gateway = SqsGateway(clock=clock, transport=ScriptedTransport())
    raw = pushed({"Body": "{}", "Attributes": {"ApproximateReceiveCount": "4"}}, queue=queue)
    [record] = gateway.pushed_records({"Records": [raw]})

    delivery = gateway.push_port(a_subscription(queue)).read(record, lease_s=12)

    assert (delivery.queue, delivery.receipt, delivery.attempt) == (queue, "r-1", 4)
    assert delivery.lease_expires_at_s == clock.now_s() + 12
    assert delivery.is_ordered is is_ordered
    assert record.id == "m-1"


@pytest.mark.parametrize(
    ("queue", "settings", "is_ours"),
    [
        ("orders", {}, True),
        ("orders", {"owner": "123456789012"}, True),
        ("orders", {"owner": "999999999999"}, False),
        ("orders", {"region": "eu-west-1"}, True),
        ("orders", {"region": "us-east-1"}, False),
        ("orders.fifo", {}, False),
        ("order", {}, False),
        (ARN + "orders", {}, True),
        ("arn:aws:sqs:eu-west-1:999999999999:orders", {}, False),
        ("arn:aws:sqs:us-east-1:123456789012:orders", {}, False),
        ("https://sqs.eu-west-1.amazonaws.com/123456789012/orders", {}, True),
        ("https://sqs.us-east-1.amazonaws.com/123456789012/orders", {}, False),
        ("http://localhost:9324/123456789012/orders", {"region": "eu-west-1"}, True),
    ],
)
def test_when_a_queue_is_named_in_any_way_then_its_records_find_it(
    queue: str, settings: dict[str, str], is_ours: bool
) -> None:
    gateway = SqsGateway(
        SqsSettings(owner=settings.get("owner"), aws=AwsSettings(region=settings.get("region")))
    )
    record = PushedRecord(id="m", source=ARN + "orders")

    assert gateway.is_pushed_to(record, a_subscription(queue)) is is_ours


@pytest.mark.parametrize(
    "event",
    [
        None,
        "text",
        [],
        {},
        {"detail-type": "x", "source": "aws.events"},
        {"Records": {}},
        {"Records": ["text"]},
        {"Records": [{"eventSource": "aws:s3", "messageId": "m"}]},
        {"Records": [{"eventSource": "aws:sqs", "body": "secret"}]},
    ],
)
def test_when_it_is_no_sqs_event_then_the_error_says_what_to_do_and_shows_no_body(
    event: object,
) -> None:
    """R61."""
    with pytest.raises(ConfigurationError, match="event source mapping") as raised:
        SqsGateway().pushed_records(event)

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ({"body": None}, "body"),
        ({"receiptHandle": 7}, "receiptHandle"),
        ({"eventSourceARN": None}, "eventSourceARN"),
        ({"eventSourceARN": "orders:"}, "eventSourceARN"),
        ({"messageAttributes": "text"}, "messageAttributes"),
    ],
)
def test_when_a_record_is_malformed_then_it_keeps_its_id_and_says_why(
    broken: dict[str, Any], named: str
) -> None:
    whole = pushed({"Body": "{}"})

    records = SqsGateway().pushed_records({"Records": [{**whole, **broken}, whole]})

    assert [each.id for each in records] == ["m-1", "m-1"]
    assert named in records[0].defect
    assert records[1].defect == ""


async def test_when_messages_come_again_then_sqs_is_told_when() -> None:
    transport = ScriptedTransport(get_queue_url=[{"QueueUrl": "https://sqs.test/1/orders"}])
    gateway = SqsGateway(clock=VirtualClock(), transport=transport)
    port = gateway.push_port(a_subscription("orders"))
    records = gateway.pushed_records(
        {"Records": [pushed({"Body": "{}", "ReceiptHandle": f"r-{n}"}) for n in range(3)]}
    )
    acked, deferred, abandoned = (port.read(each, lease_s=30) for each in records)

    refusals = await port.settle(
        [
            Settlement(acked, ACK),
            Settlement(deferred, Defer(90.5)),
            Settlement(abandoned, ABANDON),
        ],
        is_answered=True,
    )

    assert list(refusals) == []
    assert transport.requests("delete_message_batch") == []
    [request] = transport.requests("change_message_visibility_batch")
    assert [(each["ReceiptHandle"], each["VisibilityTimeout"]) for each in request["Entries"]] == [
        ("r-1", 91),
        ("r-2", 0),
    ]


async def test_when_the_answer_will_be_an_error_then_acks_are_deletes() -> None:
    transport = ScriptedTransport(get_queue_url=[{"QueueUrl": "https://sqs.test/1/orders"}])
    gateway = SqsGateway(clock=VirtualClock(), transport=transport)
    port = gateway.push_port(a_subscription("orders"))
    [record] = gateway.pushed_records({"Records": [pushed({"Body": "{}"})]})

    await port.settle([Settlement(port.read(record, lease_s=30), ACK)], is_answered=False)

    [request] = transport.requests("delete_message_batch")
    assert [each["ReceiptHandle"] for each in request["Entries"]] == ["r-1"]


async def test_when_a_delay_is_longer_than_sqs_has_left_then_it_is_what_is_left() -> None:
    """SQS counts its twelve hours from Lambda's receive, which may be twenty minutes ago."""
    transport = ScriptedTransport(get_queue_url=[{"QueueUrl": "https://sqs.test/1/orders"}])
    gateway = SqsGateway(clock=VirtualClock(), transport=transport)
    port = gateway.push_port(a_subscription("orders"))
    [record] = gateway.pushed_records({"Records": [pushed({"Body": "{}"})]})

    delivery = port.read(record, lease_s=900)
    await port.settle([Settlement(delivery, Defer(43_200))], is_answered=True)

    [request] = transport.requests("change_message_visibility_batch")
    assert request["Entries"][0]["VisibilityTimeout"] == 43_200 - 1_200 + 900


class Cloud:
    """SQS from a script and S3 in memory, behind one transport."""

    def __init__(self) -> None:
        self.sqs = ScriptedTransport(get_queue_url=[{"QueueUrl": "https://sqs.test/1/orders"}])
        self.s3 = Bucket()

    async def open(self) -> None: ...

    async def aclose(self) -> None: ...

    async def call(
        self,
        service: str,
        operation: str,
        request: Request,
        *,
        target: str = "",
        polling: Polling | None = None,
    ) -> Reply:
        cloud = self.s3 if service == "s3" else self.sqs
        return await cloud.call(service, operation, request, target=target, polling=polling)


CLAIM_CHECK = ClaimCheck(bucket="bodies", prefix="claims/")


async def a_large_record(cloud: Cloud) -> dict[str, Any]:
    stored = await claims(cloud.s3).store(a_message(LARGE, id="m-1"), "orders")
    return pushed(carry(stored, is_fifo=False))


async def test_when_a_body_waits_in_s3_then_it_is_fetched_and_removed_after_its_message() -> None:
    """Lambda does not tell when it has deleted a message, so we delete this one ourselves."""
    cloud = Cloud()
    gateway = SqsGateway(SqsSettings(claim_check=CLAIM_CHECK), VirtualClock(), transport=cloud)
    port = gateway.push_port(a_subscription("orders"))
    [record] = gateway.pushed_records({"Records": [await a_large_record(cloud)]})

    delivery = await port.fetch(port.read(record, lease_s=30))
    assert not isinstance(delivery, Defer)
    assert delivery.message.body == LARGE
    await port.settle([Settlement(delivery, ACK)], is_answered=True)

    assert len(cloud.sqs.requests("delete_message_batch")) == 1
    assert cloud.s3.objects == {}


async def test_when_s3_does_not_answer_then_the_message_is_put_off() -> None:
    cloud = Cloud()
    gateway = SqsGateway(SqsSettings(claim_check=CLAIM_CHECK), VirtualClock(), transport=cloud)
    port = gateway.push_port(a_subscription("orders"))
    [record] = gateway.pushed_records({"Records": [await a_large_record(cloud)]})
    cloud.s3.failure = ConnectionFailed("bodies", "away")

    with structlog.testing.capture_logs():
        fetched = await port.fetch(port.read(record, lease_s=30))

    assert isinstance(fetched, Defer)
    assert fetched.delay_s > 0


def test_when_strict_order_is_asked_of_a_standard_queue_then_it_is_refused() -> None:
    """R37, T7."""
    with pytest.raises(ConfigurationError, match=r"orders\.fifo"):
        SqsGateway().push_port(a_subscription("orders", ordering_guarantee=True))


def test_when_an_app_on_sqs_is_invoked_then_it_routes_and_answers() -> None:
    """R25, R28: from Lambda's event to SendMessage on the dead-letter queue."""
    transport = ScriptedTransport(
        get_queue_url=[{"QueueUrl": "https://sqs.test/1/dead"}] * 3,
        send_message_batch=[{"Successful": [{"Id": "0", "MessageId": "d-1"}]}],
    )
    app = App(SqsGateway(transport=transport), spill=MemorySpill())
    app.subscribe(
        Subscription(queue="orders", request=dict, dead_letter_queue="dead", make_channels="assume")
    )

    async def handle(order: dict[str, Any]) -> None:
        if order["n"] == 2:
            raise RejectMessage("no")

    app.register(dict, handle)
    lambda_handler = app.lambda_handler()
    records = [
        pushed({"MessageId": f"m-{n}", "ReceiptHandle": f"r-{n}", "Body": f'{{"n": {n}}}'})
        for n in (1, 2)
    ]

    try:
        response = lambda_handler({"Records": records}, None)
    finally:
        lambda_handler.close()

    assert response == {"batchItemFailures": []}
    [request] = transport.requests("send_message_batch")
    [entry] = request["Entries"]
    assert "rejectionReason" in entry["MessageAttributes"]["pump"]["StringValue"]
    assert transport.requests("delete_message_batch") == []


def test_when_an_attribute_is_no_text_then_the_record_is_read_without_it() -> None:
    attributes = {"MessageGroupId": {}, "AWSTraceHeader": 5, "ApproximateReceiveCount": 1e999}

    message = read(pushed({"Body": "{}"}, attributes=attributes))

    assert (message.group, message.headers) == (None, {})


FUNCTION = """
import json, sys
from gateways.sqs import AwsSettings, Credentials, SqsGateway, SqsSettings
from pump import App, Command, MakeChannels, Subscription
from pump.stores.spill import MemorySpill

class Note(Command):
    n: int

def handle(note: Note) -> None:
    pass

aws = AwsSettings(
    region="eu-west-1",
    endpoint_url="http://127.0.0.1:1",
    transport=sys.argv[1],
    credentials=Credentials(access_key_id="a", secret_access_key="b"),
)
app = App(SqsGateway(SqsSettings(aws=aws)), spill=MemorySpill())
app.subscribe(
    Subscription(
        queue="orders",
        request=Note,
        dead_letter_queue="dead",
        make_channels=MakeChannels.ASSUME,
    )
)
app.handler(handle)
record = {
    "messageId": "m",
    "receiptHandle": "r",
    "body": json.dumps({"n": 1}),
    "attributes": {"ApproximateReceiveCount": "1"},
    "messageAttributes": {},
    "eventSource": "aws:sqs",
    "eventSourceARN": "arn:aws:sqs:eu-west-1:000000000000:orders",
}
print(app.lambda_handler()({"Records": [record]}, None))
"""


@pytest.mark.parametrize("transport", list(TransportKind))
def test_when_a_function_was_not_closed_then_its_process_ends_without_a_traceback(
    transport: TransportKind,
) -> None:
    """Python has shut down its thread pools by the time `atexit` calls, and SDKs close in one."""
    done = subprocess.run(
        [sys.executable, "-c", FUNCTION, transport.value],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "{'batchItemFailures': []}"
