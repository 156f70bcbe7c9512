"""Messages arrive on SQS exactly as they were sent, whatever is in them (R1, T11)."""

import hashlib
import json
import zlib
from base64 import b64encode
from typing import Any

import attrs
import pytest
from hypothesis import example, given, strategies as st
from msgspec.structs import replace

from gateways.sqs.wire import attempt_of, decode, encode, entry_request
from pump.headers import REJECTION_NAMES
from pump.message import Message
from tests.brokers.aws_account import AwsAccount

from .carrier import MAX_BYTES, carry, size_of
from .messages import messages, texts

SQS_ID = "5fea7756-0ea4-451a-a703-a558b933e274"


def packed(**changes: Any) -> dict[str, Any]:
    """A message of ours, in a broken way."""
    raw = carry(Message(body=b"{}", id="m-1", headers={"a": "b"}), is_fifo=False)
    content = json.loads(raw["MessageAttributes"]["pump"]["StringValue"])
    raw["MessageAttributes"]["pump"]["StringValue"] = json.dumps(content | changes)
    return raw


@given(messages, st.booleans())
@example(Message(body=b""), False)
@example(Message(body=b"", headers={"x": "\ud800"}, created_at_s=1.5), True)
@example(Message(body=b"{}", created_at_s=1794830400.123456), True)
def test_when_any_message_is_carried_then_it_arrives_as_it_was_sent(
    message: Message, is_fifo: bool
) -> None:
    assert decode(carry(message, is_fifo=is_fifo)) == message


@given(messages, st.booleans())
def test_when_any_message_is_encoded_then_its_size_is_what_sqs_counts(
    message: Message, is_fifo: bool
) -> None:
    entry = encode(message, is_fifo=is_fifo)

    request = entry_request(entry, entry_id="0", delay_s=0)

    assert entry.size == size_of(request)
    assert entry.body_size == len(request["MessageBody"].encode())


@pytest.mark.parametrize("body", [b'{"name": "caf\xc3\xa9"}', b"a\tb\r\nc", b"\x7f", b"-", b" "])
def test_when_the_body_is_text_then_anybody_can_read_it_on_the_queue(body: bytes) -> None:
    assert encode(Message(body=body), is_fifo=False).body == body.decode()


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b"\x00", "AA=="),
        (b"\xff\xfe", "//4="),
        (b"\x1b[0m", "G1swbQ=="),
        ("\ufffe".encode(), "77++"),
        (b"\xed\xa0\x80", "7aCA"),
        (b"", "-"),
    ],
)
def test_when_sqs_would_refuse_a_body_then_it_travels_as_base64(body: bytes, sent: str) -> None:
    """T11: binary bodies are base64."""
    assert encode(Message(body=body), is_fifo=False).body == sent


def test_when_a_message_has_many_headers_then_they_share_one_attribute() -> None:
    """T11: SQS allows ten attributes."""
    message = Message(body=b"{}", headers={f"h{n}": "ü" for n in range(50)})

    raw = carry(message, is_fifo=False)

    assert list(raw["MessageAttributes"]) == ["pump"]
    assert decode(raw).headers == message.headers


def test_when_a_message_was_rejected_then_its_metadata_travels_with_it() -> None:
    """R28."""
    message = Message(body=b"{}", headers=dict.fromkeys(REJECTION_NAMES, "x"))

    assert decode(carry(message, is_fifo=True)).headers == message.headers


def test_when_a_fifo_message_has_a_group_then_sqs_gets_it() -> None:
    """R38."""
    entry = encode(Message(body=b"{}", group="customer-1"), is_fifo=True)

    assert entry.group == "customer-1"


@pytest.mark.parametrize("group", [None, ""])
def test_when_a_fifo_message_has_no_group_then_it_stands_in_the_common_line(
    group: str | None,
) -> None:
    message = Message(body=b"{}", group=group)

    assert encode(message, is_fifo=True).group == "-"
    assert decode(carry(message, is_fifo=True)).group == group


