"""The content type picks the codec, under all the names producers give it."""

import csv
import io
from typing import Any

import pytest

from pump.errors import ConfigurationError, MappingError
from pump.headers import ContentType, parse_content_type
from pump.mapping import JSON, MSGPACK, OCTETS, Mapper
from pump.message import Message
from pump.outcome import InvalidMessage

from .kinds import PlaceOrder


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        " ",
        JSON,
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json;charset="UTF-8"',
        "application/json; version=1; charset=us-ascii",
        "text/json",
        "application/vnd.acme.order+json",
        "application/problem+json; charset=utf8",
    ],
)
def test_when_it_is_json_under_any_name_then_it_is_read(content_type: str) -> None:
    message = Message(body=b'{"order_id": "o"}', content_type=content_type)

    assert Mapper().decode(message, PlaceOrder) == PlaceOrder("o")


@pytest.mark.parametrize(
    "content_type",
    [MSGPACK, "application/x-msgpack", "application/vnd.msgpack", "application/vnd.acme+msgpack"],
)
def test_when_it_is_msgpack_under_any_name_then_it_is_read(content_type: str) -> None:
    message = Message(body=b"\x81\xa8order_id\xa1o", content_type=content_type)

    assert Mapper().decode(message, PlaceOrder) == PlaceOrder("o")


@pytest.mark.parametrize("kind", [PlaceOrder, dict])
def test_when_json_starts_with_a_byte_order_mark_then_it_is_passed_over(kind: Any) -> None:
    message = Message(body=b'\xef\xbb\xbf{"order_id": "o"}')

    assert Mapper().decode(message, kind) in (PlaceOrder("o"), {"order_id": "o"})


def test_when_the_mapper_has_a_content_type_then_requests_are_written_in_it() -> None:
    message = Mapper(content_type=MSGPACK).encode(PlaceOrder("o", 1))

    assert message.content_type == MSGPACK
    assert message.body == b"\x82\xa8order_id\xa1o\xa8quantity\x01"


def test_when_the_mappers_content_type_has_no_codec_then_it_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="no codec for 'text/csv'"):
        Mapper(content_type="text/csv")


class CsvCodec:
    def encode(self, request: Any) -> bytes:
        return f"{request.order_id},{request.quantity}".encode("latin-1")

    def decode(self, body: bytes, request_type: Any) -> Any:
        [(order_id, quantity)] = csv.reader(io.StringIO(body.decode("latin-1")))
        return request_type(order_id, int(quantity))


def test_when_a_codec_is_added_then_its_content_type_is_read_and_written() -> None:
    mapper = Mapper(codecs={"text/csv": CsvCodec()}, content_type="text/csv")

    message = mapper.encode(PlaceOrder("o", 3))

    assert (message.content_type, message.body) == ("text/csv", b"o,3")
    assert mapper.decode(message, PlaceOrder) == PlaceOrder("o", 3)


def test_when_a_codec_is_added_for_a_charset_then_that_charset_is_its_business() -> None:
    mapper = Mapper(codecs={"text/csv; charset=latin-1": CsvCodec()})
    message = Message(body="ö,3".encode("latin-1"), content_type="text/csv; charset=latin-1")

    assert mapper.decode(message, PlaceOrder) == PlaceOrder("ö", 3)


def test_when_a_codec_fails_then_it_is_a_mapping_error_without_the_body() -> None:
    mapper = Mapper(codecs={"text/csv": CsvCodec()})

    with pytest.raises(MappingError, match="ValueError") as caught:
        mapper.decode(Message(body=b"hunter2,hunter2", content_type="text/csv"), PlaceOrder)
    assert "hunter2" not in str(caught.value)


class Refusing(CsvCodec):
    def encode(self, request: Any) -> bytes:
        raise InvalidMessage("nothing leaves the house")


def test_when_a_codec_raises_a_signal_then_it_gets_out() -> None:
    with pytest.raises(InvalidMessage):
        Mapper(codecs={"text/csv": Refusing()}).encode({}, content_type="text/csv")


class Blob(bytes): ...


def test_when_anything_will_do_then_the_content_type_says_what_it_is() -> None:
    mapper = Mapper()

    assert mapper.decode(mapper.encode("text"), Any) == "text"
    assert mapper.decode(mapper.encode(b"octets"), object) == b"octets"
    assert mapper.encode(Blob(b"blob"), content_type=OCTETS).body == b"blob"


def test_when_a_codec_replaces_ours_then_it_is_used() -> None:
    mapper = Mapper(codecs={"Application/JSON": CsvCodec()})

    assert mapper.encode(PlaceOrder("o", 3)).body == b"o,3"


def test_when_a_content_type_is_parsed_then_case_and_quotes_do_not_matter() -> None:
    assert parse_content_type(' Text/Plain ; Charset="UTF-8"; x=y') == ContentType(
        "text/plain", "utf-8"
    )
    assert parse_content_type("") == ContentType("application/json")
