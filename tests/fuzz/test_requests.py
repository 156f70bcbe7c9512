"""Bodies and headers on their way to a handler: a request, or an error that quotes nothing."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from pump.cloudevents import from_event, is_event, to_binary, to_structured
from pump.decide import decide
from pump.errors import MappingError
from pump.headers import parse_content_type
from pump.mapping import JSON, MSGPACK
from pump.mapping.faults import describe
from pump.message import Message
from pump.outcome import Reject, RejectionReason
from pump.subscription import DeadLetter, Subscription

from ..gateways.sqs.messages import messages
from ..mapping.kinds import Model, PlaceOrder, Tidied, Tree
from .exploring import Effort, Target, each_of, explore
from .mutations import any_text, hostile_values, mutated, mutated_tree
from .seeds_requests import BINARY_EVENT, BODIES, CONTENT_TYPES, EVENT, KINDS, anything, mapper

SUBSCRIPTIONS = [
    *(Subscription(queue="q", request=kind) for kind in (PlaceOrder, Tidied, Model, dict)),
    Subscription(queue="q", resolver=lambda message: None),
]
SECRET = "hunter2hunter2"


def read(fed: tuple[bytes, str, Any]) -> None:
    body, content_type, kind = fed
    mapper.decode(Message(body=body, content_type=content_type), kind)


def read_tree(fed: tuple[Any, Any]) -> None:
    tree, kind = fed
    read((json.dumps(tree).encode(), JSON, kind))
    read((msgspec.msgpack.encode(_packable(tree)), MSGPACK, kind))


def _packable(value: Any) -> Any:
    """What MessagePack can carry of it: numbers of 64 bits, text that is Unicode."""
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case int() if value.bit_length() > 63:
            return -1
        case list():
            return [_packable(inner) for inner in value]
        case dict():
            return {_packable(name): _packable(inner) for name, inner in value.items()}
        case _:
            return value


def read_message(message: Message) -> None:
    """As the pump does; what fails is rejected as unacceptable, with words that can travel."""
    for subscription in SUBSCRIPTIONS:
        try:
            mapper.read(message, subscription)
        except MappingError as error:
            outcome = decide(error, attempt=1, strategy=DeadLetter())
            assert isinstance(outcome, Reject)
            assert outcome.reason is RejectionReason.UNACCEPTABLE


def there_and_back(message: Message) -> None:
    """An event in either mode reads as the message it was written from."""
    plain = from_event(message) if is_event(message) else message
    for write in (to_structured, to_binary):
        assert from_event(write(plain, source="/x")).id == plain.id


def complain(tree: Any) -> None:
    """R61: whatever was wrong with a body, no text of it is repeated."""
    body = json.dumps({"order_id": [SECRET], "quantity": SECRET, "rest": tree}).encode()
    for kind in (PlaceOrder, Tidied, Model, Tree):
        words = ""
        try:
            mapper.decode(Message(body=body), kind)
        except MappingError as error:
            words = str(error)
        assert SECRET not in words
    assert SECRET not in describe(ValueError(SECRET), body)


def read_headers(fields: Any) -> None:
    headers = fields if isinstance(fields, dict) else {}
    texts = {str(name): text for name, text in headers.items() if isinstance(text, str)}
    read_message(Message(body=b'{"order_id": "o-1"}', headers=texts))


def read_event(body: bytes) -> None:
    read_message(Message(body=body, content_type="application/cloudevents+json; charset=utf-8"))


REFUSALS = (MappingError,)
TARGETS = [
    *(
        Target(
            name=f"{content_type}: spoilt",
            inputs=st.tuples(mutated(bodies), st.just(content_type), st.sampled_from(KINDS)),
            feed=read,
            refusals=REFUSALS,
            share=2,
        )
        for content_type, bodies in BODIES.items()
    ),
    Target(
        name="any content type: noise",
        inputs=st.tuples(st.binary(), st.sampled_from(CONTENT_TYPES), st.sampled_from(KINDS)),
        feed=read,
        refusals=REFUSALS,
    ),
    Target(
        name="any type: spoilt values",
        inputs=st.tuples(
            mutated_tree([json.loads(body) for body in BODIES[JSON]]), st.sampled_from(KINDS)
        ),
        feed=read_tree,
        refusals=REFUSALS,
        share=2,
    ),
    Target(name="faults: anything", inputs=hostile_values, feed=complain),
    Target(name="message: anything", inputs=anything, feed=read_message, share=2),
    Target(
        name="cloudevent, structured: spoilt",
        inputs=(
            mutated([json.dumps(EVENT).encode()])
            | mutated_tree([EVENT]).map(lambda tree: json.dumps(tree).encode())
        ),
        feed=read_event,
        share=2,
    ),
    Target(
        name="cloudevent, binary: spoilt",
        inputs=mutated_tree([BINARY_EVENT]),
        feed=read_headers,
        share=2,
    ),
    Target(
        name="cloudevent: there and back",
        inputs=messages | anything,
        feed=there_and_back,
        refusals=REFUSALS,
        share=2,
    ),
    Target(
        name="content type: spoilt",
        inputs=mutated(CONTENT_TYPES) | any_text,
        feed=parse_content_type,
        share=2,
    ),
]


@each_of(TARGETS)
def test_when_a_message_holds_anything_then_it_is_a_request_or_a_mapping_error(
    target: Target, effort: Effort
) -> None:
    """R35: what cannot be decoded is rejected as unacceptable."""
    explore(target, effort)
