"""What queues and groups are called in NATS: any name can be one, and no two are the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, strategies as st

from gateways.nats.names import MAX_TOKEN, QueueNames, name_of, token_of
from tests.gateways.sqs.messages import texts

names = texts.filter(bool)


@given(names | st.text(min_size=100, max_size=400))
@example("orders.eu")
@example("a b*c>d/e\\f~g%")
@example("é" * 200)
def test_when_any_name_is_a_token_then_nats_takes_it_and_it_can_be_read_back(name: str) -> None:
    token = token_of(name)

    assert re.fullmatch(r"[A-Za-z0-9%_=+@~-]+", token)
    assert len(token) <= MAX_TOKEN
    assert name_of(token) in (name, None)
    assert (name_of(token) is None) == (len(token) > 64 and "%~" in token)


@given(names, names)
def test_when_names_differ_then_so_do_their_tokens(one: str, other: str) -> None:
    assert (token_of(one) == token_of(other)) == (one == other)
    assert (token_of(one * 200) == token_of(other * 200)) == (one * 200 == other * 200)


def test_when_a_queue_is_named_then_its_subjects_follow() -> None:
    names = QueueNames.of("orders")

    assert names.subjects == ["orders", "orders.g.*", "orders.s.*"]
    assert (names.subject(None), names.subject("")) == ("orders", "orders")
    assert names.subject("a.b") == "orders.g.a%2Eb"
    assert names.schedule("x") == "orders.s.x"


@pytest.mark.parametrize(
    ("subject", "token"), [("orders", None), ("orders.g.a", "a"), ("other.g.a", None)]
)
def test_when_a_subject_is_of_a_group_then_its_token_is_known(
    subject: str, token: str | None
) -> None:
    assert QueueNames.of("orders").group_token(subject) == token