def test_when_a_standard_queue_gets_a_group_then_it_is_the_tenant_of_a_fair_queue() -> None:
    with_group = encode(Message(body=b"{}", group="tenant"), is_fifo=False)
    without = encode(Message(body=b"{}", deduplication_id="d"), is_fifo=False)

    assert (with_group.group, without.group) == ("tenant", None)
    assert without.deduplication_id is None


@pytest.mark.parametrize("name", ["a b", "ünited", "x" * 129, "\ud800", "tab\t"])
def test_when_sqs_would_refuse_a_group_or_deduplication_id_then_its_hash_stands_for_it(
    name: str,
) -> None:
    entry = encode(Message(body=b"{}", group=name, deduplication_id=name), is_fifo=True)

    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    assert (entry.group, entry.deduplication_id) == (digest, digest)


@pytest.mark.parametrize("given_id", [None, ""])
def test_when_there_is_no_deduplication_id_then_the_messages_id_makes_repeated_sends_one(
    given_id: str | None,
) -> None:
    """R39."""
    message = Message(body=b"{}", id="m-1", deduplication_id=given_id)

    assert encode(message, is_fifo=True).deduplication_id == "m-1"
    assert decode(carry(message, is_fifo=True)).deduplication_id == given_id


def test_when_nothing_identifies_a_message_then_sqs_is_not_told_that_all_such_are_one() -> None:
    entry = encode(Message(body=b"{}", id=""), is_fifo=True)

    assert entry.deduplication_id is None
    assert "MessageDeduplicationId" not in entry_request(entry, entry_id="0", delay_s=0)


def test_when_sqs_moved_a_message_to_a_dead_letter_queue_then_its_own_ids_come_back() -> None:
    """SQS gives a moved message another de-duplication id."""
    message = Message(body=b"{}", group="g", deduplication_id="d")
    raw = carry(message, is_fifo=True)

    raw["Attributes"] |= {"MessageDeduplicationId": SQS_ID, "MessageGroupId": "other"}

    assert decode(raw) == message


def test_when_there_is_no_delay_then_the_queues_own_default_holds() -> None:
    entry = encode(Message(body=b"{}"), is_fifo=False)

    assert "DelaySeconds" not in entry_request(entry, entry_id="0", delay_s=0)
    assert entry_request(entry, entry_id="7", delay_s=9) | {"MessageAttributes": ...} == {
        "Id": "7",
        "MessageBody": "{}",
        "MessageAttributes": ...,
        "DelaySeconds": 9,
    }


def test_when_an_entry_is_shown_then_body_and_headers_are_not() -> None:
    """R57."""
    entry = encode(Message(body=b"secret-body", headers={"h": "secret-header"}), is_fifo=False)

    assert "secret" not in repr(entry)


@pytest.mark.parametrize(
    "changes",
    [
        {"v": 2},
        {"v": "1"},
        {"v": None},
        {"id": 7},
        {"h": {"a": 1}},
        {"h": []},
        {"e": "rot13"},
        {"e": "base64"},
        {"at": "yesterday"},
    ],
)
def test_when_the_attribute_makes_no_sense_then_the_message_is_a_strangers(
    changes: dict[str, Any],
) -> None:
    """A version of tomorrow, or damage: it is routed with all that came, never dropped."""
    raw = packed(**changes)

    message = decode(raw)

    assert (message.id, message.body) == (SQS_ID, b"{}")
    assert message.headers == {"pump": raw["MessageAttributes"]["pump"]["StringValue"]}


@pytest.mark.parametrize("body", ["%%%", "AA", "AA==AA==", "é", "A A="])
def test_when_the_base64_is_broken_then_the_message_is_a_strangers(body: str) -> None:
    raw = packed(e="base64") | {"Body": body}

    message = decode(raw)

    assert (message.id, message.body) == (SQS_ID, body.encode())


def test_when_tomorrows_version_adds_a_member_then_today_still_reads_it() -> None:
    assert decode(packed(new=[1, {"x": None}])).id == "m-1"


