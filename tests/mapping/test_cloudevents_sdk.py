"""Our CloudEvents and those of the official SDK are the same."""

from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings import http
from cloudevents.core.v1.event import CloudEvent

from pump.cloudevents import to_binary, to_structured
from pump.mapping import Mapper
from pump.message import Message
from pump.subscription import Subscription

from .kinds import PlaceOrder

orders = Subscription(queue="orders", request=PlaceOrder)
mapper = Mapper()
ATTRIBUTES = {
    "id": "e-1",
    "source": "/shop",
    "type": "PlaceOrder",
    "specversion": "1.0",
    "time": datetime(2026, 11, 16, 12, 0, 0, 500000, tzinfo=UTC),
    "subject": 'grüezi "100 %"',
    "partitionkey": "ann",
    "datacontenttype": "application/json",
}


def from_sdk(sent: http.HTTPMessage) -> Message:
    headers = dict(sent.headers)
    return Message(body=sent.body, content_type=headers.pop("content-type"), headers=headers)


def to_sdk(message: Message) -> http.HTTPMessage:
    return http.HTTPMessage({**message.headers, "content-type": message.content_type}, message.body)


@pytest.mark.parametrize("write", [http.to_structured_event, http.to_binary_event])
def test_when_the_sdk_writes_an_event_then_we_read_it(write: Any) -> None:
    event = CloudEvent(ATTRIBUTES, {"order_id": "o", "quantity": 2})

    message = mapper.normalise(from_sdk(write(event)))

    assert (message.id, message.type, message.group) == ("e-1", "PlaceOrder", "ann")
    assert message.created_at == ATTRIBUTES["time"]
    assert message.headers == {"ce-source": "/shop", "ce-subject": 'grüezi "100 %"'}
    assert mapper.read(from_sdk(write(event)), orders) == PlaceOrder("o", 2)


@pytest.mark.parametrize("write", [to_structured, to_binary])
def test_when_we_write_an_event_then_the_sdk_reads_it(write: Any) -> None:
    message = mapper.encode(
        PlaceOrder("o", 2),
        id="e-1",
        group="ann",
        created_at_s=1794830400.5,
        headers={"ce-subject": 'grüezi "100 %"'},
    )

    event = http.from_http_event(to_sdk(write(message, source="/shop")))

    assert event.get_attributes() == ATTRIBUTES
    assert event.get_data() == {"order_id": "o", "quantity": 2}


def test_when_bytes_go_through_the_sdk_then_they_arrive_unchanged() -> None:
    message = mapper.encode(b"\x00\xff", type="Blob")

    event = http.from_http_event(to_sdk(to_structured(message, source="/shop")))
    back = mapper.normalise(from_sdk(http.to_structured_event(event)))

    assert event.get_data() == b"\x00\xff"
    assert mapper.decode(back, bytes) == b"\x00\xff"
