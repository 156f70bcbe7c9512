"""Input that is deep, or long, and of which most is read: no stack overflows, no time explodes.

Nothing is timed. A parser that is quadratic in any of these takes minutes, and the test's own
timeout ends it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateways.local import codec, wire
from gateways.sqs.claims import ClaimCheck
from gateways.sqs.wire import ATTRIBUTE, decode, encode
from gateways.sqs_server.config import load_config
from gateways.sqs_server.config.patterns import passes, read_filters
from gateways.sqs_server.errors import SqsError
from gateways.sqs_server.http import HttpLimits
from gateways.sqs_server.http.connection import OrdinaryReader
from gateways.sqs_server.http.sigv4 import SignedRequest, verify
from gateways.sqs_server.mappings.invoking import MalformedResponse, as_json, failed_ids
from gateways.sqs_server.protocol import parse
from pump.clock import parse_duration
from pump.crypto.envelope import parse as parse_envelope
from pump.crypto.sources import parse_ring
from pump.errors import PumpError
from pump.headers import parse_content_type
from pump.http.wire import Refused, parse_head
from pump.mapping import JSON, MSGPACK
from pump.message import Message
from pump.stores.packing import pack, unpack

from ..gateways.sqs.bucket import Bucket, claims
from ..mapping.kinds import Model, PlaceOrder, Tree
from .seeds_requests import EVENT, mapper
from .seeds_server import SIGNED
from .seeds_sqs import NOTIFICATION, NOTIFIED, OURS

N = 100_000
LISTS = b"[" * N + b"]" * N
OPEN_LISTS = b"[" * N
TABLES = b'{"children":' * N + b"1" + b"}" * N
TREES = b'{"children":[' * N + b"]}" * N
WIDE = json.dumps({f"k{n}": n for n in range(N // 4)}).encode()
LONG_LIST = json.dumps([{}] * (N // 4)).encode()
PACKED_LISTS = b"\x91" * N + b"\x01"
PACKED_TABLES = b"\x81\xa8children" * N + b"\x01"
DIGITS = b"9" * N
LONG = b'"' + b"x" * (5 * N) + b'"'
DOCUMENTS = {
    "lists": LISTS,
    "lists without an end": OPEN_LISTS,
    "tables": TABLES,
    "trees": TREES,
    "a wide table": WIDE,
    "a long list": LONG_LIST,
    "a long number": DIGITS,
    "a long text": LONG,
}
REFUSALS = (PumpError, SqsError, Refused, MalformedResponse, ValueError)


def read_as(kind: Any, content_type: str, body: bytes) -> object:
    return mapper.decode(Message(body=body, content_type=content_type), kind)


def read_event(member: str, document: bytes) -> object:
    rest = json.dumps({name: text for name, text in EVENT.items() if name != "data"}).encode()
    body = b'{"' + member.encode() + b'":' + document + b"," + rest[1:]
    return read_as(PlaceOrder, "application/cloudevents+json", body)


def receive(document: bytes, *, is_attribute: bool) -> object:
    attributes = {ATTRIBUTE: {"StringValue": document.decode()}} if is_attribute else {}
    message = decode({**OURS, "Body": document.decode(), "MessageAttributes": attributes})
    return encode(message, is_fifo=True), unpack(pack(message))


def receive_notification(document: bytes) -> object:
    body = json.dumps(NOTIFICATION)[:-1].encode() + b',"More":' + document + b"}"
    return decode({**NOTIFIED, "Body": body.decode()})


def receive_bag(document: bytes) -> object:
    texts = {"messageType": "MT_EVENT", "bag": f'{{"a":{document.decode()}}}', "id": "b"}
    given = {name: {"DataType": "String", "StringValue": text} for name, text in texts.items()}
    return encode(decode({**OURS, "MessageAttributes": given}), is_fifo=True)


def claim(document: bytes) -> object:
    message = Message(body=b"", headers={"claimCheck": document.decode()})
    return claims(Bucket()).is_claim(message), ClaimCheck(bucket="b")


def ask(operation: str, document: bytes) -> object:
    body = b'{"QueueUrl":"q","Attributes":' + document + b"}"
    return parse("/", "", {"x-amz-target": f"AmazonSQS.{operation}"}, body)


def filter_body(document: bytes) -> object:
    filters = read_filters([{"body": {"children": [{"anything-but": ["x"]}], "k1": [1]}}])
    return passes(filters, {"body": document.decode()})


def answer(document: bytes) -> object:
    return failed_ids(as_json(document.decode()), {"m"})


def sign(name: str, text: str) -> object:
    headers = list({**SIGNED, name: text}.items())
    request = SignedRequest(method="POST", path="/", query=text, headers=headers, body=b"")
    return verify(request, {"AKIAEXAMPLE": "secret"}, 1_750_000_000.0)


def match_stars(pattern: str, body: str) -> object:
    return passes(read_filters([{"body": [{"wildcard": pattern}]}]), {"body": body})


def read_frame(frame: bytes) -> object:
    try:
        return wire.decode_request(frame)
    except wire.UNREADABLE as error:
        raise ValueError("as the server takes it") from error


def ordinary(head: bytes) -> object:
    return OrdinaryReader(HttpLimits()).read(head)


BY_DOCUMENT: dict[str, Callable[[bytes], object]] = {
    **{f"as {kind.__name__}": partial(read_as, kind, JSON) for kind in (PlaceOrder, Tree, Model)},
    "as Any": partial(read_as, Any, JSON),
    "event's data": partial(read_event, "data"),
    "event's extension": partial(read_event, "extension"),
    "SQS attribute": partial(receive, is_attribute=True),
    "SQS body": partial(receive, is_attribute=False),
    "SNS notification": receive_notification,
    "Brighter's bag": receive_bag,
    "claim": claim,
    "SetQueueAttributes": partial(ask, "SetQueueAttributes"),
    "ListQueues": partial(ask, "ListQueues"),
    "filtered body": filter_body,
    "function's answer": answer,
}
OTHERS: dict[str, Callable[[], object]] = {
    **{
        f"msgpack {name} as {kind}": partial(read_as, kind, MSGPACK, body)
        for kind in (PlaceOrder, Tree, Model, Any)
        for name, body in (("lists", PACKED_LISTS), ("tables", PACKED_TABLES))
    },
    "packed message, deep at its end": partial(
        unpack, b"\xdc\x00\x0c" + pack(Message(body=b""))[1:] + PACKED_LISTS
    ),
    "frame": partial(read_frame, b"\x92\xa5Stats" + PACKED_LISTS),
    "frame with more than it should": partial(read_frame, b"\x93\xa5Stats\x01" + PACKED_TABLES),
    "settings": partial(codec.unpack_settings, b"\x81\xa1a" + PACKED_LISTS),
    "form of many fields": partial(parse, "/", "Action=TagQueue" + "&Tag.1.Key=a" * N, {}, b""),
    "form of one long name": partial(parse, "/", "Action=TagQueue&" + "a." * N + "=1", {}, b""),
    "form of one long value": partial(parse, "/", "Action=TagQueue&Tag=" + "%ff" * N, {}, b""),
    "signature of many parts": partial(
        sign, "authorization", "AWS4-HMAC-SHA256" + "Signature=" * N
    ),
    "signature over many headers": partial(
        sign, "authorization", SIGNED["authorization"].replace("host;", "host;" * N)
    ),
    "signature of a long day": partial(sign, "x-amz-date", "2" * N),
    "date of many words": partial(sign, "date", "Sun, " * N),
    "content type of many parameters": partial(parse_content_type, "a/b" + ";charset=x" * N),
    "duration of many parts": partial(parse_duration, "1s" * (N // 4)),
    "duration that almost is one": partial(parse_duration, "1" * N + "x"),
    "duration of blanks": partial(parse_duration, " " * N + "x"),
    "stars in a pattern": partial(match_stars, "*a" * 1_000, "a" * N + "b"),
    "stars that match nothing": partial(match_stars, "*ab" * 1_000, "a" * N),
    "head without an end": partial(ordinary, b"POST / HTTP/1.1\r\n" + b"X: y\r\n" * N),
    "head of one line": partial(ordinary, b"POST /" + b"%" * N),
    "probe's head": partial(parse_head, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * N + b"\r\n"),
    "probe's path": partial(parse_head, b"GET /" + b"%41" * N + b" HTTP/1.1\r\n\r\n"),
    "envelope": partial(parse_envelope, b"QRE1\x01\xff\xff" + b"k" * N),
    "key ring of many lines": partial(parse_ring, "a:b\n" * N, source="ring"),
    "key ring of one line": partial(parse_ring, "a" * N + ":" + "A" * N, source="ring"),
}
FILES = {
    "deep.yaml": "[" * 1_000,
    "deep_tables.yaml": "{a: " * 2_000,
    "indented.yaml": "\n".join(" " * n + "a:" for n in range(1_000)),
    "wide.yaml": "queues:\n" + "".join(f"  q{n}:\n" for n in range(1_000)),
    "deep.toml": "a = " + "[" * N,
    "dotted.toml": "a" + ".a" * 2_000 + " = 1",
    "wide.toml": "".join(f"[queues.q{n}]\n" for n in range(5_000)),
}


def answer_or_refuse(feed: Callable[[], object]) -> None:
    """A refusal is an answer; a RecursionError, or a MemoryError, is none."""
    try:
        feed()
    except REFUSALS as refusal:
        f"{refusal}"


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("parser", BY_DOCUMENT)
def test_when_a_document_is_deep_or_long_then_it_is_read_or_refused(
    parser: str, document: str
) -> None:
    answer_or_refuse(lambda: BY_DOCUMENT[parser](DOCUMENTS[document]))


@pytest.mark.parametrize("name", OTHERS)
def test_when_input_is_deep_or_long_then_it_is_read_or_refused(name: str) -> None:
    answer_or_refuse(OTHERS[name])


@pytest.mark.parametrize("name", FILES)
def test_when_a_file_is_deep_or_long_then_it_is_loaded_or_refused(
    name: str, tmp_path: Path
) -> None:
    """R56."""
    (tmp_path / name).write_text(FILES[name])

    answer_or_refuse(lambda: load_config(tmp_path / name))