def test_when_a_strangers_message_is_sent_on_then_its_unread_attribute_survives() -> None:
    """Law 4: what was not understood is routed whole."""
    message = decode(packed(v=2))

    assert decode(carry(message, is_fifo=True)) == message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
packed_like = st.dictionaries(
    st.sampled_from(["v", "id", "type", "ct", "cid", "to", "g", "d", "at", "h", "e"]), json_values
)
attribute_values = st.one_of(
    texts,
    json_values.map(json.dumps),
    packed_like.map(json.dumps),
    packed_like.map(lambda members: json.dumps(members | {"v": 1, "id": "x"})),
    st.just("[" * 100_000),
    st.just('{"v":1,"id":"x","new":' + "[" * 100_000),
    st.just('{"v":' + "1" * 5_000 + "}"),
)
attributes = st.one_of(
    attribute_values.map(lambda text: {"DataType": "String", "StringValue": text}),
    st.binary().map(lambda octets: {"DataType": "Binary", "BinaryValue": octets}),
    json_values,
)
names = st.sampled_from(["pump", "type", "messageType", "bag", "cloudeventheaders", "id"]) | texts
system = st.dictionaries(
    st.sampled_from(["SentTimestamp", "ApproximateReceiveCount", "AWSTraceHeader"]), texts
)
notifications = st.fixed_dictionaries(
    {"Type": st.just("Notification"), "TopicArn": texts, "MessageId": texts, "Message": texts},
    optional={"Subject": json_values, "MessageAttributes": json_values},
).map(json.dumps)
raw_messages = st.fixed_dictionaries(
    {"MessageId": st.just(SQS_ID), "ReceiptHandle": st.just("r"), "Body": texts | notifications},
    optional={
        "MessageAttributes": st.none() | st.dictionaries(names, attributes, max_size=5),
        "Attributes": st.none() | system,
    },
)


@given(raw_messages, st.booleans())
def test_when_anything_arrives_then_it_is_a_message_that_can_be_sent_on(
    raw: dict[str, Any], unwrap_sns: bool
) -> None:
    """Law 4: undecodable messages are routed, never dropped; decoding never raises."""
    message = decode(raw, unwrap_sns=unwrap_sns)

    routed = replace(message, headers={**message.headers, "rejectionReason": "unacceptable"})
    assert decode(carry(routed, is_fifo=False)) == routed
    assert attempt_of(raw) >= 1


@pytest.mark.parametrize(
    ("given_attributes", "attempt"),
    [
        ({"ApproximateReceiveCount": "3"}, 3),
        ({"ApproximateReceiveCount": "many"}, 1),
        ({"ApproximateReceiveCount": "0"}, 1),
        ({}, 1),
        (None, 1),
    ],
)
def test_when_sqs_counts_receives_then_that_is_the_attempt(
    given_attributes: Any, attempt: int
) -> None:
    assert attempt_of({"Attributes": given_attributes}) == attempt


ODD = [
    Message(body=b"", id="empty", headers={"lone": "\ud800", "nul": "\x00", "": "\uffff"}),
    Message(body=b"\x00\xff", id="binary", group="a b", deduplication_id="x" * 200),
    Message(body=b"a\r\nb\rc\td", id="lines", type="Täpe", created_at_s=1794830400.123456),
    Message(body="\U0001f600é\x7f\x85\u2028".encode(), id="text", content_type="text/plain"),
    Message(body=b" ", id="space", group="-", deduplication_id="-"),
    Message(body=b"<a>&amp;]]></a>", id="xml", correlation_id="", reply_to=""),
]


