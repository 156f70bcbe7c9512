"""Every kind of request survives the journey, in every content type that can carry it."""

import pickle
from typing import Any

import pytest

from pump.errors import ConfigurationError, MappingError
from pump.mapping import JSON, MSGPACK, OCTETS, TEXT, Mapper
from pump.message import Message

from .kinds import (
    NOON,
    REQUESTS,
    Box,
    HandMade,
    HoldsOpaque,
    Line,
    Model,
    Opaque,
    Pets,
    PlaceOrder,
    Row,
    StructOfTidied,
    Tidied,
)

mapper = Mapper()


def body(text: str) -> Message:
    return Message(body=text.encode())


@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_when_a_request_is_encoded_then_decoding_gives_an_equal_one(
    request_: Any, content_type: str
) -> None:
    message = mapper.encode(request_, content_type=content_type)

    assert mapper.decode(message, type(request_)) == request_
    assert message.content_type == content_type
    assert message.type == type(request_).__dict__.get("__message_type__", type(request_).__name__)


def test_when_a_generic_request_is_decoded_then_its_argument_counts() -> None:
    message = mapper.encode(Box(PlaceOrder("o")))

    assert mapper.decode(message, Box[PlaceOrder]) == Box(PlaceOrder("o"))
    with pytest.raises(MappingError, match=r"\$\.item: expected int, got object"):
        mapper.decode(message, Box[int])


def test_when_a_dict_is_the_request_then_json_passes_through() -> None:
    value = {"a": [1, 2.5, None, {"b": "c"}]}

    message = mapper.encode(value)

    assert message.type == ""
    for kind in (dict, Any, object):
        assert mapper.decode(message, kind) == value
    assert mapper.decode(body('{"a": 1}'), Row) == {"a": 1}


def test_when_text_is_the_request_then_it_travels_as_plain_text() -> None:
    message = mapper.encode("grüezi")

    assert (message.content_type, message.body) == (TEXT, "grüezi".encode())
    assert mapper.decode(message, str) == "grüezi"


def test_when_bytes_are_the_request_then_the_body_is_they_whatever_the_content_type() -> None:
    message = mapper.encode(b"\x00\xff")
    labelled = mapper.encode(b"%PDF", content_type="application/pdf")

    assert (message.content_type, message.body) == (OCTETS, b"\x00\xff")
    assert mapper.decode(message, bytes) == b"\x00\xff"
    assert mapper.decode(labelled, bytes) == b"%PDF"


def test_when_a_field_is_unknown_then_it_is_ignored() -> None:
    assert mapper.decode(body('{"order_id": "o", "new": [1]}'), PlaceOrder) == PlaceOrder("o")


def test_when_an_attrs_class_converts_then_the_converter_runs() -> None:
    tidied = mapper.decode(body('{"name": "  ann ", "_secret": "s", "size": 99}'), Tidied)

    assert (tidied.name, tidied._secret, tidied.size) == ("ann", "s", 3)


def test_when_a_class_has_its_own_constructor_then_it_is_called() -> None:
    assert mapper.decode(body('{"a": 2}'), HandMade) == HandMade(2)


def test_when_a_pydantic_model_has_an_alias_then_the_alias_is_on_the_wire() -> None:
    message = mapper.encode(Model(when=NOON, Quantity=1))

    assert b'"Quantity":1' in message.body


@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
def test_when_a_class_cannot_be_written_then_the_error_names_it(content_type: str) -> None:
    with pytest.raises(MappingError, match=r"HoldsOpaque cannot be written.*Opaque"):
        mapper.encode(HoldsOpaque(Opaque()), content_type=content_type)


@pytest.mark.parametrize("value", ["\ud800", {"a": "\ud800"}])
def test_when_text_has_no_utf_8_form_then_encoding_is_a_mapping_error(value: Any) -> None:
    with pytest.raises(MappingError, match="UnicodeEncodeError"):
        mapper.encode(value, content_type=JSON)


def test_when_a_value_contains_itself_then_encoding_is_a_mapping_error() -> None:
    endless: list[Any] = []
    endless.append(endless)

    with pytest.raises(MappingError, match="RecursionError"):
        mapper.encode(endless)


@pytest.mark.parametrize("kind", [PlaceOrder, Pets, Model, Box[Line], dict, Row, bytes])
def test_when_a_type_can_be_read_then_the_check_passes(kind: Any) -> None:
    mapper.check(kind)


def test_when_a_type_cannot_be_read_then_the_check_names_the_culprit() -> None:
    with pytest.raises(ConfigurationError, match="Opaque cannot be read"):
        mapper.check(HoldsOpaque)


def test_when_a_struct_holds_what_only_its_constructor_can_build_then_the_check_says_so() -> None:
    with pytest.raises(ConfigurationError, match=r"cattrs cannot build.*StructOfTidied"):
        mapper.check(StructOfTidied)


@pytest.mark.parametrize(
    ("content_type", "words"),
    [(TEXT, "plain text carries str, not dict"), (OCTETS, "octets carry bytes, not dict")],
)
def test_when_a_content_type_cannot_carry_a_request_then_the_error_says_what_it_carries(
    content_type: str, words: str
) -> None:
    with pytest.raises(MappingError, match=words):
        mapper.encode({}, content_type=content_type)


def test_when_an_annotation_means_nothing_then_the_check_says_so() -> None:
    class Lost(PlaceOrder):
        where: "Nowhere" = None  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(ConfigurationError, match="Nowhere"):
        mapper.check(Lost)
    with pytest.raises(MappingError, match="Nowhere"):
        mapper.decode(body("{}"), Lost)


def test_when_a_mapper_is_pickled_then_the_copy_maps() -> None:
    used = Mapper(types=[PlaceOrder], content_type=MSGPACK)
    message = used.encode(PlaceOrder("o"))
    used.decode(message, PlaceOrder)

    copy = pickle.loads(pickle.dumps(used))

    assert copy.decode(message, PlaceOrder) == PlaceOrder("o")
    assert copy.encode(PlaceOrder("o")).body == message.body
