"""Whatever arrives, decoding gives a request or a MappingError, never anything else."""

import contextlib
from typing import Any

import msgspec
from hypothesis import example, given, settings, strategies as st

from pump.errors import MappingError
from pump.mapping import JSON, MSGPACK, TEXT, Mapper
from pump.message import Message
from pump.subscription import Subscription

from .kinds import (
    Box,
    Cat,
    Fussy,
    Holder,
    Line,
    Model,
    OrderPlaced,
    Pair,
    Pets,
    PlaceOrder,
    Positive,
    Row,
    Secretive,
    Shipped,
    Struct,
    Tidied,
    Tree,
)

KINDS: list[Any] = [
    *(PlaceOrder, OrderPlaced, Positive, Secretive, Fussy, Tidied, Pets, Tree, Shipped, Struct),
    *(Model, Holder, Pair, Row, Box[int], Box[Tidied], list[Cat], dict, Any, str, bytes, int),
]
CONTENT_TYPES = [JSON, MSGPACK, TEXT, "application/octet-stream", "application/cloudevents+json"]

# The first example of a type builds its reader, which takes far longer than any other.
patient = settings(deadline=None)
mapper = Mapper(types=[PlaceOrder, OrderPlaced, Tidied, Pets, Model])
names = st.sampled_from(
    ["order_id", "quantity", "name", "pets", "when", "a", "b", "token", "item", "children", "at"]
)
scalars = st.one_of(
    *(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False),
        st.text(max_size=8),
    ),
    st.sampled_from(["2026-11-16T00:00:00Z", "red", "AAAA"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5),
    max_leaves=12,
)


def try_to_decode(message: Message, kind: Any) -> None:
    with contextlib.suppress(MappingError):
        mapper.decode(message, kind)


@patient
@given(st.binary(), st.sampled_from(KINDS), st.sampled_from(CONTENT_TYPES))
def test_when_the_body_is_noise_then_nothing_but_a_mapping_error_gets_out(
    body: bytes, kind: Any, content_type: str
) -> None:
    try_to_decode(Message(body=body, content_type=content_type), kind)


@patient
@given(values, st.sampled_from(KINDS))
def test_when_the_body_is_any_json_then_nothing_but_a_mapping_error_gets_out(
    value: Any, kind: Any
) -> None:
    try_to_decode(Message(body=msgspec.json.encode(value)), kind)
    try_to_decode(Message(body=msgspec.msgpack.encode(value), content_type=MSGPACK), kind)


@patient
@given(st.binary(), st.text(), st.text(), st.dictionaries(st.text(), st.text()))
@example(b"{}", "", "application/cloudevents+json; charset=\x00", {})
@example(b"{}", "", JSON, {"ce-id": "%ff"})
def test_when_everything_is_noise_then_reading_raises_nothing_but_a_mapping_error(
    body: bytes, name: str, content_type: str, headers: dict[str, str]
) -> None:
    message = Message(body=body, type=name, content_type=content_type, headers=headers)
    for request in (PlaceOrder, Tidied, Model, dict):
        try:
            mapper.read(message, Subscription(queue="q", request=request))
        except MappingError:
            continue


lines = st.builds(Line, st.text(), st.decimals(allow_nan=False, allow_infinity=False))
orders = st.builds(PlaceOrder, st.text(), st.integers(-(2**63), 2**64 - 1))
tidied = st.builds(Tidied, st.text(), st.integers(1, 2**63), secret=st.text())
trees = st.recursive(
    st.builds(Tree), lambda inner: st.builds(Tree, st.text(), st.lists(inner, max_size=3))
)


@patient
@given(st.one_of(lines, orders, tidied, trees), st.sampled_from([JSON, MSGPACK]))
def test_when_any_request_makes_the_journey_then_it_arrives_unchanged(
    request: Any, content_type: str
) -> None:
    message = mapper.encode(request, content_type=content_type)

    assert mapper.decode(message, type(request)) == request
    assert mapper.normalise(message) == message
