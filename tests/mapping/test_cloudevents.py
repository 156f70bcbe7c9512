"""CloudEvents 1.0 in both modes: read whoever sent them, written on request."""

import json
from typing import Any, Literal

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from pump.cloudevents import STRUCTURED, from_event, is_event, to_binary, to_structured
from pump.errors import ConfigurationError, MappingError
from pump.mapping import JSON, OCTETS, TEXT, Mapper
from pump.message import Message
from pump.subscription import Subscription

from .kinds import PlaceOrder

NOON_S = 1794830400.5
EVENT = {
    "specversion": "1.0",
    "id": "e-1",
    "source": "/shop",
    "type": "PlaceOrder",
    "time": "2026-11-16T13:00:00.5+01:00",
    "subject": "o-1",
    "partitionkey": "ann",
    "correlationid": "c-1",
    "traceparent": "00-ab-cd-01",
    "rank": 3,
    "urgent": True,
    "dataschema": None,
    "data": {"order_id": "o-1", "quantity": 2},
}
orders = Subscription(queue="orders", request=PlaceOrder)
mapper = Mapper()


def structured(**changes: Any) -> Message:
    event = {name: value for name, value in (EVENT | changes).items() if value != ...}
    return Message(body=json.dumps(event).encode(), content_type=STRUCTURED)


def binary(**changes: str) -> Message:
    attributes = {"specversion": "1.0", "id": "e-1", "source": "/shop", "type": "PlaceOrder"}
    headers = {f"ce-{name}": value for name, value in (attributes | changes).items() if value}
    return Message(body=b'{"order_id": "o-1"}', headers=headers)


def test_when_a_structured_event_arrives_then_it_is_the_request_in_its_data() -> None:
    assert mapper.read(structured(), orders) == PlaceOrder("o-1", 2)


def test_when_a_structured_event_is_read_then_its_attributes_are_the_messages_fields() -> None:
    message = mapper.normalise(structured())

    assert message == Message(
        body=b'{"order_id": "o-1", "quantity": 2}',
        id="e-1",
        type="PlaceOrder",
        content_type=JSON,
        correlation_id="c-1",
        group="ann",
        created_at_s=NOON_S,
        headers={
            "traceparent": "00-ab-cd-01",
            "ce-source": "/shop",
            "ce-subject": "o-1",
            "ce-rank": "3",
            "ce-urgent": "true",
        },
    )
    assert not is_event(message)


@pytest.mark.parametrize("prefix", ["ce-", "Ce-", "CE-", "ce_", "cloudEvents:", "cloudEvents_"])
def test_when_a_binary_event_arrives_then_the_prefix_may_be_any_bindings(prefix: str) -> None:
    event = binary(partitionkey="ann", subject="s")
    headers = {prefix + name.removeprefix("ce-"): value for name, value in event.headers.items()}

    message = mapper.normalise(replace(event, headers=headers | {"x-own": "1"}))

    assert (message.id, message.type, message.group) == ("e-1", "PlaceOrder", "ann")
    assert message.headers == {"x-own": "1", "ce-source": "/shop", "ce-subject": "s"}
    assert mapper.read(event, orders) == PlaceOrder("o-1")


def test_when_a_binary_events_header_is_percent_encoded_then_it_is_decoded() -> None:
    assert mapper.normalise(binary(subject="gr%C3%BCezi%20%25")).headers["ce-subject"] == (
        "grüezi %"
    )


def test_when_an_amqp_event_has_a_percent_sign_then_it_is_taken_literally() -> None:
    headers = {**binary().headers, "cloudEvents:subject": "100%25"}

    message = mapper.normalise(replace(binary(), headers=headers))

    assert message.headers["ce-subject"] == "100%25"


def test_when_a_nats_event_names_its_data_content_type_then_that_counts() -> None:
    event = replace(binary(datacontenttype="text/plain"), body=b"hello")

    assert mapper.decode(event, str) == "hello"


@pytest.mark.parametrize(
    ("changes", "body", "content_type"),
    [
        ({"data": ..., "data_base64": "AP8="}, b"\x00\xff", JSON),
        ({"data": "<a/>", "datacontenttype": "application/xml"}, b"<a/>", "application/xml"),
        ({"data": "grüezi", "datacontenttype": TEXT}, "grüezi".encode(), TEXT),
        ({"data": "text"}, b'"text"', JSON),
        ({"data": None}, b"null", JSON),
        ({"data": None, "data_base64": "AA=="}, b"\x00", JSON),
        ({"data": ...}, b"", JSON),
        ({"data": [1], "datacontenttype": "application/vnd.a+json"}, b"[1]", None),
    ],
)
def test_when_data_comes_in_any_form_then_the_body_is_the_data(
    changes: dict[str, Any], body: bytes, content_type: str | None
) -> None:
    message = mapper.normalise(structured(**changes))

    assert message.body == body
    assert message.content_type == (content_type or "application/vnd.a+json")


