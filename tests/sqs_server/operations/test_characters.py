"""Which characters a message may have."""

import re

import pytest
from hypothesis import given, strategies as st

from gateways.sqs_server.operations.message_attributes import encode_legal

_AS_DOCUMENTED = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_when_a_text_is_checked_then_the_documented_ranges_decide(body: str) -> None:
    """R44."""
    is_legal = _AS_DOCUMENTED.fullmatch(body) is not None

    assert (encode_legal(body) is not None) == is_legal


@pytest.mark.parametrize("body", ["\x00", "\x08", "\x0b", "\x1f", "\ufffe", "\uffff", "\ud800"])
def test_when_a_text_has_what_xml_cannot_carry_then_it_is_refused(body: str) -> None:
    """R44."""
    assert encode_legal(f"before{body}after") is None


@pytest.mark.parametrize(
    "body", ["\t\n\r", "\x7f", "\ud7ff", "\ue000", "\ufffd", "\U0010ffff", "\U0001f600"]
)
def test_when_a_text_is_at_the_edge_of_what_is_allowed_then_it_is_encoded(body: str) -> None:
    """R44."""
    assert encode_legal(body) == body.encode()
