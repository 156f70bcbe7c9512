"""What a message's fields are when a request is encoded."""

from msgspec.structs import asdict

from pump.clock import SystemClock
from pump.mapping import Mapper

from .kinds import PlaceOrder


class Noon(SystemClock):
    def time_s(self) -> float:
        return 12.0


def test_when_nothing_is_said_then_id_time_and_type_are_filled_in() -> None:
    mapper = Mapper(clock=Noon())

    first, second = mapper.encode(PlaceOrder("o")), mapper.encode(PlaceOrder("o"))

    assert (first.type, first.created_at_s, first.headers) == ("PlaceOrder", 12.0, {})
    assert first.id != second.id


def test_when_fields_are_given_then_the_message_has_them() -> None:
    given = {
        "id": "i",
        "type": "t",
        "content_type": "application/vnd.acme+json",
        "correlation_id": "c",
        "reply_to": "r",
        "group": "g",
        "deduplication_id": "d",
        "created_at_s": 0.0,
        "headers": {"h": "v"},
    }

    message = Mapper().encode(PlaceOrder("o"), **given)  # type: ignore[arg-type]

    assert asdict(message) == {**given, "body": b'{"order_id":"o","quantity":1}'}


def test_when_the_callers_headers_change_later_then_the_message_does_not() -> None:
    headers = {"a": "1"}
    message = Mapper().encode(PlaceOrder("o"), headers=headers)

    headers["a"] = "2"

    assert message.headers == {"a": "1"}