def test_when_data_has_numbers_beyond_a_double_then_no_digit_is_lost() -> None:
    body = b'{"specversion":"1.0","id":"1","source":"s","type":"t","data":1.00000000000000000001}'

    message = from_event(Message(body=body, content_type=f"{STRUCTURED}; charset=utf-8"))

    assert message.body == b"1.00000000000000000001"


@pytest.mark.parametrize("value", [..., None, ""])
@pytest.mark.parametrize("name", ["specversion", "id", "source", "type"])
def test_when_a_required_attribute_is_missing_then_the_error_names_it(
    name: str, value: Any
) -> None:
    with pytest.raises(MappingError, match=f"attribute '{name}' is missing or empty"):
        mapper.read(structured(**{name: value}), orders)
    if name != "source":
        with pytest.raises(MappingError, match=f"attribute '{name}' is missing or empty"):
            mapper.read(binary(**{name: ""}), orders)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"specversion": "0.3"}, "'specversion' must be 1.0"),
        ({"specversion": 1.0}, "'specversion' must be a string, a boolean or an integer"),
        ({"time": "yesterday"}, "'time' is not an RFC 3339 time"),
        ({"time": "2026-11-16T12:00:00"}, "'time' has no time zone"),
        ({"rank": {"a": 1}}, "'rank' must be a string, a boolean or an integer"),
        ({"data": ..., "data_base64": "???"}, "'data_base64' is not base64"),
        ({"data": ..., "data_base64": 5}, "'data_base64' is not base64"),
        ({"data_base64": "AA=="}, "'data_base64' stands beside data"),
        ({"datacontenttype": "text/plain"}, "'data' must be a string"),
    ],
)
def test_when_an_event_is_malformed_then_the_error_names_the_attribute(
    changes: dict[str, Any], fault: str
) -> None:
    with pytest.raises(MappingError, match=f"CloudEvents attribute {fault}"):
        mapper.read(structured(**changes), orders)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"id":' + b"[" * 100_000])
def test_when_the_envelope_is_no_json_object_then_it_is_a_mapping_error(body: bytes) -> None:
    with pytest.raises(MappingError, match="the CloudEvent is not a proper JSON object"):
        mapper.read(Message(body=body, content_type=STRUCTURED), orders)


def test_when_an_attribute_is_a_number_beyond_measure_then_the_error_names_it() -> None:
    message = Message(body=b'{"specversion":"1.0","rank":1e999}', content_type=STRUCTURED)

    with pytest.raises(MappingError, match="attribute 'rank' must be"):
        mapper.read(message, orders)


def test_when_text_is_not_the_utf_8_it_claims_then_it_is_written_as_base64() -> None:
    message = Message(body=b"\xff", type="t", content_type=TEXT)

    event = to_structured(message, source="/shop")

    assert json.loads(event.body)["data_base64"] == "/w=="
    assert from_event(event).body == b"\xff"


@pytest.mark.parametrize("suffix", ["", "-batch+json", "+avro"])
def test_when_the_format_is_another_then_the_error_names_the_one_that_is_read(suffix: str) -> None:
    message = Message(body=b"[]", content_type=f"application/cloudevents{suffix}")

    with pytest.raises(MappingError, match="as application/cloudevents"):
        mapper.read(message, orders)


def test_when_a_header_is_badly_percent_encoded_then_the_error_names_it() -> None:
    with pytest.raises(MappingError, match="attribute 'subject' is not percent-encoded"):
        mapper.read(binary(subject="%ff"), orders)


@pytest.mark.parametrize("mode", ["structured", "binary"])
def test_when_the_mapper_writes_events_then_it_reads_them_back(
    mode: Literal["structured", "binary"],
) -> None:
    writer = Mapper(cloudevents=mode, source="/shop")

    message = writer.encode(PlaceOrder("o"), group="ann", id="i", headers={"x-own": "1"})

    assert is_event(message)
    assert (message.id, message.type, message.group) == ("i", "PlaceOrder", "ann")
    assert message.headers["x-own"] == "1"
    assert mapper.read(message, orders) == PlaceOrder("o")


def test_when_an_event_is_written_in_binary_then_the_attributes_are_headers() -> None:
    message = Message(
        body=b"{}", id="i", type="t", created_at_s=NOON_S, group="é %", headers={"traceparent": "x"}
    )

    assert to_binary(message, source="/shop").headers == {
        "traceparent": "x",
        "ce-specversion": "1.0",
        "ce-id": "i",
        "ce-source": "/shop",
        "ce-type": "t",
        "ce-time": "2026-11-16T12:00:00.500000Z",
        "ce-partitionkey": "%C3%A9%20%25",
        "ce-traceparent": "x",
    }


