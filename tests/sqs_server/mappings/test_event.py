"""The event and the context have the shape that AWS documents (R46)."""

from __future__ import annotations

import hashlib

import pytest

from gateways.sqs_server.mappings.event_source import (
    make_event,
    make_item,
    make_record,
    split_by_size,
)
from gateways.sqs_server.mappings.invoking import make_context
from gateways.sqs_server.model import Attribute, QueueId
from pump.testing.virtual_clock import VirtualClock

from .fake_engine import received

ORDERS = QueueId("123456789012", "eu-west-1", "orders")


def test_a_standard_queues_record_has_these_fields_and_no_others() -> None:
    record = make_record(received("hello", sent_at_s=1.5), ORDERS, has_window=False)

    assert record == {
        "messageId": "id-1",
        "receiptHandle": "receipt",
        "body": "hello",
        "attributes": {
            "ApproximateReceiveCount": "0",
            "SentTimestamp": "1500",
            "SenderId": "000000000000",
            "ApproximateFirstReceiveTimestamp": "0",
        },
        "messageAttributes": {},
        "md5OfBody": hashlib.md5(b"hello").hexdigest(),
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-west-1:123456789012:orders",
        "awsRegion": "eu-west-1",
    }


def test_a_fifo_queues_record_has_its_order_too() -> None:
    attributes = make_record(received(group="ada"), ORDERS, has_window=False)["attributes"]

    assert attributes["MessageGroupId"] == "ada"
    assert attributes["MessageDeduplicationId"] == "dedup-id-1"
    assert attributes["SequenceNumber"] == "18870000000000000001"


def test_a_trace_header_is_an_attribute() -> None:
    record = make_record(received(trace_header="Root=1-2"), ORDERS, has_window=False)

    assert record["attributes"]["AWSTraceHeader"] == "Root=1-2"


def test_message_attributes_have_their_value_their_type_and_two_empty_lists() -> None:
    message = received(
        attributes={
            "text": Attribute("String", "é"),
            "count": Attribute("Number.int", "100"),
            "raw": Attribute("Binary", b"1100"),
        }
    )

    record = make_record(message, ORDERS, has_window=False)

    empty: dict[str, list[str]] = {"stringListValues": [], "binaryListValues": []}
    assert record["messageAttributes"] == {
        "text": {"stringValue": "é", **empty, "dataType": "String"},
        "count": {"stringValue": "100", **empty, "dataType": "Number.int"},
        "raw": {"binaryValue": "MTEwMA==", **empty, "dataType": "Binary"},
    }
    assert len(record["md5OfMessageAttributes"]) == 32


def test_when_there_is_a_window_and_no_attribute_then_their_digest_is_null_as_on_aws() -> None:
    assert make_record(received(), ORDERS, has_window=True)["md5OfMessageAttributes"] is None
    assert "md5OfMessageAttributes" not in make_record(received(), ORDERS, has_window=False)


def test_a_function_may_change_its_event_without_changing_ours() -> None:
    item = make_item(received("hello"), ORDERS, has_window=False)

    make_event([item])["Records"][0]["attributes"].clear()

    assert item.record["attributes"]


def test_when_one_item_alone_is_over_the_limit_then_it_is_a_part_of_its_own() -> None:
    items = [make_item(received(body), ORDERS, has_window=False) for body in ("a", "b" * 99, "c")]

    parts = list(split_by_size(items, limit=items[0].size + 10))

    assert [[item.message.body[0] for item in part] for part in parts] == [["a"], ["b"], ["c"]]


def test_the_context_names_the_function_as_aws_does() -> None:
    clock = VirtualClock()

    context = make_context("on_orders", ORDERS, clock, 30)

    assert context.function_name == "on_orders"
    assert (
        context.invoked_function_arn == "arn:aws:lambda:eu-west-1:123456789012:function:on_orders"
    )
    assert context.log_group_name == "/aws/lambda/on_orders"
    assert context.log_stream_name.startswith("2025/06/15/[$LATEST]")
    assert context.function_version == "$LATEST"
    assert context.memory_limit_in_mb == "128"
    assert len(context.aws_request_id) == 36
    assert context.identity.cognito_identity_id is None
    assert context.client_context is None


async def test_the_remaining_time_runs_down_to_zero() -> None:
    clock = VirtualClock()
    context = make_context("on_orders", ORDERS, clock, 30)
    assert context.get_remaining_time_in_millis() == 30_000

    await clock.advance(29.5)
    assert context.get_remaining_time_in_millis() == 500
    await clock.advance(5)

    assert context.get_remaining_time_in_millis() == 0


def test_the_context_logs_by_printing(capsys: pytest.CaptureFixture[str]) -> None:
    make_context("on_orders", ORDERS, VirtualClock(), 30).log("hello")

    assert capsys.readouterr().out == "hello\n"
