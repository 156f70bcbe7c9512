"""Message attributes: what is taken, and which are handed out."""

from typing import Any

import pytest

from gateways.sqs_server.errors import SqsError
from gateways.sqs_server.model import Attribute
from gateways.sqs_server.operations.message_attributes import (
    read_attributes,
    read_trace_header,
    render_attribute,
    selector,
)


def _text(value: str, data_type: str = "String") -> dict[str, Any]:
    return {"DataType": data_type, "StringValue": value}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (_text("x"), Attribute("String", "x")),
        (_text("x", "String.custom"), Attribute("String.custom", "x")),
        (_text("-1.5e10", "Number"), Attribute("Number", "-1.5e10")),
        ({"DataType": "Binary.png", "BinaryValue": b"\x00"}, Attribute("Binary.png", b"\x00")),
    ],
)
def test_when_an_attribute_is_of_a_known_type_then_it_is_taken_and_shown_as_it_was(
    raw: dict[str, Any], expected: Attribute
) -> None:
    """R44."""
    assert read_attributes({"name": raw}) == {"name": expected}
    assert render_attribute(expected) == raw


@pytest.mark.parametrize("name", ["a", "SOME_Valid.attribute-Name", "attr.1øßä", "x" * 256])
def test_when_a_name_is_allowed_then_the_attribute_is_taken(name: str) -> None:
    """R44."""
    assert list(read_attributes({name: _text("x")})) == [name]


@pytest.mark.parametrize(
    "name",
    ["", "aWs.x", "AMAZON.x", ".x", "x.", "x..y", "a!", 'a"', "a§", "a(", "a?", "a b", "x" * 257],
)
def test_when_a_name_is_not_allowed_then_the_message_is_refused(name: str) -> None:
    """R44."""
    with pytest.raises(SqsError) as refused:
        read_attributes({name: _text("x")})

    assert refused.value.query_code == "InvalidParameterValue"


@pytest.mark.parametrize(
    "raw",
    [
        _text("x", "Invalid"),
        _text("x", ""),
        _text("x", "Number." + "L" * 256),
        _text("x", "Number"),
        _text("1" * 39, "Number"),
        _text("Invalid-\x08"),
        {"DataType": "String"},
        {"DataType": "String", "BinaryValue": b"x"},
        {"DataType": "Binary", "StringValue": "x"},
        {"DataType": "Binary", "BinaryValue": b""},
    ],
)
def test_when_a_type_or_value_is_not_allowed_then_the_message_is_refused(
    raw: dict[str, Any],
) -> None:
    """R44."""
    with pytest.raises(SqsError) as refused:
        read_attributes({"name": raw})

    assert refused.value.query_code == "InvalidParameterValue"


def test_when_a_value_is_empty_then_the_refusal_is_in_aws_words() -> None:
    """R44."""
    with pytest.raises(SqsError) as refused:
        read_attributes({"ErrorDetails": _text("")})

    assert refused.value.message == (
        "Message (user) attribute 'ErrorDetails' must contain a non-empty value of type 'String'."
    )


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("", _text("x"), "The request must contain non-empty message (user) attribute names."),
        (
            "amazon.Hello",
            _text("x"),
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon'. "
            "These strings are reserved for internal use.",
        ),
        ("a" * 257, _text("x"), "Message (user) attribute name must be shorter than 256 bytes."),
        (".a", _text("x"), "Message (user) attribute name must not begin with character '.'."),
        ("a.", _text("x"), "Message (user) attribute name must not end with character '.'."),
        (
            "a..b",
            _text("x"),
            "Message (user) attribute name must not have successive '.' characters.",
        ),
        (
            "a",
            _text("x", "String." + "L" * 250),
            "Message (user) attribute type must be shorter than 256 bytes.",
        ),
        (
            "a",
            {},
            "The message (user) attribute 'a' must contain a non-empty message attribute value.",
        ),
        (
            "a",
            {"StringValue": "x"},
            "The message (user) attribute 'a' must contain a non-empty message attribute type.",
        ),
        (
            "a",
            {"DataType": "Number", "BinaryValue": b"1"},
            "Message (user) attribute 'a' with type 'Number' must use field 'String'.",
        ),
        (
            "a",
            {**_text("x"), "BinaryValue": b"x"},
            "Message (user) attribute 'a' must have a single value.",
        ),
    ],
)
def test_when_an_attribute_is_refused_then_it_is_in_aws_words(
    name: str, raw: dict[str, Any], message: str
) -> None:
    with pytest.raises(SqsError) as refused:
        read_attributes({name: raw})

    assert refused.value.query_code == "InvalidParameterValue"
    assert refused.value.message == message


@pytest.mark.parametrize(
    "raw",
    [
        {"DataType": "StringList", "StringListValues": ["x"]},
        {"DataType": "String", "BinaryListValues": [b"x"]},
        {**_text("x"), "StringListValues": []},
    ],
)
def test_when_an_attribute_is_a_list_then_it_is_not_supported(raw: dict[str, Any]) -> None:
    with pytest.raises(SqsError) as refused:
        read_attributes({"name": raw})

    assert refused.value.code == "UnsupportedOperation"
    assert refused.value.message == (
        "Message attribute list values in SendMessage operation are not supported."
    )


def test_when_there_are_more_than_ten_then_the_message_is_refused() -> None:
    """R44."""
    read_attributes({f"a{number}": _text("x") for number in range(10)})

    with pytest.raises(SqsError, match=r"\[11\] exceeds the allowed maximum \[10\]"):
        read_attributes({f"a{number}": _text("x") for number in range(11)})


def test_when_a_system_attribute_is_the_trace_header_then_it_is_read_and_others_are_refused() -> (
    None
):
    """R44."""
    assert read_trace_header({"AWSTraceHeader": _text("Root=1")}) == "Root=1"
    for name, raw in {
        "Other": _text("x"),
        "AWSTraceHeader": _text("1", "Number"),
    }.items():
        with pytest.raises(SqsError) as refused:
            read_trace_header({name: raw})
        assert refused.value.query_code == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["All"], {"Help.Me", "Hello", "General"}),
        ([".*"], {"Help.Me", "Hello", "General"}),
        (["*"], {"Help.Me", "Hello", "General"}),
        (["Hel.*"], {"Help.Me", "Hello"}),
        (["Foo", "Hello"], {"Hello"}),
        (["Help"], set()),
        (["AWS.", "..foo"], set()),
    ],
)
def test_when_attributes_are_asked_for_then_names_and_prefixes_choose(
    names: list[str], chosen: set[str]
) -> None:
    """R44."""
    attributes = dict.fromkeys(["Help.Me", "Hello", "General"], Attribute("String", "x"))
    select = selector(names)

    assert select is not None
    assert set(select(attributes)) == chosen


def test_when_no_attribute_is_asked_for_then_there_is_nothing_to_select() -> None:
    """R44."""
    assert selector([]) is None