def test_when_an_event_is_written_structured_then_the_body_holds_it_all() -> None:
    message = Message(body=b'{"a":1}', id="i", type="t", headers={"ce-rank": "3", "own": "1"})

    event = to_structured(message, source="/shop")

    assert (event.content_type, event.headers) == (STRUCTURED, {"own": "1"})
    assert json.loads(event.body) == {
        "specversion": "1.0",
        "id": "i",
        "source": "/shop",
        "type": "t",
        "rank": "3",
        "datacontenttype": JSON,
        "data": {"a": 1},
    }


def test_when_an_event_is_passed_on_then_it_keeps_its_source() -> None:
    assert to_binary(structured()).headers["ce-source"] == "/shop"
    assert to_binary(structured(), source="/other").headers["ce-source"] == "/other"
    assert json.loads(to_structured(binary()).body)["source"] == "/shop"


@pytest.mark.parametrize("write", [to_structured, to_binary])
@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"type": ""}, "'type' is missing or empty"),
        ({"id": ""}, "'id' is missing or empty"),
        ({"created_at_s": 1e300}, "'time' is beyond the calendar"),
        ({"created_at_s": float("nan")}, "'time' is beyond the calendar"),
        ({"headers": {"ce-two words": "x"}}, "'two words' must be named with a-z and 0-9"),
        ({"headers": {"ce-data": "x"}}, "'data' must be named"),
    ],
)
def test_when_a_message_makes_no_event_then_the_error_names_the_attribute(
    changes: dict[str, Any], fault: str, write: Any
) -> None:
    message = replace(Message(body=b"{}", type="t"), **changes)

    with pytest.raises(MappingError, match=f"CloudEvents attribute {fault}"):
        write(message, source="/shop")


@pytest.mark.parametrize("write", [to_structured, to_binary])
def test_when_nobody_knows_the_source_then_the_error_names_it(write: Any) -> None:
    with pytest.raises(MappingError, match="attribute 'source' is missing"):
        write(Message(body=b"{}", type="t"))


@pytest.mark.parametrize("write", [to_structured, to_binary])
def test_when_an_attribute_has_no_utf_8_form_then_it_is_a_mapping_error(write: Any) -> None:
    with pytest.raises(MappingError, match="must be Unicode text"):
        write(Message(body=b"{}", type="t", group="\ud800"), source="/shop")


def test_when_the_body_is_not_the_json_it_claims_then_it_is_not_written() -> None:
    with pytest.raises(MappingError, match="'data' is not the JSON its content type says"):
        to_structured(Message(body=b"{", type="t"), source="/shop")


def test_when_the_mapper_cannot_write_events_then_it_is_a_configuration_error() -> None:
    wrong: Any = "xml"

    with pytest.raises(ConfigurationError, match=r"Mapper\.source"):
        Mapper(cloudevents="binary")
    with pytest.raises(ConfigurationError, match=r"Mapper\.cloudevents"):
        Mapper(cloudevents=wrong, source="/shop")


text = st.text(st.characters(exclude_categories=["Cs"]))
some_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
bodies = st.one_of(
    st.tuples(st.just(JSON), st.sampled_from([b"{}", b'[1, "\xc3\xa9"]', b"null", b""])),
    st.tuples(st.just(TEXT), text.map(str.encode)),
    st.tuples(st.sampled_from([OCTETS, "application/xml", TEXT]), st.binary()),
)
extensions = st.dictionaries(st.from_regex(r"ce-x[a-z0-9]{0,9}", fullmatch=True), text)
messages = st.builds(
    lambda content, **fields: Message(content_type=content[0], body=content[1], **fields),
    bodies,
    id=some_text,
    type=some_text,
    correlation_id=st.none() | text,
    reply_to=st.none() | text,
    group=st.none() | text,
    deduplication_id=st.none() | text,
    created_at_s=st.none() | st.integers(0, 2**40).map(lambda ms: ms / 1000),
    headers=st.builds(
        lambda own, extra: {"ce-source": "/shop", **own, **extra},
        st.dictionaries(st.sampled_from(["traceparent", "x-own", "rejectionReason"]), text),
        extensions,
    ),
)


@settings(deadline=None)
@given(messages)
def test_when_any_message_becomes_an_event_and_back_then_it_is_the_same(message: Message) -> None:
    for event in (to_structured(message), to_binary(message), to_binary(to_structured(message))):
        assert is_event(event)
        assert from_event(event) == message


def test_when_the_time_holds_half_a_surrogate_pair_then_it_is_a_mapping_error() -> None:
    message = replace(to_binary(from_event(structured())), body=b"{}")
    headers = {**message.headers, "ce-time": "2026-11-16T\ud800"}

    with pytest.raises(MappingError, match="RFC 3339"):
        from_event(replace(message, headers=headers))


@pytest.mark.parametrize("time_s", [float("nan"), float("inf"), 1e300, -1e15])
def test_when_a_time_is_beyond_the_calendar_then_the_message_says_none(time_s: float) -> None:
    assert Message(body=b"", created_at_s=time_s).created_at is None
