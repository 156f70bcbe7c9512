"""Bodies, events and messages that map to requests, for the fuzzers to spoil."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from pump.mapping import JSON, MSGPACK, TEXT, Mapper
from pump.message import Message

from ..mapping.kinds import REQUESTS, Box, Model, PlaceOrder, Tidied, Tree
from .mutations import any_text, mutated

KINDS: list[Any] = [
    *{type(request) for request in REQUESTS},
    Box[Tree],
    dict,
    list[Model],
    Any,
    str,
]
CONTENT_TYPES = [
    *(JSON, MSGPACK, TEXT, "text/json; charset=utf-16", "application/vnd.orders+json"),
    *("application/octet-stream", "application/cloudevents+json", "application/cloudevents-batch"),
]
EVENT = {
    "specversion": "1.0",
    "id": "e-1",
    "source": "/orders",
    "type": "PlaceOrder",
    "time": "2026-11-16T00:00:00Z",
    "datacontenttype": "application/json",
    "partitionkey": "g",
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "extension": 5,
    "data": {"order_id": "o-1", "quantity": 2},
}
BINARY_EVENT = {
    "ce-specversion": "1.0",
    "ce-id": "e%201",
    "ce-source": "/orders",
    "ce-type": "PlaceOrder",
    "ce-time": "2026-11-16T00:00:00+01:00",
    "cloudEvents:subject": "é",
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "tracestate": "a=b",
    "rejectionTimestamp": "2026-11-16T00:00:00+00:00",
    "claimCheck": "{}",
}
mapper = Mapper(types=[PlaceOrder, Tidied, Tree, Model], source="/here")
BODIES = {
    JSON: [mapper.encode(request, content_type=JSON).body for request in REQUESTS],
    MSGPACK: [mapper.encode(request, content_type=MSGPACK).body for request in REQUESTS],
}
anything = st.builds(
    Message,
    body=st.binary(max_size=60) | mutated(BODIES[JSON]),
    type=st.sampled_from(["PlaceOrder", "Tidied", "Tree", ""]) | any_text,
    content_type=st.sampled_from(CONTENT_TYPES) | mutated(CONTENT_TYPES),
    headers=st.dictionaries(st.sampled_from([*BINARY_EVENT]) | any_text, any_text, max_size=3),
)
