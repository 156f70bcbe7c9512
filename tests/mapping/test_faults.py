"""A body that cannot be read is a MappingError that says where and why, and quotes nothing."""

from typing import Annotated, Any

import msgspec
import pytest

from pump.errors import MappingError
from pump.mapping import JSON, MSGPACK, TEXT, Mapper
from pump.message import Message
from pump.outcome import InvalidMessage

from .kinds import (
    Bounded,
    Colour,
    Fussy,
    Holder,
    Model,
    Opaque,
    OrderPlaced,
    Pets,
    PlaceOrder,
    Positive,
    Secretive,
    Shipped,
    Struct,
    Tidied,
)

mapper = Mapper()


def fault(body: bytes, kind: Any, content_type: str = JSON) -> str:
    message = Message(body=body, type="T", content_type=content_type)
    with pytest.raises(MappingError) as caught:
        mapper.decode(message, kind)
    assert caught.value.message_type == "T"
    return caught.value.detail


@pytest.mark.parametrize(
    ("body", "kind", "detail"),
    [
        (b'{"order_id": "o", "quantity": "3"}', PlaceOrder, "$.quantity: expected int, got str"),
        (b"{}", PlaceOrder, "$.order_id: required field is missing"),
        (b"[]", PlaceOrder, "$: expected object, got array"),
        (b"{", PlaceOrder, "$: input data was truncated"),
        (b"", PlaceOrder, "$: input data was truncated"),
        (b"{} x", dict, "$: JSON is malformed: trailing characters (byte 4)"),
        (b'"\xff"', str, "$: not utf-8 at byte 0"),
        (b"[" * 100_000, list, "$: nested too deeply"),
        (b'{"a": "1"}', dict[int, int], "$ (key): expected int, got str"),
        (b'{"a": {"b": "1"}}', dict[str, dict[str, int]], "$[...][...]: expected int, got str"),
        (b'{"a": 1, "when": "soon"}', Struct, "$.when: invalid RFC3339 encoded datetime"),
        (b'"purple"', Colour, "$: invalid enum value"),
        (b'{"age": 151}', Bounded, "$.age: expected int <= 150"),
        (b"-1", Annotated[int, msgspec.Meta(ge=0)], "$: expected int >= 0"),
        (b'{"quantity": 0}', Positive, "$: ValueError: 'quantity' must be > …: …"),
        (b'{"order_id": "", "at": "2026-01-01T00:00:00Z"}', Shipped, None),
        (b'{"a": 1}', Fussy, "$: ZeroDivisionError: a"),
        (b"{}", Tidied, "$.name: required field is missing"),
        (b"[]", Tidied, "$: expected object, got list"),
        (b'{"name": 5}', Tidied, "$.name: expected str, got int"),
        (b'{"name": "x", "quantity": 0}', Tidied, "$: ValueError: 'quantity' must be > …: …"),
        (
            b'{"pets": [{"purrs": true}, {"purrs": 1}]}',
            Pets,
            "$.pets[1].purrs: expected bool, got int",
        ),
        (
            b'{"pets": [], "by_name": {"ann": {}}}',
            Pets,
            "$.by_name[...].name: required field is missing",
        ),
        (
            b'{"when": "2026-01-01T00:00:00Z", "Quantity": -1}',
            Model,
            "$.Quantity: input should be greater than 0",
        ),
        (
            b'{"model": {"when": "2026-01-01T00:00:00Z"}}',
            Holder,
            "$.model.Quantity: field required",
        ),
        (b"{}", Opaque, "$: TypeError: Opaque is not a type that can be read from a message"),
    ],
)
def test_when_a_body_does_not_fit_then_the_detail_names_the_place(
    body: bytes, kind: Any, detail: str | None
) -> None:
    found = fault(body, kind)

    assert found == (detail or "$: ValueError: order_id must not be empty")


def test_when_many_things_are_wrong_then_the_first_are_named_and_the_rest_counted() -> None:
    assert fault(b'{"Quantity": "x", "children": [{}, {}]}', Model).endswith("; and 3 more")


@pytest.mark.parametrize("encode", [msgspec.json.encode, msgspec.msgpack.encode])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"token": "hunter2 ✓\n"}, Secretive),
        ({"token": "abc", "colour": "hunter2"}, Secretive),
        ({"name": "hunter2", "quantity": -1}, Tidied),
        ({"when": "hunter2", "Quantity": "hunter2"}, Model),
        ({"model": {"when": "hunter2", "Quantity": "hunter2"}}, Holder),
        ({"order_id": "hunter2"}, OrderPlaced),
    ],
)
def test_when_a_value_is_refused_then_the_detail_does_not_repeat_it(
    value: Any, kind: Any, encode: Any
) -> None:
    content_type = JSON if encode is msgspec.json.encode else MSGPACK

    assert "hunter2" not in fault(encode(value), kind, content_type)


def test_when_a_validator_quotes_the_value_then_the_rest_of_its_words_stay() -> None:
    assert fault(b'{"token": "HUNTER 2"}', Secretive) == (
        "$: ValueError: 'token' must match regex '[a-z]+' ('…' doesn't)"
    )


@pytest.mark.parametrize(
    ("content_type", "detail"),
    [
        ("application/xml", "no codec for 'application/xml', known: application/json"),
        ("application/json; charset=latin-1", "charset 'latin-1' is not read; send UTF-8"),
        ("text/plain; charset=utf-16", "charset 'utf-16' is not read; send UTF-8"),
        ("x" * 5000, "no codec for 'xxx"),
        (TEXT, "$: plain text is read as str, not as PlaceOrder"),
        ("application/octet-stream", "$: octets are read as bytes, not as PlaceOrder"),
    ],
)
def test_when_the_content_type_does_not_fit_then_the_detail_says_so(
    content_type: str, detail: str
) -> None:
    found = fault(b'{"order_id": "o"}', PlaceOrder, content_type)

    assert found.startswith(detail)
    assert len(found) < 400


def test_when_text_is_not_utf_8_then_it_is_a_mapping_error() -> None:
    assert fault(b"\xff", str, "text/plain") == "$: not utf-8 at byte 0"


@pytest.mark.parametrize("prefix", [b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xc1"])
def test_when_msgpack_promises_more_than_it_has_then_it_is_a_mapping_error(prefix: bytes) -> None:
    assert fault(prefix, Any, MSGPACK).startswith("$: ")


def test_when_msgpack_is_a_recursion_bomb_then_it_is_a_mapping_error() -> None:
    assert fault(b"\x91" * 100_000, Any, MSGPACK) == "$: nested too deeply"


class Vetoed(PlaceOrder):
    def __attrs_post_init__(self) -> None:
        raise InvalidMessage("not on a Sunday")


def test_when_a_request_raises_a_signal_then_it_gets_out() -> None:
    message = Message(body=b'{"order_id": "o"}')

    with pytest.raises(InvalidMessage, match="Sunday"):
        mapper.decode(message, Vetoed)
