"""The digests, against ones that AWS itself gave."""

import pytest

from gateways.sqs_server.model import Attribute
from gateways.sqs_server.operations.message_attributes import (
    attributes_digest,
    body_digest,
    digest_and_weight,
)

_FROM_AWS = [
    ({"Foo": Attribute("String", "Bar")}, "ae7155c6026991b6d54b11589678bf9c"),
    (
        {
            "Help.Me": Attribute("String", "Me"),
            "Hello": Attribute("String", "There"),
            "General": Attribute("String", "Kenobi"),
        },
        "4c360f3fdafd970e05fae2f149d997f5",
    ),
    ({"timestamp": Attribute("Number", "1493147359900")}, "235c5c510d26fb653d073faed50ae77c"),
    (
        {"timestamp": Attribute("Number.java.lang.Long", "1493147359900")},
        "2e2e4876d8e0bd6b8c2c8f556831c349",
    ),
    (
        {
            "attr1": Attribute(
                "Binary",
                b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01",
            )
        },
        "8cbe4db156db8a94db8b801b7addb984",
    ),
    (
        {
            "AWSTraceHeader": Attribute(
                "String",
                "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1",
            )
        },
        "5ae4d5d7636402d80f4eb6d213245a88",
    ),
]


@pytest.mark.parametrize(("attributes", "digest"), _FROM_AWS)
def test_when_attributes_are_digested_then_it_is_what_aws_gave(
    attributes: dict[str, Attribute], digest: str
) -> None:
    """R44."""
    assert attributes_digest(attributes) == digest


def test_when_a_body_is_digested_then_it_is_what_aws_gave() -> None:
    """R44."""
    assert body_digest(b"message") == "78e731027d8fd50ed642340b7c9a63b3"


def test_when_attributes_are_weighed_then_names_types_and_values_count_as_utf_8() -> None:
    """R44."""
    attributes = {"ä": Attribute("String", "ö"), "b": Attribute("Binary.x", b"123")}

    assert digest_and_weight(attributes)[1] == (2 + 6 + 2) + (1 + 8 + 3)
