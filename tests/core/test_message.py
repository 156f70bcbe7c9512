"""Messages: values that tell nobody what is in them."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pytest
from rich.console import Console

from pump.errors import ConfigurationError
from pump.message import Delivery, Message

SECRET = "hunter2"
MESSAGE = Message(body=SECRET.encode(), id="m-1", type="PlaceOrder", headers={"token": SECRET})
DELIVERY = Delivery(
    message=MESSAGE, queue="orders", receipt=SECRET, attempt=2, lease_expires_at_s=30.0
)


@pytest.mark.parametrize("value", [MESSAGE, DELIVERY])
def test_when_it_is_shown_then_its_ids_are_and_its_content_is_not(value: object) -> None:
    """R57, R61: a repr ends in logs, and so do rich's tracebacks."""
    page = io.StringIO()
    Console(file=page, width=400).print([value])

    for shown in (repr(value), str(value), page.getvalue()):
        assert "m-1" in shown
        assert SECRET not in shown


@pytest.mark.parametrize("name", ["body", "id", "headers"])
def test_when_a_field_is_set_then_it_is_refused(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(MESSAGE, name, "another")


@pytest.mark.parametrize("body", [SECRET, None, 1, bytearray(b"x")])
def test_when_a_body_is_not_bytes_then_it_is_refused_without_telling_it(body: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Message\.body.*encode") as caught:
        Message(body=body)

    assert SECRET not in str(caught.value)


def test_when_a_message_is_pickled_then_it_comes_back_equal() -> None:
    assert pickle.loads(pickle.dumps(MESSAGE)) == MESSAGE


def test_when_a_message_is_delivered_twice_then_the_deliveries_differ() -> None:
    """Compared by identity: each has a lease of its own."""
    again = pickle.loads(pickle.dumps(DELIVERY))

    assert again != DELIVERY
    assert again.message == DELIVERY.message
    assert len({again, DELIVERY}) == 2
