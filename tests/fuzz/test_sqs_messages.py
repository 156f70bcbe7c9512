"""What SQS, SNS, Lambda and S3 hand over: read whoever sent it, or refused in our own words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from gateways._aws.errors import ObjectNotFound
from gateways.sqs.calls import QueueAddress
from gateways.sqs.claims import ClaimCheck
from gateways.sqs.events import PushedMessages, is_from, records_of
from gateways.sqs.settling import deliveries_of
from gateways.sqs.topics import TopicSubscription, permitting
from gateways.sqs.wire import ATTRIBUTE, decode, encode, foreign, texts, unwrap
from pump.errors import ConfigurationError
from pump.headers import CLAIM
from pump.message import Message
from pump.stores.packing import pack, unpack
from pump.testing import VirtualClock, a_subscription

from ..gateways.sqs.bucket import Bucket, claims
from ..gateways.sqs.carrier import carry
from ..gateways.sqs.messages import messages
from ..gateways.sqs.scripted import ScriptedTransport
from .exploring import Effort, Target, each_of, explore
from .mutations import any_text, hostile_scalars, hostile_values, mutated, mutated_tree
from .seeds_sqs import (
    ADDRESSES,
    CLAIMED,
    EVENT,
    NOTIFICATION,
    NOTIFIED,
    OURS,
    POLICY,
    PUBLISHED,
    RECEIVED,
    TOPICS,
    as_sqs_may,
)


def check_types(message: Message) -> None:
    """A message is text where it says so; everything behind a gateway relies on that."""
    for name in Message.__struct_fields__:
        value = getattr(message, name)
        match name:
            case "body":
                assert type(value) is bytes
            case "id" | "type" | "content_type":
                assert type(value) is str
            case "created_at_s":
                assert value is None or isinstance(value, int | float)
            case "headers":
                assert all(type(part) is str for pair in value.items() for part in pair)
            case _:
                assert value is None or type(value) is str


def read_received(raw: Mapping[str, Any]) -> None:
    """Law 4: never refused; and what was read can be sent on, and stored, whatever it is."""
    for unwraps in (True, False):
        [delivery] = deliveries_of(
            [raw], queue="q", ends_at_s=1.0, is_fifo=True, unwrap_sns=unwraps
        )
        message = delivery.message
        check_types(message)
        assert delivery.attempt >= 1
        assert decode(carry(message, is_fifo=True)) == message
        assert unpack(pack(message)) == message
        assert message.created_at is None or message.created_at_s is not None
        encode(message, is_fifo=False)


def read_event(event: object) -> None:
    """Read as an event is, record by record; records with a defect are reported, not read."""
    transport = ScriptedTransport()
    messages = PushedMessages(
        transport.calls("orders"),
        a_subscription(queue="orders"),
        clock=VirtualClock(),
        claims=claims(Bucket()),
    )
    for record in records_of(event):
        if not record.defect:
            is_from(record.source, "orders", owner=None, region=None)
            delivery = messages.read(record, lease_s=30.0)
            check_types(delivery.message)
            encode(delivery.message, is_fifo=True)


def redeem(header: str) -> None:
    """Nothing outside the bucket and its prefix is asked for, whatever a claim says."""
    bucket = Bucket()
    message = Message(body=b"", headers={CLAIM: header})
    try:
        asyncio.run(claims(bucket).redeem(message))
        asyncio.run(claims(bucket).discard(message))
    finally:
        for _, request in bucket.calls:
            assert request["Bucket"] == "bodies"
            assert request["Key"].startswith("claims/")


def settings_of(values: tuple[Any, Any, Any]) -> object:
    return ClaimCheck(bucket=values[0], prefix=values[1], threshold_bytes=values[2])


def round_trip(message: Message) -> None:
    assert decode(carry(message, is_fifo=True)) == message
    assert unpack(pack(message)) == message


TARGETS = [
    Target(
        name="received: spoilt",
        inputs=mutated_tree(RECEIVED).filter(as_sqs_may),
        feed=read_received,
        share=2,
    ),
    Target(
        name="received: any body and attribute",
        inputs=st.builds(
            lambda body, attribute: {
                **OURS,
                "Body": body,
                "MessageAttributes": {ATTRIBUTE: {"StringValue": attribute}},
            },
            any_text | mutated([OURS["Body"], "eJwDAA=="]),
            mutated([OURS["MessageAttributes"][ATTRIBUTE]["StringValue"], '{"v":1,"id":"m"}'])
            | hostile_values.map(lambda value: json.dumps({"v": 1, "id": "m", "at": value})),
        ),
        feed=read_received,
        share=2,
    ),
    Target(
        name="notification: spoilt text",
        inputs=mutated([NOTIFIED["Body"], json.dumps(PUBLISHED)]),
        feed=lambda body: foreign({**NOTIFIED, "Body": body}, unwrap(body)),
    ),
    Target(
        name="notification: spoilt tree",
        inputs=mutated_tree([NOTIFICATION, PUBLISHED]),
        feed=lambda tree: read_received({**NOTIFIED, "Body": json.dumps(tree)}),
    ),
    Target(
        name="attributes: anything", inputs=st.dictionaries(st.text(), hostile_values), feed=texts
    ),
    Target(
        name="event: spoilt",
        inputs=mutated_tree([EVENT]),
        feed=read_event,
        refusals=(ConfigurationError,),
        share=2,
    ),
    Target(
        name="event: anything",
        inputs=hostile_values | hostile_values.map(lambda value: {"Records": value}),
        feed=read_event,
        refusals=(ConfigurationError,),
    ),
    Target(
        name="claim: spoilt",
        inputs=mutated([CLAIMED]) | mutated_tree([json.loads(CLAIMED)]).map(json.dumps) | any_text,
        feed=redeem,
        refusals=(ObjectNotFound,),
    ),
    Target(
        name="claim check: anything",
        inputs=st.tuples(*[hostile_scalars] * 3),
        feed=settings_of,
        refusals=(ConfigurationError,),
    ),
    Target(
        name="address: spoilt",
        inputs=mutated(ADDRESSES) | any_text,
        feed=QueueAddress.parse,
        refusals=(ConfigurationError,),
        share=2,
    ),
    Target(
        name="topic: spoilt",
        inputs=mutated(TOPICS) | any_text,
        feed=lambda topic: TopicSubscription.parse(topic).arn_for(
            "arn:aws:sqs:eu-west-1:123456789012:q"
        ),
        refusals=(ConfigurationError,),
    ),
    Target(
        name="policy: spoilt",
        inputs=mutated([POLICY]) | mutated_tree([json.loads(POLICY)]).map(json.dumps),
        feed=lambda policy: permitting(policy, TOPICS[2], "arn:aws:sqs:eu-west-1:123456789012:q"),
        refusals=(ConfigurationError,),
    ),
    Target(name="message: there and back", inputs=messages, feed=round_trip),
]


@each_of(TARGETS)
def test_when_sqs_hands_over_anything_then_it_is_read_or_refused_in_our_words(
    target: Target, effort: Effort
) -> None:
    """R35, T11: what is not ours is still understood, and what is not readable still routed."""
    explore(target, effort)