@pytest.mark.broker
@pytest.mark.parametrize("is_fifo", [False, True])
def test_when_odd_messages_go_through_localstack_then_they_arrive_as_they_were_sent(
    aws: AwsAccount, is_fifo: bool
) -> None:
    """R1, T11."""
    sqs = aws.client("sqs")
    attributes = {"FifoQueue": "true"} if is_fifo else {}
    name = "odd.fifo" if is_fifo else "odd"
    url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    entries = [
        entry_request(encode(message, is_fifo=is_fifo), entry_id=str(position), delay_s=0)
        for position, message in enumerate(ODD)
    ]

    reply = sqs.send_message_batch(QueueUrl=url, Entries=entries)

    assert "Failed" not in reply
    received: dict[str, Message] = {}
    while len(received) < len(ODD):
        raw = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=5,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["All"],
        )["Messages"]
        received |= {message.id: message for message in map(decode, raw)}
    assert received == {message.id: message for message in ODD}


@pytest.mark.parametrize("is_fifo", [False, True])
def test_when_a_body_fits_but_for_its_headers_then_it_is_compressed(is_fifo: bool) -> None:
    """R27, R58: what SQS could deliver can also be sent on to a dead-letter queue."""
    largest = Message(body=b'{"n": 1}' * (MAX_BYTES // 8), headers={"rejectionReason": "x" * 999})

    entry = encode(largest, is_fifo=is_fifo)

    assert len(largest.body) == MAX_BYTES
    assert entry.size < MAX_BYTES
    assert decode(carry(largest, is_fifo=is_fifo)) == largest


def test_when_a_body_does_not_fit_by_itself_then_it_is_not_compressed() -> None:
    """R58: the limit is a limit, whatever the body happens to be made of."""
    entry = encode(Message(body=b"x" * (MAX_BYTES + 1)), is_fifo=False)

    assert entry.size > MAX_BYTES


@pytest.mark.parametrize(
    "octets",
    [
        pytest.param(zlib.compress(b"x" * (MAX_BYTES + 1)), id="larger than could be sent"),
        pytest.param(zlib.compress(b"x" * 100)[:-5], id="cut off"),
        pytest.param(b"not compressed", id="something else"),
    ],
)
def test_when_a_compressed_body_is_not_one_of_ours_then_it_is_kept_as_it_came(
    octets: bytes,
) -> None:
    """R35: a small message must not fill the memory, and is routed like any other stranger."""
    raw = carry(Message(body=b"x", id="m-1"), is_fifo=False)
    raw["Body"] = b64encode(octets).decode()
    raw["MessageAttributes"]["pump"]["StringValue"] = '{"v":1,"id":"m-1","e":"zlib"}'

    message = decode(raw)

    assert message.body == raw["Body"].encode()
    assert message.id == raw["MessageId"]


def test_when_a_packed_id_is_empty_or_a_time_no_number_then_neither_is_believed() -> None:
    """T11: what is routed on needs an id, and a time that can be sent."""
    assert decode(packed(id="") | {"MessageId": SQS_ID}).id == SQS_ID
    assert decode(packed(at=float("nan"))).created_at_s is None
    assert attempt_of({"Attributes": {"ApproximateReceiveCount": float("inf")}}) == 1


@pytest.mark.broker
def test_when_a_message_is_of_exactly_the_largest_size_then_sqs_takes_it_and_not_one_byte_more(
    aws: AwsAccount,
) -> None:
    """R58: sizes are counted as SQS counts them."""
    sqs = aws.client("sqs")
    url = sqs.create_queue(QueueName="large")["QueueUrl"]
    empty = encode(Message(body=b"x", id="m-1"), is_fifo=False).size - 1
    fits = encode(Message(body=b"x" * (MAX_BYTES - empty), id="m-1"), is_fifo=False)
    over = attrs.evolve(fits, body=fits.body + "x")

    taken = sqs.send_message_batch(
        QueueUrl=url, Entries=[entry_request(fits, entry_id="0", delay_s=0)]
    )

    assert fits.size == MAX_BYTES
    assert len(taken["Successful"]) == 1
    with pytest.raises(Exception, match=r"BatchRequestTooLong|InvalidParameter"):
        sqs.send_message_batch(QueueUrl=url, Entries=[entry_request(over, entry_id="0", delay_s=0)])
