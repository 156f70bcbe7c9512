"""Names that Service Bus takes, and what becomes of the others."""

from __future__ import annotations

import pytest
from hypothesis import given

from gateways.servicebus.names import (
    NO_GROUP,
    checked_name,
    group_of,
    legal_id,
    parent_of,
    sendable_name,
    session_id_of,
)
from pump.errors import ConfigurationError, UnsupportedOperation
from tests.gateways.sqs.messages import texts


@pytest.mark.parametrize("queue", ["o", "orders", "Shop/orders-1.dead_x", "a" * 260])
def test_when_a_queue_can_have_the_name_then_it_is_kept(queue: str) -> None:
    assert checked_name(queue) == queue
    assert checked_name(f"{queue}/$DeadLetterQueue") == f"{queue}/$DeadLetterQueue"


@pytest.mark.parametrize("queue", ["", " ", "-a", "a/", "a b", "ž", "a" * 261, "a?b", "$Dead"])
def test_when_no_queue_can_have_the_name_then_it_is_refused(queue: str) -> None:
    with pytest.raises(ConfigurationError, match="letters"):
        checked_name(queue)


def test_when_a_name_means_dead_letters_then_their_queue_is_known() -> None:
    assert parent_of("orders/$deadletterqueue") == "orders"
    assert parent_of("orders") is None


def test_when_dead_letters_are_to_be_sent_to_then_that_is_refused_with_the_reason() -> None:
    """R76."""
    with pytest.raises(UnsupportedOperation, match="only Service Bus itself"):
        sendable_name("orders/$DeadLetterQueue")


@given(texts, texts)
def test_when_groups_differ_then_so_do_their_sessions(one: str, other: str) -> None:
    assert (session_id_of(one) == session_id_of(other)) == (one == other)


@given(texts)
def test_when_a_group_becomes_a_session_then_it_is_legal_and_read_back(group: str) -> None:
    session_id = session_id_of(group)

    assert session_id is not None
    assert 0 < len(session_id) <= 128
    session_id.encode()
    assert group_of(session_id) in (group, None)


def test_when_there_is_no_group_then_there_is_a_session_for_it() -> None:
    assert session_id_of(None) is None
    assert session_id_of("") == NO_GROUP
    assert group_of(NO_GROUP) == ""
    assert session_id_of(NO_GROUP) != NO_GROUP


@given(texts)
def test_when_any_text_is_a_deduplication_id_then_the_service_takes_it(text: str) -> None:
    assert 0 < len(legal_id(text)) <= 128
    assert legal_id(text).isascii()
